"""Calls as the service makes them: starts and stops have a thread of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable

from psql_streamer.bounded import Call

_MOST_SECONDS = 120.0
"""The time that a start or a stop may take; an engine may be fetched first."""


def call_in_a_thread(call: Callable[[], None]) -> None:
    """Call it in a new thread, and raise what it raises."""
    made = Call(call, "contract")
    assert made.wait(_MOST_SECONDS, threading.Event()), f"it has not ended after {_MOST_SECONDS:g} s"
    made.result()
