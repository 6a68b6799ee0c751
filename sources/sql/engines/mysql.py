"""MySQL and MariaDB: values as their text protocol gives them, writers by information_schema.innodb_trx."""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine

from psql_streamer.errors import SourceRefused
from psql_streamer.interfaces import Finding, Severity
from psql_streamer.model import TextType
from psql_streamer.pgtype import PostgresType
from sources.sql import values
from sources.sql.engines.engine import AnyEngine, Described, Result, Writers, as_it_is, make_numeric_type, make_type
from sources.sql.engines.mysql_keys import find_generator_problem, read_table_keys
from sources.sql.engines.mysql_session import (
    END_SECONDS,
    MysqlSession,
    end_session,
    forget_result,
    read_session,
    wake_reader,
)
from sources.sql.engines.table_keys import TableKeys
from sources.sql.names import TableName
from sources.sql.values import Render

_COLUMNS = sa.text("""
SELECT column_name, data_type, column_type, is_nullable, numeric_precision, numeric_scale
FROM information_schema.columns
WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :table
ORDER BY ordinal_position
""")

_SETTINGS = "SET time_zone = '+00:00' /*!80003 , information_schema_stats_expiry = 0 */"
"""MySQL says for a day what AUTO_INCREMENT was when somebody asked, unless it is told not to. MariaDB skips that."""

_OPEN = """
SELECT trx_id, trx_mysql_thread_id, trx_started,
    trx_rows_modified > 0 OR trx_tables_locked > 0 OR trx_lock_structs > 0, CONNECTION_ID()
FROM information_schema.innodb_trx
"""

_ENGINE = sa.text("""
SELECT engine FROM information_schema.tables
WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :table
""")

_TELLING = ("None", "InnoDB", "MyISAM", "Aria", "MEMORY")
"""Engines whose rows no transaction holds back that innodb_trx does not show: InnoDB, and those without transactions.
Views have none, and count as InnoDB.
"""

_HIGHEST = sa.text("""
SELECT auto_increment - 1 FROM information_schema.tables
WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :table
""")

_FORMS: Mapping[str, tuple[PostgresType, Render, bool]] = {
    "tinyint": (make_type("int2"), values.as_text, True),
    "smallint": (make_type("int2"), values.as_text, True),
    "mediumint": (make_type("int4"), values.as_text, True),
    "int": (make_type("int4"), values.as_text, True),
    "bigint": (make_type("int8"), values.as_text, True),
    "year": (make_type("int4"), values.render_unpadded, True),
    "float": (make_type("float4"), values.render_short_floats, False),
    "double": (make_type("float8"), values.render_floats, False),
    "date": (make_type("date"), values.as_text, True),
    "time": (make_type("time"), values.make_moment_render(), True),
    "datetime": (make_type("timestamp"), values.make_moment_render(), True),
    "timestamp": (make_type("timestamptz"), values.make_moment_render("+00"), True),
    "json": (make_type("json"), values.render_documents, False),
    "uuid": (make_type("uuid"), values.as_text, False),
    "char": (make_type("text"), values.render_strings, True),
    "varchar": (make_type("text"), values.render_strings, True),
    "tinytext": (make_type("text"), values.render_strings, True),
    "text": (make_type("text"), values.render_strings, True),
    "mediumtext": (make_type("text"), values.render_strings, True),
    "longtext": (make_type("text"), values.render_strings, True),
    "enum": (make_type("text"), values.render_strings, False),
    "set": (make_type("text"), values.render_strings, False),
}

_UNSIGNED: Mapping[str, PostgresType] = {
    "smallint": make_type("int4"),
    "int": make_type("int8"),
    "bigint": make_numeric_type(20, 0),
}

_PROCESS_MISSING = (1227, 1142, 1044)

_WRITERS_LOOK_SECONDS = 0.15
"""Between two looks at innodb_trx: more than the time that it must not be read to be refreshed."""


class MysqlEngine(AnyEngine):
    """A transaction that writes is in innodb_trx. InnoDB refreshes that list when it has not been read for 0.1 s
    (MySQL source, trx0i_s.cc, CACHE_MIN_IDLE_TIME), so that a look counts when it shows a transaction of this
    connection that has just begun.
    """

    first_look_seconds: ClassVar[float] = 0.25
    recommends: ClassVar[str] = "mysql"
    keys_are_near: ClassVar[bool] = True
    selects_without_table: ClassVar[bool] = True

    def __init__(self, url: URL, timeout: float, lock_timeout: float) -> None:
        super().__init__(url, timeout, lock_timeout)
        self._writers = Writers(frozenset(), -math.inf, known=False)
        self._tells: dict[TableName, bool] = {}
        self._sessions: weakref.WeakKeyDictionary[Any, MysqlSession] = weakref.WeakKeyDictionary()

    def create(self) -> Engine:
        engine = super().create()

        def set_forms(connection: Any, _: object) -> None:
            with connection.cursor() as cursor:
                cursor.execute(_SETTINGS)
                if self._lock_timeout < self._timeout:
                    cursor.execute(f"SET lock_wait_timeout = {max(1, round(self._lock_timeout))}")
                self._sessions[connection] = read_session(cursor)
            connection.commit()

        sa.event.listen(engine, "connect", set_forms)
        return engine

    def connect_arguments(self) -> Mapping[str, Any]:
        seconds = max(2, int(self._timeout))
        return self._make_connect_arguments(seconds, seconds + 5)

    def _make_connect_arguments(self, connect_timeout: float, read_timeout: float) -> Mapping[str, Any]:
        if self._url.get_driver_name() != "pymysql":
            return {}
        from pymysql.converters import encoders

        # Values stay what the server sent: a date of zeros has no type in Python.
        return {
            "conv": dict(encoders),
            "connect_timeout": connect_timeout,
            "read_timeout": read_timeout,
            "charset": "utf8mb4",
        }

    def cancel(self, connection: Any) -> None:
        """End the session, too: the statement would run on at the server, and wait for what it waits for."""
        wake_reader(connection)
        if session := self._sessions.get(connection):
            end_session(session, self._url, self._make_connect_arguments(END_SECONDS, END_SECONDS))

    def read_identity(self, connection: Connection) -> Mapping[str, str]:
        found = connection.exec_driver_sql("SHOW GLOBAL VARIABLES LIKE 'server_uuid'").first()
        return {"server uuid": str(found[1])} if found else {}

    def describe(self, connection: Connection, table: TableName) -> Sequence[Described]:
        found = connection.execute(_COLUMNS, {"schema": table.schema or None, "table": table.table}).all()
        if not found:
            raise SourceRefused(f"table {table} does not exist", "correct tables in the configuration, or create it")
        return [
            _describe_column(
                _to_text(name), _to_text(kind), _to_text(native), _to_text(nullable) == "YES", precision, scale
            )
            for name, kind, native, nullable, precision, scale in found
        ]

    def read_keys(self, connection: Connection, table: TableName) -> TableKeys:
        return read_table_keys(connection, table)

    def leave_rows(self, connection: Connection) -> bool:
        """PyMySQL reads a result to its end before it does anything else: the connection is given up in place of it."""
        if self._url.get_driver_name() != "pymysql":
            return True
        forget_result(connection.connection.driver_connection)
        connection.invalidate()
        return False

    def make_impatient(self, work: Callable[[Connection], Result]) -> Callable[[Connection], Result]:
        if self._lock_timeout < self._timeout:
            return work  # the session waits no longer than the server can be told to

        def look(connection: Connection) -> Result:
            connection.exec_driver_sql("SET SESSION lock_wait_timeout = 1")
            try:
                return work(connection)
            finally:
                connection.exec_driver_sql("SET SESSION lock_wait_timeout = DEFAULT")

        return look

    def find_writers(self, connection: Connection, table: TableName, key: Sequence[str]) -> Writers | None:  # noqa: ARG002
        """None, too, where this user may not ask, where a table's engine has transactions of its own, and on a replica,
        which may commit in another order than it should. One look is for all tables.
        """
        if not self._does_tell(connection, table):
            return None
        if time.monotonic() - self._writers.looked_at >= _WRITERS_LOOK_SECONDS:
            found = self._look(connection)
            if found is None:
                return None
            self._writers = found
        return self._writers

    def _does_tell(self, connection: Connection, table: TableName) -> bool:
        if table not in self._tells:
            what = {"schema": table.schema or None, "table": table.table}
            self._tells[table] = _to_text(connection.execute(_ENGINE, what).scalar()) in _TELLING
        return self._tells[table]

    def _look(self, connection: Connection) -> Writers | None:
        if _is_replica(connection):
            return None
        connection.rollback()
        began = time.monotonic()
        try:
            connection.exec_driver_sql("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            found = connection.exec_driver_sql(_OPEN).all()
        except sa.exc.DBAPIError as error:
            if getattr(error.orig, "args", (0,))[0] in _PROCESS_MISSING:
                return None
            raise
        finally:
            connection.rollback()
        names = frozenset(
            _describe_transaction(number, thread, started)
            for number, thread, started, writes, own in found
            if str(writes) == "1" and str(thread) != str(own)
        )
        return Writers(names, began, known=any(str(thread) == str(own) for _, thread, _, _, own in found))

    def find_highest_given(self, connection: Connection, table: TableName, key: str) -> int | None:  # noqa: ARG002
        found = connection.execute(_HIGHEST, {"schema": table.schema or None, "table": table.table}).scalar()
        return None if found is None else int(found)

    def find_sequence_problem(self, connection: Connection, table: TableName, key: Sequence[str]) -> str:
        return find_generator_problem(connection, table, key)

    def check(self, connection: Connection) -> Iterable[Finding]:
        if _is_replica(connection):
            yield Finding(
                Severity.WARNING,
                "the server is a replica (read_only), which may commit in another order: rows are read after `settle`",
                "let the url name the primary, or set settle longer than the longest transaction and the replica's lag",
            )
        elif self.find_writers(connection, TableName("", ""), ()) is None:
            yield Finding(
                Severity.WARNING,
                "this user may not see who writes (information_schema.innodb_trx): rows are read after `settle`",
                "GRANT PROCESS ON *.* TO this user, or set settle longer than the longest transaction",
            )


def _describe_transaction(number: object, thread: object, started: object) -> str:
    """What stays the same from the first row that a transaction writes to its end.

    Its session does not: a prepared transaction has none when its client is gone, and at MySQL from XA PREPARE on. The
    number is another one, or 0 at MariaDB, only until the transaction has the first lock to write under.
    """
    return f"{thread} since {started}" if str(number) == "0" else str(number)


def _is_replica(connection: Connection) -> bool:
    return str(connection.exec_driver_sql("SELECT @@global.read_only").scalar()) not in ("0", "OFF", "False")


def _to_text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _describe_column(name: str, kind: str, native: str, nullable: bool, precision: Any, scale: Any) -> Described:
    form, render, ordered = _FORMS.get(kind, (make_type("bytea"), values.render_hexes, False))
    select: Callable[[sa.ColumnElement[Any]], sa.ColumnElement[Any]] = as_it_is
    if "unsigned" in native:
        form = _UNSIGNED.get(kind, form)
    if kind == "decimal":
        form, render, ordered = make_numeric_type(int(precision), int(scale)), values.as_text, True
    if "zerofill" in native and kind not in ("float", "double"):
        render = values.render_unpadded
    if kind == "bit":
        form, render = make_type("bit", int(precision)), values.make_bit_render(int(precision))
    if kind == "float":
        select = _as_double
    if kind in ("inet4", "inet6"):
        form, render = make_type("text"), values.as_text
    return Described(name, TextType(native, form), nullable, select, render, ordered)


def _as_double(column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """The server writes a FLOAT with six digits, and a DOUBLE with all that it has."""
    return column + sa.literal_column("0e0")
