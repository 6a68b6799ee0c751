"""Signals, and the promise that a stop ends, whatever hangs."""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from types import FrameType

log = logging.getLogger("psql_streamer.pipeline")

FORCED = 1
"""The exit code when something hung."""

LAST_MESSAGE_SECONDS = 0.5
"""The time that a last message may take: the log may be what hangs."""

_INTERPRETER_SECONDS = 0.25
"""The time that this process's own threads get to end it after the deadline."""

_LIBRARY = str(Path(threading.__file__).parent)
"""The folder of Python's own modules; installed packages may lie in a folder of it."""

_STOPPING = (signal.SIGTERM, signal.SIGINT)


class Shutdown:
    """The first SIGTERM or SIGINT calls `stop`; the second ends the process at once, with 128 and the signal's number.

    stop: begins an orderly stop; must return at once. What hears signals and what holds the deadline never wait for
    the log: that may be a full pipe.
    """

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self._deadline = threading.Lock()
        self._signals = 0
        self._nowhere = Path(os.devnull).open("w")  # noqa: SIM115 - a watch has it for as long as the process lives

    def listen(self) -> None:
        """Take over the signals. From the main thread. SIGHUP, which many send to have logs rotated, does nothing.

        A signal is heard by a thread of its own: Python runs a handler in the main thread only, which may be in a call
        of a library that does not return.
        """
        heard, woken = os.pipe()
        os.set_blocking(woken, False)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        for number in _STOPPING:
            signal.signal(number, lambda *_: None)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        threading.Thread(target=self._hear, args=(heard,), name="signals", daemon=True).start()

    def begin(self, seconds: float) -> None:
        """The process has so many seconds to end, and LAST_MESSAGE_SECONDS to say why. The first call counts."""
        if self._deadline.acquire(blocking=False):
            # A watch that is no Python thread: those do not run while the interpreter ends, which may hang as well.
            # It ends the process with 1, which is FORCED. What it writes before may block like any log.
            watched = seconds + LAST_MESSAGE_SECONDS + _INTERPRETER_SECONDS
            faulthandler.dump_traceback_later(watched, exit=True, file=self._nowhere)
            threading.Thread(target=self._end_after, args=(seconds,), name="shutdown", daemon=True).start()

    def _hear(self, heard: int) -> None:
        while True:
            for number in os.read(heard, 64):
                if number in _STOPPING:
                    self._obey_signal(signal.Signals(number))

    def _obey_signal(self, number: signal.Signals) -> None:
        self._signals += 1
        if self._signals == 1:
            self._stop()
            _say(logging.INFO, f"stopping: {number.name}", 0.0)
        else:
            _say(
                logging.ERROR,
                f"ending at once: {number.name} for the second time; what was not acknowledged is read again",
            )
            os._exit(128 + number)

    def _end_after(self, seconds: float) -> None:
        time.sleep(seconds)
        _say(
            logging.ERROR,
            f"not stopped within {seconds:.1f} s, ending all the same: {'; '.join(_describe_all_places())}",
        )
        os._exit(FORCED)


def _say(level: int, text: str, seconds: float = LAST_MESSAGE_SECONDS) -> None:
    """Log it from a thread of its own and wait for that so long; say nothing where the system gives no more threads."""
    saying = threading.Thread(target=log.log, args=(level, "%s", text), name="last words", daemon=True)
    with contextlib.suppress(RuntimeError):
        saying.start()
        saying.join(seconds)


def _describe_all_places() -> list[str]:
    return describe_places({thread.name for thread in threading.enumerate()} - {"signals", "shutdown", "last words"})


def describe_places(names: Collection[str]) -> list[str]:
    """Where in our code, or a part's, the threads of these names are: `sink.k in flush (producer.py:120)`."""
    frames = sys._current_frames()
    return [
        f"{thread.name} in {_describe_place(frames[thread.ident])}"
        for thread in threading.enumerate()
        if thread.name in names and thread.ident in frames
    ]


def _describe_place(frame: FrameType) -> str:
    """The innermost call that is not one of Python's own library."""
    at: FrameType | None = frame
    while at is not None and _is_library(at.f_code.co_filename):
        at = at.f_back
    at = at or frame
    return f"{at.f_code.co_name} ({Path(at.f_code.co_filename).name}:{at.f_lineno})"


def _is_library(file: str) -> bool:
    return file.startswith(_LIBRARY) and "site-packages" not in file
