"""Deadlines of calls that cannot be given one: one thread looks after all of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Deadlines:
    """The thread is there while calls are made, and for one deadline longer."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._under_way: dict[object, tuple[float, Callable[[], None]]] = {}
        self._looks_at = 0.0
        self._thread: threading.Thread | None = None

    @contextmanager
    def keep(self, seconds: float, give_up: Callable[[], None]) -> Iterator[None]:
        """give_up: called from another thread when what stands inside takes longer."""
        call = object()
        self._begin(call, time.monotonic() + seconds, give_up)
        try:
            yield
        finally:
            with self._changed:
                self._under_way.pop(call, None)

    def _begin(self, call: object, deadline: float, give_up: Callable[[], None]) -> None:
        with self._changed:
            self._under_way[call] = deadline, give_up
            if self._thread is None:
                self._looks_at = deadline
                self._thread = threading.Thread(target=self._run, name="deadlines", daemon=True)
                self._thread.start()
            elif deadline < self._looks_at:
                self._looks_at = deadline
                self._changed.notify()

    def _run(self) -> None:
        while (missed := self._wait()) is not None:
            for give_up in missed:
                give_up()

    def _wait(self) -> list[Callable[[], None]] | None:
        """What is to be given up now; None when nothing is under way any more."""
        with self._changed:
            self._changed.wait(max(0.0, self._looks_at - time.monotonic()))
            now = time.monotonic()
            late = [call for call, (deadline, _) in self._under_way.items() if deadline <= now]
            missed = [self._under_way.pop(call)[1] for call in late]
            if not missed and not self._under_way:
                self._thread = None
                return None
            self._looks_at = min((deadline for deadline, _ in self._under_way.values()), default=now)
            return missed
