"""How long a reader lingers before it hands over what it has buffered: for large blocks while the stream is fast, for
few blocks a second while it is slow.

A block costs the same few hundred microseconds for ten rows as for a thousand, so some waiting makes the whole pipeline
cheaper, and under load faster. The first rows after a pause wait for nothing. Pure: the caller has the clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from psql_streamer.batching import (
    FAST_STREAM_BYTES_PER_SECOND,
    LINGER_BYTES,
    LINGER_SECONDS,
    SLOW_STREAM_BLOCK_SECONDS,
    TRANSACTION_REST_SECONDS,
)
from psql_streamer.stream_rate import StreamRate


@dataclass(frozen=True, slots=True)
class Buffered:
    """What a reader has. size: bytes. since: when the oldest of it came. complete: it ends with a transaction's end."""

    size: int
    frames: int
    since: float
    complete: bool


class Linger:
    """Knows the speed of the stream, by its blocks. most_frames: of a block. longest: seconds that a wait may take."""

    def __init__(self, most_frames: int, longest: float) -> None:
        self._most_frames = most_frames
        self._linger_seconds = min(LINGER_SECONDS, longest)
        self._rest_seconds = min(TRANSACTION_REST_SECONDS, longest)
        self._interval_seconds = min(SLOW_STREAM_BLOCK_SECONDS, longest)
        self._last_block = -inf
        self._rate = StreamRate(LINGER_SECONDS)
        self._fast = False

    def note_block(self, now: float, size: int) -> None:
        """Take into account that a block of `size` bytes was handed over."""
        self._last_block = now
        rate = self._rate.measure(now, size)
        if rate is not None:
            self._fast = rate > FAST_STREAM_BYTES_PER_SECOND

    def compute_wait_seconds(self, now: float, buffered: Buffered, wanted: int) -> float:
        """Seconds until what is buffered should go; 0 or less: now. wanted: bytes that were asked for."""
        if self._is_full(buffered, wanted):
            return 0.0
        if self._fast and buffered.since - self._last_block < LINGER_SECONDS:
            return buffered.since + self._linger_seconds - now
        rest = 0.0 if buffered.complete else buffered.since + self._rest_seconds - now
        return max(rest, self._compute_block_seconds(now))

    def compute_pause_seconds(self, now: float, buffered: Buffered, wanted: int) -> float:
        """Seconds for which a slow stream may be left alone, because no block may go; 0 or less: none."""
        if self._fast or self._is_full(buffered, wanted):
            return 0.0
        return self._compute_block_seconds(now)

    def _compute_block_seconds(self, now: float) -> float:
        """Seconds until a slow stream may have its next block."""
        return self._last_block + self._interval_seconds - now

    def _is_full(self, buffered: Buffered, wanted: int) -> bool:
        """Whether the buffer has a block that waits for nothing."""
        return buffered.size >= min(LINGER_BYTES, wanted) or buffered.frames >= self._most_frames
