"""An end for a process whose interpreter a library holds: no thread runs any more, and no signal is heard."""

from __future__ import annotations

import faulthandler
import threading
from collections.abc import Iterator
from contextlib import contextmanager

HELD_SECONDS = 20.0
"""Longer than any call holds the interpreter's lock that returns."""

_STDERR = 2


@contextmanager
def end_if_held(seconds: float = HELD_SECONDS) -> Iterator[None]:
    """Within this `with`: if no thread runs for so many seconds, say on stderr where each of them is, and end the
    process with status 1.

    faulthandler's own thread does not need the interpreter's lock. It is put off for as long as others run, so what
    stands in the `with` may take its time.
    """
    ended = threading.Event()
    putting_off = threading.Thread(target=_put_off, args=(seconds, ended), name="held interpreter", daemon=True)
    putting_off.start()
    try:
        yield
    finally:
        ended.set()
        putting_off.join()


def _put_off(seconds: float, ended: threading.Event) -> None:
    while not ended.is_set():
        faulthandler.dump_traceback_later(seconds, exit=True, file=_STDERR)
        ended.wait(seconds / 10)
    faulthandler.cancel_dump_traceback_later()
