"""What of a source's snapshots is read next, and what of it may be given.

Between two kinds of threads: readers take tasks and bring rows; the source's thread tells of the stream and takes
pieces. Nothing here asks a server or waits for one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Generic, TypeVar

from psql_streamer.errors import NoSuchSnapshot, SnapshotConflict
from psql_streamer.model import Batch
from psql_streamer.snapshot.delivered import Given
from psql_streamer.snapshot.held import ReadRows
from psql_streamer.snapshot.held_keys import HeldKeys
from psql_streamer.snapshot.key_check import KeyCheck
from psql_streamer.snapshot.likeness import Likeness
from psql_streamer.snapshot.progress import SnapshotRun
from psql_streamer.snapshot.table_runs import TableRun, TableRuns
from psql_streamer.snapshots import (
    PostedKeys,
    SnapshotProgress,
    SnapshotRequest,
    SnapshotState,
    Wanted,
    describe_listing,
)
from sources.snapshot.choosing import Chooser
from sources.snapshot.giving import Giver
from sources.snapshot.late import LateChanges
from sources.snapshot.news import News, describe
from sources.snapshot.noting import note_batch, note_name
from sources.snapshot.runs import Runs
from sources.snapshot.showing import choose_main_run, show
from sources.snapshot.waits import Waits
from sources.snapshot.work import Check, Chunk, GivenPiece, Look, Plan, Read, Task

G = TypeVar("G", bound=Given)
Answer = TypeVar("Answer")


class Schedule(Generic[G]):
    """The snapshots of a source. most_held: bytes of rows that wait to be given, from which no more are read.

    wake_source: called when something may be given, from any thread. news: told what happens. given: what the stream
    has given, told here. look_last: whether readers take Look tasks.
    """

    def __init__(
        self, most_held: int, wake_source: Callable[[], None], news: News, given: G, *, look_last: bool = False
    ) -> None:
        self._news = news
        self._wake_source = wake_source
        self._condition = threading.Condition()
        self._given = given
        self._late = LateChanges()
        self._runs = Runs(news, self._condition.notify_all, look_last=look_last)
        self._chooser = Chooser(self._runs, given, self._late, most_held)
        self._giver = Giver(self._runs, given)
        self._waits = Waits(news)
        self._broken_off = ""
        self._stopping = False

    # For the source's thread.

    def resume(self, data: Sequence[Mapping[str, Any]], anew: bool) -> None:
        """The state of the position from which the stream goes on. See Runs.resume."""
        with self._condition:
            self._broken_off = ""
            self._runs.resume(data, anew)

    def add(self, run: SnapshotRun) -> None:
        """A snapshot that the source begins by itself."""
        with self._condition:
            self._runs.every.append(run)
            self._runs.note_change()

    def break_off(self, reason: str) -> None:
        """The state of tables without a key was lost before they were read."""
        with self._condition:
            self._broken_off = reason
        self._wake_source()

    @property
    def broken_off(self) -> str:
        """Why the session has to begin anew; empty while it has not."""
        return self._broken_off

    def put_first(self, run: str) -> None:
        """The snapshot of this id has tables without a key: the stream waits until they are read."""
        with self._condition:
            self._runs.first = {run}

    def watch(self, batch: Batch, *, late: bool = False) -> None:
        """A batch of the stream, before it is given. late: readings that begin later may not see its changes yet."""
        with self._condition:
            if late:
                self._late.note(batch)
            self._given.note_batch(batch)
            note_batch(batch, self._runs, self._given.turn)

    def note_altered(self, relations: Container[str]) -> None:
        """The stream has come to statements that may have made other tables of these. Before the batch they are in."""
        with self._condition:
            for chunk in self._runs.list_chunks(relations):
                chunk.held.note_altered()

    def take_next_piece(self, reached: Any, most_rows: int, most_bytes: int) -> GivenPiece | None:
        """Rows that may be given where the stream has got; None for none. They count as given."""
        with self._condition:
            self._giver.tick()
            waits, waiting = "", self._runs.current
            for run, table, work in self._runs.list_begun():
                while work.chunks and work.chunks[0].held.rows is not None:
                    chunk = work.chunks[0]
                    if reached < chunk.held.mark:
                        waits, waiting = _describe_mark(run, table, chunk), run
                        break
                    piece = self._giver.take(run, table, work, most_rows, most_bytes)
                    if piece is not None and len(piece.keys):
                        self._waits.note_mark(run, "")
                        note_name(piece.relation, self._runs.group_reading(), self._runs)
                        assert chunk.held.rows is not None  # noqa: S101 - see above
                        return GivenPiece(run, table, piece, chunk.held.rows.fence, table.begun_anew)
                self._giver.end_table_if_done(run, table, work)
            if self._waits.note_mark(waiting, waits):
                self._chooser.nudge = True
                self._condition.notify_all()
            return None

    def note_open_transaction(self) -> None:
        """The stream is inside of a transaction, where nothing may be given."""
        with self._condition:
            for run, _, work in self._runs.list_begun():
                if work.chunks and work.chunks[0].held.rows is not None:
                    self._waits.note(run, "waits for the end of the transaction that is being streamed")
                    return

    @property
    def has_own(self) -> bool:
        """Whether there is a snapshot that nobody asked for."""
        with self._condition:
            return any(not run.on_demand for run in self._runs.every)

    @property
    def comes_first(self) -> bool:
        """Whether the stream has to wait for tables without a key."""
        with self._condition:
            return self._runs.come_first

    @property
    def has_news(self) -> bool:
        """Whether the state has changed since a batch had it."""
        return not self._runs.told

    def state(self) -> Sequence[Mapping[str, Any]]:
        """For the position of the batch that is given next."""
        with self._condition:
            return self._runs.encode()

    # For any thread.

    def note_durable(self, data: Sequence[Mapping[str, Any]]) -> None:
        """The state of a position that has been stored: what has ended there has ended for good."""
        ended = {one["id"] for one in data if SnapshotState(one["state"]).ended}
        if ended - self._runs.durably_ended:
            with self._condition:
                self._runs.durably_ended |= ended

    def set_requests(self, requests: Sequence[SnapshotRequest]) -> None:
        """What the operator wants."""
        with self._condition:
            known = {run.id: run for run in self._runs.every}
            self._runs.wanted = {request.id: request.wanted for request in requests}
            for request in requests:
                run = known.get(request.id)
                if run is None and request.wanted is Wanted.CANCEL:
                    continue  # it has ended, or will not begin
                if run is None:
                    check = None if request.keys is None else KeyCheck(request.keys)
                    run = SnapshotRun(request.id, True, request.asked_at, request.tables, check=check)
                    self._runs.every.append(run)
                self._runs.follow(run)
            self._runs.forget_old()
            self._runs.note_change()
        self._wake_source()

    def take_keys(self, name: str, posted: PostedKeys) -> None:
        """See Source.take_keys."""
        with self._condition:
            run = next((run for run in self._runs.every if run.id == name), None)
            if run is None:
                raise NoSuchSnapshot(f"there is no snapshot {name}", describe_listing())
            if run.check is None:
                raise SnapshotConflict(f"snapshot {name} reads rows, and takes no keys", "ask for one of keys")
            if run.state.ended and not run.check.has_taken(posted):
                reason = f" ({run.reason})" if run.reason else ""
                raise SnapshotConflict(f"snapshot {name} has ended: it is {run.state}{reason}", "ask for a new one")
            if run.state.ended:
                return  # it is not durable that it has
            run.check.take(posted)
            self._runs.keys_came[name] = time.monotonic()
            self._giver.end_check_if_done(run)
            self._condition.notify_all()
            has_ended = run.state.ended
        if has_ended:
            self._wake_source()

    def show(self) -> Sequence[SnapshotProgress]:
        """How far every snapshot is."""
        now = time.monotonic()
        with self._condition:
            return [show(run, self._runs, self._waits, now) for run in self._runs.every]

    def describe(self) -> str:
        """The snapshot that is read, or else the last that ended since the process began; empty for none."""
        with self._condition:
            run = choose_main_run(self._runs)
            return "" if run is None else describe(show(run, self._runs, self._waits, time.monotonic()))

    # For readers.

    def wait_for_task(self, timeout: float) -> Task | None:
        """What is to be done next; None when there is nothing for so many seconds."""
        with self._condition:
            deadline = time.monotonic() + timeout
            while not self._stopping:
                if (task := self._chooser.choose()) is not None:
                    return task
                if not self._condition.wait(max(0.0, deadline - time.monotonic())):
                    return None
            return None

    def plan(self, run: SnapshotRun, tables: list[TableRun]) -> None:
        """The tables that a snapshot is of."""
        with self._condition:
            self._chooser.note_planned(run)
            self._runs.first.discard(run.id)
            if run.tables is None and not run.state.ended:
                run.tables, run.reason = TableRuns(tables), ""
                self._news.note_begin(run)
                self._news.note_wait_over(run)
                self._runs.end_if_done(run)
                self._giver.end_check_if_done(run)
            self._runs.note_change()
        self._wake_source()

    def ask_given(self, question: Callable[[G], Answer]) -> Answer:
        """What the stream has given so far."""
        with self._condition:
            return question(self._given)

    def bring(self, task: Read, rows: ReadRows, last_key: bytes | None, last: bool) -> None:
        """What was read. last_key: up to which; None where nothing was."""
        with self._condition:
            chunk, work = task.chunk, self._runs.look_up_work(task.run, task.table)
            if chunk.dropped:
                return
            chunk.held.fill(rows)
            task.table.order = rows.order
            if chunk.keys is None:
                work.read_key = work.read_key if last_key is None else last_key  # a key may be empty
                work.read_all = last
            else:
                work.note_read_again(chunk, set(rows.keys.to_pylist()), all_came=last)
            task.table.reason = ""
            self._news.note_wait_over(task.run, task.table.table)
            self._condition.notify_all()
        self._wake_source()

    def bring_keys(self, task: Check, gone: ReadRows, likenesses: Sequence[Likeness], looked_up: int) -> None:
        """Those of the keys that no row has. looked_up: how many of them were, the first ones."""
        with self._condition:
            chunk = task.chunk
            if chunk.dropped:
                return
            assert isinstance(chunk.held, HeldKeys)  # noqa: S101 - it was made for the task
            chunk.held.likenesses = likenesses
            chunk.held.fill(gone)
            chunk.settles = looked_up
            task.table.order, task.table.reason = gone.order, ""
            self._news.note_wait_over(task.run, task.table.table)
            self._condition.notify_all()
        self._wake_source()

    def note_wait(self, task: Read | Check, reason: str) -> None:
        """Why it takes long."""
        with self._condition:
            task.table.reason = reason
            self._news.note_wait(task.run, task.table.table, f"{reason} ({task.table.table})")

    def begin_anew(self, task: Read | Look, note: str = "") -> None:
        """The rows of its table have another order than those that were given. note: what consumers lack by that."""
        with self._condition:
            if self._is_wanted(task):
                self._runs.look_up_work(task.run, task.table).drop_chunks(None)
                task.table.begin_anew(note)
            self._runs.note_change()
        self._wake_source()

    def end_looked_at(self, task: Look) -> None:
        """The table has been streamed in the same way all the time."""
        with self._condition:
            work = self._runs.look_up_work(task.run, task.table)
            if self._is_wanted(task):
                task.table.reason = ""
                self._news.note_wait_over(task.run, task.table.table)
                self._giver.end_table_if_done(task.run, task.table, work, looked=True)
                work.look = None  # if a row is to be read again, it is looked at again
            self._runs.note_change()
        self._wake_source()

    def _is_wanted(self, task: Read | Look) -> bool:
        """Whether nothing has become of its table meanwhile for which the task does not count any more."""
        if isinstance(task, Read):
            return not task.chunk.dropped
        return self._runs.look_up_work(task.run, task.table).look is task.look

    def give_up(self, task: Task, reason: str = "", refused: str = "") -> None:
        """It was not done. reason: what it waits for. refused: why the table, or the whole snapshot, is not read."""
        with self._condition:
            if isinstance(task, Plan):
                self._chooser.note_planned(task.run)
                task.run.reason = refused or reason
                if refused and not task.run.state.ended:
                    self._runs.first.discard(task.run.id)
                    task.run.state = SnapshotState.FAILED
                    self._runs.note_end(task.run)
            elif isinstance(task, Look) and not self._is_wanted(task):
                pass
            elif isinstance(task, Read | Check | Look):
                work = self._runs.look_up_work(task.run, task.table)
                if isinstance(task, Look):
                    work.look = None
                elif task.chunk in work.chunks:  # or it is dropped, or was given before its session was lost
                    work.chunks.remove(task.chunk)
                task.table.reason = reason
                if refused:
                    work.drop_chunks(task.table.key)
                    task.run.fail_table(task.table, refused)
                    self._news.note_wait_over(task.run, task.table.table)
                    self._runs.end_if_done(task.run)
                if reason:
                    self._news.note_wait(task.run, task.table.table, reason)
            self._runs.note_change()
        self._wake_source()

    def stop(self) -> None:
        """No more tasks."""
        with self._condition:
            self._stopping = True
            self._runs.drop_work()
            self._condition.notify_all()

    def restart(self) -> None:
        """Tasks again."""
        with self._condition:
            self._stopping = False


def _describe_mark(run: SnapshotRun, table: TableRun, chunk: Chunk) -> str:
    what = "rows" if run.check is None else "keys"
    done = "read" if run.check is None else "looked up"
    return f"waits until the stream reaches {chunk.held.mark}, where {what} of {table.table} were {done}"
