from __future__ import annotations

import socket
from pathlib import Path

import pytest
from confluent_kafka import Producer

from psql_streamer.embedded.kafka import EmbeddedKafka
from psql_streamer.embedded.kafka_jars import provide_kafka_jars
from psql_streamer.embedded.mock_kafka import MockKafka
from psql_streamer.errors import StreamerError
from tests.kafka_reader import Record, consume


def test_what_is_produced_is_consumed_with_key_and_headers(kafka: str, topic_prefix: str) -> None:
    topic = f"{topic_prefix}.a"
    produce(kafka, topic, 3)
    records = consume(kafka, [topic])
    assert sorted((record.key, record.value) for record in records) == [(b"%d" % i, b"v%d" % i) for i in range(3)]
    assert records[0].headers == {"h": b"x"}


def test_a_mock_cluster_takes_and_gives_records(mock_kafka: MockKafka) -> None:
    produce(mock_kafka.bootstrap, "a", 3)
    assert len(consume(mock_kafka.bootstrap, ["a"])) == 3


def test_a_topic_that_does_not_exist_is_not_the_end_of_waiting(kafka: str, topic_prefix: str) -> None:
    def never(records: list[Record]) -> bool:
        return bool(records)

    with pytest.raises(AssertionError, match="0 records"):
        consume(kafka, [f"{topic_prefix}.none"], until=never, timeout=1)


@pytest.mark.soak
def test_topics_survive_a_killed_broker(broker: EmbeddedKafka, topic_prefix: str) -> None:
    produce(broker.bootstrap, topic_prefix, 100)
    broker.restart(kill=True)
    records = consume(broker.bootstrap, [topic_prefix])
    assert len(records) == 100
    assert {record.partition for record in records} == {0, 1, 2}


def test_jars_that_cannot_be_had_are_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    # A proxy that refuses every connection stands for a network that is not there.
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort={port}")
        with pytest.raises(StreamerError, match="KAFKA_BROKERS"):
            provide_kafka_jars()
    assert list((tmp_path / "psql-streamer" / "kafka").iterdir()) == []


def produce(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for i in range(count):
        producer.produce(topic, key=b"%d" % i, value=b"v%d" % i, headers={"h": b"x"})
    assert producer.flush(30) == 0
