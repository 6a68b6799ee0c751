"""The lock on the engine that all handlers of the process share: for many at once, or for one alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from psql_streamer.batching import LOOK_SECONDS


class EngineLock:
    """A handler that looks for the row which ends the engine must be alone with it: else another's job ends with it, or
    another's row is to blame."""

    def __init__(self) -> None:
        self._free = threading.Condition()
        self._users = 0
        self._alone = False

    @contextmanager
    def hold_shared(self, give_up: Callable[[], None]) -> Iterator[None]:
        """Hold the lock together with others. give_up: called now and then while it waits; may raise."""
        with self._free:
            self._wait(lambda: not self._alone, give_up)
            self._users += 1
        try:
            yield
        finally:
            with self._free:
                self._users -= 1
                self._free.notify_all()

    @contextmanager
    def hold_alone(self, give_up: Callable[[], None]) -> Iterator[None]:
        """Hold the lock alone, when the others have ended what they are at; meanwhile nobody else gets it. give_up: see
        `shared`.
        """
        with self._free:
            self._wait(lambda: not self._alone, give_up)
            self._alone = True
            try:
                self._wait(lambda: not self._users, give_up)
            except BaseException:
                self._alone = False
                raise
        try:
            yield
        finally:
            with self._free:
                self._alone = False
                self._free.notify_all()

    def _wait(self, ready: Callable[[], bool], give_up: Callable[[], None]) -> None:
        while not self._free.wait_for(ready, LOOK_SECONDS):
            give_up()


engine_lock = EngineLock()
"""The lock of this process's engine."""
