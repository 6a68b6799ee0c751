"""The format `debezium-avro`, with a real registry: its records are read by the schemas that the registry has."""

from __future__ import annotations

import io
import json
import os
import signal
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fastavro
import pytest

from tests.apicurio import ApicurioRegistry
from tests.database import Database
from tests.kafka_reader import Record, consume
from tests.kafka_sinks import create_topic
from tests.registry_level import set_level
from tests.registry_server import registry_server
from tests.sections import kafka_section, postgres_section, topics_section
from tests.service import Service

TABLE = "CREATE TABLE t (id int PRIMARY KEY, note text, price numeric(10,2), tags text[], at timestamptz);"
PUBLISHED = TABLE + "CREATE PUBLICATION p FOR TABLE t;"


@pytest.fixture
def topic(kafka: str, topic_prefix: str) -> str:
    """That of the table t, of one partition."""
    return create_topic(kafka, f"{topic_prefix}.public.t")


def prefix_of(topic: str) -> str:
    """The topicPrefix with which the table has it."""
    return topic.removesuffix(".public.t")


def avro_section(kafka: str, topic: str, registry: ApicurioRegistry, **options: Any) -> str:
    """options: of the format."""
    given = {"registry": {"url": registry.url, "timeout": "500ms"}} | options
    return kafka_section(kafka, topic, format="debezium-avro", formatOptions=given)


def give_ids(topic: str) -> dict[str, Any]:
    """Answers of a registry: the same ids for whatever topic."""
    return {f"POST /subjects/{topic}-{part}/versions": {"id": number} for number, part in enumerate(("key", "value"))}


class Reader:
    """Reads records by the schemas of a registry."""

    def __init__(self, registry: ApicurioRegistry) -> None:
        self._registry = registry
        self._schemas: dict[int, Any] = {}

    def read(self, data: bytes | None) -> Any:
        if data is None:
            return None
        assert data[0] == 0
        number, stream = int.from_bytes(data[1:5], "big"), io.BytesIO(data[5:])
        if number not in self._schemas:
            with urllib.request.urlopen(f"{self._registry.url}/schemas/ids/{number}", timeout=30) as answer:
                self._schemas[number] = fastavro.parse_schema(json.loads(json.load(answer)["schema"]))
        read = fastavro.schemaless_reader(stream, self._schemas[number], None)
        assert not stream.read()
        return read

    def read_pairs(self, records: Sequence[Record]) -> list[tuple[Any, Any]]:
        """Keys and values."""
        return [(self.read(one.key), self.read(one.value)) for one in records]


def versions(registry: ApicurioRegistry, subject: str) -> list[int]:
    with urllib.request.urlopen(f"{registry.url}/subjects/{subject}/versions", timeout=30) as answer:
        return list(json.load(answer))


def ids(pairs: Sequence[tuple[Any, Any]]) -> list[int]:
    return [value["after"]["id"] for _, value in pairs]


@pytest.mark.behaviour("A1")
def test_records_are_read_by_the_schemas_of_the_registry_and_a_new_column_is_a_new_version(
    database: Database, kafka: str, topic: str, registry: ApicurioRegistry, tmp_path: Path
) -> None:
    database.execute(PUBLISHED)
    with Service(tmp_path, postgres_section(database) + avro_section(kafka, prefix_of(topic), registry)) as service:
        service.start()
        database.execute("INSERT INTO t VALUES (1, 'Zoë', 12.50, '{a,NULL}', '2026-11-28 12:00:00+00')")
        database.execute("UPDATE t SET note = NULL; DELETE FROM t")
        database.execute("ALTER TABLE t ADD COLUMN more int; INSERT INTO t VALUES (2, 'b', NULL, NULL, NULL, 7)")
        service.until_durable(database)
        assert service.stop() == 0
    found = Reader(registry).read_pairs(consume(kafka, [topic]))
    assert [key for key, _ in found] == [{"id": 1}] * 4 + [{"id": 2}]
    values = [value for _, value in found]
    assert [None if value is None else value["op"] for value in values] == ["c", "u", "d", None, "c"]
    assert (
        values[0]["after"].items() >= {"note": "Zoë", "tags": ["a", None], "at": "2026-11-28T12:00:00.000000Z"}.items()
    )
    assert str(values[0]["after"]["price"]) == "12.50"
    assert (values[1]["after"]["note"], values[2]["before"]["id"]) == (None, 1)
    assert ("more" in values[0]["after"], values[4]["after"]["more"]) == (False, 7)
    assert (versions(registry, f"{topic}-key"), versions(registry, f"{topic}-value")) == ([1], [1, 2])


@pytest.mark.behaviour("A4")
def test_a_key_whose_type_was_changed_is_read_with_its_value(
    database: Database, kafka: str, topic: str, registry: ApicurioRegistry, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE t (id numeric(10,2) PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t")
    with Service(tmp_path, postgres_section(database) + avro_section(kafka, prefix_of(topic), registry)) as service:
        service.start()
        database.execute("INSERT INTO t VALUES (1.5); ALTER TABLE t ALTER id TYPE numeric(10,3)")
        database.execute("INSERT INTO t VALUES (2.5)")
        service.until_durable(database)
        assert service.stop() == 0
    keys = [str(key["id"]) for key, _ in Reader(registry).read_pairs(consume(kafka, [topic]))]
    assert keys == ["1.50", "2.500"]


@pytest.mark.behaviour("A1")
def test_another_instance_reads_what_this_one_wrote(
    database: Database, kafka: str, topic: str, registry: ApicurioRegistry, tmp_path: Path
) -> None:
    database.execute(PUBLISHED)
    first = postgres_section(database) + avro_section(kafka, prefix_of(topic), registry)
    sinks = {"sources": ["hop"], "format": "event"}
    hop = topics_section(kafka, [topic], topic, registry={"url": registry.url})
    with Service(tmp_path, first + hop + kafka_section(kafka, f"{topic}-copy", "copy", **sinks)) as service:
        service.start()
        database.execute("INSERT INTO t SELECT i, 'n' || i, i / 4.0, ARRAY['x'], now() FROM generate_series(1, 500) i")
        copies = consume(kafka, [f"{topic}-copy.public.t"], until=lambda records: len(records) >= 500, timeout=60)
    rows = [json.loads(one.value or b"")["Columns"] for one in copies]
    assert sorted((row["id"], row["note"], row["price"], row["tags"]) for row in rows) == [
        (number, f"n{number}", number / 4, ["x"]) for number in range(1, 501)
    ]


@pytest.mark.behaviour("A2")
def test_while_the_registry_is_away_rows_of_a_new_schema_wait_aloud_and_come_once_when_it_is_back(
    database: Database, kafka: str, topic: str, registry: ApicurioRegistry, tmp_path: Path
) -> None:
    database.execute(PUBLISHED)
    with Service(tmp_path, postgres_section(database) + avro_section(kafka, prefix_of(topic), registry)) as service:
        service.start()
        database.execute("INSERT INTO t (id) VALUES (1)")
        service.until_durable(database)
        registry.stop(kill=True)
        database.execute("INSERT INTO t (id) VALUES (2)")
        service.until_durable(database)  # its schema is known
        database.execute("ALTER TABLE t ADD COLUMN more int; INSERT INTO t (id, more) VALUES (3, 30)")
        service.until(lambda: "schema registry" in json.dumps(service.status()[1]), "word of the registry")
        service.kill()
        service.start(wait=False)
        service.until(lambda: "schema registry" in json.dumps(service.status()[1]), "word of the registry")
        registry.start()
        service.until_durable(database)
        assert service.stop() == 0
    assert ids(Reader(registry).read_pairs(consume(kafka, [topic]))) == [1, 2, 3]


@pytest.mark.behaviour("A2")
def test_with_exactly_once_a_registry_that_is_away_gives_up_no_transaction(
    database: Database, kafka: str, topic: str, tmp_path: Path
) -> None:
    database.execute(PUBLISHED)
    with registry_server(give_ids(topic)) as server:
        options = {"registry": {"url": server.url}}
        once = {"exactlyOnce": True, "transactionalId": topic}
        sink = kafka_section(kafka, prefix_of(topic), format="debezium-avro", formatOptions=options, **once)
        with Service(tmp_path, postgres_section(database) + sink) as service:
            service.start()
            server.fault = lambda: (503, {})
            database.execute("INSERT INTO t (id) VALUES (1)")
            service.until(lambda: service.stats()["sink.k"]["retries"] >= 2, "two attempts")
            server.fault = None
            service.until_durable(database)
            assert service.stats()["sink.k"]["transactions_written_again"] == 0
            assert service.stop() == 0
    assert len(consume(kafka, [topic])) == 1


@pytest.mark.soak
@pytest.mark.behaviour("A3")
def test_a_change_of_a_table_that_the_registry_refuses_stops_the_sink_before_anything_of_it_is_written(
    database: Database, kafka: str, topic: str, registry: ApicurioRegistry, tmp_path: Path
) -> None:
    database.execute(PUBLISHED)
    with Service(tmp_path, postgres_section(database) + avro_section(kafka, prefix_of(topic), registry)) as service:
        service.start()
        database.execute("INSERT INTO t (id) VALUES (1)")
        service.until_durable(database)
        set_level(registry, f"{topic}-value", "BACKWARD")
        database.execute("ALTER TABLE t ALTER note TYPE int USING 0; INSERT INTO t (id, note) VALUES (2, 5)")
        assert service.wait() == 1
        said = service.tail()
        assert f"{topic}-value" in said
        assert "BACKWARD" in said
        assert len(consume(kafka, [topic])) == 1
        set_level(registry, f"{topic}-value", "NONE")
        service.start()
        service.until_durable(database)
        assert service.stop() == 0
    assert ids(Reader(registry).read_pairs(consume(kafka, [topic]))) == [1, 2]


@pytest.mark.behaviour("A3")
def test_schemas_that_may_not_be_registered_stop_the_sink_unless_they_are_there(
    database: Database, kafka: str, topic: str, registry: ApicurioRegistry, tmp_path: Path
) -> None:
    database.execute(PUBLISHED)
    allowed, forbidden = (
        postgres_section(database) + avro_section(kafka, prefix_of(topic), registry, autoRegister=allows)
        for allows in (True, False)
    )
    with Service(tmp_path, forbidden) as service:
        service.start()
        database.execute("INSERT INTO t (id) VALUES (1)")
        assert service.wait() == 1
        assert f"does not have the subject {topic}-key" in service.tail()
        assert "autoRegister = true" in service.tail()
    with Service(tmp_path, allowed) as service:
        service.start()
        service.until_durable(database)
        assert service.stop() == 0
    with Service(tmp_path, forbidden) as service:
        service.start()
        database.execute("INSERT INTO t (id) VALUES (2)")
        service.until_durable(database)
        assert service.stop() == 0
    assert ids(Reader(registry).read_pairs(consume(kafka, [topic]))) == [1, 2]


@pytest.mark.behaviour("A3")
def test_a_server_of_another_registry_stops_the_sink_before_two_tables_have_one_id(
    database: Database, kafka: str, topic: str, tmp_path: Path
) -> None:
    database.execute(f"{TABLE} CREATE TABLE u (id int PRIMARY KEY, x int); CREATE PUBLICATION p FOR ALL TABLES")

    with (
        registry_server(give_ids(topic)) as first,
        registry_server(give_ids(f"{prefix_of(topic)}.public.u")) as other,
    ):
        options = {"registry": {"url": [first.url, other.url]}}
        sink = kafka_section(kafka, prefix_of(topic), format="debezium-avro", formatOptions=options)
        with Service(tmp_path, postgres_section(database) + sink) as service:
            service.start()
            database.execute("INSERT INTO t (id) VALUES (1)")
            service.until_durable(database)
            first.fault = lambda: (503, {})
            database.execute("INSERT INTO u VALUES (1, 1)")
            assert service.wait() == 1
            said = service.tail()
    assert f"the schema registry {other.url} gives the id 0 to a schema of the subject" in said
    assert f"of the subject {topic}-key: readers take records of one for those of the other" in said
    assert consume(kafka, [f"{prefix_of(topic)}.public.u"]) == []


def test_several_tables_share_a_topic_under_the_names_of_their_records(
    database: Database, kafka: str, topic: str, registry: ApicurioRegistry, tmp_path: Path
) -> None:
    database.execute(
        "CREATE TABLE a (id int PRIMARY KEY, x int); CREATE TABLE b (id text PRIMARY KEY, y text);"
        "CREATE PUBLICATION p FOR TABLE a, b;"
    )
    sink = avro_section(kafka, topic, registry, subject="topicRecord")
    sink = sink.replace("topicPrefix", "topicFallback")
    with Service(tmp_path, postgres_section(database) + sink) as service:
        service.start()
        database.execute("INSERT INTO a VALUES (1, 2); INSERT INTO b VALUES ('k', 'v')")
        service.until_durable(database)
        assert service.stop() == 0
    values = [value["after"] for _, value in Reader(registry).read_pairs(consume(kafka, [topic]))]
    assert sorted(values, key=len) == sorted([{"id": 1, "x": 2}, {"id": "k", "y": "v"}], key=len)
    assert versions(registry, f"{topic}-db1.public.a.Envelope") == [1]


def test_a_registry_that_hangs_is_told_of_and_keeps_no_one_from_stopping(
    database: Database, kafka: str, topic: str, registry: ApicurioRegistry, tmp_path: Path
) -> None:
    database.execute(PUBLISHED)
    sections = postgres_section(database) + avro_section(kafka, prefix_of(topic), registry).replace("500ms", "1m")
    with Service(tmp_path, f'drainTimeout = "1s"\n{sections}') as service:
        os.kill(registry.pid, signal.SIGSTOP)
        try:
            service.start()
            database.execute("INSERT INTO t (id) VALUES (1)")
            waits = f"has asked the schema registry for 1 s, now for schema 1 of this batch, of the subject {topic}-key"
            service.until(lambda: waits in json.dumps(service.status()[1]), "word of it")
            assert service.stop() == 0
            assert "left behind" not in service.tail()
        finally:
            os.kill(registry.pid, signal.SIGCONT)
        service.start()
        service.until_durable(database)
    assert ids(Reader(registry).read_pairs(consume(kafka, [topic]))) == [1]
