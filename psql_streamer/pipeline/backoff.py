"""Pauses between attempts: doubling, with jitter, up to a limit."""

from __future__ import annotations

import random


class Backoff:
    """first: seconds of the first pause, on average. limit: no pause is longer, unless the first one is."""

    def __init__(self, first: float, limit: float) -> None:
        self._first = first
        self._limit = max(first, limit)
        self.attempts = 0

    def next(self) -> float:
        """Seconds to wait now. Jitter keeps many instances from coming back all at once."""
        # Beyond 2**16 the limit has long been reached.
        pause = min(self._limit, self._first * 2.0 ** min(self.attempts, 16))
        self.attempts += 1
        return min(self._limit, pause * random.uniform(0.75, 1.25))  # noqa: S311 - not a secret
