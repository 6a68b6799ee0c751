"""What the construction of a part must not do."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_ATTEMPTS = 3
"""Another thread of the process may open a file meanwhile, but not each time."""

_OF_MODULES = (".py", ".pyc", ".so", ".pyd")
"""Files that an import reads: a part may import what it needs when it is made."""


def require_nothing_acquired(make: Callable[[], object]) -> None:
    """AssertionError when making a part starts a thread or a process, or opens a file or a connection, even if that is
    closed again.
    """
    found: set[str] = set()
    for _ in range(_ATTEMPTS):
        before = _list_held()
        with _watch() as opened:
            made = make()
        found = _list_held() - before | set(opened)
        del made
        if not found:
            return
    raise AssertionError(f"constructing a part does no I/O: it has {', '.join(sorted(found))}")


def _list_held() -> set[str]:
    threads = {f"thread {thread.name}" for thread in threading.enumerate()}
    return threads | set(_open_files())


def _open_files() -> list[str]:
    """The descriptors of this process; none where the system does not list them."""
    found = []
    for entry in Path("/dev/fd").glob("*"):
        try:
            found.append(f"{entry.name}: {entry.readlink()}")
        except OSError:  # the one that listed the folder is closed by now
            continue
    return found


_OPENED: list[str] | None = None
"""What the watched thread opens; None: none is watched."""

_WATCHED: list[int] = []
"""The thread. A hook cannot be taken out again (sys.addaudithook), so it is there once and looks here."""


@contextmanager
def _watch() -> Iterator[list[str]]:
    """What this thread opens meanwhile."""
    global _OPENED
    if not _WATCHED:
        sys.addaudithook(_note)
    _WATCHED[:] = [threading.get_ident()]
    _OPENED = opened = list[str]()
    try:
        yield opened
    finally:
        _OPENED = None


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    opened = _OPENED
    if opened is None or event not in _EVENTS or threading.get_ident() not in _WATCHED:
        return
    what = str(arguments[_EVENTS[event]])
    if not what.endswith(_OF_MODULES):
        opened.append(f"opened {what}")


_EVENTS = {"open": 0, "socket.connect": 1, "subprocess.Popen": 0, "sqlite3.connect": 0}
"""https://docs.python.org/3/library/audit_events.html: the event, and which of its arguments says what is opened."""
