"""Kafka sinks fed with records made by hand."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported, but not in its __all__
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from psql_streamer.errors import SinkError, SinkUnavailable
from psql_streamer.events.records import Records
from psql_streamer.interfaces import SinkMemory
from psql_streamer.lsn import Lsn
from psql_streamer.model import NO_TRANSACTIONS, POSTGRESQL, Batch, RowOp, SourceInfo
from psql_streamer.pgoutput.wal_position import WalPosition
from sinks.kafka.options import KafkaSinkOptions
from sinks.kafka.sink import KafkaSink
from tests.kafka_reader import Record

BATCH = Batch(
    SourceInfo(POSTGRESQL, "db1", "localhost", "shop"),
    WalPosition(Lsn(0x1000)).position,
    NO_TRANSACTIONS,
)

Row = tuple[str, bytes | None, bytes | None]
"""Topic, key, value."""


class Canned:
    """An encoder that gives the records it was made with, whatever the batch holds."""

    def __init__(self, rows: Sequence[Row], headers: dict[str, list[bytes | None]] | None = None) -> None:
        topic_names = tuple(dict.fromkeys(topic for topic, _, _ in rows))
        self.records = Records(
            topic_names=topic_names,
            topics=np.array([topic_names.index(topic) for topic, _, _ in rows], np.int32),
            keys=pa.array([key for _, key, _ in rows], pa.binary()),
            values=pa.array([value for _, _, value in rows], pa.binary()),
            source=BATCH.source,
            commit=np.full(len(rows), 0x16B374D848, np.uint64),
            seq=np.arange(len(rows)),
            op=np.full(len(rows), RowOp.INSERT, np.uint8),
            table_names=("public.orders",),
            tables=np.zeros(len(rows), np.int32),
            headers={name: pa.array(column, pa.binary()) for name, column in (headers or {}).items()},
        )

    def make_readable(self) -> Canned:
        """Itself."""
        return self

    def encode(self, batch: Batch) -> Records:  # noqa: ARG002 - it is canned
        return self.records

    def describe_wait(self) -> str:
        """Nothing."""
        return ""

    def interrupt(self) -> None: ...

    def stop(self) -> None: ...


def options(bootstrap: str, **section: Any) -> KafkaSinkOptions:
    given = {"type": "kafka", "sources": ["db1"], "hosts": bootstrap.split(","), "topicFallback": "events"}
    return KafkaSinkOptions.model_validate(given | section)


@contextmanager
def started(
    bootstrap: str, encoder: Canned | None, memory: SinkMemory | None = None, **section: Any
) -> Iterator[KafkaSink]:
    sink = KafkaSink("kafka1", options(bootstrap, **section), encoder)
    if memory is not None:
        sink.attach(memory)
    sink.start()
    try:
        yield sink
    finally:
        sink.stop()


def create_topic(bootstrap: str, topic: str, partitions: int = 1, **config: str) -> str:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result()
    return topic


def set_topic_option(bootstrap: str, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})  # named, because its futures die with it
    admin.incremental_alter_configs([resource])[resource].result()


def by_partition(records: list[Record]) -> dict[int, list[Record]]:
    ordered: dict[int, list[Record]] = {}
    for record in sorted(records, key=lambda record: record.offset):
        ordered.setdefault(record.partition, []).append(record)
    return ordered


def values_by_topic(records: list[Record]) -> dict[str, list[bytes | None]]:
    """Of each topic of one partition, in order."""
    values: dict[str, list[bytes | None]] = {}
    for record in sorted(records, key=lambda record: record.offset):
        values.setdefault(record.topic, []).append(record.value)
    return values


def wait_until(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not so after {seconds} s"
        time.sleep(0.02)


def write_until_it_works(
    sink: KafkaSink, batch: Batch = BATCH, seconds: float = 60.0, passing: type[SinkError] = SinkUnavailable
) -> None:
    """passing: the error that is waited out."""
    call_until_it_works(partial(sink.write, batch), seconds, passing)


def call_until_it_works(
    write: Callable[[], None], seconds: float = 60.0, passing: type[SinkError] = SinkUnavailable
) -> None:
    """passing: the error that is waited out."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return write()
        except passing:
            assert time.monotonic() < deadline


def random_bytes(count: int) -> bytes:
    return np.random.default_rng(1).bytes(count)
