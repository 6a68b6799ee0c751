"""Which tables are with their rules now, and since when."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class AtWork:
    """Of one handler, whose threads have a table each."""

    def __init__(self) -> None:
        self._began: dict[int, tuple[float, str]] = {}

    @contextmanager
    def note(self, where: str) -> Iterator[None]:
        """While this thread has a table and its rule. where: what messages call them."""
        thread = threading.get_ident()
        self._began[thread] = time.monotonic(), where
        try:
            yield
        finally:
            self._began.pop(thread, None)

    def describe_longest(self) -> str:
        """The table that has been with its rule for the longest time; empty where there is none."""
        began, where = min(list(self._began.values()), default=(0.0, ""))
        return f"{where}, for {time.monotonic() - began:.0f} s" if where else ""
