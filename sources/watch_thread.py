"""A thread that asks a server something now and then, beside the stream."""

from __future__ import annotations

import threading
from collections.abc import Callable

_WATCH_STOP_SECONDS = 1.0


class WatchThread:
    """watch: runs until the event that it is given is set, and raises nothing."""

    def __init__(self, watch: Callable[[threading.Event], None]) -> None:
        self._watch = watch
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin. May be called again."""
        if self._thread is None:
            self._stopping = threading.Event()
            self._thread = threading.Thread(
                target=self._watch, args=(self._stopping,), name="server watch", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        """End. May be called twice, and before start."""
        self._stopping.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(_WATCH_STOP_SECONDS)  # it may wait for an answer, which it then gives up by itself
