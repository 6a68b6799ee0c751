"""What metrics read of a part's stats has the type that they read."""

from __future__ import annotations

from psql_streamer.metrics.reserved_stats import RESERVED_STATS, fits
from psql_streamer.model import Stats


def check_stats(kind: str, stats: Stats) -> None:
    """AssertionError when a name that metrics know has a value of another type. kind: source, handler or sink."""
    for name, form in RESERVED_STATS[kind].items():
        if (value := stats.get(name)) is not None:
            assert fits(form, value), f"stats: {name} is a {type(value).__name__}, and metrics read {form.value}"
