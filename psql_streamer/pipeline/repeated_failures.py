"""A stream that fails each time at the same place: it can be begun anew, but not read on."""

from __future__ import annotations

import time

from psql_streamer.errors import QuietStreamEnded, StreamerError
from psql_streamer.model import Position
from psql_streamer.retry_limits import LIMITS, Tried

_TELLING = 3
"""So many failures at one place are none of the network, or of somebody who ends a session."""

_LEAST_TOLD_SECONDS, _MOST_TOLD_SECONDS = 60.0, 600.0
"""How long a failure is told of while nothing comes: a server may have nothing to send. A large transaction takes a
while to fail again."""


class RepeatedFailures:
    """Counts failures with one message at one position. For one thread; `describe` is for any."""

    def __init__(self) -> None:
        self._position: Position | None = None
        self._text = ""
        self._count = 0
        self._failed_at, self._told_until = 0.0, 0.0

    def note(self, error: StreamerError, position: Position | None) -> None:
        """The stream failed, having got to a position. One that had nothing more to give fails at no change."""
        if isinstance(error, QuietStreamEnded):
            self._count = 0
            return
        now = time.monotonic()
        again = self._count and position == self._position and str(error) == self._text
        between = now - self._failed_at if again else 0.0
        self._position, self._text, self._failed_at = position, str(error), now
        self._told_until = now + min(max(_LEAST_TOLD_SECONDS, 2 * between), _MOST_TOLD_SECONDS)
        self._count = self._count + 1 if again else 1

    def describe(self, position: Position | None) -> str:
        """What /status says; empty once the stream gets on."""
        if self._count < _TELLING or position != self._position or time.monotonic() > self._told_until:
            return ""
        where = f" behind {position}" if position else ""
        return f"the stream has failed {self._count} times at the same place{where}: {self._text}"

    def lengthen_pause(self, first_pause: float, position: Position | None) -> float:
        """The pause before the stream is begun anew, which decodes the same WAL again."""
        if self._count < _TELLING or position != self._position:
            return first_pause
        longest = max(first_pause, LIMITS[Tried.STREAM].longest_pause)
        return min(longest, first_pause * 2.0 ** min(self._count - _TELLING + 1, 16))
