"""Calls as the service makes them: starts and stops have a thread of their own, and what must not wait is timed."""

from __future__ import annotations

import threading
from collections.abc import Callable

from psql_streamer.bounded import Call

_MOST_SECONDS = 120.0
"""The time that a start or a stop may take; an engine may be fetched first."""

PART_ANSWER_SECONDS = 30.0
"""The time that a part may take for whatever it is asked, and to see that what it needs is there again."""

INTERRUPTED_SECONDS = 5.0
"""The time in which what was interrupted has to end, and what must not wait."""

NEVER = threading.Event()


def call_in_a_thread(call: Callable[[], None]) -> None:
    """Call it in a new thread, and raise what it raises."""
    end(begin(call), _MOST_SECONDS)


def begin(call: Callable[[], None]) -> Call[None]:
    """Begin a call in a new thread."""
    return Call(call, "contract")


def end(begun: Call[None], seconds: float = _MOST_SECONDS, name: str = "it") -> None:
    """Wait until the call has ended, and raise what it raises; AssertionError after so many seconds. name: of the call,
    in the message.
    """
    assert begun.wait(seconds, NEVER), f"{name} has not ended after {seconds:g} s"
    begun.require_result()


def end_soon(call: Callable[[], None], name: str, seconds: float = 0.0) -> None:
    """Call in a new thread what must neither wait nor raise. name: of the method, for whoever reads that it did.

    seconds: that it may take; 0 for INTERRUPTED_SECONDS.
    """
    begun, seconds = begin(call), seconds or INTERRUPTED_SECONDS
    assert begun.wait(seconds, NEVER), f"{name} has not ended after {seconds:g} s"
    try:
        begun.require_result()
    except Exception as error:
        raise AssertionError(f"{name} raises {error!r}") from error
