"""Calls of a part that must not fail, whatever it raises: one part's error must not keep the others from their stop,
nor from being seen.
"""

from __future__ import annotations

import logging
import traceback

from psql_streamer.bounded import Call
from psql_streamer.errors import StreamerError
from psql_streamer.interfaces import Handler, Sink, Source, Status
from psql_streamer.model import Stats

log = logging.getLogger("psql_streamer.pipeline")


def interrupt(name: str, part: Source | Handler | Sink) -> None:
    """Interrupt it. name: of the part, for the log."""
    try:
        part.interrupt()
    except Exception as error:
        log_error(name, "interrupt", error)


def ask_status(name: str, part: Source | Handler | Sink) -> Status:
    """Its status; where it gives none, that is what is wrong with it."""
    try:
        return part.status()
    except Exception as error:
        log_error(name, "status", error)
        return Status(False, f"its status raises {type(error).__name__}: see the log")


def ask_stats(name: str, part: Source | Handler | Sink) -> Stats:
    """Its counters; none where it gives none."""
    try:
        return part.stats()
    except Exception as error:
        log_error(name, "stats", error)
        return {}


def log_failure(call: Call[None]) -> None:
    """What a call has raised that has ended, if it has. Its name says what it did."""
    try:
        call.require_result()
    except Exception as error:
        log_error(call.name, "its call", error)


def log_error(name: str, method: str, error: BaseException) -> None:
    """Of an error that is not one of ours, where it comes from, and not its text: that may quote a value."""
    if isinstance(error, StreamerError):
        log.error("%s: %s", name, error)
        return
    trace = "".join(traceback.format_tb(error.__traceback__))
    log.error("%s: unexpected %s in %s\n%s", name, type(error).__name__, method, trace)
