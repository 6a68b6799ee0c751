"""Topics with events made by hand, and Kafka sources that read them."""

from __future__ import annotations

import ctypes
import json
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from psql_streamer.model import Batch
from sinks.kafka import librdkafka
from sinks.kafka.librdkafka import rdkafka
from sources.kafka.options import KafkaSourceOptions
from sources.kafka.source import KafkaSource

Event = Mapping[str, Any]


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


def write_in_transactions(bootstrap: str, topic: str, events: Iterable[tuple[Event, bool]]) -> None:
    """Write each in a transaction of its own, which is committed or aborted."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for one, good in events:
        producer.begin_transaction()
        producer.produce(topic, json.dumps(one).encode(), b'{"id":1}')
        producer.flush(30)
        if good:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)


def write_with_header(bootstrap: str, topic: str, value: bytes, name: bytes) -> None:
    """Write a record with a header whose name may be any bytes, which confluent_kafka's producer does not take."""
    client = librdkafka.make_client(librdkafka.make_configuration({"bootstrap.servers": bootstrap}))
    texts = [ctypes.create_string_buffer(text) for text in (topic.encode(), value, name, b"")]
    topic_at, value_at, name_at, nothing_at = map(ctypes.addressof, texts)
    arguments = np.zeros(3, librdkafka.FIELD)
    arguments["kind"] = [_TOPIC_NAME, librdkafka.FIELD_VALUE, librdkafka.FIELD_HEADER]
    arguments["pointer"], arguments["second"] = [topic_at, value_at, name_at], [0, len(value), nothing_at]
    assert rdkafka.produceva(client, arguments.ctypes.data, len(arguments)) is None
    assert rdkafka.flush(client, 30_000) == 0
    rdkafka.destroy(client)


_TOPIC_NAME = 1
"""RD_KAFKA_VTYPE_TOPIC, of rd_kafka_produceva."""


def source_of(bootstrap: str, *topics: str, group: str = "", **section: Any) -> KafkaSource:
    """A source, not started. Without a group it has one of its own."""
    given = {"type": "kafka", "hosts": bootstrap.split(","), "topics": topics, "groupID": group or uuid.uuid4().hex}
    return KafkaSource("hop", KafkaSourceOptions.model_validate(given | section))


def read_rows(source: KafkaSource, count: int, timeout: float = 30.0) -> list[Batch]:
    """Batches with so many changes in all."""
    batches: list[Batch] = []
    deadline = time.monotonic() + timeout
    while sum(map(len, batches)) < count:
        assert time.monotonic() < deadline, f"{sum(map(len, batches))} changes of {count}"
        if (batch := source.read(0.2)) is not None:
            batches.append(batch)
    return batches


def committed(bootstrap: str, group: str, topic: str, partition: int = 0) -> int:
    """The group's offset."""
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition)])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (found,) = admin.list_consumer_group_offsets([asked])[group].result(30).topic_partitions
    return int(found.offset)


def commits(batches: Iterable[Batch]) -> list[int]:
    """The commit number of each change, in their order."""
    return [
        int(batch.transactions.commit[tx])
        for batch in batches
        for changes in batch.changes
        for tx in changes.tx.tolist()
    ]
