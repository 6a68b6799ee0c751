"""A queue of batches, bounded in bytes and number: what keeps memory flat when a sink is slower than the server.

The bound in number keeps small batches from queueing: while they wait, the source gathers larger ones.
"""

from __future__ import annotations

from collections import deque
from threading import Condition, Event
from typing import Generic, Protocol, TypeVar


class Sized(Protocol):
    """What the queue needs to know of an item."""

    @property
    def nbytes(self) -> int:
        """How much memory it holds."""


Item = TypeVar("Item", bound=Sized)


class Inbox(Generic[Item]):
    """First in, first out. limit: bytes; an item larger than it passes when the queue is empty. most: items."""

    def __init__(self, limit: int, most: int = 2) -> None:
        self.limit = limit
        self._most = most
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
            while self._items and (self._used + item.nbytes > self.limit or len(self._items) >= self._most):
                if stopping.is_set():
                    return False
                self._changed.wait(0.1)
            self._items.append(item)
            self._used += item.nbytes
            self._changed.notify_all()
            return True

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
