"""Sinks that keep nothing: one logs what passes, one counts it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from typing import ClassVar

from psql_streamer.interfaces import Finding, Sink, Status
from psql_streamer.model import Batch, Stats
from psql_streamer.name_counts import show_name
from psql_streamer.options import SinkOptions


class StubOptions(SinkOptions):
    """The section of a stub sink."""

    @property
    def takes_rejected_rows(self) -> bool:
        """See SinkOptions.takes_rejected_rows: they are counted."""
        return True


class StubDiscardSink(Sink):
    """Counts and discards. `debug` logs a line per batch, `verbose` one per table and action; never row values."""

    Options = StubOptions
    also_called: ClassVar[tuple[str, ...]] = ("none", "null", "discard", "devnull", "blackhole")

    def __init__(self, name: str, options: SinkOptions) -> None:
        super().__init__(name, options)
        self._counts = {"events": 0, "bytes": 0, "batches": 0, "dead_lettered": 0}
        self._line_per_batch = options.debug
        self._logger = logging.getLogger(f"psql_streamer.sink.{name}")

    def check(self) -> Iterable[Finding]:
        """Nothing can be wrong."""
        return ()

    def start(self) -> None:
        """Nothing to acquire."""

    def write(self, batch: Batch) -> None:
        """Count the batch. Never waits, never fails."""
        self._counts["events"] += len(batch)
        self._counts["bytes"] += batch.nbytes
        self._counts["batches"] += 1
        self._counts["dead_lettered"] += sum(len(rejection.changes) for rejection in batch.rejections)
        if self._line_per_batch or self.options.verbose:
            self._log(batch)

    def interrupt(self) -> None:
        """Nothing ever waits."""

    def stop(self) -> None:
        """Nothing to release."""

    def status(self) -> Status:
        """Always well."""
        return Status(True, f"took {self._counts['events']} events")

    def stats(self) -> Stats:
        """events, bytes (of the batches in memory), batches, dead_lettered: rows that a handler put aside."""
        return dict(self._counts)

    def set_debug(self, on: bool) -> None:
        """Switch the line per batch."""
        self._line_per_batch = on

    def _log(self, batch: Batch) -> None:
        actions = Counter[str]()
        for schema, table, op, rows in batch.count_changes():
            actions[op.action] += rows
            if self.options.verbose:
                self._logger.info("%s.%s: %d %s", schema, show_name(table), rows, op.action)
        what = ", ".join(f"{rows} {action}" for action, rows in actions.items()) or "no changes"
        self._logger.info("%s, %s %s", what, "before" if batch.continues else "up to", batch.position)


class StubLogSink(StubDiscardSink):
    """As StubDiscardSink, with a line per batch always."""

    also_called: ClassVar[tuple[str, ...]] = ("stdout", "console", "log", "print")

    def __init__(self, name: str, options: SinkOptions) -> None:
        super().__init__(name, options)
        self._line_per_batch = True

    def set_debug(self, on: bool) -> None:
        """The line per batch stays."""
