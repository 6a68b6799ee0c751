"""The threads that read chunks, each over a connection of its own."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Container, Iterator
from typing import assert_never

from psql_streamer.errors import SourceRefused
from psql_streamer.snapshot.changed_keys import decode_key, join_row_keys
from psql_streamer.snapshot.held import ReadRows
from psql_streamer.snapshot.progress import SnapshotRun
from psql_streamer.snapshots import TableState
from sources.mysql.connection import Connector
from sources.mysql.options import MysqlOptions, Wanted
from sources.mysql.server_of_stream import Client
from sources.mysql.snapshot.line import GivenBatches, Latest
from sources.mysql.snapshot.reading import Chunk, ChunkTooSlow, LockNotFree, ReadingSession, TableGone, TableRefused
from sources.mysql.snapshot.requests import plan_tables
from sources.mysql.snapshot.tables import SnapshotTable, describe_table
from sources.snapshot.pace import Pace
from sources.snapshot.schedule import Schedule
from sources.snapshot.threads import ReaderThreads
from sources.snapshot.work import Check, Look, Nudge, Plan, Read, Task

log = logging.getLogger(__name__)

_UNSEEN_PAUSE_SECONDS = 0.005
"""Before a reading is begun again, because it does not see what the stream has given."""

_UNSEEN_SAID_AFTER_SECONDS = 1.0

_CHUNK_LOCK_SECONDS = 2.0
"""The time for which a chunk waits for the lock of its table; statements that wait behind it wait as long."""

_SLOWEST = 30
"""The time after which a chunk is given up, in multiples of what one should take."""


class Readers(ReaderThreads[ReadingSession, GivenBatches]):
    """Threads that take tasks from a schedule, from begin to stop."""

    def __init__(self, name: str, options: MysqlOptions, wanted: Wanted, schedule: Schedule[GivenBatches]) -> None:
        super().__init__(name, options.snapshot, options.start_retry_interval, schedule)
        self._options = options
        self._wanted = wanted
        self._client = Client(0, "")
        self._connector = self._make_connector()
        self._pace = Pace(options.snapshot)
        self._tables: dict[str, SnapshotTable] = {}

    def begin(self, client: Client) -> None:
        """Begin to read at the server of the stream. client: the stream's session."""
        self.stop()
        self._client = client
        self._tables.clear()
        self._connector = self._make_connector()
        self.start()

    def forget(self, relations: Container[str]) -> None:
        """These tables may be others than when they were looked up."""
        for relation in [one for one in list(self._tables) if one in relations]:
            self._tables.pop(relation, None)

    def interrupt(self) -> None:
        self._connector.interrupt()

    @contextlib.contextmanager
    def open_session(self) -> Iterator[ReadingSession]:
        limit = self._chosen.chunk_time * _SLOWEST
        session = ReadingSession(self._connector, self._client, _CHUNK_LOCK_SECONDS, limit)
        try:
            with self._connector.translate_errors():
                yield session
        finally:
            session.close()

    def do(self, task: Task, session: ReadingSession, stopping: threading.Event) -> None:
        try:
            match task:
                case Plan(run):
                    self._plan(run, session)
                case Read():
                    self._read(task, session, stopping)
                case Check():
                    raise SourceRefused("keys are not looked up in this server", "")
                case Look() | Nudge():
                    pass  # the binary log says what becomes of a table, and a heartbeat where it ends
                case _:
                    assert_never(task)
        except ChunkTooSlow:
            assert isinstance(task, Read)  # noqa: S101 - others have all the time that there is
            session.roll_back()
            rows = self._pace.lower(task.table.relation, self._chosen.chunk_time * _SLOWEST)
            self._schedule.give_up(task, reason=f"chunks of {rows} rows take too long: fewer are read at once")
        except LockNotFree:
            session.roll_back()
            what = task.table.table if isinstance(task, Read) else "a table"
            self._schedule.give_up(task, reason=f"waits for the lock of {what}, which somebody else has")
            stopping.wait(_CHUNK_LOCK_SECONDS / 2)
        except TableGone:
            session.roll_back()
            if isinstance(task, Read):
                self._tables.pop(task.table.relation, None)
            self._schedule.give_up(task)  # it is looked at again
        except SourceRefused:
            session.roll_back()
            raise

    def _plan(self, run: SnapshotRun, session: ReadingSession) -> None:
        where = self._chosen.choose_conditions(on_demand=run.on_demand)
        tables = plan_tables(session.asking, run.requested, self._wanted, where)
        for table in tables:
            if table.state is TableState.FAILED:
                log.error("source.%s: snapshot %s does not read %s: %s", self._name, run.id, table.table, table.reason)
        self._schedule.plan(run, tables)

    def _read(self, task: Read, session: ReadingSession, stopping: threading.Event) -> None:
        relation = task.table.relation
        known = self._tables.get(relation)
        if not self._begin(task, known or self._require_readable(task, session), session, stopping):
            self._schedule.give_up(task)
            return
        # Looked up under the table's lock: whoever alters it comes later, and is in the stream behind this.
        table = known or self._tables.setdefault(relation, self._require_readable(task, session))
        if self.is_out_of_order(task, table.order):
            session.roll_back()
            return
        began = time.monotonic()
        try:
            chunk = self._read_rows(task, table, session)
        except TableRefused as error:
            if known is None:
                raise
            raise TableGone("the table may be another one than the one that was looked up") from error
        line = session.end()
        if task.keys is None and chunk.rows:
            self._pace.note(task.table.relation, time.monotonic() - began, chunk.size)
        keys = join_row_keys([chunk.columns[column] for column in table.relation.key_columns])
        rows = ReadRows(line, table.relation, chunk.columns, keys, chunk.size, table.order)
        self._schedule.bring(task, rows, keys[-1].as_py() if len(keys) else None, chunk.complete)

    def _require_readable(self, task: Read, session: ReadingSession) -> SnapshotTable:
        """The table as it is. SourceRefused when it cannot be read."""
        table = describe_table(session.asking, task.table.relation)
        if table is None:
            raise SourceRefused(f"{task.table.table} is no longer there, or the account does not see it", "")
        if table.refusal:
            raise SourceRefused(*table.refusal)
        return table

    def _begin(self, task: Read, table: SnapshotTable, session: ReadingSession, stopping: threading.Event) -> bool:
        """Whether a reading was begun that sees everything that the stream gave before the task was."""
        latest, since = task.chunk.held.latest, time.monotonic()
        assert isinstance(latest, Latest)  # noqa: S101 - there is one from the start on
        while not stopping.is_set() and not task.chunk.dropped:
            if session.begin(table, latest):
                return True
            if time.monotonic() - since > _UNSEEN_SAID_AFTER_SECONDS:
                self._schedule.note_wait(
                    task,
                    "waits for a transaction that was streamed and is not visible yet: look at the semi-synchronous "
                    "replicas",
                )
            stopping.wait(_UNSEEN_PAUSE_SECONDS)
        return False

    def _read_rows(self, task: Read, table: SnapshotTable, session: ReadingSession) -> Chunk:
        where, size, width = task.table.where, self._chosen.chunk_bytes, len(table.key)
        if task.keys is not None:
            return session.read_keys(table, [decode_key(key, width) for key in task.keys], where, size)
        after = None if task.after is None else decode_key(task.after, width)
        return session.read_behind(table, after, where, self._pace.choose_chunk_rows(task.table.relation), size)

    def _make_connector(self) -> Connector:
        return Connector(self._options.address, self._options.timeout, f"psql-streamer {self._name} snapshot")
