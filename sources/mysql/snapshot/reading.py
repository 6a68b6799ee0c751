"""Reads chunks of tables in sessions whose values have the text forms of the stream.

What a chunk sees, and where the binary log ends behind it
----------------------------------------------------------
A transaction is written to the binary log first, and the stream may give it then; others see it when its engine has
committed it, which is a moment later, or much later where the server waits for a semi-synchronous replica. So a chunk
is right only if its reading sees whatever the stream had given before the chunk was begun.
- MySQL adds a GTID to gtid_executed when the engine has committed (MySQL source, process_commit_stage_queue in
  binlog.cc). What is in it before the reading begins is seen.
- MariaDB's START TRANSACTION WITH CONSISTENT SNAPSHOT says in binlog_snapshot_file and binlog_snapshot_position which
  part of the binary log the reading sees (MariaDB Knowledge Base, "Enhancements for START TRANSACTION WITH CONSISTENT
  SNAPSHOT").
Whatever is seen was written to the binary log before, so all of it lies before the end that is asked for behind the
reading. ALTER, TRUNCATE and DROP wait for the transaction's metadata lock on the table; the end is asked for under it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pymysql

from psql_streamer.errors import SourceError, SourceRefused, SourceUnavailable
from sources.mysql.connection import ANSWER_SECONDS, Connector
from sources.mysql.gtid_sets import GtidSet
from sources.mysql.places import LogPlace, Place
from sources.mysql.positions import BinlogPosition
from sources.mysql.server import Session
from sources.mysql.server_of_stream import Client, require_server_of
from sources.mysql.snapshot.line import BinlogLine, Latest
from sources.mysql.snapshot.selects import select_behind, select_keys, select_nothing
from sources.mysql.snapshot.tables import SnapshotTable
from sources.mysql.snapshot.text_rows import TextRows, read_rows
from sources.mysql.snapshot.values import render_column

_NO_SUCH_TABLE = {1146, 1049, 1051}
_LOCK_WAIT, _TOO_SLOW, _ALTERED = 1205, {3024, 1969}, 1412
_DENIED = {1142, 1143, 1044, 1370}


class LockNotFree(SourceUnavailable):
    """Another session held the table's lock for longer than lock_wait_timeout."""


class ChunkTooSlow(SourceUnavailable):
    """The query took longer than it may."""


class TableGone(SourceUnavailable):
    """There is no table of this name now, or it is another one than a moment before."""


class TableRefused(SourceRefused):
    """The server does not let this table be read in this way, or not this account; others may be."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows of a table. columns: of the relation, `binary` text forms. size: bytes. complete: nothing is behind them."""

    columns: list[pa.Array]
    rows: int
    size: int
    complete: bool


class ReadingSession:
    """One connection that reads chunks. client: the stream's session, at whose server it must be."""

    def __init__(self, connector: Connector, client: Client, lock_timeout: float, statement_timeout: float) -> None:
        self._connector = connector
        self._client = client
        self._timeouts = lock_timeout, statement_timeout
        self._connect()
        self._is_mariadb = self.asking.is_mariadb

    def close(self) -> None:
        """May be called twice."""
        self._connector.close(self._connection)

    def begin(self, table: SnapshotTable, latest: Latest) -> bool:
        """Begin a transaction that sees whatever was given; False when it does not yet: it is over then.

        latest: what was given last. LockNotFree, TableGone, SourceError.
        """
        with self._translate_errors():
            if self._is_mariadb:
                self._execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
                seen = self._sees_place(latest)
                if seen:
                    self._execute(select_nothing(table))
            else:
                self._execute("START TRANSACTION READ ONLY")
                self._execute(select_nothing(table))
                seen = self._sees_transactions(latest)
            if not seen:
                self._execute("ROLLBACK")
        return seen

    def read_behind(self, table: SnapshotTable, after: Sequence[str] | None, where: str, rows: int, size: int) -> Chunk:
        """The next rows of a table in the order of its key, as many as these bytes hold; one at least."""
        return self._read(table, select_behind(table, after, where, rows), rows, size)

    def read_keys(self, table: SnapshotTable, keys: Sequence[Sequence[str]], where: str, size: int) -> Chunk:
        """The rows with these keys that are there, in any order. Not complete where they are more bytes."""
        return self._read(table, select_keys(table, keys, where), len(keys) + 1, size)

    def end(self) -> BinlogLine:
        """End the transaction, and say what lay behind it."""
        with self._translate_errors():
            moment = time.time_ns() // 1000
            mark = LogPlace.from_place(self.asking.read_end())
            self._execute("ROLLBACK")
        return BinlogLine(mark, moment)

    def roll_back(self) -> None:
        """End the transaction, whatever has become of it."""
        with self._connector.translate_errors():
            self._execute("ROLLBACK")

    def _read(self, table: SnapshotTable, sql: str, rows: int, size: int) -> Chunk:
        with self._translate_errors(of_rows=True):
            found = read_rows(self._connection, sql, size)
            if found.cut:
                self._begin_another_connection()
        return Chunk(_make_columns(found, table), found.count, found.size, not found.cut and found.count < rows)

    def _begin_another_connection(self) -> None:
        """In place of one that is in the middle of rows. Nobody else's: the lock of the table is gone with it, so what
        happens to the table from here on is in the stream behind what was given.
        """
        self.close()
        self._connect()

    def _sees_place(self, latest: Latest) -> bool:
        found = {
            str(name).lower(): value for name, value in self.asking.read_rows("SHOW STATUS LIKE 'binlog_snapshot_%'")
        }
        place = LogPlace.from_place(Place(str(found["binlog_snapshot_file"]), int(found["binlog_snapshot_position"])))
        return place > latest.reached if latest.inside else place >= latest.reached

    def _sees_transactions(self, latest: Latest) -> bool:
        position = BinlogPosition.from_position(latest.position)
        if position.executed is None:
            raise SourceRefused(
                "the position is a place in a file: nothing says which transactions a reading sees",
                "set positionOverride to GTIDs, with gtid_mode = ON",
            )
        executed = self.asking.read_executed()
        assert isinstance(executed, GtidSet)  # noqa: S101 - it is MySQL's
        opened = position.open
        if opened is not None and opened.gtid is not None and not executed.holds(*opened.gtid):
            return False
        return executed.includes(GtidSet.parse(position.executed))

    def _connect(self) -> None:
        self._connection = self._connector.connect()
        try:
            with self._connector.translate_errors():
                self.asking = Session(self._connection)
                require_server_of(self._client, self.asking)
                self._set_up(*self._timeouts)
        except SourceError:
            self.close()
            raise

    def _set_up(self, lock_timeout: float, statement_timeout: float) -> None:
        limit = (
            f"max_statement_time = {statement_timeout}"
            if self.asking.is_mariadb
            else f"max_execution_time = {int(statement_timeout * 1000)}"
        )
        # An answer may take as long as a query may; the library would give up before.
        self._connection._read_timeout = max(ANSWER_SECONDS, statement_timeout + ANSWER_SECONDS)
        self._execute(
            "SET SESSION time_zone = '+00:00', sql_mode = '', character_set_results = NULL, "
            f"lock_wait_timeout = {max(1, int(lock_timeout))}, {limit}"
        )
        self._execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")

    def _execute(self, sql: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(sql)

    @contextmanager
    def _translate_errors(self, *, of_rows: bool = False) -> Iterator[None]:
        """of_rows: whether the statement computes with rows, whose values the server's message may quote."""
        with self._connector.translate_errors():
            try:
                yield
            except pymysql.Error as error:
                number = error.args[0] if error.args and isinstance(error.args[0], int) else 0
                if (told := _find_error(number, of_rows)) is None:
                    raise
                raise told from None


def _make_columns(found: TextRows, table: SnapshotTable) -> list[pa.Array]:
    return [render_column(found, number, column) for number, column in enumerate(table.columns)]


def _find_error(number: int, of_rows: bool) -> SourceUnavailable | SourceRefused | None:
    """Our error for one of a reading's; None for one that any connection may have."""
    if number == _LOCK_WAIT:
        return LockNotFree("the lock of the table is not free")
    if number in _TOO_SLOW:
        return ChunkTooSlow("the query took too long")
    if number in _NO_SUCH_TABLE or number == _ALTERED:
        return TableGone(f"the table is another one than before (error {number})")
    if number in _DENIED:
        return TableRefused(f"the account may not read the table (error {number})", "GRANT SELECT ON the table")
    if 1000 <= number < 2000 and of_rows and number not in _CONNECTION:
        return TableRefused(
            f"the server cannot compute with the rows of the table (error {number})",
            "correct the condition (snapshot.where); the server's manual says what the number means",
        )
    return None


_CONNECTION = {1040, 1042, 1043, 1045, 1053, 1077, 1079, 1080, 1105, 1152, 1158, 1159, 1160, 1161, 1203, 1213, 1226}
_CONNECTION |= {1317, 1927}
"""Errors of the connection or of the moment: the server stops, a packet was lost, somebody ended the query."""
