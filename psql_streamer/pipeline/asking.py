"""Calls of a part that must not fail, whatever it raises: one part's error must not keep the others from their stop,
nor from being seen.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from psql_streamer.errors import StreamerError
from psql_streamer.interfaces import Handler, Sink, Source, Status
from psql_streamer.model import Stats
from psql_streamer.unexpected import log_unexpected

log = logging.getLogger("psql_streamer.pipeline")


def interrupt(name: str, part: Source | Handler | Sink) -> None:
    """Interrupt it. name: of the part, for the log."""
    _call(name, "interrupt", part.interrupt)


def stop(name: str, part: Source | Handler | Sink) -> None:
    """Stop it."""
    _call(name, "stop", part.stop)


def ask_status(name: str, part: Source | Handler | Sink) -> Status:
    """Its status; where it gives none, that is what is wrong with it."""
    try:
        return part.status()
    except Exception as error:
        _tell(name, "status", error)
        return Status(False, f"its status raises {type(error).__name__}: see the log")


def ask_stats(name: str, part: Source | Handler | Sink) -> Stats:
    """Its counters; none where it gives none."""
    try:
        return part.stats()
    except Exception as error:
        _tell(name, "stats", error)
        return {}


def _call(name: str, method: str, call: Callable[[], None]) -> None:
    try:
        call()
    except Exception as error:
        _tell(name, method, error)


def _tell(name: str, method: str, error: Exception) -> None:
    if isinstance(error, StreamerError):
        log.error("%s: %s", name, error)
    else:
        log_unexpected(log, name, error, method)
