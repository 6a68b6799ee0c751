"""Reading whole topics: from the beginning to where they end now."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import cast

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition


@dataclass(frozen=True, slots=True)
class Record:
    """One record as it lies in Kafka; value None is a tombstone. timestamp: in milliseconds."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, str | bytes | None]
    timestamp: int = field(default=-1, compare=False)


def consume(
    bootstrap: str,
    topics: Iterable[str],
    *,
    until: Callable[[list[Record]], bool] | None = None,
    timeout: float = 30.0,
    isolation_level: str = "read_uncommitted",
) -> list[Record]:
    """All records of the topics, each partition in its order.

    Without `until`: up to the watermarks of the moment of the call; a topic that does not exist is empty.
    With `until`: as many as it takes until it is true of what was read. AssertionError when `timeout` seconds
    do not suffice: a reader that gives up early would hide a loss.
    """
    wanted = set(topics)
    deadline = time.monotonic() + timeout
    records: list[Record] = []
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "tests",  # required by the client, unused: partitions are assigned, nothing is committed
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation_level,
            "fetch.wait.max.ms": 20,
            "topic.metadata.refresh.interval.ms": 500,
            "log_level": 0,
        }
    )
    try:
        assigned: set[tuple[str, int]] = set()
        ended: set[tuple[str, int]] = set()
        while True:
            if until is not None or not assigned:
                assigned |= _assign_new(consumer, wanted, assigned)
            if until is not None and until(records):
                return records
            if until is None and ended >= assigned:
                return records
            assert time.monotonic() < deadline, (
                f"{len(records)} records of {sorted(wanted)} after {timeout} s, and that is not all"
            )
            for message in consumer.consume(10_000, 0.1):
                error = message.error()
                if error is None:
                    records.append(_record(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add((str(message.topic()), cast("int", message.partition())))
                else:
                    raise AssertionError(f"consumer: {error.str()}")
    finally:
        consumer.close()


def _record(message: Message) -> Record:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    headers, (_, timestamp) = dict(message.headers() or ()), message.timestamp()
    return Record(topic, partition, offset, message.key(), message.value(), headers, timestamp)


def _assign_new(consumer: Consumer, wanted: set[str], assigned: set[tuple[str, int]]) -> set[tuple[str, int]]:
    metadata = consumer.list_topics(timeout=10)
    found = {
        (name, partition)
        for name, topic in metadata.topics.items()
        if name in wanted and topic.error is None
        for partition in topic.partitions
    }
    new = found - assigned
    if new:
        consumer.incremental_assign([TopicPartition(*place, OFFSET_BEGINNING) for place in sorted(new)])
    return new
