"""Stores and confirms positions, in a thread of its own: a disk's sync delays no batch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from psql_streamer.batching import STORE_INTERVAL_SECONDS


class Checkpointer:
    """Woken when something became durable; stores the position of every source that has got further.

    on_failure: called when a position cannot be stored; nothing is stored behind that.
    """

    def __init__(self, on_failure: Callable[[Exception], None]) -> None:
        self._on_failure = on_failure
        self._store: tuple[Callable[[], None], ...] = ()
        self._wake = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="checkpointer", daemon=True)

    def start(self, store: Iterable[Callable[[], None]]) -> None:
        """Begin. store: for each source what stores and confirms how far it is durable, if it has got further."""
        self._store = tuple(store)
        self._thread.start()

    def wake(self) -> None:
        """Something became durable. From any thread."""
        self._wake.set()

    def close(self, seconds: float) -> bool:
        """Store what is durable now, the last time, and end; False when that takes longer."""
        self._ending.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(seconds)
        return not self._thread.is_alive()

    @property
    def hanging(self) -> list[str]:
        """Its thread, if that has not ended."""
        return [self._thread.name] if self._thread.is_alive() else []

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            last = self._ending.is_set()
            try:
                for store in self._store:
                    store()
            except Exception as error:  # a position that cannot be stored must stop the service
                self._on_failure(error)
                return
            if last:
                return
            self._ending.wait(STORE_INTERVAL_SECONDS)
