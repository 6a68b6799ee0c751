"""Pauses between attempts: doubling, with jitter, up to a limit for what is tried."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Tried(Enum):
    """What is tried. The first failure of a stream is the loss of what worked, and no attempt."""

    START = "a part's start"
    STREAM = "a source's stream"
    BATCH = "a batch in a sink or handler"
    LOOKUP = "a lookup"


@dataclass(frozen=True, slots=True)
class Limit:
    """longest_pause: seconds between two attempts, at most; a first pause that is longer stays as it is."""

    longest_pause: float
    reason: str


LIMITS: Mapping[Tried, Limit] = {
    Tried.START: Limit(5.0, "somebody waits for it, and startTimeout ends it: a longer pause would be the last"),
    Tried.STREAM: Limit(30.0, "a connection costs the server a process, and WAL waits there without loss"),
    Tried.BATCH: Limit(10.0, "events wait in a full pipeline, and an attempt costs brokers little"),
    Tried.LOOKUP: Limit(60.0, "what was read before is used meanwhile, and an attempt reads all of it"),
}
"""The only place that says how long a pause may be. The first pause is an option of the source."""

FIRST_START_PAUSE_SECONDS = 1.0
"""Before the second attempt to start a sink or a handler, which have no option for it."""

FIRST_LOOKUP_PAUSE_SECONDS = 1.0


class Backoff:
    """first: seconds of the first pause, on average. limit: no pause is longer, unless the first one is."""

    def __init__(self, first: float, limit: float) -> None:
        self._first = first
        self._limit = max(first, limit)
        self.attempts = 0

    def draw_pause(self) -> float:
        """Seconds to wait now. Jitter keeps many instances from coming back all at once."""
        # Beyond 2**16 the limit has long been reached.
        pause = min(self._limit, self._first * 2.0 ** min(self.attempts, 16))
        self.attempts += 1
        return min(self._limit, pause * random.uniform(0.75, 1.25))  # noqa: S311 - not a secret
