"""Changes that readings which begin later may not see yet."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator

from psql_streamer.model import Batch
from psql_streamer.snapshot.changed_keys import ChangedKeys, collect_changed_keys

_LATE_SECONDS = 10.0
"""For so long they count."""


class LateChanges:
    """Not for several threads: the caller has a lock."""

    def __init__(self) -> None:
        self._held: deque[tuple[float, str, ChangedKeys]] = deque()

    def note(self, batch: Batch) -> None:
        """The stream gives these."""
        now = time.monotonic()
        for changes in batch.changes:
            if changes.relation.key_columns:
                self._held.append((now, changes.relation.id, collect_changed_keys(changes, batch.transactions)))

    def list_changed_keys(self, relation: str) -> Iterator[ChangedKeys]:
        """Those of a table, by Relation.id."""
        oldest = time.monotonic() - _LATE_SECONDS
        while self._held and self._held[0][0] < oldest:
            self._held.popleft()
        return (keys for _, of, keys in self._held if of == relation)
