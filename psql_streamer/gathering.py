"""How long the socket of a fast stream is left alone, so that messages gather on their way.

A walsender on the same machine hands over each message with a system call of its own. Over TCP that call also delivers
the message, which takes three times as long as to append it to those that wait because the receiver's window is full.
So the window is small, and what waits is read at once. Pure: the caller has the clock.
"""

from __future__ import annotations

from math import inf

from psql_streamer.batching import FAST_STREAM_BYTES_PER_SECOND, SOCKET_GATHER_SECONDS
from psql_streamer.stream_rate import StreamRate


class Gathering:
    """Knows the speed of the stream, by what was read. most: bytes that may wait. longest: seconds that they may.

    is_fast: whether there is anything to be left alone.
    """

    def __init__(self, most: int, longest: float) -> None:
        self._most = most
        self._longest = min(SOCKET_GATHER_SECONDS, longest)
        self._rate = StreamRate(self._longest)
        self._due = -inf
        self.is_fast = False

    def note_read(self, now: float, size: int, unread: bool) -> None:
        """Take into account that `size` bytes were read. unread: more of them wait, which should be read first."""
        self._due = now
        rate = self._rate.measure(now, size)
        if rate is None:
            return
        self.is_fast = rate > FAST_STREAM_BYTES_PER_SECOND
        if self.is_fast and not unread:
            self._due = now + min(self._longest, self._most / rate)

    def compute_pause_seconds(self, now: float) -> float:
        """Seconds for which the socket may be left alone; 0 or less: none."""
        return self._due - now
