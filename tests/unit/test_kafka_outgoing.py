"""What handing a batch over costs: by the records, and a call for each topic."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from psql_streamer import batching
from psql_streamer.errors import SinkUnavailable
from psql_streamer.model import NO_RECORD_TIME, Index
from sinks.kafka import clients, outgoing, producer
from sinks.kafka.outgoing import Outgoing, find_runs, lay_out
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
    at = Shipment(records()).list_waiting()
    assert sorted(at.tolist()) == list(range(RECORDS))
    found = [(number, at[start:end].tolist()) for number, start, end in find_runs(records(), at)]
    assert found == [(number, [i for i in range(RECORDS) if i * 7 % TOPICS == number]) for number in range(TOPICS)]


@pytest.mark.parametrize(("headers", "columns"), [((), 2), (("a", "b"), 4)], ids=["without headers", "with headers"])
def test_every_value_is_laid_out_once_whatever_the_number_of_topics(
    client: Producer, monkeypatch: pytest.MonkeyPatch, headers: tuple[str, ...], columns: int
) -> None:
    laid_out: list[int] = []
    locate = outgoing.locate

    def counted(column: pa.BinaryArray, at: Index) -> Any:
        laid_out.append(len(at))
        return locate(column, at)

    monkeypatch.setattr(outgoing, "locate", counted)
    some = records(headers)
    client.produce(some, Shipment(some).list_waiting())
    assert laid_out == [RECORDS] * columns


def test_each_topic_is_one_call(client: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def produce_batch(topic: Any, partition: int, flags: int, address: int, count: int) -> int:
        calls.append(count)
        return count

    functions = SimpleNamespace(**(vars(producer.rdkafka_at_once) | {"produce_batch": produce_batch}))
    monkeypatch.setattr(producer, "rdkafka_at_once", functions)
    assert not client.produce(records(), Shipment(records()).list_waiting()).any()
    assert calls == [RECORDS // TOPICS] * TOPICS


def test_behind_a_full_queue_no_topic_gets_a_record(client: Producer) -> None:
    errors = client.produce(records(), Shipment(records()).list_waiting())
    assert errors.nonzero()[0].tolist() == [RECORDS - 1]
    assert client.produce(records(), Shipment(records()).list_waiting()).all()


def test_no_client_is_made_behind_a_close(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "TOPICS_A_CLIENT", 0)
    made: list[Producer] = []

    def make() -> Producer:
        made.append(Producer({}, lambda _: None, logging.getLogger(__name__)))
        return made[-1]

    several = clients.Clients(make, logging.getLogger(__name__))
    several.close()
    with pytest.raises(SinkUnavailable, match="closed"):
        several.produce(records(), Shipment(records()).list_waiting())
    assert [client._client for client in made] == [None, None]


@pytest.mark.parametrize("most_bytes", [None, 3], ids=["in one array", "keys that one array cannot hold"])
def test_joined_records_are_those_of_all_parts_one_behind_the_other(
    monkeypatch: pytest.MonkeyPatch, most_bytes: int | None
) -> None:
    if most_bytes is not None:
        monkeypatch.setattr(outgoing, "_MOST_RECORDS_BYTES", most_bytes)
    parts = [
        part(("a", "b"), [0, 1, 0], [b"k", None, b""], [b"1", b"", None]),
        part(("c",), [0], [b"key"], [b"22"], note=[b"n"], timestamps=[7]),
        part(("b",), [], [], []),
        part(("b", "a"), [1, 0], [b"x", b"y"], [b"3", b"4"], note=[None, b"m"]),
    ]
    whole = outgoing.join(parts)
    assert [whole.topic_names[topic] for topic in whole.topics] == ["a", "b", "a", "c", "a", "b"]
    assert whole.timestamps is not None
    assert whole.timestamps.tolist() == [NO_RECORD_TIME, NO_RECORD_TIME, NO_RECORD_TIME, 7, *[NO_RECORD_TIME] * 2]
    assert held(whole.keys) == [b"k", None, b"", b"key", b"x", b"y"]
    assert held(whole.values) == [b"1", b"", None, b"22", b"3", b"4"]
    assert held(whole.headers["note"]) == [None, None, None, b"n", None, b"m"]
    assert outgoing.join(parts[:1]) is parts[0]


def test_values_of_joined_records_are_not_copied() -> None:
    one, other = part(("a",), [0], [b"k"], [b"first"]), part(("a",), [0], [b"k"], [b"second"])
    whole = outgoing.join([one, other])
    apart = [int(outgoing.locate(each.values, np.array([0]))[0][0]) for each in (one, other)]
    assert outgoing.locate(whole.values, np.array([0, 1]))[0].tolist() == apart


def part(
    names: tuple[str, ...],
    topics: list[int],
    keys: list[bytes | None],
    values: list[bytes | None],
    note: list[bytes | None] | None = None,
    timestamps: list[int] | None = None,
) -> Outgoing:
    """Values are a slice, as those of a part of a batch are."""
    sliced = pa.array([b"before", *values, b"behind"], pa.binary()).slice(1, len(values))
    headers = {} if note is None else {"note": pa.array(note, pa.binary())}
    times = None if timestamps is None else np.array(timestamps, np.int64)
    nowhere = np.full(len(topics), -1, np.int32)
    return Outgoing(names, np.array(topics, np.int32), pa.array(keys, pa.binary()), sliced, nowhere, headers, times)


def held(column: outgoing.Bytes) -> list[bytes | None]:
    """Read where the client reads."""
    addresses, sizes = outgoing.locate(column, np.arange(len(column)))
    places = zip(addresses.tolist(), sizes.tolist(), strict=True)
    return [ctypes.string_at(address, size) if address else None for address, size in places]


@pytest.mark.parametrize("rows", [1, 5, batching.FEW_ROWS])
def test_few_records_are_laid_out_as_many_are(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    values = pa.array([b"", b"a", b"bc"] * RECORDS, pa.binary())[1 : RECORDS + 1]
    keys = pa.array([b"%d" % place for place in range(RECORDS)], pa.binary())
    some = Outgoing(("t",), np.zeros(RECORDS, np.int32), keys, values, np.arange(RECORDS, dtype=np.int32) % 7)
    at = np.arange(RECORDS)[3 :: RECORDS // rows][:rows]
    few = lay_out(some, at)
    monkeypatch.setattr(batching, "FEW_ROWS", 0)
    assert few.tobytes() == lay_out(some, at).tobytes()
    few["error"][0] = 1  # librdkafka writes there


def test_few_records_of_which_one_lacks_a_value_or_is_of_another_batch_are_laid_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys, topics, partitions = pa.array([b"1", b"2"], pa.binary()), np.zeros(2, np.int32), np.zeros(2, np.int32)
    lacking = Outgoing(("t",), topics, keys, pa.array([b"a", None], pa.binary()), partitions)
    pieces = pa.chunked_array([pa.array([b"a"], pa.binary()), pa.array([b"b"], pa.binary())])
    in_pieces = Outgoing(("t",), topics, keys, pieces, partitions)
    found = [lay_out(some, np.arange(2)) for some in (lacking, in_pieces)]
    assert [one["value_size"].tolist() for one in found] == [[1, 0], [1, 1]]
    assert found[0]["value"].tolist()[1] == 0, "NULL"
    monkeypatch.setattr(batching, "FEW_ROWS", 0)
    assert [one.tobytes() for one in found] == [lay_out(some, np.arange(2)).tobytes() for some in (lacking, in_pieces)]
