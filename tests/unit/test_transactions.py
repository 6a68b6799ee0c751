"""Which batches go into one transaction, and what it notes."""

from __future__ import annotations

import threading
from dataclasses import replace

from psql_streamer.interfaces import ConsumedOffsets
from psql_streamer.lsn import Lsn
from psql_streamer.model import NO_TRANSACTIONS, POSTGRESQL, Batch, SourceInfo
from psql_streamer.pgoutput.wal_position import WalPosition
from psql_streamer.pipeline.bounded_queue import BoundedQueue
from psql_streamer.pipeline.item import Item
from psql_streamer.pipeline.transactions import Described, gather

_LARGE = 5 << 20


def item(number: int | None, source: str = "db1", nbytes: int = 100) -> Item:
    batch = Batch(SourceInfo(POSTGRESQL, source, "h", "d"), WalPosition(Lsn(number or 0)).position, NO_TRANSACTIONS)
    return Item(replace(batch, nbytes=nbytes), () if number is None else (number,))


def queue_of(*items: Item) -> BoundedQueue[Item]:
    queue = BoundedQueue[Item](1 << 30)
    for one in items:
        queue.put(one, threading.Event())
    return queue


def numbers(queue: BoundedQueue[Item], is_over: bool = False) -> list[tuple[int, ...]] | None:
    gathered = gather(queue, lambda: is_over)
    return None if gathered is None else [one.batch_numbers for one in gathered.items]


def test_all_that_waits_is_one_transaction() -> None:
    queue = queue_of(item(1), item(2), item(3))
    assert numbers(queue) == [(1,), (2,), (3,)]
    assert numbers(queue) is None


def test_a_transaction_is_not_larger_than_it_must() -> None:
    queue = queue_of(item(1, nbytes=_LARGE), item(2, nbytes=_LARGE), item(3))
    assert [numbers(queue), numbers(queue)] == [[(1,), (2,)], [(3,)]]


def test_a_batch_in_pieces_is_in_one_transaction_however_large_it_is() -> None:
    queue = queue_of(item(None, nbytes=_LARGE), item(None, nbytes=_LARGE), item(1), item(2))
    assert numbers(queue) == [(), (), (1,)]


def test_a_piece_waits_for_the_rest_of_its_batch() -> None:
    queue = queue_of(item(None))
    coming = threading.Timer(0.3, lambda: queue.put(item(1), threading.Event()))
    coming.start()
    assert numbers(queue) == [(), (1,)]


def test_pieces_whose_batch_does_not_come_to_its_end_are_not_written() -> None:
    assert numbers(queue_of(item(None)), is_over=True) is None


def test_each_source_is_noted_as_of_its_last_batch() -> None:
    gathered = gather(queue_of(item(1), item(7, "db2"), item(None), item(2)), lambda: False)
    assert gathered is not None
    offsets = ConsumedOffsets(b"member", [("t", 0, 5, "")])

    def describe(one: Item) -> Described:
        return b"%d" % one.batch_numbers[-1], lambda: offsets if one.batch.source.name == "db2" else None

    transaction = gathered.to_transaction(describe)
    assert transaction.notes == {"db1": b"2", "db2": b"7"}
    assert transaction.consumed() == [offsets]
    assert len(transaction.batches) == 4
    assert gathered.source == "db1"
