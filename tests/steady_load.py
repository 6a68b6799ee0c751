"""A steady load of small transactions, to have something going on while parts are killed and restarted."""

from __future__ import annotations

import random
import threading
import time
from abc import ABC, abstractmethod
from types import TracebackType
from typing import ClassVar, Self


class SteadyLoad(ABC):
    """Writes from a thread of its own, from `with` to its end or to `stop`.

    committed: transactions that are known to have been committed with at least one change. A connection that breaks is
    made again; whether its last transaction was committed nobody knows, so `committed` is a lower bound then.
    pause: seconds between two transactions. errors: what the driver raises.
    """

    errors: ClassVar[type[Exception]]

    def __init__(self, pause: float, seed: int) -> None:
        self.committed = 0
        self._pause = pause
        self._random = random.Random(seed)
        self._next_id = 0
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="write load", daemon=True)

    def until_more(self, transactions: int = 100, timeout: float = 60.0) -> None:
        """Wait until so many more transactions have been committed; raises what the thread failed with."""
        enough, deadline = self.committed + transactions, time.monotonic() + timeout
        while self.committed < enough:
            if self._failure is not None:
                raise self._failure
            assert time.monotonic() < deadline, f"no {transactions} transactions in {timeout} s"
            time.sleep(0.02)

    def stop(self) -> None:
        """Return when nothing is written any more; raises what the thread failed with."""
        self._stopping.set()
        self._thread.join(60)
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
    def large_transaction(self, rows: int) -> None:
        """Insert so many rows and change some of them, in one transaction; from the caller's thread."""

    @abstractmethod
    def _write(self) -> None:
        """One transaction after the other in one session, until it is to stop."""

    @abstractmethod
    def _is_away(self, error: Exception) -> bool:
        """Whether the server is not there, or leaves."""
