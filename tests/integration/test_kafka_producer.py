"""The producer that takes columns: what it hands to librdkafka, and what comes back."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException

from psql_streamer.errors import SinkUnavailable
from sinks.kafka.delivery import Delivery
from sinks.kafka.outgoing import Outgoing
from sinks.kafka.producer import Failed, Producer
from sinks.kafka.shipment import Shipment
from tests.kafka_reader import Record, consume
from tests.kafka_sinks import by_partition, create_topic, random_bytes

LOG = logging.getLogger(__name__)


def outgoing(topic: str, rows: list[tuple[bytes | None, bytes | None]], partition: int = -1) -> Outgoing:
    return Outgoing(
        (topic,),
        np.zeros(len(rows), np.int32),
        pa.array([key for key, _ in rows], pa.binary()),
        pa.array([value for _, value in rows], pa.binary()),
        np.full(len(rows), partition, np.int32),
    )


def everything(records: Outgoing) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.arange(len(records))


def finish(producer: Producer) -> list[Failed]:
    failed: list[Failed] = []
    deadline = time.monotonic() + 30
    while producer.outstanding:
        failed += (one for one in producer.flush(0.1) if isinstance(one, Failed))
        assert time.monotonic() < deadline
    return failed


@pytest.fixture
def producer(kafka: str) -> Iterator[Producer]:
    made = Producer({"bootstrap.servers": kafka, "enable.idempotence": "true"}, lambda _: None, LOG)
    yield made
    made.close()


@pytest.fixture
def delivery(kafka: str) -> Iterator[Delivery]:
    made = Delivery({"bootstrap.servers": kafka, "compression.type": "none"}, 10.0, LOG)
    yield made
    made.close()


def test_null_is_no_empty_value_in_arrays_with_and_without_bytes(
    kafka: str, topic_prefix: str, producer: Producer
) -> None:
    rows: list[tuple[bytes | None, bytes | None]] = [(b"1", b""), (b"2", None), (None, b""), (b"", b"x")]
    for some in (rows, rows[:1], rows[1:2], rows[2:3]):
        records = outgoing(topic_prefix, some)
        assert not producer.produce(records, everything(records)).any()
    assert finish(producer) == []
    found = [(r.key, r.value) for r in consume(kafka, [topic_prefix])]
    assert sorted(map(repr, found)) == sorted(map(repr, rows + rows[:3]))


def test_records_have_the_timestamps_that_are_given_or_that_of_their_writing(
    kafka: str, topic_prefix: str, producer: Producer
) -> None:
    given = [1_700_000_000_123, -1, 1, 1_600_000_000_000]
    records = outgoing(topic_prefix, [(b"k", b"%d" % at) for at in range(4)])
    before = int(time.time() * 1000)  # librdkafka cuts the rest off
    assert not producer.produce(replace(records, timestamps=np.array(given)), everything(records)).any()
    assert finish(producer) == []
    found = [record.timestamp for record in consume(kafka, [topic_prefix])]
    assert before <= found[1] <= time.time() * 1000 + 1
    assert [found[0], found[2], found[3]] == [given[0], given[2], given[3]]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()], ids=str)
@pytest.mark.parametrize("headed", [False, True], ids=["without headers", "with headers"])
def test_slices_of_either_width_say_what_they_hold(
    kafka: str, topic_prefix: str, producer: Producer, kind: pa.DataType, headed: bool
) -> None:
    topic = create_topic(kafka, topic_prefix, partitions=3)
    numbers = [b"%d" % i for i in range(3000)]
    column = pa.array([b"before", *numbers, b"behind"], kind)[1:-1]
    holes = pa.array([None if i % 3 else number for i, number in enumerate(numbers)], kind)
    records = Outgoing(
        (topic,),
        np.zeros(3000, np.int32),
        column,
        column,
        (np.arange(3000) % 3).astype(np.int32),
        {"place": column, "third": holes} if headed else {},
    )
    odd = np.arange(1, 3000, 2)
    assert not producer.produce(records, odd).any()
    assert finish(producer) == []
    found = by_partition(consume(kafka, [topic]))
    for partition, of_partition in found.items():
        assert [r.value for r in of_partition] == [b"%d" % i for i in odd.tolist() if i % 3 == partition]
        assert all(r.key == r.value and r.headers == expected_headers(r, headed) for r in of_partition)
    assert sum(map(len, found.values())) == len(odd)


def expected_headers(record: Record, headed: bool) -> dict[str, bytes]:
    number = record.value or b""
    third = {} if int(number) % 3 else {"third": number}
    return {"place": number, **third} if headed else {}


def test_what_was_handed_over_may_be_forgotten_at_once(kafka: str, topic_prefix: str, producer: Producer) -> None:
    def hand_over(letter: bytes) -> None:
        records = outgoing(topic_prefix, [(b"%d" % i, letter * 1000) for i in range(1000)])
        assert not producer.produce(records, everything(records)).any()

    for letter in (b"a", b"b", b"c"):
        hand_over(letter)
        gc.collect()
    assert finish(producer) == []
    values = [r.value for r in consume(kafka, [topic_prefix])]
    assert {value: values.count(value) for value in values} == {letter * 1000: 1000 for letter in (b"a", b"b", b"c")}


@pytest.mark.parametrize("headed", [False, True], ids=["without headers", "with headers"])
def test_a_full_queue_takes_none_of_the_later_records(kafka: str, topic_prefix: str, headed: bool) -> None:
    properties = {"bootstrap.servers": kafka, "queue.buffering.max.messages": "10", "linger.ms": "100"}
    producer = Producer(properties, lambda _: None, LOG)
    records = outgoing(topic_prefix, [(b"k", b"%d" % i) for i in range(25)])
    if headed:
        records = Outgoing(*(getattr(records, name) for name in Outgoing.__slots__[:5]), {"h": records.values})
    left = everything(records)
    while len(left):
        errors = producer.produce(records, left)
        taken = int(np.argmax(errors != 0)) if errors.any() else len(left)
        assert 0 < taken <= 10
        assert set(errors[taken:].tolist()) <= {KafkaError._QUEUE_FULL}
        left = left[taken:]
        assert finish(producer) == []
    producer.close()
    assert [r.value for r in consume(kafka, [topic_prefix])] == [b"%d" % i for i in range(25)]


def test_a_failed_record_is_named_by_its_place(kafka: str, topic_prefix: str, producer: Producer) -> None:
    topic = create_topic(kafka, topic_prefix, cleanup_policy="compact")
    records = outgoing(topic, [(b"k", b"fits"), (None, b"has no key")])
    assert not producer.produce(records, np.array([1])).any()
    ((place, error),) = finish(producer)
    assert place == 1
    assert error.code() == KafkaError.INVALID_RECORD


def test_a_partition_that_the_topic_does_not_have_costs_the_client_and_nothing_else(
    kafka: str, topic_prefix: str, delivery: Delivery
) -> None:
    topic = create_topic(kafka, topic_prefix, partitions=2)
    assert delivery.read_metadata(topic, 10)[topic].partitions == 2
    assert delivery.deliver(Shipment(outgoing(topic, [(b"k", b"first")], partition=1))) == {}
    with pytest.raises(SinkUnavailable, match=r"1 records were not delivered.* to topic .*(?i:unknown partition)"):
        delivery.deliver(Shipment(outgoing(topic, [(b"k", b"lost")], partition=7)))
    assert delivery.deliver(Shipment(outgoing(topic, [(b"k", b"second")], partition=1))) == {}
    assert [r.value for r in consume(kafka, [topic])] == [b"first", b"second"]


def test_neighbours_of_a_bad_record_keep_their_order_in_every_partition(
    kafka: str, topic_prefix: str, delivery: Delivery
) -> None:
    topic = create_topic(kafka, topic_prefix, partitions=3, max_message_bytes="3000")
    large = random_bytes(4000)
    values = [large if i == 100 else b"%d" % i for i in range(300)]
    whole = outgoing(topic, [(b"%d" % (i % 3), value) for i, value in enumerate(values)])
    records = Outgoing((topic,), whole.topics, whole.keys, whole.values, (np.arange(300) % 3).astype(np.int32))
    assert list(delivery.deliver(Shipment(records))) == [100]
    for partition, of_partition in by_partition(consume(kafka, [topic])).items():
        last = {r.value: r.offset for r in of_partition}
        expected = [value for i, value in enumerate(values) if i % 3 == partition and i != 100]
        assert sorted(last, key=lambda value: last[value]) == expected


def test_a_property_that_is_none_is_refused_with_the_clients_words() -> None:
    with pytest.raises(KafkaException, match=r'No such configuration property: "no\.such"'):
        Producer({"no.such": "1"}, lambda _: None, LOG)
    with pytest.raises(KafkaException, match=r"ssl\.ca\.location"):
        Producer({"security.protocol": "ssl", "ssl.ca.location": "/nowhere"}, lambda _: None, LOG)


def test_a_closed_producer_says_so_and_may_be_closed_again(producer: Producer) -> None:
    producer.close()
    producer.close()
    with pytest.raises(SinkUnavailable, match="closed"):
        producer.poll()


def test_what_the_client_logs_reaches_the_log(kafka: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        producer = Producer({"bootstrap.servers": kafka, "debug": "broker", "log_level": "7"}, lambda _: None, LOG)
        producer.read_metadata(None, 10)
        producer.poll()
        producer.close()
    assert "Connected" in caplog.text
