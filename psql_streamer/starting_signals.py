"""Signals that come before the service listens to them (pipeline.shutdown): modules are imported, the file is read.

Nothing is read from a server then, so nothing has to be brought to an end.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

_HELD = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)

_before: dict[int, Any] = {}
"""What each signal did before it was held."""

_came: list[int] = []


def hold_signals() -> None:
    """Note signals until it is known what they do to the command. The second ends the process. From the main thread.

    One that is ignored stays so, as SIGHUP does below nohup.
    """
    for number in _HELD:
        if signal.getsignal(number) is not signal.SIG_IGN:
            _before[number] = signal.signal(number, _note)


def release_signals() -> None:
    """They do what they did before, also those that came meanwhile."""
    for number, handler in _before.items():
        signal.signal(number, handler)
    _before.clear()
    _raise_noted()


def stop_by_signals(say: Callable[[str], None]) -> None:
    """For the service: SIGTERM and SIGINT end the process with 0, and SIGHUP does nothing. Those that are not held stay
    as they are. say: tells of a signal's name, and must not wait for long.
    """

    def end(number: int, _: FrameType | None) -> None:
        signal.signal(number, _end_at_once)
        with contextlib.suppress(Exception):  # whatever was interrupted
            say(signal.Signals(number).name)
        os._exit(0)

    for number in _before:
        signal.signal(number, signal.SIG_IGN if number == signal.SIGHUP else end)
    _raise_noted()


def _note(number: int, frame: FrameType | None) -> None:
    if _came and number != signal.SIGHUP:
        _end_at_once(number, frame)
    _came.append(number)


def _end_at_once(number: int, _: FrameType | None) -> None:
    os._exit(128 + number)


def _raise_noted() -> None:
    while _came:
        signal.raise_signal(_came.pop(0))
