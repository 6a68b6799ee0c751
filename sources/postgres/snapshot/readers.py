"""The threads that read chunks, each over a connection of its own."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple, NoReturn, assert_never

import psycopg2
import psycopg2.extensions
import pyarrow as pa

from psql_streamer.errors import SourceRefused
from psql_streamer.snapshot.changed_keys import decode_key, join_row_keys
from psql_streamer.snapshot.delivered import Delivered
from psql_streamer.snapshot.fence import Fence
from psql_streamer.snapshot.held import HeldChunk, ReadRows
from psql_streamer.snapshot.key_documents import BadKeyError, read_key_documents
from psql_streamer.snapshot.progress import SnapshotRun
from psql_streamer.snapshots import TableState
from sources.postgres.catalog import ANSWER_SECONDS, Catalog, Session
from sources.postgres.options import PostgresOptions
from sources.postgres.server_errors import from_psycopg2
from sources.postgres.server_of_stream import require_server_of_stream
from sources.postgres.server_types import ServerTypes
from sources.postgres.snapshot.alterations import describe_alteration
from sources.postgres.snapshot.copying import (
    APPLICATION_NAME,
    Chunk,
    ChunkTooSlow,
    LockNotFree,
    TableRefused,
    ValueRefused,
    begin,
    connect_reader,
    end,
    read_chunk,
    read_gone,
    read_keys,
    read_pages,
)
from sources.postgres.snapshot.hidden import find_hidden_xids
from sources.postgres.snapshot.keyless import KeylessTables
from sources.postgres.snapshot.keyless_readers import StateLost
from sources.postgres.snapshot.likenesses import list_likenesses
from sources.postgres.snapshot.partitions import KnownPartitions, may_have_rows_before
from sources.postgres.snapshot.requests import find_keys_refusal, plan_tables
from sources.postgres.snapshot.tables import NO_KEY, SnapshotTable, describe_shape, find_refusal
from sources.postgres.snapshot.writers import (
    Writers,
    find_remaining_writers,
    find_writers,
    name_lock_holder,
    name_oldest_writer,
)
from sources.snapshot.pace import Pace
from sources.snapshot.schedule import Schedule
from sources.snapshot.threads import ReaderThreads
from sources.snapshot.work import Check, Look, Nudge, Plan, Read, Task

MESSAGE_PREFIX = "psql-streamer"
"""Of the logical messages that make a server write out its WAL; they are given to nobody."""

log = logging.getLogger(__name__)

_HIDDEN_PAUSE_SECONDS = 0.005
"""Before a fence is made again, because a transaction that the stream has given is not visible."""

_HIDDEN_SAID_AFTER_SECONDS = 1.0

_WRITERS_SECONDS = 0.5
"""The time for which a thread waits for those who wrote to a table before it is read."""

_CHUNK_LOCK_SECONDS = 2.0
"""The time for which a chunk waits for the lock of its table; writers that wait behind it wait as long."""

_UNLOGGED = "SELECT oid::regclass::text FROM pg_catalog.pg_class WHERE oid = %s AND relpersistence = 'u'"

_IS_THERE = "SELECT oid FROM pg_catalog.pg_class WHERE oid = %s"

_SLOWEST = 30
"""The time after which a chunk is given up, in multiples of what one should take."""


class ReadingSession(NamedTuple):
    """asking: questions over the same connection. of_stream: set once it is known to be at the server of the stream."""

    connection: psycopg2.extensions.connection
    asking: Session
    of_stream: threading.Event


class Readers(ReaderThreads[ReadingSession, Delivered]):
    """Threads that take tasks from a schedule, from begin to stop."""

    def __init__(
        self, name: str, options: PostgresOptions, catalog: Catalog, types: ServerTypes, schedule: Schedule[Delivered]
    ) -> None:
        super().__init__(name, options.snapshot, options.start_retry_interval, schedule)
        self._options = options
        self._catalog = catalog
        self._types = types
        self._sessions: set[Session] = set()
        self._lock = threading.Lock()
        self._since = 0
        self._walsender = (0, "")
        self._keyless: KeylessTables | None = None
        self._tables: dict[str, SnapshotTable] = {}  # by relation, as they were when they were last looked at
        self._pace = Pace(options.snapshot)
        self._pace_of_keys = Pace(options.snapshot)
        self._partitions = KnownPartitions()
        self._writers: dict[tuple[str, str], Writers] = {}  # of tables that wait for them, by snapshot and relation

    def begin(self, since: int, keyless: KeylessTables | None, walsender: tuple[int, str]) -> None:
        """Begin to read. since: see Delivered.find_unknown. keyless: tables that are read where the slot begins.
        walsender: of the stream, see describe_session.
        """
        self.stop()
        self._walsender = walsender
        self._since = self._since or since
        self._keyless = keyless
        self.start()

    def interrupt(self) -> None:
        with self._lock:
            sessions = list(self._sessions)
        for session in sessions:
            session.abort("the source was stopped")

    def do(self, task: Task, session: ReadingSession, stopping: threading.Event) -> None:
        connection, asking, _ = session
        self._require_server_of_stream(task, session)
        try:
            match task:
                case Plan(run):
                    self._plan(run, asking)
                case Read() if task.table.keyless:
                    self._read_keyless(task)
                case Read():
                    self._read(task, connection, asking, stopping)
                case Check():
                    self._read(task, connection, asking, stopping)
                case Look():
                    self._look(task, asking)
                case Nudge():
                    _write_out_wal(asking)
                case _:
                    assert_never(task)
        except ChunkTooSlow:
            assert isinstance(task, Read | Check)  # noqa: S101 - others have all the time that there is
            limit = self._options.snapshot.chunk_time * _SLOWEST
            if isinstance(task, Check):
                count = self._pace_of_keys.lower(task.table.relation, limit)
                reason = f"{count} keys take too long: fewer are looked up at once"
            else:
                rows = self._pace.lower(task.table.relation, limit)
                reason = f"chunks of {rows} rows take too long: fewer are read at once"
            self._schedule.give_up(task, reason=reason)
        except LockNotFree:
            assert isinstance(task, Read | Check)  # noqa: S101 - others lock nothing
            reason = f"waits for the lock of {task.table.table}, which somebody else has"
            holder = name_lock_holder(asking, int(task.table.relation))
            self._schedule.give_up(task, reason=_add_name(reason, holder))
            stopping.wait(_CHUNK_LOCK_SECONDS / 2)

    def _require_server_of_stream(self, task: Task, session: ReadingSession) -> None:
        """Rows of a table without a key are of the slot's snapshot, which no other server has: they are read, whatever
        becomes of the stream, which waits for them and is not looked at.
        """
        is_bound = isinstance(task, Read) and task.table.keyless
        if is_bound or session.of_stream.is_set() or (isinstance(task, Plan | Nudge) and self._schedule.comes_first):
            return
        require_server_of_stream(session.asking, self._walsender)
        session.of_stream.set()

    def _plan(self, run: SnapshotRun, session: Session) -> None:
        self._types.load(session)
        keyless = self._keyless.tables if self._keyless is not None else ()
        where = self._options.snapshot.choose_conditions(on_demand=run.on_demand)
        found = plan_tables(session, run.requested, self._options.publications, self._types, keyless, where)
        for table, shape in found:
            if table.state is TableState.FAILED:
                log.error("source.%s: snapshot %s does not read %s: %s", self._name, run.id, table.table, table.reason)
            else:
                self._tables[table.relation] = shape
        self._schedule.plan(run, [table for table, _ in found])

    def _read(
        self,
        task: Read | Check,
        connection: psycopg2.extensions.connection,
        session: Session,
        stopping: threading.Event,
    ) -> None:
        if writers := self._find_writers_left(task, session, stopping):
            reason = f"waits for transactions that were writing to {task.table.table}"
            self._schedule.give_up(task, reason=_add_name(reason, name_oldest_writer(session, writers)))
            return
        known = self._tables.pop(task.table.relation, None)
        try:
            locked = known or self._require_readable(task, session, filters=False)
            fence = self._begin(task, locked, connection, session, stopping)
            if fence is None:
                self._schedule.give_up(task)
                return
            table = self._require_readable(task, session)
            if table.name != locked.name:
                self._schedule.give_up(task)  # another table has the name under which it was locked
                return
            if isinstance(task, Check):
                self._look_up(task, table, fence, connection)
                self._tables[task.table.relation] = table
            else:
                self._read_rows(task, table, fence, connection, session)
        except TableRefused:
            if known is None:
                raise
            self._schedule.give_up(task)  # it was renamed, or dropped: it is looked at again
            return
        finally:
            end(connection)

    def _read_rows(
        self,
        task: Read,
        table: SnapshotTable,
        fence: Fence,
        connection: psycopg2.extensions.connection,
        session: Session,
    ) -> None:
        order = self._find_order(task, table, connection, session)
        if self.is_out_of_order(task, order, self._describe_alteration(task, table)):
            return
        began = time.monotonic()
        chunk = self._copy(task, table, connection)
        if task.keys is None and chunk.rows:
            self._pace.note(task.table.relation, time.monotonic() - began)
        if not chunk.complete:
            self._tables[task.table.relation] = table
        keys = join_row_keys([chunk.columns[column] for column in table.relation.key_columns])
        places = join_row_keys(chunk.places) if chunk.places else keys
        # Rows that are read again say nothing of the partitions in front of the key that the others were read up to.
        order = table.order if task.keys is None else task.order or table.order
        rows = ReadRows(fence, table.relation, chunk.columns, keys, chunk.nbytes, order, places)
        self._schedule.bring(task, rows, places[-1].as_py() if len(places) else None, chunk.complete)

    def _find_order(
        self, task: Read, table: SnapshotTable, connection: psycopg2.extensions.connection, session: Session
    ) -> str:
        """The order of the table; the task's own if all that is new are partitions whose rows are still to be read."""
        if not task.order:
            self._partitions.note_first(table)
            return table.order
        if (new := self._partitions.find_new(task.order, table)) is None:
            return table.order
        if task.after is not None:
            after = decode_key(task.after, len(table.key))
            if any(may_have_rows_before(connection, session, table, part, after) for part in new):
                return table.order
        return task.order

    def _describe_alteration(self, task: Read | Look, table: SnapshotTable) -> str:
        """What consumers lack by what became of a table since rows of it were read; empty for nothing."""
        if not task.order:
            return ""
        known = self._partitions
        return describe_alteration(
            *(self._name, task.order, table),
            were_detached=known.were_detached(task.order, table),
            was_written_anew=known.was_written_anew(task.order, table),
        )

    def _look(self, task: Look, session: Session) -> None:
        """Whether the table was streamed under its name until its last rows were given."""
        table = self._describe(task, session, filters=False)
        if table is None:
            if session.read_value(_IS_THERE, int(task.table.relation)) is not None:
                self._refuse_unstreamed(task, session)
        elif note := self._describe_alteration(task, table):
            self.is_out_of_order(task, "altered", note)
            return
        self._schedule.end_looked_at(task)

    def _look_up(
        self, task: Check, table: SnapshotTable, fence: Fence, connection: psycopg2.extensions.connection
    ) -> None:
        relation, began = table.relation, time.monotonic()
        if str(relation) != task.table.table:
            raise SourceRefused(
                f"{task.table.table} is called {relation} now", "post the keys again, to a new snapshot"
            )
        if refused := find_keys_refusal(table):
            raise SourceRefused(*refused)
        documents = task.documents[: self._pace_of_keys.choose_chunk_rows(relation.id)]
        try:
            wanted = read_key_documents(
                documents, [relation.columns[column] for column in relation.key_columns], task.form, task.first
            )
            gone, looked_up = read_gone(connection, table, wanted, self._options.snapshot.chunk_bytes)
        except BadKeyError as error:
            raise SourceRefused(str(error), "correct the keys, or the form that they are said to have") from None
        except ValueRefused as error:
            first, last = task.first + 1, task.first + len(documents)
            raise SourceRefused(
                f"one of the keys {first} to {last} is no value of the types of its columns (SQLSTATE {error.code})",
                "correct the keys, or the form that they are said to have",
            ) from None
        self._pace_of_keys.note(relation.id, time.monotonic() - began)
        rows = _make_gone_rows(fence, table, gone)
        self._schedule.bring_keys(task, rows, list_likenesses(table), looked_up)

    def _find_writers_left(self, task: Read | Check, session: Session, stopping: threading.Event) -> Writers:
        """Those who keep what was written to the table before it was published from being seen, so that it cannot be
        read yet.

        Asked before the first rows of a table alone: what is written later is streamed.
        """
        if task.order or (isinstance(task, Read) and task.after is not None):
            return Writers(())
        place = task.run.id, task.table.relation
        with self._lock:
            writers = self._writers.get(place)
        left = (
            find_writers(session, int(task.table.relation))
            if writers is None
            else find_remaining_writers(session, writers)
        )
        ends = time.monotonic() + _WRITERS_SECONDS
        while left and time.monotonic() < ends and not stopping.wait(_HIDDEN_PAUSE_SECONDS):
            left = find_remaining_writers(session, left)
        with self._lock:
            self._writers.pop(place, None)
            if left:
                self._writers[place] = left
        return left

    def _read_keyless(self, task: Read) -> None:
        """The next rows of a table without key, in the snapshot of the slot. Their order there stands for a key."""
        keyless = self._keyless
        if keyless is None:
            raise SourceRefused(f"{task.table.table} {NO_KEY[0]}", NO_KEY[1])
        table = keyless.tables[task.table.relation]
        part, place, number = _decode_place(task.after)
        most_rows, most_bytes = self._options.snapshot.chunk_rows, self._options.snapshot.chunk_bytes
        try:
            with keyless.lend_reader() as reader:
                of = table.parts[part]
                chunk = read_pages(reader, table, of, 0, None, task.table.where, most_rows, most_bytes, place)
        except StateLost as error:
            self._schedule.break_off(str(error))
            raise
        keys = pa.array(range(number, number + chunk.rows)).cast(pa.string()).cast(pa.binary())
        fence = Fence(0, 0, (), 0, time.time_ns() // 1000)
        if chunk.complete:
            part, place = part + 1, ""
        else:
            place = chunk.last
        rows = ReadRows(fence, table.relation, chunk.columns, keys, chunk.nbytes)
        behind = json.dumps([part, place, number + chunk.rows]).encode()
        self._schedule.bring(task, rows, behind, part == len(table.parts))

    def _require_readable(self, task: Read | Check, session: Session, *, filters: bool = True) -> SnapshotTable:
        """The table as it is. SourceRefused when it cannot be read. filters: see describe_shape."""
        table = self._describe(task, session, filters=filters)
        if table is None:
            self._refuse_unstreamed(task, session)
        if refused := table.missing_key or find_refusal(session, table):
            raise SourceRefused(*refused)
        return table

    def _describe(self, task: Read | Check | Look, session: Session, *, filters: bool) -> SnapshotTable | None:
        return describe_shape(
            session, int(task.table.relation), self._options.publications, self._types.resolve, filters=filters
        )

    def _refuse_unstreamed(self, task: Read | Check | Look, session: Session) -> NoReturn:
        unlogged = session.read_value(_UNLOGGED, int(task.table.relation))
        if unlogged is not None:
            raise SourceRefused(
                f"{task.table.table} is UNLOGGED now, and its changes are not in the WAL",
                f"ALTER TABLE {unlogged} SET LOGGED, then ask for a snapshot of it",
            )
        raise SourceRefused(
            f"{task.table.table} is no longer there, or no longer published under this name",
            "if it was not dropped, ask for a snapshot of the tables that are streamed now: with a changed "
            "publish_via_partition_root they are its partitions, or their root",
        )

    def _begin(
        self,
        task: Read | Check,
        table: SnapshotTable,
        connection: psycopg2.extensions.connection,
        session: Session,
        stopping: threading.Event,
    ) -> Fence | None:
        """Behind which everything is visible that the stream gave before the task was; None when it has to stop."""
        since = time.monotonic()
        while not stopping.is_set() and not task.chunk.dropped:
            fence = begin(connection, table, _CHUNK_LOCK_SECONDS, self._options.snapshot.chunk_time * _SLOWEST)
            hidden, unknown = self._schedule.ask_given(partial(self._find_unseen, task.chunk.held, fence))
            if unknown or fence.xmax < self._since:
                hidden |= find_hidden_xids(session, unknown, fence, self._since)
            if not hidden:
                return fence
            end(connection)
            if time.monotonic() - since > _HIDDEN_SAID_AFTER_SECONDS:
                self._schedule.note_wait(task, _describe_hidden(hidden))
            stopping.wait(_HIDDEN_PAUSE_SECONDS)
        return None

    def _find_unseen(self, held: HeldChunk, fence: Fence, given: Delivered) -> tuple[set[int], set[int]]:
        return given.find_hidden_since(fence, held.turn, held.latest), given.find_unknown(fence, self._since)

    def _copy(self, task: Read, table: SnapshotTable, connection: psycopg2.extensions.connection) -> Chunk:
        most_bytes, where, width = self._options.snapshot.chunk_bytes, task.table.where, len(table.key)
        if task.keys is not None:
            return read_keys(connection, table, [decode_key(key, width) for key in task.keys], where, most_bytes)
        after = None if task.after is None else decode_key(task.after, width)
        return read_chunk(
            connection, table, after, where, self._pace.choose_chunk_rows(task.table.relation), most_bytes
        )

    @contextlib.contextmanager
    def open_session(self) -> Iterator[ReadingSession]:
        dsn = self._options.connection_string
        connection = connect_reader(dsn, self._options.timeout, APPLICATION_NAME)
        session = Session(connection, ANSWER_SECONDS)
        with self._lock:
            self._sessions.add(session)
        try:
            yield ReadingSession(connection, session, threading.Event())
        except psycopg2.Error as error:
            raise session.find_abort_error() or from_psycopg2(error, dsn) from None
        finally:
            with self._lock:
                self._sessions.discard(session)
            session.close()


def _make_gone_rows(fence: Fence, table: SnapshotTable, columns: list[pa.Array]) -> ReadRows:
    """Keys that are gone, as rows that have nothing else; each once. columns: of the key."""
    keys = join_row_keys(columns)
    if len(keys.unique()) < len(keys):
        first = {key: at for at, key in reversed(list(enumerate(keys.to_pylist())))}
        once = pa.array(sorted(first.values()))
        columns, keys = [column.take(once) for column in columns], keys.take(once)
    of = dict(zip(table.relation.key_columns, columns, strict=True))
    nothing = pa.nulls(len(keys), pa.binary())
    whole = [of.get(column, nothing) for column in range(len(table.relation.columns))]
    return ReadRows(fence, table.relation, whole, keys, sum(column.nbytes for column in columns), table.order)


def _decode_place(after: bytes | None) -> tuple[int, str, int]:
    """Behind which row of which part of a table is read next, and which of the table's rows that is."""
    part, place, number = json.loads(after) if after else (0, "", 0)
    return part, place, number


def _add_name(reason: str, who: str) -> str:
    return f"{reason}: {who}" if who else reason


def _describe_hidden(xids: set[int]) -> str:
    return (
        f"waits for transaction {min(xids) & 0xFFFF_FFFF}, which was streamed and is not visible yet: look at the "
        "standbys of synchronous_standby_names"
    )


def _write_out_wal(session: Session) -> None:
    """The WAL is written out to its end with a commit; a transaction that is open may have left it unwritten.

    PostgreSQL source, RecordTransactionCommit. On a standby nothing is left unwritten.
    """
    if not session.read_value("SELECT pg_is_in_recovery()"):
        session.read_value("SELECT pg_logical_emit_message(true, %s, '')", MESSAGE_PREFIX)
