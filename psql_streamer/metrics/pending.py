"""Batches that were received and are not stored, from which the lag is known."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from threading import Lock

from psql_streamer.model import Batch


class Pending:
    """Batches that were received and are not stored; lag is the age of the oldest. Batch numbers are the Tracker's."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._commits: dict[str, deque[tuple[int, float]]] = {}

    def expect(self, source: str) -> None:
        self._commits.setdefault(source, deque())

    def add(self, source: str, batch: Batch, batch_number: int) -> None:
        if not len(batch.transactions):
            return  # it moves the position on, or is where the last one was
        with self._lock:
            commits = self._commits.setdefault(source, deque())
            commits.append((batch_number, float(batch.transactions.commit_ts[0]) / 1e6))

    def drop_stored(self, source: str, batch_number: int) -> None:
        with self._lock:
            commits = self._commits.setdefault(source, deque())
            while commits and commits[0][0] <= batch_number:
                commits.popleft()

    def compute_lags(self, now: float) -> Mapping[str, float]:
        """The age in seconds, by source, of the oldest change that is not durable; 0 when there is none.

        The age of the newest durable change would jump to hours with the first change after a quiet night.
        """
        with self._lock:
            # Two machines' clocks: a commit may seem to lie in the future.
            return {name: max(0.0, now - commits[0][1]) if commits else 0.0 for name, commits in self._commits.items()}
