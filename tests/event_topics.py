"""Topics with events made by hand, and Kafka sources that read them."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from psql_streamer.model import Batch, Position
from sources.kafka.options import KafkaSourceOptions
from sources.kafka.source import KafkaSource

Event = Mapping[str, Any]


def make_topic(bootstrap: str, topic: str, partitions: int = 1, **config: str) -> None:
    """A topic that exists when this returns."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=config)
    admin.create_topics([made])[topic].result(30)


def event(number: int, table: str = "orders", action: str = "insert", **columns: Any) -> dict[str, Any]:
    """An event of the format `event`: the only change of its transaction, whose commit LSN is the number."""
    return {
        "Host": "localhost",
        "Database": "shop",
        "Schema": "public",
        "Table": table,
        "Action": action,
        "Timestamp": "2026-11-22T10:00:00.5Z",
        "XID": number + 700,
        "CommitLSN": number,
        "WALPosition": number,
        "Seq": 0,
        "UUID": str(uuid.UUID(int=number)),
        "Checksum": "00000000",
        "Columns": {"id": number, **columns},
    }


def write(bootstrap: str, topic: str, events: Iterable[Event | bytes | None], partition: int = -1) -> None:
    """Write these, keyed by their id, and wait until they are there. Bytes are written as they are."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for one in events:
        value = one if isinstance(one, bytes | None) else json.dumps(one).encode()
        key = json.dumps({"id": one["Columns"].get("id")}).encode() if isinstance(one, Mapping) else b"{}"
        where = {"partition": partition} if partition >= 0 else {}
        producer.produce(topic, value, key, **where)
    assert producer.flush(30) == 0


def source_of(bootstrap: str, *topics: str, group: str = "", **section: Any) -> KafkaSource:
    """A source, not started. Without a group it has one of its own."""
    given = {"type": "kafka", "hosts": bootstrap.split(","), "topics": topics, "groupID": group or uuid.uuid4().hex}
    return KafkaSource("hop", KafkaSourceOptions.model_validate(given | section))


@contextmanager
def started(source: KafkaSource, position: Position | None = None) -> Iterator[KafkaSource]:
    """As the pipeline starts it."""
    try:
        source.stream_identity()
        source.start(position)
        yield source
    finally:
        source.stop()


def read_rows(source: KafkaSource, count: int, timeout: float = 30.0) -> list[Batch]:
    """Batches with so many changes in all."""
    batches: list[Batch] = []
    deadline = time.monotonic() + timeout
    while sum(map(len, batches)) < count:
        assert time.monotonic() < deadline, f"{sum(map(len, batches))} changes of {count}"
        if (batch := source.read(0.2)) is not None:
            batches.append(batch)
    return batches


def commits(batches: Iterable[Batch]) -> list[int]:
    """The commit number of each change, in their order."""
    return [
        int(batch.transactions.commit[tx])
        for batch in batches
        for changes in batch.changes
        for tx in changes.tx.tolist()
    ]


def wait_for(condition: Callable[[], object], what: str, timeout: float = 30.0) -> None:
    """Wait until something is the case."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout} s for {what}"
        time.sleep(0.02)
