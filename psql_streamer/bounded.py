"""Calls that may never return, waited for no longer than somebody wants to.

A server, a proxy or a name server that accepts a connection and then keeps silent blocks a client library for ever:
libpq's connect_timeout covers neither the lookup of a name nor the queries behind the connection.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

Result = TypeVar("Result")

_CALL_LOOK_SECONDS = 0.1
"""Between two looks at the clock and at the interruption."""


class Call(Generic[Result]):
    """A call in a thread of its own of this name. A daemon: one that never ends keeps no process alive."""

    def __init__(self, call: Callable[[], Result], name: str) -> None:
        self.name = name
        self._call = call
        self._results: list[Result] = []
        self._failure: BaseException | None = None
        self._abandoned = False
        self._lock = threading.Lock()
        self._done = threading.Event()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def wait(self, seconds: float, interrupted: threading.Event) -> bool:
        """Whether it has ended; False after so many seconds, or when `interrupted` is set."""
        deadline = time.monotonic() + seconds
        while not self._done.wait(max(0.0, min(_CALL_LOOK_SECONDS, deadline - time.monotonic()))):
            if interrupted.is_set() or time.monotonic() >= deadline:
                return self._done.is_set()
        return True

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self._done.is_set()

    def require_result(self) -> Result:
        """What the call gave, or raised, once it has ended."""
        if self._failure is not None:
            raise self._failure
        return self._results[0]

    def abandon(self, discard: Callable[[Result], object]) -> None:
        """Nobody waits for it any more. discard: called with the result, if one comes all the same."""
        with self._lock:
            self._abandoned = True
            self._discard = discard
            results, self._results = self._results, []
        for result in results:
            discard(result)

    def _run(self) -> None:
        try:
            result = self._call()
        except BaseException as error:  # it is raised where the result is asked for
            self._failure = error
        else:
            with self._lock:
                abandoned = self._abandoned
                if not abandoned:
                    self._results.append(result)
            if abandoned:
                self._discard(result)
        self._done.set()
