"""What is said of snapshots, in the log and in a status: that one begins, gets on, waits and ends."""

from __future__ import annotations

import logging
import time
from collections import deque
from dataclasses import dataclass

from psql_streamer.snapshot.progress import SnapshotRun
from psql_streamer.snapshot.table_runs import TableRun
from psql_streamer.snapshot_figures import describe_keys
from psql_streamer.snapshots import KeysProgress, SnapshotProgress, SnapshotState, TableState

log = logging.getLogger(__name__)

_SAID_AFTER_SECONDS = 5.0
"""How long something is waited for before that is worth a line."""


@dataclass(slots=True)
class _Wait:
    reason: str
    since: float
    said: bool = False


class News:
    """Of one source. `tell` writes what the other methods noted, without their caller's lock: a log may be slow."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._lines: deque[tuple[int, str]] = deque()
        self._waits: dict[tuple[str, str], _Wait] = {}

    def note_begin(self, run: SnapshotRun) -> None:
        """Its tables are known."""
        if run.check is not None:
            self._note(logging.INFO, f"snapshot {run.id} begins: keys of {_name_tables(run)} are looked up")
            return
        estimates = [table.estimated_rows for table in run.tables or ()]
        known = [rows for rows in estimates if rows is not None]
        about = f", about {count(sum(known), 'row')}" if known else ""
        self._note(logging.INFO, f"snapshot {run.id} begins: {count(len(estimates), 'table')}{about}")

    def note_resumption(self, run: SnapshotRun) -> None:
        """After a restart."""
        how = "stays paused" if run.state is SnapshotState.PAUSED else "goes on"
        if run.check is not None:
            self._note(logging.INFO, f"snapshot {run.id} {how}: {describe_keys(run.check.show())} before")
            return
        tables = run.tables or ()
        done = sum(not table.is_left for table in tables)
        rows = sum(table.rows for table in tables)
        self._note(
            logging.INFO, f"snapshot {run.id} {how}: {done} of {count(len(tables), 'table')}, {count(rows, 'row')}"
        )

    def note_table_done(self, run: SnapshotRun, table: TableRun, seconds: float) -> None:
        """All of its rows were given. Whether sinks have them is not known here: they are on their way."""
        self._note(
            logging.INFO, f"snapshot {run.id}: {table.table} is read, {count(table.rows, 'row')} in {seconds:.1f} s"
        )

    def note_end(self, run: SnapshotRun) -> None:
        """Nothing more of it is read."""
        self.note_wait_over(run)
        failed = run.state is SnapshotState.FAILED
        what = _describe_rows(run) if run.check is None else _describe_check(run, run.check.show())
        text = f"snapshot {run.id} is {run.state}: {what}"
        self._note(logging.ERROR if failed else logging.INFO, f"{text}; {run.reason}" if failed else text)

    def note_wait(self, run: SnapshotRun, what: str, reason: str) -> None:
        """what: of the snapshot waits, a table for example."""
        known = self._waits.get((run.id, what))
        if known is None or known.reason != reason:
            self._waits[run.id, what] = _Wait(reason, time.monotonic() if known is None else known.since)

    def note_wait_over(self, run: SnapshotRun, what: str | None = None) -> None:
        """what: as of `waits`; None for whatever waits."""
        for key in [key for key in self._waits if key[0] == run.id and what in (None, key[1])]:
            wait = self._waits.pop(key)
            if wait.said:
                self._note(logging.INFO, f"snapshot {run.id} goes on after {time.monotonic() - wait.since:.0f} s")

    def tell(self) -> None:
        """Write what there is to say."""
        if self._waits:
            self._note_long_waits()
        while self._lines:
            level, text = self._lines.popleft()
            log.log(level, "source.%s: %s", self._source, text)

    def _note_long_waits(self) -> None:
        now = time.monotonic()
        for (run, _), wait in list(self._waits.items()):
            if not wait.said and now - wait.since >= _SAID_AFTER_SECONDS:
                wait.said = True
                said = wait.reason if wait.reason.startswith("waits") else f"waits: {wait.reason}"
                self._note(logging.WARNING, f"snapshot {run} {said}")

    def _note(self, level: int, text: str) -> None:
        self._lines.append((level, text))


def describe(shown: SnapshotProgress) -> str:
    """A snapshot as part of a status: `snapshot initial-...: 3 of 20 tables, 1,200 rows`."""
    tables, rows = count(len(shown.tables), "table"), count(shown.rows, "row")
    if shown.keys is not None:
        paused = "paused, " if shown.state is SnapshotState.PAUSED else f"{shown.state}, " if shown.state.ended else ""
        text = f"{paused}{describe_keys(shown.keys)}"
    elif shown.state.ended:
        text = f"{shown.state}, {rows} of {tables}"
    elif not shown.tables:
        text = "looks up its tables"
    else:
        done = sum(table.state in (TableState.DONE, TableState.FAILED) for table in shown.tables)
        paused = "paused, " if shown.state is SnapshotState.PAUSED else ""
        text = f"{paused}{done} of {tables}, {rows}"
    return f"snapshot {shown.id}: {text}{', ' if shown.reason else ''}{shown.reason}"


def _describe_rows(run: SnapshotRun) -> str:
    tables = run.tables or ()
    done = sum(table.state is TableState.DONE for table in tables)
    rows = sum(table.rows for table in tables)
    return (
        f"{count(rows, 'row')} of {count(done, 'table')} in {run.seconds:.1f} s, "
        f"{count(run.stale, 'row')} left out because the stream had newer ones, {run.read_again} read again"
    )


def _describe_check(run: SnapshotRun, keys: KeysProgress) -> str:
    return f"{describe_keys(keys)} of {_name_tables(run)} in {run.seconds:.1f} s"


def _name_tables(run: SnapshotRun) -> str:
    return ", ".join(table.table for table in run.tables or ()) or "no table"


def count(number: int, noun: str) -> str:
    """`1 row`, `1,200 rows`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
