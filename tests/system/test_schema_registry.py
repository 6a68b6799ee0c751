"""Topics that Debezium's connectors wrote with a schema registry, a real one here: read as their JSON would be."""

from __future__ import annotations

import base64
import itertools
import json
import os
import re
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from psql_streamer.errors import SourceRefused
from psql_streamer.model import Batch
from tests.apicurio import ApicurioRegistry
from tests.event_topics import read_rows, source_of
from tests.kafka_reader import Record, consume
from tests.kafka_sinks import create_topic
from tests.registry_records import (
    DECIMAL,
    ENVELOPE,
    KEY,
    PROTO_ENVELOPE,
    PROTO_FILE,
    PROTO_ROW,
    avro,
    envelope,
    framed,
    protobuf,
)
from tests.sections import kafka_section, topics_section
from tests.service import Service
from tests.started_source import started

Pair = tuple[bytes | None, bytes | None]


@pytest.fixture
def topic(kafka: str, topic_prefix: str) -> str:
    """One of one partition; so is that of its copies."""
    create_topic(kafka, copy_of(topic_prefix))
    return create_topic(kafka, topic_prefix)


def copy_of(topic: str) -> str:
    """Where the service writes what a topic holds."""
    return f"{topic}-copy.public.orders"


def produce(kafka: str, topic: str, records: Iterable[Pair], headers: Mapping[str, bytes] | None = None) -> None:
    """Write keys and values, in their order."""
    producer = Producer({"bootstrap.servers": kafka, "linger.ms": 5})
    for key, value in records:
        producer.produce(topic, value, key, headers=dict(headers or {}))
    assert producer.flush(30) == 0


def changes() -> list[dict[str, Any]]:
    """Of rows with ids from 1 on: inserts, updates, a delete."""
    some = [
        envelope(1, name="Zoë 🦆", price=0.1, photo=b"\0\xff", paid=True, changed=-(1 << 53)),
        envelope(2, name='"quoted"\n', price=1e300, photo=b"", paid=False, changed=1_795_000_000_000_001),
        envelope(3, "u", price=-0.0),
        envelope(2**62, "r", name=""),
        envelope(1, "d"),
    ]
    return [*some, *(envelope(number, name=f"n{number}") for number in range(100, 200))]


def id_of(change: Mapping[str, Any]) -> int:
    return int((change["after"] or change["before"])["id"])


def in_avro(registry: ApicurioRegistry, topic: str, some: Iterable[Mapping[str, Any]]) -> list[Pair]:
    """As Debezium writes changes with AvroConverter; a tombstone stands behind a delete."""
    key, value = registry.register(f"{topic}-key", KEY), registry.register(f"{topic}-value", ENVELOPE)
    records: list[Pair] = []
    for change in some:
        name = framed(key, avro(KEY, {"id": id_of(change)}))
        records.append((name, framed(value, avro(ENVELOPE, change))))
        if change["op"] == "d":
            records.append((name, None))
    return records


def in_json(some: Iterable[Mapping[str, Any]]) -> list[Pair]:
    """As Debezium writes the same with JsonConverter, without schemas."""
    records: list[Pair] = []
    for change in some:
        name = b'{"id":%d}' % id_of(change)
        records.append((name, json.dumps(change, default=lambda one: base64.b64encode(one).decode()).encode()))
        if change["op"] == "d":
            records.append((name, None))
    return records


def section(
    kafka: str, topic: str, registry: ApicurioRegistry | None, sink: Mapping[str, Any] = {}, **more: Any
) -> str:
    """A service that copies the topic in the format event. sink: keys of its sink. more: keys of its source."""
    block = {} if registry is None else {"registry": {"url": registry.url, "timeout": "500ms"}}
    copy = kafka_section(kafka, f"{topic}-copy", sources=["hop"], format="event", **sink)
    return topics_section(kafka, [topic], topic, **block, **more) + copy


def copies(kafka: str, topic: str, count: int) -> list[Record]:
    """The records that the service has written."""
    return consume(kafka, [copy_of(topic)], until=lambda records: len(records) >= count, timeout=60)


def column_of(batch: Batch, name: str) -> list[bytes | None]:
    """The values of the new rows of a batch that has one table."""
    [rows] = batch.changes
    at = [column.name for column in rows.relation.columns].index(name)
    return list(rows.after.columns[at].to_pylist())


def ids_and_keys(batches: Iterable[Batch]) -> tuple[list[bytes | None], set[str]]:
    """The ids of all new rows, and the columns that are their keys."""
    found: list[bytes | None] = []
    keys: set[str] = set()
    for batch in batches:
        found += column_of(batch, "id")
        keys |= {column.name for rows in batch.changes for column in rows.relation.columns if column.key}
    return found, keys


def without_place(record: Record) -> tuple[bytes | None, dict[str, Any]]:
    """A record but for what is made of the topic and the offset that it came from."""
    event = json.loads(record.value or b"{}")
    return record.key, {name: one for name, one in event.items() if name not in ("UUID", "Checksum")}


@pytest.mark.behaviour("G7")
def test_records_in_avro_give_the_events_that_the_same_records_in_json_give(
    kafka: str, topic: str, registry: ApicurioRegistry, tmp_path: Path
) -> None:
    plain = create_topic(kafka, f"{topic}-plain")
    create_topic(kafka, copy_of(plain))
    produce(kafka, topic, in_avro(registry, topic, changes()))
    produce(kafka, plain, in_json(changes()))
    (tmp_path / "avro").mkdir()
    (tmp_path / "json").mkdir()
    found = []
    with (
        Service(tmp_path / "avro", section(kafka, topic, registry)) as decoding,
        Service(tmp_path / "json", section(kafka, plain, None)) as other,
    ):
        for service in (decoding, other):
            service.start(wait=False)
        for service, name in ((decoding, topic), (other, plain)):
            found.append([without_place(one) for one in copies(kafka, name, len(changes()))])
            stats = service.stats()["source.hop"]
            assert (stats["tombstones"], stats["tombstone_deletes"]) == (1, 0)
            assert service.stop() == 0
    assert len(found[0]) == len(changes())
    assert found[0] == found[1]
    assert [key for key, _ in found[0][:5]] == [b'{"id":%d}' % id_of(one) for one in changes()[:5]]


@pytest.mark.behaviour("G8")
def test_while_the_registry_is_away_records_of_new_schemas_wait_aloud_and_others_go_on(
    kafka: str, topic: str, registry: ApicurioRegistry, tmp_path: Path
) -> None:
    first = in_avro(registry, topic, [envelope(number) for number in range(1, 6)])
    wider = json.loads(json.dumps(ENVELOPE).replace('"paid"', '"settled"'))
    renamed = envelope(6, settled=True)
    del renamed["after"]["paid"]
    other = framed(registry.register(f"{topic}-value", wider), avro(wider, renamed))
    produce(kafka, topic, first)
    with Service(tmp_path, section(kafka, topic, registry, deadLetterTopic=f"{topic}-dead")) as service:
        service.start()
        copies(kafka, topic, 5)
        registry.stop(kill=True)
        produce(kafka, topic, [*first, (b'{"id":6}', other)])
        assert len(copies(kafka, topic, 10)) == 10
        service.until(lambda: service.status()[0] != 200, "word of the registry")
        assert f"no usable answer from the schema registry {registry.url}" in json.dumps(service.status()[1])
        assert service.stats()["source.hop"]["registry_failures"] > 0
        registry.start()
        last = copies(kafka, topic, 11)[-1]
        service.until(lambda: service.status()[0] == 200, "the service to be well again")
        assert json.loads(last.value or b"")["Columns"]["settled"] is True
        assert service.stats()["source.hop"]["dead_lettered"] == 0
        log = service.tail()
        problems = re.findall("records wait: (.*)", log)
        assert problems[0].startswith("no usable answer from the schema registry")
        assert [one for one, _ in itertools.groupby(problems)] == problems
        assert "records do not wait for the schema registry any more" in log


@pytest.mark.soak
def test_while_registry_and_service_are_killed_each_event_is_committed_once(
    kafka: str, topic: str, registry: ApicurioRegistry, tmp_path: Path
) -> None:
    sink = {"exactlyOnce": True, "transactionalId": topic}
    first, *_ = known = in_avro(registry, topic, [envelope(number) for number in range(1, 6)])
    wider = json.loads(json.dumps(ENVELOPE).replace('"paid"', '"settled"'))
    number = registry.register(f"{topic}-value", wider)
    news = []
    for one in range(6, 9):
        changed = envelope(one, settled=True)
        del changed["after"]["paid"]
        news.append((b'{"id":%d}' % one, framed(number, avro(wider, changed))))
    with Service(tmp_path, section(kafka, topic, registry, sink, instanceId="one")) as service:
        service.start()
        produce(kafka, topic, known)
        copies(kafka, topic, 5)
        registry.stop(kill=True)
        produce(kafka, topic, [first, *news])
        service.until(lambda: service.status()[0] != 200, "word of the registry")
        service.kill()
        service.start(wait=False)
        service.until(
            lambda: "no usable answer from the schema registry" in json.dumps(service.status()[1]), "the same word"
        )
        registry.start()
        service.until(lambda: service.stats().get("source.hop", {}).get("lag_records") == 0, "the end of the topic")
        assert service.stop() == 0
    found = consume(kafka, [copy_of(topic)], isolation_level="read_committed")
    assert [json.loads(one.value or b"")["Columns"]["id"] for one in found] == [1, 2, 3, 4, 5, 1, 6, 7, 8]


@pytest.mark.behaviour("G7")
def test_a_record_that_no_schema_reads_is_put_aside_as_it_came(
    kafka: str, topic: str, registry: ApicurioRegistry
) -> None:
    [(key, value), *_] = in_avro(registry, topic, [envelope(1)])
    assert key is not None
    assert value is not None
    broken = {
        "schema 999999 of its value: the registry does not have it": (key, framed(999_999, b"x")),
        "its value is not of schema": (key, value[:-3]),
        "bytes are left over": (key, value + b"\0"),
        "its key is not of schema": (key + b"\0", value),
        "schema 888888 of its key: the registry does not have it (40403); keys = false": (framed(888_888, b"x"), None),
    }
    produce(kafka, topic, [(key, value), *broken.values(), (key, value)], {"trace": b"1"})
    dead = f"{topic}-dead"
    block = {"url": registry.url}
    with started(source_of(kafka, topic, registry=block, deadLetterTopic=dead)) as source:
        assert len(read_rows(source, 2)) > 0
        assert source.stats()["dead_lettered"] == len(broken)
    letters = sorted(consume(kafka, [dead]), key=lambda one: int(one.headers["dead_letter_offset"] or b""))
    assert [(one.key, one.value) for one in letters] == list(broken.values())
    for letter, reason in zip(letters, broken, strict=True):
        assert reason in str(letter.headers["dead_letter_reason"])
        assert letter.headers["trace"] == b"1"


def test_without_a_registry_such_a_record_stops_the_source_with_what_to_set(
    kafka: str, topic: str, registry: ApicurioRegistry
) -> None:
    produce(kafka, topic, [(None, framed(12, b"x"))])
    said = r"begins as a record of a schema registry does \(schema 12\): set \[source\.hop\.registry\]"
    with started(source_of(kafka, topic)) as source, pytest.raises(SourceRefused, match=said):
        read_rows(source, 1)


def test_a_tombstone_behind_which_a_source_starts_is_explained_by_records_in_avro(
    kafka: str, topic: str, registry: ApicurioRegistry
) -> None:
    records = in_avro(registry, topic, [envelope(1), envelope(2)])
    produce(kafka, topic, [*records, (records[0][0], None)])
    start = {"startAt": {topic: {"0": 2}}}
    with started(source_of(kafka, topic, registry={"url": registry.url}, **start)) as source:
        [batch] = read_rows(source, 1)
        assert source.stats()["tombstone_deletes"] == 1
    [rows] = batch.changes
    assert [column.to_pylist() for column in rows.before.columns] == [[b"1"]]


def test_a_decimal_is_an_exact_number_and_comes_out_as_one(kafka: str, topic: str, registry: ApicurioRegistry) -> None:
    priced = json.loads(json.dumps(ENVELOPE).replace('["null", "double"]', json.dumps(["null", DECIMAL])))
    schema = registry.register(f"{topic}-value", priced)
    amount = 123_456_789_012_345_678_901_230
    row = avro(priced, envelope(1, price=amount.to_bytes(11, "big", signed=True)))
    produce(kafka, topic, [(b'{"id":1}', framed(schema, row))])
    with started(source_of(kafka, topic, registry={"url": registry.url})) as source:
        [batch] = read_rows(source, 1)
    assert column_of(batch, "price") == [b"1234567890123456789012.30"]


@pytest.mark.behaviour("G7")
def test_records_in_protobuf_give_the_rows_that_the_same_records_in_json_give(
    kafka: str, topic: str, registry: ApicurioRegistry
) -> None:
    registry.register(f"{topic}-row", PROTO_ROW, "PROTOBUF")
    of_row = {"name": PROTO_FILE, "subject": f"{topic}-row", "version": 1}
    number = registry.register(f"{topic}-value", PROTO_ENVELOPE, "PROTOBUF", [of_row])
    row = envelope(1, name="Zoë 🦆", price=0.1, photo=b"\0\xff", paid=False)
    key, value = in_json([row])[0]
    produce(kafka, topic, [(key, framed(number, protobuf(row))), (key, value)])
    with started(source_of(kafka, topic, registry={"url": registry.url})) as source:
        batches = read_rows(source, 2)
    assert ids_and_keys(batches) == ([b"1", b"1"], {"id"})
    for name in row["after"]:
        first, second = [one for batch in batches for one in column_of(batch, name)]
        assert first == second


def test_records_of_json_schema_lose_their_frame_alone(kafka: str, topic: str, registry: ApicurioRegistry) -> None:
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {"op": {}}}
    number = registry.register(f"{topic}-value", schema, "JSON")
    records = in_json([envelope(1), envelope(2)])
    produce(kafka, topic, [(framed(number, key or b""), framed(number, value or b"")) for key, value in records])
    with started(source_of(kafka, topic, registry={"url": registry.url})) as source:
        batches = read_rows(source, 2)
    assert ids_and_keys(batches) == ([b"1", b"2"], {"id"})


def test_a_registry_that_hangs_keeps_no_one_from_stopping(
    kafka: str, topic: str, registry: ApicurioRegistry, tmp_path: Path
) -> None:
    produce(kafka, topic, in_avro(registry, topic, [envelope(1)]))
    with Service(tmp_path, section(kafka, topic, registry)) as service:
        os.kill(registry.pid, signal.SIGSTOP)
        try:
            service.start(wait=False)
            service.until(lambda: "no answer in time" in json.dumps(service.status()[1]), "word of the registry")
            assert service.stop() == 0
        finally:
            os.kill(registry.pid, signal.SIGCONT)
        service.start()
        assert len(copies(kafka, topic, 1)) == 1
