"""How long the socket of a fast stream is left alone, so that messages gather on their way.

A walsender on the same machine hands over each message with a system call of its own. Over TCP that call also delivers
the message, which takes three times as long as to append it to those that wait because the receiver's window is full.
So the window is small, and what waits is read at once. Pure: the caller has the clock.
"""

from __future__ import annotations

from math import inf

from psql_streamer.batching import FAST_STREAM_BYTES_PER_SECOND, SOCKET_GATHER_SECONDS


class Gathering:
    """Knows the speed of the stream, by what was read. most: bytes that may wait. longest: seconds that they may."""

    def __init__(self, most: int, longest: float) -> None:
        self._most = most
        self._longest = min(SOCKET_GATHER_SECONDS, longest)
        self._measured_since = -inf
        self._size = 0  # bytes read since then
        self._due = -inf

    def note_read(self, now: float, size: int, unread: bool) -> None:
        """Take into account that `size` bytes were read. unread: more of them wait, which should be read first."""
        self._due = now
        self._size += size
        seconds = now - self._measured_since
        # Over less time than a pause has, a small transaction is as fast as any stream, and its rest would wait.
        is_fast = self._size > FAST_STREAM_BYTES_PER_SECOND * max(seconds, self._longest)
        if is_fast and not unread:
            rate = self._size / max(seconds, 1e-6)
            self._due = now + min(self._longest, self._most / rate)
        if is_fast or seconds >= self._longest:
            self._measured_since, self._size = now, 0

    def compute_pause_seconds(self, now: float) -> float:
        """Seconds for which the socket may be left alone; 0 or less: none."""
        return self._due - now
