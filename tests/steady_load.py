"""A steady load of small transactions, to have something going on while parts are killed and restarted."""

from __future__ import annotations

import time
from abc import abstractmethod

from tests.background_writer import BackgroundWriter


class SteadyLoad(BackgroundWriter):
    """Counts what it has written.

    committed: transactions that are known to have been committed with at least one change. A connection that breaks is
    made again; whether its last transaction was committed nobody knows, so `committed` is a lower bound then.
    """

    def __init__(self, pause: float, seed: int) -> None:
        super().__init__(pause, seed)
        self.committed = 0
        self._next_id = 0

    def until_more(self, transactions: int = 100, timeout: float = 60.0) -> None:
        """Wait until so many more transactions have been committed; raises what the thread failed with."""
        enough, deadline = self.committed + transactions, time.monotonic() + timeout
        while self.committed < enough:
            self.require_no_failure()
            assert time.monotonic() < deadline, f"no {transactions} transactions in {timeout} s"
            time.sleep(0.02)

    @abstractmethod
    def large_transaction(self, rows: int) -> None:
        """Insert so many rows and change some of them, in one transaction; from the caller's thread."""
