"""When a reader should hand over what it holds: at once while the stream is slow, in large blocks while it is fast.

A block costs the same few hundred microseconds for ten rows as for a thousand, so under load some waiting makes the
whole pipeline faster; at a thousand small transactions a second waiting is only latency. Pure: the caller has the
clock.
"""

from __future__ import annotations

from dataclasses import dataclass

from psql_streamer.batching import FAST_STREAM_BYTES_PER_SECOND, LINGER_BYTES, LINGER_SECONDS, TRANSACTION_REST_SECONDS


@dataclass(frozen=True, slots=True)
class Held:
    """What a reader holds. since: when the oldest of it came. complete: it ends with a transaction's end."""

    size: int
    frames: int
    since: float
    complete: bool


class Pace:
    """Decides; told of every block. most_frames: of a block. longest: seconds that nothing waits longer than."""

    def __init__(self, most_frames: int, longest: float) -> None:
        self._most_frames = most_frames
        self._gathering = min(LINGER_SECONDS, longest)
        self._together = min(TRANSACTION_REST_SECONDS, longest)
        self._last_block = 0.0
        self._busy = False

    def block_sent(self, now: float, size: int) -> None:
        """A block of `size` bytes was taken from what was held."""
        self._busy = size > FAST_STREAM_BYTES_PER_SECOND * (now - self._last_block)
        self._last_block = now

    def wait(self, now: float, held: Held, wanted: int) -> float:
        """Seconds until what is held should go; 0 or less: now. wanted: bytes that were asked for."""
        if held.size >= min(LINGER_BYTES, wanted) or held.frames >= self._most_frames:
            return 0.0
        if self._busy:
            return held.since + self._gathering - now
        return 0.0 if held.complete else held.since + self._together - now
