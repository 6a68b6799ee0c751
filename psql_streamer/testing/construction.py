"""What the construction of a part must not do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

_ATTEMPTS = 3
"""Another thread of the process may open a file meanwhile, but not each time."""


def require_nothing_acquired(make: Callable[[], object]) -> None:
    """AssertionError when making a part starts a thread, or opens a file or a connection."""
    found: set[str] = set()
    for _ in range(_ATTEMPTS):
        before = _list_held()
        made = make()
        found = _list_held() - before
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
