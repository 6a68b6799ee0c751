"""Which batches a sink writes together."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from psql_streamer.batching import AHEAD_BYTES, TOGETHER_BATCHES, TOGETHER_BYTES, TOGETHER_SECONDS
from psql_streamer.model import Batch
from psql_streamer.pipeline.item import Item


class Waiting(Iterator[Batch]):
    """A batch, and those that wait behind it when they are asked for, until they have about as many rows as the sink
    likes: TOGETHER_BATCHES of them at most, and none behind TOGETHER_BYTES. Behind AHEAD_BYTES, which a backlog has, it
    waits for those that the source is making: TOGETHER_SECONDS in all.

    take: the next one; None if none comes within so many seconds. count_rows: how many the sink likes, which it may
    learn from what it takes. require: raises for a batch that the sink must not get.
    taken: the items whose batches were given, without their rows: of these nobody here holds any.
    """

    def __init__(
        self,
        first: Item,
        take: Callable[[float], Item | None],
        count_rows: Callable[[], int],
        require: Callable[[Batch], None],
    ) -> None:
        self.taken: list[Item] = []
        self._first = [first]
        self._take = take
        self._count_rows = count_rows
        self._wanted = count_rows()
        self._require = require
        self._rows = self._size = 0
        self._waited = 0.0

    def __next__(self) -> Batch:
        item = self._first.pop() if self._first else self._take_behind()
        if item is None:
            raise StopIteration
        self._require(item.batch)
        self._rows += len(item.batch)
        self._size += item.nbytes
        self.taken.append(item.without_rows())
        return item.batch

    @property
    def batches_liked(self) -> int:
        """How many batches like those that were given have about as many rows. From any thread."""
        return min(TOGETHER_BATCHES, self._wanted * len(self.taken) // max(1, self._rows))

    def _take_behind(self) -> Item | None:
        self._wanted = self._count_rows()
        # With half of a batch less there are too few rows as often as too many.
        enough = self._rows + self._rows // len(self.taken) // 2 >= self._wanted
        if enough or len(self.taken) >= TOGETHER_BATCHES or self._size >= TOGETHER_BYTES:
            return None
        return self._take(0.0) if self._size < AHEAD_BYTES else self._wait_for_next()

    def _wait_for_next(self) -> Item | None:
        began = time.monotonic()
        item = self._take(max(0.0, TOGETHER_SECONDS - self._waited))
        self._waited += time.monotonic() - began
        return item
