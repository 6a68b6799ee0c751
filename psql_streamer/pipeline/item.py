"""What the queues of a sink hold."""

from __future__ import annotations

from dataclasses import dataclass

from psql_streamer.model import Batch

_BATCH_NUMBER_BYTES = 1000
"""What is kept of each batch that was merged with others: its entries in the Tracker and in the metrics' lag."""


@dataclass(frozen=True, slots=True)
class Item:
    """A batch on its way to one sink.

    batch_numbers: the Tracker's. A merged batch has several; of the pieces of a batch only the last one has any.
    """

    batch: Batch
    batch_numbers: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """What the batch holds in memory, and what is kept until it is durable."""
        return self.batch.nbytes + _BATCH_NUMBER_BYTES * len(self.batch_numbers)

    def without_rows(self) -> Item:
        """The same with a batch that has no changes."""
        return Item(self.batch.without_rows(), self.batch_numbers)
