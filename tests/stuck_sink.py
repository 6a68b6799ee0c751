"""A sink for services that tests start: it takes a batch with rows, and never comes back, whatever it is told."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from psql_streamer.interfaces import Finding, Sink, Status
from psql_streamer.model import Batch, Stats
from psql_streamer.options import SinkOptions


class StuckSink(Sink):
    """`write` and `stop` never return, but of batches without rows: one may come in front of the first row."""

    Options = SinkOptions

    def check(self) -> Iterable[Finding]:
        return ()

    def start(self) -> None:
        self._taken = 0

    def write(self, batch: Batch) -> None:
        if not len(batch):
            return
        self._taken += len(batch)
        threading.Event().wait()

    def interrupt(self) -> None:
        """It does not care."""

    def stop(self) -> None:
        threading.Event().wait()

    def status(self) -> Status:
        return Status(True, "taking its time")

    def stats(self) -> Stats:
        return {"events": self._taken}
