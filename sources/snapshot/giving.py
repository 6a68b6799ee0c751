"""What of the chunks that are held is given next, and what has been given of a table when all of them are."""

from __future__ import annotations

import time

from psql_streamer.snapshot.delivered import Given
from psql_streamer.snapshot.held import Piece
from psql_streamer.snapshot.held_keys import HeldKeys
from psql_streamer.snapshot.key_check import KeyCheck
from psql_streamer.snapshot.progress import SnapshotRun
from psql_streamer.snapshot.table_runs import TableRun
from psql_streamer.snapshots import SnapshotState, TableState
from sources.snapshot.runs import TO_RUN, Runs
from sources.snapshot.work import Chunk, TableWork

_KEYLESS_SECONDS = 600.0
"""The time for which a snapshot waits for keys that are to be posted."""

_MOST_OUTDATED = 50
"""Chunks of a table in a row that are read again because its shape is another one."""

_OUTDATED = "the stream shows it in another shape than the server's catalog: report it"
_DOUBTFUL = (
    "rows keep coming whose keys may be the same value as one of these in another text: post the keys again when fewer "
    "rows are inserted"
)


class Giver:
    """Its owner locks it. given: what the stream has given."""

    def __init__(self, runs: Runs, given: Given) -> None:
        self._runs = runs
        self._given = given
        self._ticked_at = time.monotonic()

    def take(self, run: SnapshotRun, table: TableRun, work: TableWork, most_rows: int, most_bytes: int) -> Piece | None:
        """The next rows of the first chunk, which the stream has reached; None where it is to be read again."""
        chunk = work.chunks[0]
        if run.check is not None:
            return self._take_keys(run, table, work, chunk, run.check, most_rows, most_bytes)
        return self._take_rows(run, table, work, chunk, most_rows, most_bytes)

    def end_table_if_done(self, run: SnapshotRun, table: TableRun, work: TableWork, *, looked: bool = False) -> None:
        """End a table whose rows were all given. looked: and that was looked at behind them."""
        if run.check is not None:
            return
        if table.state is TableState.READING and work.read_all and not work.chunks and not table.again:
            if self._runs.look_last and not looked and not table.keyless:
                return
            self._runs.end_table(run, table)
            self._runs.news.note_table_done(run, table, time.monotonic() - work.began)
            self._runs.end_if_done(run)
            self._runs.follow(run)
            self._runs.note_change()

    def end_check_if_done(self, run: SnapshotRun) -> None:
        """End a snapshot of keys that are all settled."""
        if run.check is None or not run.check.is_done or run.state not in TO_RUN:
            return
        for table in run.tables or ():
            if table.is_left:
                self._runs.end_table(run, table)
        self._runs.end_if_done(run)
        self._runs.note_change()

    def tick(self) -> None:
        """Time goes on."""
        now = time.monotonic()
        for run in self._runs.running:
            if run.state is SnapshotState.RUNNING:
                run.seconds += now - self._ticked_at
        for run in self._runs.every:
            if run.check is not None and not run.state.ended:
                self._end_without_keys(run, run.check, now)
        self._ticked_at = now

    def _take_rows(
        self, run: SnapshotRun, table: TableRun, work: TableWork, chunk: Chunk, most_rows: int, most_bytes: int
    ) -> Piece | None:
        stale = chunk.held.stale
        again = chunk.held.take_out_changed()
        run.stale += chunk.held.stale - stale
        if chunk.held.outdated:
            self._read_again(run, table, work, table.key, _OUTDATED)
            return None
        work.outdated = 0
        piece = chunk.held.take(most_rows, most_bytes)
        table.rows += len(piece.keys)
        run.rates.note(time.monotonic(), len(piece.keys))
        if chunk.keys is None:
            table.key = table.key if piece.behind is None else piece.behind
        else:
            run.read_again += len(piece.keys)
        if piece.ends_chunk:
            work.chunks.popleft()
            table.chunks += 1
            for key in chunk.keys or ():
                if table.again.get(key, 0) <= chunk.held.turn:
                    table.again.pop(key, None)
        table.again |= dict.fromkeys(again, self._given.turn)
        self.end_table_if_done(run, table, work)
        self._runs.note_change()
        return piece

    def _take_keys(
        self,
        run: SnapshotRun,
        table: TableRun,
        work: TableWork,
        chunk: Chunk,
        check: KeyCheck,
        most_rows: int,
        most_bytes: int,
    ) -> Piece | None:
        held = chunk.held
        assert isinstance(held, HeldKeys)  # noqa: S101 - as it was made for a snapshot of keys
        held.take_out_changed()
        if held.outdated or held.doubtful:
            self._read_again(run, table, work, None, _DOUBTFUL if held.doubtful else _OUTDATED)
            return None
        piece = held.take(most_rows, most_bytes)
        chunk.gone += len(piece.keys)
        if piece.ends_chunk:
            work.outdated = 0
            work.chunks.popleft()
            table.chunks += 1
            check.settle(chunk.settles, chunk.gone, held.stale)
            run.rates.note(time.monotonic(), chunk.settles)
        self.end_check_if_done(run)
        self._runs.note_change()
        return piece

    def _read_again(self, run: SnapshotRun, table: TableRun, work: TableWork, given: bytes | None, why: str) -> None:
        """Read behind what was given. why: what a table fails with for which that does not help."""
        work.drop_chunks(given)
        work.outdated += 1
        if work.outdated > _MOST_OUTDATED:
            run.fail_table(table, why)
            self._runs.end_if_done(run)
        self._runs.note_change()

    def _end_without_keys(self, run: SnapshotRun, check: KeyCheck, now: float) -> None:
        """Whoever was to post keys has gone away."""
        came = self._runs.keys_came.setdefault(run.id, now)
        if not check.is_idle or run.state is SnapshotState.PAUSED or run.tables is None:
            self._runs.keys_came[run.id] = now
        elif now - came > _KEYLESS_SECONDS:
            for table in run.tables or ():
                run.fail_table(
                    table, f"no keys came for {_KEYLESS_SECONDS / 60:g} minutes: post them again, to a new one"
                )
            self._runs.end_if_done(run)
            self._runs.note_change()
