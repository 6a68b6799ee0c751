"""The snapshots of a source: their state, what of their tables is read ahead of it, and what operators want of them."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from psql_streamer.snapshot.progress import SnapshotRun, decode_runs, encode_runs
from psql_streamer.snapshot.table_runs import TableRun
from psql_streamer.snapshots import SnapshotState, Wanted
from sources.snapshot.news import News
from sources.snapshot.work import Chunk, TableWork

_MOST_ENDED_RUNS = 20
"""Snapshots that have ended and are shown."""

TO_RUN = (SnapshotState.WAITING, SnapshotState.RUNNING)

Begun: TypeAlias = dict[str, list[tuple[SnapshotRun, TableRun]]]
"""Relation -> the snapshots that have begun to read it."""


class Runs:
    """Its owner locks it. news: told what happens. notify: called when something has changed.

    every: all that are known. wanted: by id, what operators want. durably_ended: ids of those whose end is on disk.
    first: ids of those that go before the stream, and whose tables are not known yet. told: whether a batch has the
    latest state. last_ended: since the process began. keys_came: when keys were posted last, by id. look_last: whether
    a table is looked at once more behind its last rows.
    """

    def __init__(self, news: News, notify: Callable[[], None], *, look_last: bool = False) -> None:
        self.news = news
        self.look_last = look_last
        self.every: list[SnapshotRun] = []
        self.wanted: dict[str, Wanted] = {}
        self.durably_ended: set[str] = set()
        self.first: set[str] = set()
        self.told = True
        self.last_ended: SnapshotRun | None = None
        self.keys_came: dict[str, float] = {}
        self._notify = notify
        self._work: dict[tuple[str, str], TableWork] = {}
        self._encoded: list[dict[str, Any]] | None = []

    def note_change(self) -> None:
        """Positions that hold the state from before are out of date."""
        self._encoded, self.told = None, False
        self._notify()

    def encode(self) -> Sequence[Mapping[str, Any]]:
        """For the position of the batch that is given next."""
        if self._encoded is None:
            self._encoded = encode_runs(self.every, self.durably_ended)
        self.told = True
        return self._encoded

    def resume(self, data: Sequence[Mapping[str, Any]], anew: bool) -> None:
        """The state of a position. What was read and not given is read again.

        A snapshot in which tables without a key are left is gone with the slot's snapshot: another one is to follow it.
        anew: whether it was the source's own.
        """
        self.drop_work()
        runs = [run for run in decode_runs(data) if not run.has_keyless_left]
        stored = {run.id for run in runs}
        others = [run for run in self.every if run.id not in stored and not (anew and run.ends_with_its_slot)]
        over = [run for run in others if run.id in self.durably_ended]  # positions tell of the last ones alone
        # Of one that no position has yet nothing was given: it begins anew.
        self.every = over + runs + [run.begin_anew() for run in others if run.id not in self.durably_ended]
        self.durably_ended |= {run.id for run in self.every if run.state.ended}
        for run in self.every:
            had_ended = run.state.ended
            self.follow(run)
            if run.tables is not None and not had_ended and run.state is not SnapshotState.CANCELLED:
                self.news.note_resumption(run)
        self.note_change()

    def follow(self, run: SnapshotRun) -> None:
        """Do what is wanted of it."""
        wanted = self.wanted.get(run.id)
        if wanted is None or run.state.ended:
            return
        if wanted is Wanted.PAUSE and run.has_keyless_left:
            return  # the stream waits for these tables, and the slot's snapshot does not wait
        run.want(wanted)
        if run.state is SnapshotState.CANCELLED:
            self.note_end(run)
        elif run.state is SnapshotState.PAUSED:
            self.news.note_wait_over(run)
        if run.state in (SnapshotState.PAUSED, SnapshotState.CANCELLED):
            for table in run.reading:
                self.look_up_work(run, table).drop_chunks(table.key)

    def forget_old(self) -> None:
        """Of the snapshots whose end is on disk, and that nobody asks for any more, the last ones are remembered."""
        over = [
            run
            for run in self.every
            if run.id in self.durably_ended and self.wanted.get(run.id, Wanted.CANCEL) is Wanted.CANCEL
        ]
        for run in over[:-_MOST_ENDED_RUNS]:
            self.every.remove(run)

    @property
    def current(self) -> SnapshotRun | None:
        """The snapshot whose tables are read: one after the other."""
        for run in self.every:
            if run.check is None and run.state in TO_RUN:
                return run
        return None

    @property
    def checks(self) -> list[SnapshotRun]:
        """Those that look up keys. They wait for whoever posts these, and so keep no other one waiting."""
        return [run for run in self.every if run.check is not None and run.state in TO_RUN]

    @property
    def running(self) -> list[SnapshotRun]:
        """All that something is done for, in the order in which it is."""
        current = self.current
        return [*self.checks, *(() if current is None else (current,))]

    @property
    def come_first(self) -> bool:
        """Whether the stream has to wait for tables without a key."""
        return any(run.has_keyless_left or run.id in self.first for run in self.every if not run.state.ended)

    def group_reading(self) -> Begun:
        """The tables that snapshots have begun to read, paused ones too."""
        found: Begun = {}
        for run in self.every:
            if run.state.ended:
                continue
            for table in run.reading:
                found.setdefault(table.relation, []).append((run, table))
        return found

    def list_begun(self) -> Iterator[tuple[SnapshotRun, TableRun, TableWork]]:
        """The tables of which something may be given."""
        for run in self.running:
            for table in run.reading:
                yield run, table, self.look_up_work(run, table)

    def list_chunks(self, relations: Container[str]) -> Iterator[Chunk]:
        """What is held of tables of these relations, also of snapshots that have ended."""
        for run in self.every:
            for table in run.reading:
                if table.relation in relations:
                    yield from self.look_up_work(run, table).chunks

    def look_up_work(self, run: SnapshotRun, table: TableRun) -> TableWork:
        """What of a table is ahead of its state."""
        return self._work.setdefault((run.id, table.table), TableWork(read_key=table.key))

    def measure_held_bytes(self) -> int:
        """Of the rows of all chunks that are not given yet."""
        return sum(chunk.held.waiting_bytes for one in self._work.values() for chunk in one.chunks)

    def drop_work(self) -> None:
        """Nothing is ahead of the state any more."""
        for work in self._work.values():
            work.drop_chunks(None)
        self._work.clear()

    def end_table(self, run: SnapshotRun, table: TableRun) -> None:
        """All of it was given."""
        run.end_table(table)
        self._work.pop((run.id, table.table), None)

    def end_if_done(self, run: SnapshotRun) -> None:
        """End a snapshot of which no table is left."""
        if run.end_if_done():
            self.note_end(run)

    def note_end(self, run: SnapshotRun) -> None:
        """Tell of it."""
        self.keys_came.pop(run.id, None)
        if run.check is not None:
            run.check.forget_waiting()
        self.last_ended = run
        self.news.note_end(run)
