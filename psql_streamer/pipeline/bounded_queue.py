"""A queue of batches, bounded in bytes: what keeps memory flat when a sink is slower than the server."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from threading import Condition, Event
from typing import Generic, Protocol, TypeVar

from psql_streamer.batching import JOINED_BATCHES, JOINED_BYTES, QUEUE_LOOK_SECONDS


class Sized(Protocol):
    """What the queue needs to know of an item."""

    @property
    def nbytes(self) -> int:
        """How much memory it holds."""


Item = TypeVar("Item", bound=Sized)


class BoundedQueue(Generic[Item]):
    """First in, first out.

    limit: bytes; an item larger than it passes when the queue is empty. most: items, None for as many as the bytes
    allow. join: one item for several that stand behind one another; None where they stay as they are.
    """

    def __init__(
        self, limit: int, most: int | None = None, join: Callable[[Sequence[Item]], Sequence[Item]] | None = None
    ) -> None:
        self.limit = limit
        self._most = most
        self._join = join
        self._items: deque[Item] = deque()
        self._used = 0
        self._changed = Condition()

    @property
    def used(self) -> int:
        """Bytes in the queue."""
        return self._used

    def put(self, item: Item, stopping: Event) -> bool:
        """Wait for room and add; False (and not added) when `stopping` was set meanwhile."""
        with self._changed:
            while self._is_full(item):
                if stopping.is_set():
                    return False
                self._changed.wait(QUEUE_LOOK_SECONDS)
            self._items.append(item)
            self._used += item.nbytes
            self._put_small_together()
            self._changed.notify_all()
            return True

    def wait_until_filled(self, timeout: float) -> bool:
        """Whether it has an item, now or within `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: bool(self._items), timeout)

    def wait_until_empty(self, timeout: float) -> bool:
        """Whether it has none, now or within `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._items, timeout)

    def get(self, timeout: float) -> Item | None:
        """The next item; None when none came within `timeout` seconds."""
        with self._changed:
            if not self._items:
                self._changed.wait(timeout)
            if not self._items:
                return None
            item = self._items.popleft()
            self._used -= item.nbytes
            self._changed.notify_all()
            return item

    def __len__(self) -> int:
        return len(self._items)

    def _is_full(self, item: Item) -> bool:
        if not self._items:
            return False
        return self._used + item.nbytes > self.limit or (self._most is not None and len(self._items) >= self._most)

    def _put_small_together(self) -> None:
        """The last ones, when they are many and small. What was put together takes part again, up to JOINED_BYTES."""
        if self._join is None or len(self._items) < JOINED_BATCHES:
            return
        last = [self._items[at] for at in range(-JOINED_BATCHES, 0)]
        if sum(item.nbytes for item in last) > JOINED_BYTES:
            return
        for _ in last:
            self._items.pop()
        joined = self._join(last)
        self._items.extend(joined)
        self._used += sum(item.nbytes for item in joined) - sum(item.nbytes for item in last)
