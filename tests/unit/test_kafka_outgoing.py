"""What handing a batch over costs: by the records, and a call for each topic."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from psql_streamer.errors import SinkUnavailable
from psql_streamer.model import Index
from sinks.kafka import clients, outgoing, producer
from sinks.kafka.outgoing import Outgoing, runs
from sinks.kafka.producer import Producer
from sinks.kafka.shipment import Shipment

TOPICS, RECORDS = 50, 1000


@pytest.fixture
def client() -> Iterator[Producer]:
    """A client that has no brokers."""
    made = Producer({"queue.buffering.max.messages": str(RECORDS - 1)}, lambda _: None, logging.getLogger(__name__))
    yield made
    made.close()


def records(headers: tuple[str, ...] = ()) -> Outgoing:
    column = pa.array([b"%d" % i for i in range(RECORDS)], pa.binary())
    topics = (np.arange(RECORDS) * 7 % TOPICS).astype(np.int32)
    names = tuple(f"t{number}" for number in range(TOPICS))
    return Outgoing(names, topics, column, column, np.zeros(RECORDS, np.int32), dict.fromkeys(headers, column))


def test_records_are_handed_over_topic_by_topic_and_in_order_within_each() -> None:
    at = Shipment(records()).places_waiting()
    assert sorted(at.tolist()) == list(range(RECORDS))
    found = [(number, at[start:end].tolist()) for number, start, end in runs(records(), at)]
    assert found == [(number, [i for i in range(RECORDS) if i * 7 % TOPICS == number]) for number in range(TOPICS)]


@pytest.mark.parametrize(("headers", "columns"), [((), 2), (("a", "b"), 4)], ids=["without headers", "with headers"])
def test_every_value_is_laid_out_once_whatever_the_number_of_topics(
    client: Producer, monkeypatch: pytest.MonkeyPatch, headers: tuple[str, ...], columns: int
) -> None:
    laid_out: list[int] = []
    memory = outgoing._memory

    def counted(column: pa.BinaryArray, at: Index) -> Any:
        laid_out.append(len(at))
        return memory(column, at)

    monkeypatch.setattr(outgoing, "_memory", counted)
    some = records(headers)
    client.produce(some, Shipment(some).places_waiting())
    assert laid_out == [RECORDS] * columns


def test_each_topic_is_one_call(client: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def produce_batch(topic: Any, partition: int, flags: int, address: int, count: int) -> int:
        calls.append(count)
        return count

    functions = SimpleNamespace(**(vars(producer.rdkafka_at_once) | {"produce_batch": produce_batch}))
    monkeypatch.setattr(producer, "rdkafka_at_once", functions)
    assert not client.produce(records(), Shipment(records()).places_waiting()).any()
    assert calls == [RECORDS // TOPICS] * TOPICS


def test_behind_a_full_queue_no_topic_gets_a_record(client: Producer) -> None:
    errors = client.produce(records(), Shipment(records()).places_waiting())
    assert errors.nonzero()[0].tolist() == [RECORDS - 1]
    assert client.produce(records(), Shipment(records()).places_waiting()).all()


def test_no_client_is_made_behind_a_close(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "TOPICS_A_CLIENT", 0)
    made: list[Producer] = []

    def make() -> Producer:
        made.append(Producer({}, lambda _: None, logging.getLogger(__name__)))
        return made[-1]

    several = clients.Clients(make, logging.getLogger(__name__))
    several.close()
    with pytest.raises(SinkUnavailable, match="closed"):
        several.produce(records(), Shipment(records()).places_waiting())
    assert [client._client for client in made] == [None, None]
