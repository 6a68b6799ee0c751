"""What of a source's snapshots is read next, and what of it may be given.

Between two kinds of threads: readers take tasks and bring rows; the source's thread tells of the stream and takes
pieces. Nothing here asks a server or waits for one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from psql_streamer.errors import NoSuchSnapshot, SnapshotConflict
from psql_streamer.model import Batch, Changes, Relation
from psql_streamer.snapshot.changed_keys import changed_keys, moved_without_values, xids_of
from psql_streamer.snapshot.delivered import Given
from psql_streamer.snapshot.held import HeldChunk, Piece, ReadRows
from psql_streamer.snapshot.held_keys import HeldKeys
from psql_streamer.snapshot.key_check import KeyCheck
from psql_streamer.snapshot.likeness import Likeness
from psql_streamer.snapshot.progress import SnapshotRun, TableRun, decode_runs, encode_runs
from psql_streamer.snapshots import PostedKeys, SnapshotProgress, SnapshotRequest, SnapshotState, TableState, Wanted
from sources.snapshot.changes_of import changes_of
from sources.snapshot.late import LateChanges
from sources.snapshot.news import News, describe
from sources.snapshot.waits import Waits
from sources.snapshot.work import Check, Chunk, GivenPiece, Nudge, Plan, Read, TableWork, Task

_KEYS_AT_ONCE = 1000
"""Rows that are read again with one query."""

_POSTED_AT_ONCE = 5000
"""Posted keys that are looked up with one query."""

_KEYLESS_SECONDS = 600.0
"""The time for which a snapshot waits for keys that are to be posted."""

_MOST_ENDED = 20
"""Snapshots that have ended and are shown."""

_CHUNKS_AHEAD = 2
"""Chunks of the allowed size that may be held, for each reader."""


_Begun: TypeAlias = dict[str, list[tuple[SnapshotRun, TableRun]]]
"""Relation -> the snapshots that have begun to read it."""


G = TypeVar("G", bound=Given)
Answer = TypeVar("Answer")


_MOST_OUTDATED = 50
"""Chunks of a table in a row that are read again because its shape is another one."""


_OUTDATED = "the stream shows it in another shape than the server's catalog: report it"
_DOUBTFUL = (
    "rows keep coming whose keys may be the same value as one of these in another text: post the keys again when fewer "
    "rows are inserted"
)

_TO_RUN = (SnapshotState.WAITING, SnapshotState.RUNNING)


class Schedule(Generic[G]):
    """The snapshots of a source. most_bytes: what a chunk may hold. readers: how many there are.

    wake_source: called when something may be given, from any thread. news: told what happens. given: what the stream
    has given, told here.
    """

    def __init__(self, most_bytes: int, readers: int, wake_source: Callable[[], None], news: News, given: G) -> None:
        self._news = news
        self._most_held = most_bytes * readers * _CHUNKS_AHEAD
        self._wake_source = wake_source
        self._condition = threading.Condition()
        self._given = given
        self._runs: list[SnapshotRun] = []
        self._work: dict[tuple[str, str], TableWork] = {}
        self._planning: set[str] = set()
        self._durably_ended: set[str] = set()
        self._wanted: dict[str, Wanted] = {}
        self._encoded: list[dict[str, Any]] | None = []
        self._broken_off = ""
        self._first: set[str] = set()  # snapshots that go before the stream, whose tables are not known yet
        self._told = True  # whether a batch has the latest state
        self._stopping = False
        self._waits = Waits(news)
        self._last_ended: SnapshotRun | None = None
        self._nudge = False
        self._late = LateChanges()
        self._ticked_at = time.monotonic()
        self._keys_came: dict[str, float] = {}  # to snapshots that look up keys

    # For the source's thread.

    def resume(self, data: Sequence[Mapping[str, Any]], anew: bool) -> None:
        """The state of the position from which the stream goes on. What was read and not given is read again.

        A snapshot in which tables without a key are left is gone with the slot's snapshot: another one is to follow it.
        anew: whether it was the source's own.
        """
        with self._condition:
            self._drop_work()
            runs = [run for run in decode_runs(data) if not run.has_keyless_left]
            stored = {run.id for run in runs}
            others = [run for run in self._runs if run.id not in stored and not (anew and run.ends_with_its_slot)]
            self._broken_off = ""
            over = [run for run in others if run.id in self._durably_ended]  # positions tell of the last ones alone
            # Of one that no position has yet nothing was given: it begins anew.
            self._runs = over + runs + [run.begin_anew() for run in others if run.id not in self._durably_ended]
            self._durably_ended |= {run.id for run in self._runs if run.state.ended}
            for run in self._runs:
                if run.tables is not None and not run.state.ended:
                    self._news.goes_on(run)
                self._follow(run)
            self._changed()

    def add(self, run: SnapshotRun) -> None:
        """A snapshot that the source begins by itself."""
        with self._condition:
            self._runs.append(run)
            self._changed()

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
            self._first = {run}

    def watch(self, batch: Batch, *, late: bool = False) -> None:
        """A batch of the stream, before it is given. late: readings that begin later may not see its changes yet."""
        with self._condition:
            if late:
                self._late.note(batch)
            self._given.note_batch(batch)
            begun: _Begun = {}
            for run in self._runs:
                for table in (run.tables or ()) if not run.state.ended else ():
                    if table.state is TableState.READING:
                        begun.setdefault(table.relation, []).append((run, table))
            if begun:
                self._note(batch, begun)

    def note_altered(self, relations: Container[str]) -> None:
        """The stream has come to statements that may have made other tables of these. Before the batch they are in."""
        with self._condition:
            for run in self._runs:
                for table in run.tables or ():
                    if table.state is TableState.READING and table.relation in relations:
                        for chunk in self._work_of(run, table).chunks:
                            chunk.held.note_altered()

    def next_piece(self, reached: Any, most_rows: int, most_bytes: int) -> GivenPiece | None:
        """Rows that may be given where the stream has got; None for none. They count as given."""
        with self._condition:
            self._tick()
            waits, waiting = "", self._current()
            for run, table, work in self._begun():
                while work.chunks and work.chunks[0].held.rows is not None:
                    chunk = work.chunks[0]
                    if reached < chunk.held.mark:
                        waits, waiting = _describe_mark(run, table, chunk), run
                        break
                    piece = self._take(run, table, work, chunk, most_rows, most_bytes)
                    if piece is not None and len(piece.keys):
                        self._waits.note_mark(run, "")
                        assert chunk.held.rows is not None  # noqa: S101 - see above
                        return GivenPiece(run, table, piece, chunk.held.rows.fence)
                self._end_table_if_done(run, table, work)
            if self._waits.note_mark(waiting, waits):
                self._nudge = True
                self._condition.notify_all()
            return None

    def note_open_transaction(self) -> None:
        """The stream is inside of a transaction, where nothing may be given."""
        with self._condition:
            for run, _, work in self._begun():
                if work.chunks and work.chunks[0].held.rows is not None:
                    self._waits.note(run, "waits for the end of the transaction that is being streamed")
                    return

    @property
    def has_own(self) -> bool:
        """Whether there is a snapshot that nobody asked for."""
        with self._condition:
            return any(not run.on_demand for run in self._runs)

    @property
    def comes_first(self) -> bool:
        """Whether the stream has to wait for tables without a key."""
        with self._condition:
            return any(run.has_keyless_left or run.id in self._first for run in self._runs if not run.state.ended)

    @property
    def has_news(self) -> bool:
        """Whether the state has changed since a batch had it."""
        return not self._told

    def state(self) -> Sequence[Mapping[str, Any]]:
        """For the position of the batch that is given next."""
        with self._condition:
            if self._encoded is None:
                self._encoded = encode_runs(self._runs, self._durably_ended)
            self._told = True
            return self._encoded

    # For any thread.

    def note_durable(self, data: Sequence[Mapping[str, Any]]) -> None:
        """The state of a position that has been stored: what has ended there has ended for good."""
        ended = {one["id"] for one in data if SnapshotState(one["state"]).ended}
        if ended - self._durably_ended:
            with self._condition:
                self._durably_ended |= ended

    def set_requests(self, requests: Sequence[SnapshotRequest]) -> None:
        """What the operator wants."""
        with self._condition:
            known = {run.id: run for run in self._runs}
            self._wanted = {request.id: request.wanted for request in requests}
            for request in requests:
                run = known.get(request.id)
                if run is None and request.wanted is Wanted.CANCEL:
                    continue  # it has ended, or will not begin
                if run is None:
                    check = None if request.keys is None else KeyCheck(request.keys)
                    run = SnapshotRun(request.id, True, request.asked_at, request.tables, check=check)
                    self._runs.append(run)
                self._follow(run)
            self._forget_old()
            self._changed()
        self._wake_source()

    def take_keys(self, name: str, posted: PostedKeys) -> None:
        """See Source.take_keys."""
        with self._condition:
            run = next((run for run in self._runs if run.id == name), None)
            if run is None:
                raise NoSuchSnapshot(f"there is no snapshot {name}", "GET /snapshots lists all of them")
            if run.check is None:
                raise SnapshotConflict(f"snapshot {name} reads rows, and takes no keys", "ask for one of keys")
            if run.state.ended and not run.check.has_taken(posted):
                reason = f" ({run.reason})" if run.reason else ""
                raise SnapshotConflict(f"snapshot {name} has ended: it is {run.state}{reason}", "ask for a new one")
            if run.state.ended:
                return  # it is not durable that it has
            run.check.take(posted)
            self._keys_came[name] = time.monotonic()
            self._end_check_if_done(run)
            self._condition.notify_all()
            has_ended = run.state.ended
        if has_ended:
            self._wake_source()

    def show(self) -> Sequence[SnapshotProgress]:
        """How far every snapshot is."""
        now = time.monotonic()
        with self._condition:
            current = self._current()
            return [self._show(run, current, now) for run in self._runs]

    def describe(self) -> str:
        """The snapshot that is read, or else the last that ended since the process began; empty for none."""
        with self._condition:
            left = [run for run in self._runs if not run.state.ended]
            current = self._current()
            run = current or next(iter(self._checks()), None) or (left[0] if left else self._last_ended)
            return "" if run is None else describe(self._show(run, current, time.monotonic()))

    # For readers.

    def wait_for_task(self, timeout: float) -> Task | None:
        """What is to be done next; None when there is nothing for so many seconds."""
        with self._condition:
            deadline = time.monotonic() + timeout
            while not self._stopping:
                if (task := self._choose()) is not None:
                    return task
                if not self._condition.wait(max(0.0, deadline - time.monotonic())):
                    return None
            return None

    def plan(self, run: SnapshotRun, tables: list[TableRun]) -> None:
        """The tables that a snapshot is of."""
        with self._condition:
            self._planning.discard(run.id)
            self._first.discard(run.id)
            if run.tables is None and not run.state.ended:
                run.tables, run.reason = tables, ""
                self._news.begins(run)
                self._news.waits_no_longer(run)
                self._end_if_done(run)
                self._end_check_if_done(run)
            self._changed()
        self._wake_source()

    def ask_given(self, question: Callable[[G], Answer]) -> Answer:
        """What the stream has given so far."""
        with self._condition:
            return question(self._given)

    def bring(self, task: Read, rows: ReadRows, last_key: bytes | None, last: bool) -> None:
        """What was read. last_key: up to which; None where nothing was."""
        with self._condition:
            chunk, work = task.chunk, self._work_of(task.run, task.table)
            if chunk.dropped:
                return
            chunk.held.fill(rows)
            task.table.order = rows.order
            if chunk.keys is None:
                work.read_key = work.read_key if last_key is None else last_key  # a key may be empty
                work.read_all = last
            elif not last:
                chunk.keys = tuple(rows.keys.to_pylist())  # the others were too many bytes, and stay asked for
            task.table.reason = ""
            self._news.waits_no_longer(task.run, task.table.table)
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
            self._news.waits_no_longer(task.run, task.table.table)
            self._condition.notify_all()
        self._wake_source()

    def note_wait(self, task: Read | Check, reason: str) -> None:
        """Why it takes long."""
        with self._condition:
            task.table.reason = reason
            self._news.waits(task.run, task.table.table, f"{reason} ({task.table.table})")

    def begin_anew(self, task: Read) -> None:
        """The rows of its table have another order than those that were given."""
        with self._condition:
            if not task.chunk.dropped:
                self._work_of(task.run, task.table).drop_chunks(None)
                task.table.begin_anew()
            self._changed()

    def give_up(self, task: Task, reason: str = "", refused: str = "") -> None:
        """It was not done. reason: what it waits for. refused: why the table, or the whole snapshot, is not read."""
        with self._condition:
            if isinstance(task, Plan):
                self._planning.discard(task.run.id)
                task.run.reason = refused or reason
                if refused and not task.run.state.ended:
                    self._first.discard(task.run.id)
                    task.run.state = SnapshotState.FAILED
                    self._note_end(task.run)
            elif isinstance(task, Read | Check):
                work = self._work_of(task.run, task.table)
                if task.chunk in work.chunks:  # or it is dropped, or was given before its session was lost
                    work.chunks.remove(task.chunk)
                task.table.reason = reason
                if refused:
                    work.drop_chunks(task.table.key)
                    task.table.fail(refused)
                    self._news.waits_no_longer(task.run, task.table.table)
                    self._end_if_done(task.run)
                if reason:
                    self._news.waits(task.run, task.table.table, reason)
            self._changed()
        self._wake_source()

    def stop(self) -> None:
        """No more tasks."""
        with self._condition:
            self._stopping = True
            self._drop_work()
            self._condition.notify_all()

    def restart(self) -> None:
        """Tasks again."""
        with self._condition:
            self._stopping = False

    # With the lock.

    def _changed(self) -> None:
        self._encoded, self._told = None, False
        self._condition.notify_all()

    def _drop_work(self) -> None:
        for work in self._work.values():
            work.drop_chunks(None)
        self._work.clear()

    def _forget_old(self) -> None:
        """Of the snapshots whose end is on disk, and that nobody asks for any more, the last ones are remembered."""
        over = [
            run
            for run in self._runs
            if run.id in self._durably_ended and self._wanted.get(run.id, Wanted.CANCEL) is Wanted.CANCEL
        ]
        for run in over[:-_MOST_ENDED]:
            self._runs.remove(run)

    def _work_of(self, run: SnapshotRun, table: TableRun) -> TableWork:
        return self._work.setdefault((run.id, table.table), TableWork(read_key=table.key))

    def _current(self) -> SnapshotRun | None:
        """The snapshot whose tables are read: one after the other."""
        return next((run for run in self._runs if run.check is None and run.state in _TO_RUN), None)

    def _checks(self) -> list[SnapshotRun]:
        """Those that look up keys. They wait for whoever posts these, and so keep no other one waiting."""
        return [run for run in self._runs if run.check is not None and run.state in _TO_RUN]

    def _running(self) -> list[SnapshotRun]:
        """All that something is done for, in the order in which it is."""
        current = self._current()
        return [*self._checks(), *(() if current is None else (current,))]

    def _follow(self, run: SnapshotRun) -> None:
        wanted = self._wanted.get(run.id)
        if wanted is None or run.state.ended:
            return
        if wanted is Wanted.PAUSE and run.has_keyless_left:
            return  # the stream waits for these tables, and the slot's snapshot does not wait
        run.want(wanted)
        if run.state is SnapshotState.CANCELLED:
            self._note_end(run)
        elif run.state is SnapshotState.PAUSED:
            self._news.waits_no_longer(run)
        if run.state in (SnapshotState.PAUSED, SnapshotState.CANCELLED):
            for table in run.tables or ():
                self._work_of(run, table).drop_chunks(table.key)

    def _begun(self) -> Iterator[tuple[SnapshotRun, TableRun, TableWork]]:
        for run in self._running():
            for table in run.tables or ():
                if table.state is TableState.READING:
                    yield run, table, self._work_of(run, table)

    def _choose(self) -> Task | None:
        if self._nudge:
            self._nudge = False
            return Nudge()
        return next((task for run in self._running() if (task := self._choose_of(run)) is not None), None)

    def _choose_of(self, run: SnapshotRun) -> Task | None:
        if run.state is SnapshotState.WAITING:
            run.state = SnapshotState.RUNNING
            self._changed()
        if run.tables is None:
            if run.id in self._planning:
                return None
            self._planning.add(run.id)
            return Plan(run)
        left = sorted(
            (table for table in run.tables if table.is_left), key=lambda table: (not table.keyless, table.reason != "")
        )
        tasks = (self._task(run, table) if run.check is None else self._check(run, table, run.check) for table in left)
        return next((task for task in tasks if task is not None), None)

    def _check(self, run: SnapshotRun, table: TableRun, check: KeyCheck) -> Check | None:
        work = self._work_of(run, table)
        if work.busy or self._held_bytes() >= self._most_held:
            return None
        first = check.settled + sum(chunk.settles for chunk in work.chunks)
        documents = check.waiting_from(first, _POSTED_AT_ONCE)
        if not documents:
            return None
        chunk = Chunk(self._begin_chunk(table, HeldKeys(self._given.turn, self._given.latest)))
        work.chunks.append(chunk)
        return Check(run, table, chunk, documents, check.form, first, table.order)

    def _begin_chunk(self, table: TableRun, held: HeldChunk) -> HeldChunk:
        if table.state is TableState.WAITING:
            table.state = TableState.READING
            self._changed()
        for changed in self._late.of(table.relation):
            held.note_keys(changed)
        return held

    def _held_bytes(self) -> int:
        return sum(chunk.held.size for one in self._work.values() for chunk in one.chunks)

    def _task(self, run: SnapshotRun, table: TableRun) -> Read | None:
        work = self._work_of(run, table)
        if work.busy:
            return None
        is_unread = table.key is None and not work.chunks and not work.read_all
        if is_unread or any(chunk.keys for chunk in work.chunks):
            keys: tuple[bytes, ...] = ()  # all rows are read later; those that are held are asked for once
        else:
            keys = tuple(list(table.again)[:_KEYS_AT_ONCE])
        if not keys and (work.read_all or self._held_bytes() >= self._most_held):
            return None
        chunk = Chunk(self._begin_chunk(table, HeldChunk(self._given.turn, self._given.latest)), keys or None)
        work.chunks.append(chunk)
        return Read(run, table, chunk, None if keys else work.read_key, keys or None, table.order)

    def _note(self, batch: Batch, begun: _Begun) -> None:
        for changes in changes_of(batch, begun.keys()):
            self._note_changes(batch, changes, begun[changes.relation.id])
        for change in batch.schema_changes:
            for held in self._held(begun, change.relation):
                held.note_shape(change.relation)
            self._note_name(change.relation, begun)
        for truncate in batch.truncates:
            for held in self._held(begun, truncate.relation):
                held.note_truncate(int(xids_of(batch.transactions)[truncate.tx]))

    def _note_name(self, relation: Relation, begun: _Begun) -> None:
        """Another table has the name of one whose keys are looked up: its rows may have come with these keys."""
        for run, table in (one for of_relation in begun.values() for one in of_relation):
            if run.check is not None and table.table == str(relation) and table.relation != relation.id:
                for chunk in self._work_of(run, table).chunks:
                    chunk.held.note_altered()

    def _note_changes(self, batch: Batch, changes: Changes, of: Sequence[tuple[SnapshotRun, TableRun]]) -> None:
        """of: the snapshots of that table which have been begun: all but one of them are paused, or wait."""
        relation = changes.relation
        held = [chunk.held for run, table in of for chunk in self._work_of(run, table).chunks]
        if not relation.key_columns:  # another shape than what was read
            for one in held:
                one.note_shape(relation)
            return
        keys = changed_keys(changes, batch.transactions) if held else None
        for one in held:
            assert keys is not None  # noqa: S101 - there are chunks
            one.note(keys, relation)
        if moved := moved_without_values(changes):
            for run, table in of:
                if run.check is None and table.has_key_of(relation):
                    table.again |= dict.fromkeys(moved, self._given.turn)
            self._changed()

    def _held(self, begun: _Begun, relation: Relation) -> list[HeldChunk]:
        """The chunks of a relation."""
        return [chunk.held for each in begun.get(relation.id, ()) for chunk in self._work_of(*each).chunks]

    def _take(
        self, run: SnapshotRun, table: TableRun, work: TableWork, chunk: Chunk, most_rows: int, most_bytes: int
    ) -> Piece | None:
        """The next rows of a chunk that the stream has reached; None where it is to be read again."""
        if run.check is not None:
            return self._take_keys(run, table, work, chunk, run.check, most_rows, most_bytes)
        stale = chunk.held.stale
        again = chunk.held.take_out_changed()
        run.stale += chunk.held.stale - stale
        if chunk.held.outdated:
            work.drop_chunks(table.key)
            work.outdated += 1
            if work.outdated > _MOST_OUTDATED:
                table.fail(_OUTDATED)
                self._end_if_done(run)
            self._changed()
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
        self._end_table_if_done(run, table, work)
        self._changed()
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
        assert isinstance(held, HeldKeys)  # noqa: S101 - as _check made it
        held.take_out_changed()
        if held.outdated or held.doubtful:
            work.drop_chunks(None)
            work.outdated += 1
            if work.outdated > _MOST_OUTDATED:
                table.fail(_DOUBTFUL if held.doubtful else _OUTDATED)
                self._end_if_done(run)
            self._changed()
            return None
        piece = held.take(most_rows, most_bytes)
        chunk.gone += len(piece.keys)
        if piece.ends_chunk:
            work.outdated = 0
            work.chunks.popleft()
            table.chunks += 1
            check.settle(chunk.settles, chunk.gone, held.stale)
            run.rates.note(time.monotonic(), chunk.settles)
        self._end_check_if_done(run)
        self._changed()
        return piece

    def _end_check_if_done(self, run: SnapshotRun) -> None:
        if run.check is None or not run.check.is_done or run.state not in _TO_RUN:
            return
        for table in run.tables or ():
            if table.is_left:
                table.state, table.reason = TableState.DONE, ""
                self._work.pop((run.id, table.table), None)
        self._end_if_done(run)
        self._changed()

    def _end_table_if_done(self, run: SnapshotRun, table: TableRun, work: TableWork) -> None:
        if run.check is not None:
            return
        if table.state is TableState.READING and work.read_all and not work.chunks and not table.again:
            table.state, table.reason = TableState.DONE, ""
            self._news.table_is_done(run, table, time.monotonic() - work.began)
            del self._work[run.id, table.table]
            self._end_if_done(run)
            self._follow(run)
            self._changed()

    def _end_if_done(self, run: SnapshotRun) -> None:
        if run.end_if_done():
            self._note_end(run)

    def _note_end(self, run: SnapshotRun) -> None:
        self._keys_came.pop(run.id, None)
        if run.check is not None:
            run.check.forget_waiting()
        self._last_ended = run
        self._news.ends(run)

    def _tick(self) -> None:
        now = time.monotonic()
        for run in self._running():
            if run.state is SnapshotState.RUNNING:
                run.seconds += now - self._ticked_at
        for run in self._runs:
            if run.check is not None and not run.state.ended:
                self._end_without_keys(run, run.check, now)
        self._ticked_at = now

    def _end_without_keys(self, run: SnapshotRun, check: KeyCheck, now: float) -> None:
        """Whoever was to post keys has gone away."""
        came = self._keys_came.setdefault(run.id, now)
        if not check.is_idle or run.state is SnapshotState.PAUSED or run.tables is None:
            self._keys_came[run.id] = now
        elif now - came > _KEYLESS_SECONDS:
            for table in run.tables or ():
                table.fail(f"no keys came for {_KEYLESS_SECONDS / 60:g} minutes: post them again, to a new one")
            self._end_if_done(run)
            self._changed()

    def _show(self, run: SnapshotRun, current: SnapshotRun | None, now: float) -> SnapshotProgress:
        state, waits_for = run.state, ""
        if state.ended and run.id not in self._durably_ended:
            state, waits_for = SnapshotState.RUNNING, "waits until every sink has its last rows"
        elif run.check is not None:
            if not state.ended:
                waits_for = self._waits_of_check(run, run.check, now)
        elif run is not current and not state.ended and state is not SnapshotState.PAUSED:
            state = SnapshotState.WAITING
            waits_for = f"waits for snapshot {current.id}" if current else ""
        elif run is current:
            waits_for = next((table.reason for table in run.tables or () if table.is_left and table.reason), "")
            waits_for = waits_for or self._waits.describe(now)
        return run.show(now, state, waits_for)

    def _waits_of_check(self, run: SnapshotRun, check: KeyCheck, now: float) -> str:
        if run.state is SnapshotState.PAUSED:
            return ""
        reason = next((table.reason for table in run.tables or () if table.is_left and table.reason), "")
        if reason:
            return reason
        return "waits for keys, which are to be posted" if check.is_idle else self._waits.describe(now)


def _describe_mark(run: SnapshotRun, table: TableRun, chunk: Chunk) -> str:
    what = "rows" if run.check is None else "keys"
    done = "read" if run.check is None else "looked up"
    return f"waits until the stream reaches {chunk.held.mark}, where {what} of {table.table} were {done}"
