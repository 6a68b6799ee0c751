"""The queue between stages: bounded in bytes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from psql_streamer.batching import JOINED_BATCHES, JOINED_BYTES
from psql_streamer.pipeline.bounded_queue import BoundedQueue


@dataclass
class _Item:
    nbytes: int


def test_items_come_out_in_the_order_in_which_they_went_in() -> None:
    queue: BoundedQueue[_Item] = BoundedQueue(100, most=3)
    items = [_Item(1), _Item(2), _Item(3)]
    for item in items:
        assert queue.put(item, threading.Event())
    assert [queue.get(0.0) for _ in items] == items
    assert queue.get(0.0) is None
    assert queue.used == 0


@pytest.mark.behaviour("O3")
def test_a_full_queue_makes_the_giver_wait_until_something_is_taken() -> None:
    queue: BoundedQueue[_Item] = BoundedQueue(10)
    queue.put(_Item(8), threading.Event())
    giver = threading.Thread(target=queue.put, args=(_Item(8), threading.Event()))
    giver.start()
    giver.join(0.3)
    assert giver.is_alive()
    assert queue.get(1.0) == _Item(8)
    giver.join(5)
    assert not giver.is_alive()
    assert queue.used == 8


def test_an_item_larger_than_the_limit_passes_alone() -> None:
    queue: BoundedQueue[_Item] = BoundedQueue(10)
    assert queue.put(_Item(1000), threading.Event())
    assert queue.get(0.0) == _Item(1000)


def test_a_giver_that_waits_gives_up_when_the_service_stops() -> None:
    queue: BoundedQueue[_Item] = BoundedQueue(10)
    queue.put(_Item(10), threading.Event())
    stopping = threading.Event()
    stopping.set()
    assert not queue.put(_Item(10), stopping)
    assert queue.used == 10


def test_small_items_do_not_queue_up_beyond_the_bound_in_number() -> None:
    queue: BoundedQueue[_Item] = BoundedQueue(1000, most=2)
    stopping = threading.Event()
    stopping.set()
    assert queue.put(_Item(1), stopping)
    assert queue.put(_Item(1), stopping)
    assert not queue.put(_Item(1), stopping)


def test_many_small_items_are_put_together_and_large_ones_are_not() -> None:
    def join(items: Sequence[_Item]) -> Sequence[_Item]:
        return [_Item(sum(item.nbytes for item in items) // 2)]

    queue: BoundedQueue[_Item] = BoundedQueue(1 << 30, join=join)
    for _ in range(JOINED_BATCHES):
        queue.put(_Item(10), threading.Event())
    assert len(queue) == 1
    assert queue.used == 10 * JOINED_BATCHES // 2
    for _ in range(2 * JOINED_BATCHES):
        queue.put(_Item(JOINED_BYTES), threading.Event())
    assert len(queue) == 1 + 2 * JOINED_BATCHES
    assert queue.used == 10 * JOINED_BATCHES // 2 + 2 * JOINED_BATCHES * JOINED_BYTES


def test_without_a_bound_in_number_the_bytes_alone_count() -> None:
    queue: BoundedQueue[_Item] = BoundedQueue(1000)
    stopping = threading.Event()
    stopping.set()
    assert all(queue.put(_Item(1), stopping) for _ in range(1000))
    assert not queue.put(_Item(1), stopping)


def test_somebody_may_wait_until_something_is_there_or_all_was_taken() -> None:
    queue: BoundedQueue[_Item] = BoundedQueue(10)
    assert queue.wait_until_empty(0.0)
    assert not queue.wait_until_filled(0.01)
    giver = threading.Timer(0.05, queue.put, (_Item(1), threading.Event()))
    giver.start()
    assert queue.wait_until_filled(10.0)
    assert not queue.wait_until_empty(0.01)
    threading.Timer(0.05, queue.get, (0.0,)).start()
    assert queue.wait_until_empty(10.0)
