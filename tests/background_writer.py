"""Something that writes to a database from a thread of its own, also while the server goes and comes back."""

from __future__ import annotations

import random
import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import ClassVar, Self


class BackgroundWriter(ABC):
    """Writes from a thread of its own, from `with` to its end or to `stop`.

    pause: seconds between two transactions. errors: what the driver raises.
    """

    errors: ClassVar[type[Exception]]

    def __init__(self, pause: float, seed: int) -> None:
        self._pause = pause
        self._random = random.Random(seed)
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="background writer", daemon=True)

    def stop(self) -> None:
        """Return when nothing is written any more; raises what the thread failed with."""
        self._stopping.set()
        self._thread.join(60)
        self.require_no_failure()

    def require_no_failure(self) -> None:
        """Raise what the thread failed with, if it has."""
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join(60)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    self._write()
                except self.errors as error:
                    if not self._is_away(error):
                        raise
                    self._stopping.wait(0.05)
        except BaseException as error:
            self._failure = error

    @abstractmethod
    def _write(self) -> None:
        """One transaction after the other in one session, until it is to stop."""

    @abstractmethod
    def _is_away(self, error: Exception) -> bool:
        """Whether the server is not there, or leaves."""
