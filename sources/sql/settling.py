"""Which rows of a table are settled: no row with a smaller key can be committed any more. Pure.

A key is given before its row is committed, and a transaction that began earlier may commit later, so rows become
visible out of order. A sample is the largest key at a moment, with the transactions that could have written a row below
it and were open then, or later. When none of them is left, the rows up to that key are all there, or never will be.
Samples ascend, though the largest key of a table may not: rows are deleted, too.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TypeAlias

Key: TypeAlias = tuple[int | str, ...]
"""The value of each key column: an integer, or a text that the database compares as the column's type."""

_MOST_SAMPLES = 32


@dataclass(slots=True)
class _Sample:
    key: Key
    at: float
    open: frozenset[str] | None  # None: nobody has looked late enough


class Settling:
    """What is settled of one table.

    seconds: how long ago a row must have been seen. by_writers: whether open transactions are told. first_look: how
    many seconds after a sample a look at them shows all that were open then.
    """

    def __init__(self, seconds: float, by_writers: bool, first_look: float = 0.0) -> None:
        self.settled: Key | None = None
        self.seconds = seconds
        self.by_writers = by_writers
        self._first_look = first_look
        self._samples: deque[_Sample] = deque()

    @property
    def pending(self) -> bool:
        """Whether rows were seen that are not settled."""
        return bool(self._samples)

    @property
    def last_seen(self) -> Key | None:
        """The largest key that was taken as a sample, if it is known."""
        return self._samples[-1].key if self._samples else self.settled

    @property
    def waits_for(self) -> frozenset[str]:
        """The transactions that the oldest sample waits for."""
        return (self._samples[0].open or frozenset()) if self._samples else frozenset()

    @property
    def waits_since(self) -> float:
        """When the oldest sample that waits was taken."""
        return self._samples[0].at

    def observe(
        self,
        newest: Key | None,
        now: float,
        writers: frozenset[str] = frozenset(),
        successors: frozenset[str] = frozenset(),
        looked_at: float | None = None,
    ) -> None:
        """A look at the table. newest: its largest key then, if it lies behind `last_seen`. writers: open transactions,
        by a look behind that, or at a time.

        successors: those of the writers into which one that was seen before may have turned.
        """
        looked_at = now if looked_at is None else looked_at
        for sample in self._samples:
            if sample.open is not None:
                gone = sample.open - writers
                sample.open = sample.open & writers | (successors if gone else frozenset())
            elif looked_at - sample.at >= self._first_look:
                sample.open = writers
        if newest is not None and self._wants(now):
            at_once = writers if self._first_look == 0 else None
            self._samples.append(_Sample(newest, now, at_once if self.by_writers else frozenset()))
        while self._samples and self._is_settled(self._samples[0], now):
            self.settled = self._samples.popleft().key

    def end_at(self, key: Key | None) -> None:
        """Nothing is left between a key and what is settled: what comes there has to settle anew."""
        self.settled = key

    def _wants(self, now: float) -> bool:
        if not self._samples:
            return True
        return now - self._samples[-1].at >= self.seconds / _MOST_SAMPLES and len(self._samples) < _MOST_SAMPLES

    def _is_settled(self, sample: _Sample, now: float) -> bool:
        return sample.open == frozenset() and now - sample.at >= self.seconds
