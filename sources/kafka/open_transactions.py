"""Records that brokers keep back, because a transaction in front of them is open: a reader of what is committed gets
none of them, whoever wrote them.
"""

from __future__ import annotations

from collections.abc import Mapping

from sources.kafka.offsets import Offsets, Partition, list_partitions

LONG_SECONDS = 60.0
"""The time after which it is said. Brokers end a transaction that is as old, unless its writer asked for more."""


class OpenTransactions:
    """Moments are of a clock that only goes forward."""

    def __init__(self) -> None:
        self._open: dict[Partition, tuple[int, float]] = {}
        self._kept_back: Mapping[Partition, int] = {}
        self._seconds = 0.0

    def note_ends(self, now: float, ends: Offsets, last: Offsets, reached: Offsets) -> None:
        """Of each partition where its open transactions begin, the offset behind its last record, as far as it is
        known, and in front of which one all has come.
        """
        waiting = {one: end for one, end in ends.items() if reached.get(one, -1) >= end < last.get(one, -1)}
        before = self._open
        self._open = {
            one: (end, before[one][1] if before.get(one, (-1, 0.0))[0] == end else now) for one, end in waiting.items()
        }
        long = {one: since for one, (_, since) in self._open.items() if now - since >= LONG_SECONDS}
        self._kept_back = {one: last[one] - ends[one] for one in long}
        self._seconds = now - min(long.values(), default=now)

    def describe(self) -> str:
        """What is to be said of them; empty: nothing."""
        if not self._kept_back:
            return ""
        return (
            f"{sum(self._kept_back.values())} records of {list_partitions(self._kept_back)} wait for a transaction "
            f"that has been open for {self._seconds:.0f} s: look at who writes the topic"
        )
