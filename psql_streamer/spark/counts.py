"""What a handler did, in numbers; several threads count."""

from __future__ import annotations

import threading
from collections import Counter

from psql_streamer.model import Stats

_NAMES = (
    *("batches", "rows", "passed_unknown", "unaddressed", "fields_left_out", "nulled"),
    *("dead_lettered", "engine_restarts"),
)


class Counts:
    """batches, rows: that went through Spark. passed_unknown: rows that a rule could not judge. unaddressed: rows
    that lack values of which a rule makes their topic, key or headers. fields_left_out: values in JSON documents that
    a type has no field for. nulled: values that could not be computed, and conditions: null is in their place.
    dead_lettered: rows put aside. engine_restarts.
    """

    def __init__(self) -> None:
        self._counts = Counter(dict.fromkeys(_NAMES, 0))
        self._lock = threading.Lock()

    def add(self, name: str, number: int = 1) -> None:
        """Count."""
        with self._lock:
            self._counts[name] += number

    def stats(self) -> Stats:
        """All numbers, by name."""
        with self._lock:
            return dict(self._counts)
