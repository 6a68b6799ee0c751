"""Which records wait again behind one that failed, and which were found to lie before what they should follow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError

from sinks.kafka.outgoing import Outgoing
from sinks.kafka.producer import Failed, Written
from sinks.kafka.shipment import Shipment, add_followers

TAKEN = np.zeros(1, np.int32)
FAILURE = KafkaError(KafkaError._TIMED_OUT)


def outgoing(keys: Sequence[bytes | None], partitions: Sequence[int], topics: Sequence[int] = ()) -> Outgoing:
    return Outgoing(
        ("a", "b"),
        np.array(topics or [0] * len(keys), np.int32),
        pa.array(keys, pa.binary()),
        pa.array(keys, pa.binary()),
        np.array(partitions, np.int32),
    )


@pytest.mark.parametrize(
    ("keys", "partitions", "topics", "failed", "again"),
    [
        ([b"x", b"y", b"x", b"y"], [0, 1, 0, 1], [], [0], [0, 2]),
        ([b"x", b"y", b"z", b"y"], [0, 0, 0, 1], [], [1], [1, 2]),
        ([b"x", b"y", b"x", b"y"], [-1, -1, -1, -1], [], [1], [1, 3]),
        ([b"x", b"x", b"x", b"x"], [-1, -1, -1, -1], [0, 1, 0, 1], [0], [0, 2]),
        ([b"x", b"x", b"x", b"x"], [0, 0, 0, 0], [0, 1, 1, 0], [1], [1, 2]),
        ([None, None, b"x", b"x"], [-1, -1, -1, -1], [], [0, 2], [0, 2, 3]),
        ([None, b"x", None, b"x"], [-1, 0, -1, 0], [], [0], [0]),
        ([b"", None, b"", None], [-1, -1, -1, -1], [], [0], [0, 2]),
    ],
)
def test_what_stands_behind_a_failure_in_its_partition_or_with_its_key_waits_again(
    keys: list[bytes | None], partitions: list[int], topics: list[int], failed: list[int], again: list[int]
) -> None:
    chosen = np.zeros(4, np.bool_)
    chosen[failed] = True
    assert np.flatnonzero(add_followers(outgoing(keys, partitions, topics), chosen)).tolist() == again


def shipment(keys: Sequence[bytes | None], partitions: Sequence[int]) -> Shipment:
    """All of it under way."""
    made = Shipment(outgoing(keys, partitions))
    made.hand_over(None, np.arange(len(keys)), np.zeros(len(keys), np.int32))  # type: ignore[arg-type]  # no client
    return made


def test_what_was_not_reported_is_acknowledged_and_rejected_records_do_not_wait() -> None:
    of_one_key = shipment([b"x"] * 4, [0] * 4)
    of_one_key.reject(2, FAILURE)
    of_one_key.report([Failed(1, FAILURE)])
    of_one_key.repeat(one.place for one in of_one_key.land())
    assert not of_one_key.under_way
    assert of_one_key.list_waiting().tolist() == [1, 3]


def test_a_client_that_says_nothing_may_have_lost_all() -> None:
    silent = shipment([b"x", b"y"], [0, 1])
    silent.recall()
    assert silent.waiting == 2


@pytest.mark.parametrize(
    ("keys", "lies", "misplaced"),
    [
        ([b"x"] * 4, [(0, 2), (0, 3), (0, 0), (0, 1)], [2]),
        ([b"x"] * 4, [(0, 0), (0, 1), (0, 2), (0, 3)], []),
        ([b"x", b"y"] * 2, [(0, 3), (0, 1), (0, 4), (0, 2)], []),
        ([b"x"] * 2, [(1, 7), (0, 3)], []),
        ([None] * 2, [(0, 3), (0, 1)], []),
        ([b"x"] * 2, [(0, -1), (0, -1)], []),
    ],
)
def test_records_before_an_earlier_one_of_their_key_are_found_by_offset(
    keys: list[bytes | None], lies: list[tuple[int, int]], misplaced: list[int]
) -> None:
    made = shipment(keys, [-1] * len(keys))
    made.report(Written(place, *where) for place, where in enumerate(lies))
    assert made.land() == []
    assert made.find_misplaced() == misplaced
