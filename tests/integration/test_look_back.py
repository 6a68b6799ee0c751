"""Records that lie in front of others, from a real Kafka."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from psql_streamer.event_reader.parsed import Message
from sources.kafka.look_back import LookBack
from sources.kafka.options import KafkaSourceOptions
from tests.kafka_sinks import create_topic


@pytest.fixture
def topic(kafka: str, topic_prefix: str) -> str:
    create_topic(kafka, topic_prefix)
    return topic_prefix


def produce(kafka: str, topic: str, *records: dict[str, Any], **properties: Any) -> None:
    producer = Producer({"bootstrap.servers": kafka, "linger.ms": 5, **properties})
    for record in records:
        producer.produce(topic, **record)
    assert producer.flush(30) == 0


@contextmanager
def look_back(bootstrap: str, topic: str, **section: Any) -> Iterator[LookBack]:
    given = {"type": "kafka", "hosts": [bootstrap], "topics": [topic], "groupID": uuid.uuid4().hex}
    one = LookBack(KafkaSourceOptions.model_validate(given | section))
    yield one
    one.close()


def record_at(kafka: str, topic: str, offset: int) -> Message:
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": uuid.uuid4().hex})
    consumer.assign([TopicPartition(topic, 0, offset)])
    found = consumer.poll(30)
    consumer.close()
    return cast("Message", found)


@pytest.mark.parametrize(
    "large", [{"headers": [("large", b"h" * 100_000)]}, {"key": b"k" * 100_000}, {"value": b"v" * 100_000}]
)
def test_records_that_are_held_take_no_more_than_a_batch(kafka: str, topic: str, large: dict[str, Any]) -> None:
    produce(kafka, topic, *({"value": b"%d" % number} | large for number in range(30)), {"key": b"gone"})
    with look_back(kafka, topic, batchBytes="1MB") as one:
        found = one.find_records_before(record_at(kafka, topic, 30))
    assert [message.offset() for message in found] == list(range(30 - len(found), 30))
    assert 8 <= len(found) <= 10


def test_nothing_but_tombstones_is_passed_over_for_as_long_as_they_come(kafka: str, topic: str) -> None:
    """A fetch that takes one batch of five records makes it slow."""
    small = {"batch.num.messages": 5}
    produce(kafka, topic, {"value": b"row"}, *({"key": b"gone"} for _ in range(95_000)), **small)
    fetches = {"max.partition.fetch.bytes": 1000, "fetch.max.bytes": 1000, "message.max.bytes": 1000}
    with look_back(kafka, topic, timeout="500ms", kafka=fetches) as one:
        found = one.find_records_before(record_at(kafka, topic, 95_000))
    assert [message.value() for message in found] == [b"row"]
