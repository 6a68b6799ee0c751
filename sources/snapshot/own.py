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


class OwnSnapshots:
    """When one begins, and of what. Not for several threads.

    of_all: the id of an operator's request for all tables that is to run; empty for none.
    """

    def __init__(self, options: SnapshotOptions) -> None:
        self._options = options
        self._started = False
        self.of_all = ""

    def note_requests(self, requests: Sequence[SnapshotRequest]) -> None:
        """One of all tables that an operator asked for stands for the source's own."""
        self.of_all = next((one.id for one in requests if one.wanted is Wanted.RUN and not one.tables), "")

    def begins(self, position: Position | None, schedule: Schedule[Any], anew: bool = False) -> bool:
        """Whether a start at a position begins one. anew: whether what was begun must be begun again."""
        mode = self._options.mode
        if mode is SnapshotMode.NEVER or self.of_all:
            return False
        if anew or (position is None and not schedule.has_own):
            return True
        return mode is SnapshotMode.ALWAYS and not self._started

    def note_start(self) -> None:
        """The source has started; what it is asked for at every start was asked for this time."""
        self._started = True

    def make(self) -> SnapshotRun:
        """A new one."""
        asked_at = time.time()
        at = time.strftime("%Y%m%d-%H%M%S", time.gmtime(asked_at))
        return SnapshotRun(f"{self._options.mode}-{at}", False, asked_at, self.requested)

    @property
    def requested(self) -> tuple[TableRequest, ...]:
        """The tables of which it is. Their conditions are those of SnapshotOptions.choose_conditions."""
        return tuple(TableRequest(table) for table in self._options.tables)
