"""Snapshots that a source begins by itself."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from psql_streamer.model import Position
from psql_streamer.snapshot.progress import SnapshotRun
from psql_streamer.snapshots import SnapshotRequest, TableRequest, Wanted
from sources.snapshot.options import SnapshotMode, SnapshotOptions
from sources.snapshot.schedule import Schedule


def of_all(requests: Sequence[SnapshotRequest]) -> str:
    """The id of a request for all tables that is to run; empty for none."""
    return next((one.id for one in requests if one.wanted is Wanted.RUN and not one.tables), "")


class OwnSnapshots:
    """When one begins, and of what. Not for several threads."""

    def __init__(self, options: SnapshotOptions) -> None:
        self._options = options
        self._of_all = ""
        self._begun_at_start = False

    def note_requests(self, requests: Sequence[SnapshotRequest]) -> None:
        """One of all tables that an operator asked for stands for the source's own."""
        self._of_all = of_all(requests)

    def begins(self, position: Position | None, schedule: Schedule[Any]) -> bool:
        """Whether a start at a position begins one. Asked once for each start."""
        mode, first = self._options.mode, not self._begun_at_start
        self._begun_at_start = True
        if mode is SnapshotMode.NEVER or self._of_all:
            return False
        if position is None and not schedule.has_own:
            return True
        return mode is SnapshotMode.ALWAYS and first

    def make(self) -> SnapshotRun:
        """A new one."""
        chosen, asked_at = self._options, time.time()
        at = time.strftime("%Y%m%d-%H%M%S", time.gmtime(asked_at))
        tables = chosen.tables or (*chosen.where, "*.*")
        requested = tuple(TableRequest(table, chosen.where.get(table, "")) for table in tables)
        return SnapshotRun(f"{chosen.mode}-{at}", False, asked_at, requested)
