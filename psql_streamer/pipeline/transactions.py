"""Which batches a sink writes in one transaction, and what it notes of their sources."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from psql_streamer.batching import LOOK_SECONDS, TRANSACTION_BYTES
from psql_streamer.interfaces import ConsumedOffsets, Transaction
from psql_streamer.pipeline.bounded_queue import BoundedQueue
from psql_streamer.pipeline.item import Item

Described: TypeAlias = tuple[bytes, Callable[[], ConsumedOffsets | None]]
"""What a transaction notes of a source, and what asks the source for the offsets to commit."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """Items that go into one transaction. The last one ends a batch of the source."""

    items: Sequence[Item]

    @property
    def source(self) -> str:
        """The source of the first one."""
        return self.items[0].batch.source.name

    def to_transaction(self, describe: Callable[[Item], Described]) -> Transaction:
        """describe: what to note of an item's source, and what asks it for what to commit, when everything up to the
        item is written.
        """
        last = {item.batch.source.name: item for item in self.items if item.batch_numbers}
        described = {source: describe(item) for source, item in last.items()}
        notes = {source: note for source, (note, _) in described.items()}

        def consumed() -> Sequence[ConsumedOffsets]:
            return [offsets for _, ask in described.values() if (offsets := ask()) is not None]

        return Transaction([item.batch for item in self.items], notes, consumed)


def gather(queue: BoundedQueue[Item], is_over: Callable[[], bool]) -> Gathered | None:
    """All that waits in the queue, but no more than a transaction should have, and whole batches only; None when there
    is nothing. is_over: whether nothing more comes, though a batch has begun.
    """
    items: list[Item] = []
    size = 0
    while not _is_whole(items) or size < TRANSACTION_BYTES:
        item = queue.get(0.0 if _is_whole(items) else LOOK_SECONDS)
        if item is not None:
            items.append(item)
            size += item.nbytes
        elif _is_whole(items):
            break
        elif not items or is_over():
            return None
    return Gathered(items)


def _is_whole(items: Sequence[Item]) -> bool:
    """Whether it ends with the last piece of a batch."""
    return bool(items) and bool(items[-1].batch_numbers)
