"""Delivery, when brokers answer with errors."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError

from psql_streamer.errors import SinkRefused, SinkUnavailable
from sinks.kafka.delivery import Delivery
from sinks.kafka.outgoing import Outgoing
from sinks.kafka.shipment import Shipment
from tests.kafka_reader import consume
from tests.kafka_sinks import by_partition, options
from tests.mock_brokers import INIT_PRODUCER_ID, PRODUCE, MockBrokers

PASSING = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)


@pytest.fixture
def brokers() -> Iterator[MockBrokers]:
    with MockBrokers() as cluster:
        yield cluster


@pytest.fixture
def delivery(brokers: MockBrokers) -> Iterator[Delivery]:
    made = Delivery(options(brokers.bootstrap).make_properties(), 20.0, logging.getLogger(__name__))
    yield made
    made.close()


def numbers(topic: str, count: int, first: int = 0) -> Shipment:
    texts = pa.array([b"%d" % i for i in range(first, first + count)], pa.binary())
    places = (np.arange(count) % 4).astype(np.int32)
    return Shipment(Outgoing((topic,), np.zeros(count, np.int32), texts, texts, places))


def found(brokers: MockBrokers, topic: str) -> dict[int, list[int]]:
    """Partition -> the numbers in it, in order."""
    records = by_partition(consume(brokers.bootstrap, [topic]))
    return {partition: [int(record.value or b"") for record in held] for partition, held in records.items()}


@pytest.mark.parametrize("code", PASSING, ids=lambda code: str(KafkaError(code).name()))
def test_what_passes_is_tried_again_by_the_client_and_changes_no_order(
    brokers: MockBrokers, delivery: Delivery, code: int
) -> None:
    delivery.read_metadata("t", 10)
    brokers.answer(PRODUCE, code, 0, code, code)
    assert delivery.deliver(numbers("t", 2000)) == {}
    for partition, held in found(brokers, "t").items():
        assert list(dict.fromkeys(held)) == list(range(partition, 2000, 4))


def test_a_refusal_is_told_with_what_to_do(brokers: MockBrokers, delivery: Delivery) -> None:
    delivery.read_metadata("t", 10)
    brokers.answer(PRODUCE, *[KafkaError.TOPIC_AUTHORIZATION_FAILED] * 20)
    with pytest.raises(SinkRefused, match=r'topic "t".*(?i:authorization failed).*grant'):
        delivery.deliver(numbers("t", 100))


def test_an_error_that_is_fatal_to_the_client_costs_the_client_and_no_record(
    brokers: MockBrokers, delivery: Delivery
) -> None:
    assert delivery.deliver(numbers("t", 40)) == {}
    brokers.answer(PRODUCE, *[KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER] * 8)
    shipment = numbers("t", 40, first=40)
    with pytest.raises(SinkUnavailable, match="failed for good"):
        delivery.deliver(shipment)
    brokers.answer_well(PRODUCE)
    assert delivery.deliver(shipment) == {}
    for partition, held in found(brokers, "t").items():
        assert list(dict.fromkeys(held)) == list(range(partition, 80, 4))


def test_a_producer_that_gets_no_identity_waits_for_one(brokers: MockBrokers, delivery: Delivery) -> None:
    brokers.answer(INIT_PRODUCER_ID, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE)
    assert delivery.deliver(numbers("t", 10)) == {}
    assert sorted(number for held in found(brokers, "t").values() for number in held) == list(range(10))


def test_the_client_sleeps_while_brokers_take_their_time(brokers: MockBrokers, delivery: Delivery) -> None:
    delivery.read_metadata("t", 10)
    brokers.delay(1, 100)
    values = pa.array([b"%04d" % number + bytes(50_000) for number in range(60)], pa.binary())
    everywhere = np.zeros(60, np.int32)
    delivery.deliver(Shipment(Outgoing(("t",), everywhere, values, values, everywhere)))
    elapsed, used = time.monotonic(), time.process_time()
    delivery.deliver(Shipment(Outgoing(("t",), everywhere, values, values, everywhere)))
    elapsed, used = time.monotonic() - elapsed, time.process_time() - used
    assert elapsed > 0.5, "these records were to need several requests"
    assert used < 0.3 * elapsed
    records = by_partition(consume(brokers.bootstrap, ["t"]))[0]
    assert [int((record.value or b"")[:4]) for record in records] == [*range(60), *range(60)]
