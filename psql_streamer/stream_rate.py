"""How fast a stream is. Pure: the caller has the clock."""

from __future__ import annotations

from math import inf

from psql_streamer.batching import FAST_STREAM_BYTES_PER_SECOND


class StreamRate:
    """Measured over `window` seconds at least: over less, a small transaction is as fast as any stream, and its rest
    would wait. That a stream is fast shows as soon as it has sent what a fast one sends in that time.
    """

    def __init__(self, window: float) -> None:
        self._window = window
        self._since = -inf
        self._size = 0  # bytes since then

    def measure(self, now: float, size: int) -> float | None:
        """Bytes a second, with `size` bytes more; None while nobody knows. Begins anew with each answer."""
        self._size += size
        seconds = now - self._since
        if seconds < self._window and self._size <= FAST_STREAM_BYTES_PER_SECOND * self._window:
            return None
        rate = self._size / max(seconds, 1e-6)
        self._since, self._size = now, 0
        return rate
