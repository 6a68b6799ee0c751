"""What keeps a member from reading though its brokers answer: a group that does not take it in, and partitions of which
nothing comes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sources.kafka.offsets import Offsets, Partition, list_partitions

JOIN_SECONDS = 30.0
"""The time that a group gets to take the member in. Others may have to wait for their sinks first."""

STILL_SECONDS = 30.0
"""The time after which it is said that nothing comes of a partition."""

LastError = Callable[[Partition | None], str]


class Standstill:
    """group: of the member. find_last_error: what the client has said last of a partition, or of the group (None).
    Moments are of a clock that only goes forward.
    """

    def __init__(self, group: str, find_last_error: LastError) -> None:
        self._group = group
        self._find_last_error = find_last_error
        self._outside_since: float | None = None
        self._still: dict[Partition, tuple[int, float]] = {}
        self._left: Mapping[Partition, int] = {}

    def look_at_group(self, now: float, is_outside: bool) -> str:
        """What is to be said of the group; empty: nothing. is_outside: whether it should have the member, and does not
        have it.
        """
        if not is_outside:
            self._outside_since = None
            return ""
        if self._outside_since is None:
            self._outside_since = now
        seconds = now - self._outside_since
        if seconds < JOIN_SECONDS:
            return ""
        why = self._find_last_error(None) or "its coordinator may be away, or other instances wait for their sinks"
        return f"group {self._group} has not taken this instance in for {seconds:.0f} s: {why}"

    def note_ends(self, now: float, ends: Offsets, reached: Offsets) -> None:
        """What is there of each partition, and in front of which offset all has come. The member has been polling since
        the last call, or `forget` was called.
        """
        still = {one: end - reached[one] for one, end in ends.items() if end > reached.get(one, end)}
        self._still = {
            one: (reached[one], self._still[one][1] if self._still.get(one, (-1, 0))[0] == reached[one] else now)
            for one in still
        }
        self._left = {one: left for one, left in still.items() if now - self._still[one][1] >= STILL_SECONDS}

    def forget(self) -> None:
        """The member does not poll, so nothing is said of what comes."""
        self._still, self._left = {}, {}

    def describe_partitions(self) -> str:
        """What is to be said of partitions; empty: nothing."""
        if not self._left:
            return ""
        error = next(filter(None, map(self._find_last_error, sorted(self._left))), "")
        why = f": {error}" if error else ": look at the brokers' log"
        return f"nothing comes of {list_partitions(self._left)}, where {sum(self._left.values())} records are left{why}"
