"""What readers do next: look up tables, read rows, look up keys."""

from __future__ import annotations

from collections.abc import Iterator

from psql_streamer.snapshot.delivered import Given
from psql_streamer.snapshot.held import HeldChunk
from psql_streamer.snapshot.held_keys import HeldKeys
from psql_streamer.snapshot.key_check import KeyCheck
from psql_streamer.snapshot.progress import SnapshotRun
from psql_streamer.snapshot.table_runs import TableRun, TableRuns
from psql_streamer.snapshots import SnapshotState, TableState
from sources.snapshot.late import LateChanges
from sources.snapshot.runs import Runs
from sources.snapshot.work import Check, Chunk, Look, Nudge, Plan, Read, TableWork, Task

_POSTED_AT_ONCE = 5000
"""Posted keys that are looked up with one query."""


class Chooser:
    """Its owner locks it. given: what the stream has given. late: changes that chunks may not see yet. most_held: bytes
    of rows that wait to be given, from which no more are read. nudge: whether the server is to write out its WAL.
    """

    def __init__(self, runs: Runs, given: Given, late: LateChanges, most_held: int) -> None:
        self.nudge = False
        self._runs = runs
        self._given = given
        self._late = late
        self._most_held = most_held
        self._planning: set[str] = set()

    def choose(self) -> Task | None:
        """The next task, if there is one. It counts as begun."""
        if self.nudge:
            self.nudge = False
            return Nudge()
        return next((task for run in self._runs.running if (task := self._choose_task_of_run(run)) is not None), None)

    def note_planned(self, run: SnapshotRun) -> None:
        """Its tables are not being looked up any more."""
        self._planning.discard(run.id)

    def _choose_task_of_run(self, run: SnapshotRun) -> Task | None:
        if run.state is SnapshotState.WAITING:
            run.state = SnapshotState.RUNNING
            self._runs.note_change()
        if run.tables is None:
            if run.id in self._planning:
                return None
            self._planning.add(run.id)
            return Plan(run)
        is_full = self._runs.measure_held_bytes() >= self._most_held
        tasks = (
            self._read(run, table, is_full=is_full)
            if run.check is None
            else self._check(run, table, run.check, is_full=is_full)
            for table in _list_left(run.tables, with_waiting=not is_full)
        )
        return next((task for task in tasks if task is not None), None)

    def _read(self, run: SnapshotRun, table: TableRun, *, is_full: bool) -> Read | Look | None:
        work = self._runs.look_up_work(run, table)
        if work.busy:
            return None
        is_unread = table.key is None and not work.chunks and not work.read_all
        if is_unread or any(chunk.keys for chunk in work.chunks):
            keys: tuple[bytes, ...] = ()  # all rows are read later; those that are held are asked for once
        else:
            keys = tuple(list(table.again)[: work.keys_at_once])
        if not keys and work.read_all:
            return self._look(run, table, work)
        if not keys and is_full:
            return None
        chunk = Chunk(self._begin_chunk(run, table, HeldChunk(self._given.turn, self._given.latest)), keys or None)
        work.chunks.append(chunk)
        return Read(run, table, chunk, None if keys else work.read_key, keys or None, table.order)

    def _look(self, run: SnapshotRun, table: TableRun, work: TableWork) -> Look | None:
        """What has become of the table is asked behind its last rows: those that waited may have been altered."""
        if not self._runs.look_last or table.keyless or work.chunks or table.again or work.look is not None:
            return None
        work.look = object()
        return Look(run, table, work.look, table.order)

    def _check(self, run: SnapshotRun, table: TableRun, check: KeyCheck, *, is_full: bool) -> Check | None:
        work = self._runs.look_up_work(run, table)
        if work.busy or is_full:
            return None
        first = check.settled + sum(chunk.settles for chunk in work.chunks)
        documents = check.list_waiting_from(first, _POSTED_AT_ONCE)
        if not documents:
            return None
        chunk = Chunk(self._begin_chunk(run, table, HeldKeys(self._given.turn, self._given.latest)))
        work.chunks.append(chunk)
        return Check(run, table, chunk, documents, check.form, first, table.order)

    def _begin_chunk(self, run: SnapshotRun, table: TableRun, held: HeldChunk) -> HeldChunk:
        if table.state is TableState.WAITING:
            run.begin_table(table)
            self._runs.note_change()
        for changed in self._late.list_changed_keys(table.relation):
            held.note_keys(changed)
        return held


def _list_left(tables: TableRuns, *, with_waiting: bool) -> Iterator[TableRun]:
    """Those that are read, and then the others; those that wait for something come last."""
    reading = tables.reading
    yield from (table for table in reading if not table.reason)
    if with_waiting:
        yield from tables.waiting
    yield from (table for table in reading if table.reason)
