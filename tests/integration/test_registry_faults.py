"""A Kafka source whose schema registry fails, hangs or answers what a real one rarely does: a server made for that."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from psql_streamer.errors import SourceRefused
from psql_streamer.model import Batch
from sources.kafka import framed as framed_records
from sources.kafka.source import KafkaSource
from tests.event_topics import commits, committed, read_rows, source_of
from tests.kafka_sinks import create_topic
from tests.registry_records import ENVELOPE, KEY, avro, envelope, framed
from tests.registry_server import RegistryServer, registry_server
from tests.sections import topics_section
from tests.source_at_work import wait_for
from tests.started_source import started

VALUE_ID, KEY_ID, OTHER_ID = 1, 2, 3


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with registry_server() as running:
        running.add(VALUE_ID, ENVELOPE)
        running.add(KEY_ID, KEY)
        yield running


@pytest.fixture
def topic(kafka: str, topic_prefix: str) -> str:
    return create_topic(kafka, topic_prefix)


def write(
    kafka: str, topic: str, numbers: Sequence[int], schema: int = VALUE_ID, partition: int = 0, name: str = ""
) -> None:
    """Inserts of rows with these ids."""
    producer = Producer({"bootstrap.servers": kafka, "linger.ms": 5})
    for number in numbers:
        key, value = avro(KEY, {"id": number}), avro(ENVELOPE, envelope(number, name=name))
        producer.produce(topic, framed(schema, value), framed(KEY_ID, key), partition=partition)
    assert producer.flush(30) == 0


def reading(kafka: str, topic: str, server: RegistryServer, **more: Any) -> KafkaSource:
    return source_of(kafka, topic, registry={"url": server.url, "timeout": "500ms"}, **more)


def rows(batches: Sequence[Batch]) -> list[int]:
    """The ids of the rows, by their commit numbers."""
    return sorted(commit // 8 for commit in commits(batches))


@pytest.mark.soak
@pytest.mark.behaviour("G8")
def test_partitions_whose_records_wait_for_the_registry_go_to_another_instance_at_once(
    kafka: str, topic_prefix: str, server: RegistryServer
) -> None:
    create_topic(kafka, topic_prefix, partitions=2)
    group = uuid.uuid4().hex
    for partition in (0, 1):
        write(kafka, topic_prefix, [partition * 10 + number for number in (1, 2, 3)], partition=partition)
    with registry_server(server.answers) as well, started(reading(kafka, topic_prefix, server, group=group)) as first:
        server.fault = lambda: (500, b"")
        wait_for(lambda: first.read(0.1) is None and not first.status().ok, "word of the registry")
        assert "it answers with the status 500" in first.status().reason
        with started(reading(kafka, topic_prefix, well, group=group)) as second:
            there = read_rows(second, 3)
            assert rows(there) in ([1, 2, 3], [11, 12, 13])
            server.fault = None
            here = read_rows(first, 3)
            assert sorted(rows(here) + rows(there)) == [1, 2, 3, 11, 12, 13]
            wait_for(lambda: first.read(0.1) is None and first.status().ok, "an end of the trouble")
            assert second.read(0.5) is None


def test_records_in_front_of_those_that_wait_are_given_and_committed(
    kafka: str, topic: str, server: RegistryServer
) -> None:
    write(kafka, topic, [1, 2])
    write(kafka, topic, [3], OTHER_ID)
    write(kafka, topic, [4])
    server.answers[f"/schemas/ids/{OTHER_ID}"] = 503, b""
    with started(reading(kafka, topic, server, group=topic)) as source:
        first = read_rows(source, 2)
        source.confirm(first[-1].position)
        wait_for(lambda: source.read(0.1) is None and not source.status().ok, "word of the registry")
        wait_for(lambda: committed(kafka, topic, topic) == 2, "the commit of what is in front")
        server.add(OTHER_ID, ENVELOPE)
        assert (rows(first), rows(read_rows(source, 2))) == ([1, 2], [3, 4])


def test_a_registry_that_refuses_the_client_stops_the_source_behind_what_is_in_front(
    kafka: str, topic: str, server: RegistryServer
) -> None:
    write(kafka, topic, [1, 2])
    write(kafka, topic, [3], OTHER_ID)
    server.answers[f"/schemas/ids/{OTHER_ID}"] = 401, {"error_code": 40101}
    with started(reading(kafka, topic, server, group=topic)) as source:
        position = read_rows(source, 2)[-1].position
        assert source.read(0.1) is None
        assert "waits until every sink has what is in front of it" in source.status().reason
        source.confirm(position)
        with pytest.raises(SourceRefused, match=r"refuses this client \(401\).*look at user and password"):
            wait_for(lambda: source.read(0.1) is not None, "the refusal")
        wait_for(lambda: committed(kafka, topic, topic) == 2, "the commit of what is in front")


def test_a_batch_has_no_more_json_than_batch_bytes_and_nothing_is_left_out(
    kafka: str, topic: str, server: RegistryServer
) -> None:
    name = "\1" * 500  # a byte in Avro, and six in JSON
    write(kafka, topic, range(1, 201), name=name)
    with started(reading(kafka, topic, server, batchBytes="10kB")) as source:
        batches = read_rows(source, 200)
    assert rows(batches) == list(range(1, 201))
    json_bytes = len(json.dumps(envelope(200, name=name), separators=(",", ":")))
    assert max(map(len, batches)) <= 10 * 1024 // json_bytes + 1
    assert len(server.asked) == 2


def test_what_a_slow_registry_has_said_is_given_before_it_has_said_all(
    kafka: str, topic: str, server: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(framed_records, "_DECODE_SECONDS", 0.2)
    answer = server.answer

    def answer_slowly(path: str, login: str | None) -> tuple[int, Any]:
        time.sleep(0.05)
        return answer(path, login)

    monkeypatch.setattr(server, "answer", answer_slowly)
    for number in range(100, 130):
        server.add(number, ENVELOPE)
        write(kafka, topic, [number], number)
    with started(reading(kafka, topic, server, group=topic)) as source:
        batches = read_rows(source, 30)
        source.confirm(batches[-1].position)
        wait_for(lambda: committed(kafka, topic, topic) == 30, "the commit of all")
    assert rows(batches) == list(range(100, 130))
    assert max(map(len, batches)) < 10
    assert server.asked.count("/schemas/ids/100") == 1


def test_records_wait_for_a_schema_that_the_registry_has_a_moment_later(
    kafka: str, topic: str, server: RegistryServer
) -> None:
    write(kafka, topic, [1])
    write(kafka, topic, [2], OTHER_ID)
    with started(reading(kafka, topic, server, group=topic, deadLetterTopic=f"{topic}-dead")) as source:
        first = read_rows(source, 1)
        wait_for(lambda: source.read(0.1) is None and not source.status().ok, "word of the schema")
        assert f"does not have schema {OTHER_ID} yet" in source.status().reason
        server.add(OTHER_ID, ENVELOPE)
        assert (rows(first), rows(read_rows(source, 1))) == ([1], [2])
        assert source.stats()["dead_lettered"] == 0


def test_check_tells_of_the_registry(kafka: str, topic: str, server: RegistryServer) -> None:
    assert [str(one) for one in reading(kafka, topic, server).check()] == []
    server.fault = lambda: (403, b"")
    [found] = reading(kafka, topic, server).check()
    assert str(found).startswith(f"error: the schema registry {server.url} refuses this client (403): look at user")


def test_schemas_that_headers_name_are_read_and_the_headers_do_not_go_out(
    kafka: str, topic: str, server: RegistryServer
) -> None:
    guids = {"__value_schema_id": uuid.uuid4(), "__key_schema_id": uuid.uuid4()}
    server.add(str(guids["__value_schema_id"]), ENVELOPE)
    server.add(str(guids["__key_schema_id"]), KEY)
    headers = {name: b"\1" + guid.bytes for name, guid in guids.items()} | {"trace": b"x"}
    producer = Producer({"bootstrap.servers": kafka})
    producer.produce(topic, avro(ENVELOPE, envelope(5)), avro(KEY, {"id": 5}), headers=headers)
    assert producer.flush(30) == 0
    with started(reading(kafka, topic, server)) as source:
        [batch] = read_rows(source, 1)
    [changes] = batch.changes
    assert [column.name for column in changes.relation.columns if column.key] == ["id"]
    assert changes.after.addresses is not None
    assert changes.after.addresses.field("headers").to_pylist() == [[(b"trace", b"x")]]
    assert sorted(server.asked) == sorted(f"/schemas/guids/{guid}" for guid in guids.values())


def test_keys_that_only_look_framed_stay_as_they_are_with_keys_off(
    kafka: str, topic: str, server: RegistryServer
) -> None:
    producer = Producer({"bootstrap.servers": kafka})
    producer.produce(topic, framed(VALUE_ID, avro(ENVELOPE, envelope(5))), (1 << 25).to_bytes(8, "big"))
    assert producer.flush(30) == 0
    block = {"url": server.url, "keys": False}
    with started(source_of(kafka, topic, registry=block)) as source:
        assert rows(read_rows(source, 1)) == [5]
    assert server.asked == [f"/schemas/ids/{VALUE_ID}"]


def test_a_topic_is_captured_by_its_schemas(kafka: str, topic: str, server: RegistryServer, tmp_path: Path) -> None:
    write(kafka, topic, [1, 2])
    config = tmp_path / "psql-streamer.toml"
    config.write_text(
        f'http = "127.0.0.1:0"\nlmdb = "{tmp_path}/positions"\n'
        + topics_section(kafka, [topic], topic, registry={"url": server.url})
        + '[sink.nothing]\ntype = "stub_discard"\nsources = ["hop"]\n'
    )
    asked = ["--source", "hop", "--table", "orders", "--existing", "-n", "2"]
    command = [sys.executable, "-m", "psql_streamer", "capture", "-c", str(config), *asked]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [one["after"]["id"] for one in lines if "after" in one] == ["1", "2"], ran.stderr


@pytest.mark.parametrize("block", [False, True])
def test_the_modules_of_registries_are_loaded_with_the_block_alone(block: bool) -> None:
    section = {"type": "kafka", "hosts": ["k:9092"], "topics": ["t"], "groupID": "g"}
    section |= {"registry": {"url": "http://registry"}} if block else {}
    program = (
        "import sys\n"
        "from sources.kafka.source import KafkaSource\n"
        f"KafkaSource('hop', KafkaSource.Options.model_validate({section!r}))\n"
        "print(*(name for name in ('psql_streamer.registry.client', 'google.protobuf') if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == (["psql_streamer.registry.client"] if block else [])
