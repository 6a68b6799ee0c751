"""Reads chunks of tables by COPY, in sessions whose values have the text forms of the stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

import psycopg2
import psycopg2.errors
import pyarrow as pa
from psycopg2.extensions import connection as Connection  # noqa: N812 - a class
from psycopg2.extensions import parse_dsn
from psycopg2.sql import Literal

from psql_streamer.errors import SourceError, SourceRefused, SourceUnavailable
from psql_streamer.snapshot.fence import Fence
from sources.postgres.dsn import build_session_dsn
from sources.postgres.server_errors import from_psycopg2
from sources.postgres.session_settings import TEXT_FORMS, settle
from sources.postgres.snapshot.csv_rows import RowMemory
from sources.postgres.snapshot.selects import (
    Quote,
    list_name_columns,
    select_behind,
    select_gone,
    select_keys,
    select_places,
)
from sources.postgres.snapshot.tables import Part, SnapshotTable

APPLICATION_NAME = "psql-streamer snapshot"

_PINNED = {
    **TEXT_FORMS,
    # Policies that hide rows are an error, and no fewer rows.
    "row_security": "off",
    # Conditions that people write are looked at as if a backslash was one.
    "standard_conforming_strings": "on",
    # The text of a key is the same value when it comes back: {NULL} of an array has no text in it.
    "array_nulls": "on",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_session_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    # A message that makes the server write out its WAL waits for its own disk, and for no standby.
    "synchronous_commit": "local",
    # A chunk has one process of the server for itself, and is too short for compiled code to pay.
    "max_parallel_workers_per_gather": "0",
    "jit": "off",
}

_SAVEPOINT = "before_chunk"
"""Where a transaction goes on after a COPY that was cancelled."""

_LARGEST_ROW = 1 << 30
"""Bytes: no message of the server is longer."""

# pg_current_snapshot() is the transaction's first query, so that its snapshot is taken under the lock, and the end of
# the WAL is looked at after that.
_FENCE = """
SELECT s::text, standby,
    CASE WHEN standby THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END - '0/0'::pg_lsn,
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
FROM pg_current_snapshot() s, pg_is_in_recovery() standby
"""


class LockNotFree(SourceUnavailable):
    """Another session held the table's lock for longer than the lock_timeout."""


class ChunkTooSlow(SourceUnavailable):
    """The query took longer than the statement_timeout."""


class TableRefused(SourceRefused):
    """The server does not let this table be read in this way, or not this role; others may be."""


class ValueRefused(TableRefused):
    """The server cannot compute with a value, which its message may quote and ours does not. code: the SQLSTATE."""

    def __init__(self, what: str, remedy: str, code: str) -> None:
        super().__init__(what, remedy)
        self.code = code


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows of a table. columns: of the relation, `binary` text forms, null is NULL. nbytes: memory that they take.

    complete: nothing is behind them. last: `(page,item)` of the last row, of read_pages; empty for no row. places: of
    read_chunk, what `after` is made of where that is not the columns of the key: their names are numbers there.
    """

    columns: list[pa.Array]
    rows: int
    nbytes: int
    complete: bool
    last: str = ""
    places: Sequence[pa.Array] = ()


def connect_reader(dsn: str, timeout: float, application_name: str = APPLICATION_NAME) -> Connection:
    """A session that reads tables: values have the text forms of the stream. timeout: seconds for each address."""
    given = parse_dsn(dsn)
    name = given.get("application_name", application_name)
    try:
        connection = psycopg2.connect(build_session_dsn(dsn, timeout, _PINNED, application_name=name))
        connection.autocommit = True
        settle(connection)
    except psycopg2.Error as error:
        raise from_psycopg2(error, dsn) from None
    return connection


def begin(connection: Connection, table: SnapshotTable, lock_timeout: float, statement_timeout: float = 0.0) -> Fence:
    """Begin a transaction that sees the table in one state, which no TRUNCATE and no ALTER changes before its end.

    lock_timeout, statement_timeout: seconds; 0 is none. LockNotFree, SourceError; the transaction is over then.
    """
    only = "ONLY " if table.only else ""
    with _roll_back_on_error(connection), connection.cursor() as cursor:
        cursor.execute(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;"
            f"SET LOCAL lock_timeout = {_to_milliseconds(lock_timeout)};"
            f"LOCK TABLE {only}{table.name} IN ACCESS SHARE MODE;"
            # Not before: a lock that is waited for makes no query slow.
            f"SET LOCAL statement_timeout = {_to_milliseconds(statement_timeout)};"
            f"SAVEPOINT {_SAVEPOINT}"
        )
        cursor.execute(_FENCE)
        ((snapshot, standby, lsn, at_us),) = cursor.fetchall()
    xmin, xmax, running = snapshot.split(":")
    if standby:
        # A standby does not tell which transactions between the two are running (PostgreSQL source,
        # GetSnapshotData in procarray.c): none of them is taken for visible.
        return Fence(int(xmin), int(xmin), (), int(lsn), int(at_us))
    return Fence(int(xmin), int(xmax), tuple(map(int, filter(None, running.split(",")))), int(lsn), int(at_us))


def begin_under_locks(connection: Connection, names: str, lock_timeout: float) -> None:
    """Begin a transaction that sees nothing yet, and lock tables in it. names: as LOCK TABLE has them; empty for none.

    lock_timeout: seconds. LockNotFree, SourceError; the transaction is over then.
    """
    with _roll_back_on_error(connection), connection.cursor() as cursor:
        cursor.execute(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;"
            f"SET LOCAL lock_timeout = {_to_milliseconds(lock_timeout)};"
            # It takes no snapshot of its own (PostgreSQL documentation, "LOCK").
            + (f"LOCK TABLE {names} IN ACCESS SHARE MODE" if names else "")
        )


def see_snapshot(connection: Connection, exported_snapshot: str) -> None:
    """From now on the transaction of begin_under_locks sees what another session exported and still holds."""
    with _roll_back_on_error(connection), connection.cursor() as cursor:
        cursor.execute(
            f"SET TRANSACTION SNAPSHOT {_quote_literal(connection, exported_snapshot)}; SAVEPOINT {_SAVEPOINT}"
        )


def end(connection: Connection) -> None:
    """End the transaction, whatever has become of it."""
    if connection.closed:  # with the server's reason, which is told by what met it
        return
    with _translate_errors(connection), connection.cursor() as cursor:
        cursor.execute("ROLLBACK")


def read_chunk(
    connection: Connection,
    table: SnapshotTable,
    after: Sequence[str] | None,
    where: str,
    rows: int,
    most_bytes: int = _LARGEST_ROW,
) -> Chunk:
    """The next rows of a table in the order of its key, as many as these bytes of COPY's output hold; one at least.

    after: of Chunk.places, or else of the columns of the key, behind which they are; None: from the first. where: an
    SQL condition that require_condition has let pass, or empty.
    """
    numbers = {column.column: at for at, column in enumerate(list_name_columns(table), len(table.relation.columns))}
    width = len(table.relation.columns) + len(numbers)
    if after is not None:
        _require_names(connection, table, [after])
    # The planner would rather sort a table than walk through its index. With a condition it may know a better index.
    sort = bool(where)
    found = _NOTHING
    for select in select_behind(table, after, where, _make_quote(connection)):
        found += _copy(
            connection, select, width, rows - found.rows, most_bytes - found.size, sort, first=not found.rows
        )
        if found.cut or found.rows >= rows:
            break
    complete = not found.cut and found.rows < rows
    if not numbers:
        return _make_chunk(found, complete=complete)
    places = [found.columns[numbers.get(column, column)] for column in sorted(one.column for one in table.key)]
    rows_alone = replace(found, columns=found.columns[: len(table.relation.columns)])
    return replace(_make_chunk(rows_alone, complete=complete), places=places)


def read_keys(
    connection: Connection,
    table: SnapshotTable,
    keys: Sequence[Sequence[str]],
    where: str,
    most_bytes: int = _LARGEST_ROW,
) -> Chunk:
    """The rows with these keys that are there, each once, in any order. keys: each as read_chunk has `after`.

    Where they are more bytes, the chunk is not complete, but has one at least.
    """
    if not keys:
        return Chunk(_make_empty_columns(len(table.relation.columns)), 0, 0, complete=True)
    _require_names(connection, table, keys)
    select = select_keys(table, keys, where, _make_quote(connection))
    found = _copy(connection, select, len(table.relation.columns), len(keys), most_bytes, sort=True, joins=False)
    return _make_chunk(found, complete=not found.cut)


def read_gone(
    connection: Connection, table: SnapshotTable, keys: Sequence[Sequence[str]], most_bytes: int
) -> tuple[list[pa.Array], int]:
    """Those of these keys that no row has which is streamed: an array a column of the key, in the relation's order.
    And how many keys were looked up, the first ones: fewer where those that are gone are more bytes; one at least.

    keys: one at least, each as read_chunk has `after`. ValueRefused where one is no value of its columns' types.
    """
    count = len(keys)
    while True:
        select = select_gone(table, keys[:count], _make_quote(connection))
        found = _copy(connection, select, len(table.key), count, most_bytes, sort=True, joins=False)
        if not found.cut or count == 1:
            return found.columns, count
        count //= 2


def read_pages(
    connection: Connection,
    table: SnapshotTable,
    part: Part,
    first_page: int,
    last_page: int | None,
    where: str,
    rows: int,
    most_bytes: int,
    after: str = "",
) -> Chunk:
    """The rows of a part that lie in a range of pages, in their order there; within one snapshot alone they stay there.

    first_page, last_page: both included; None: up to the end. after: Chunk.last of the chunk before, of the same range.
    """
    begin_at, end_at = after or f"({first_page},0)", "" if last_page is None else f"({last_page + 1},0)"
    select = select_places(table, part, begin_at, end_at, where)
    width = len(table.relation.columns)
    found = _copy(connection, select, width + 1, rows, most_bytes, sort=True)
    places = found.columns[-1]
    return _make_chunk(
        replace(found, columns=found.columns[:-1]),
        complete=not found.cut and found.rows < rows,
        last=places[-1].as_py().decode() if len(places) else after,
    )


def _require_names(connection: Connection, table: SnapshotTable, keys: Sequence[Sequence[str]]) -> None:
    """TableRefused where a text of a key is the name of no object, or of several: it stands for no value then."""
    columns = sorted(table.key, key=lambda column: column.column)
    for column, texts in zip(columns, zip(*keys, strict=True), strict=True):
        if not column.is_name:
            continue
        # The number of an object is a text of it, too, whatever its name is by now.
        names = (f"CAST(CAST({_quote_literal(connection, text)} AS {column.type}) AS text)" for text in texts)
        values = ", ".join(f"CAST({name} AS {column.type})" for name in names)
        try:
            with _translate_errors(connection), connection.cursor() as cursor:
                cursor.execute(f"SELECT ARRAY[{values}]")
        except TableRefused:
            name = table.relation.columns[column.column].name
            raise TableRefused(
                f'"{name}" in the key of {table.relation} is of the type {column.type}, and the name in it that was '
                "read up to is one of several objects, or of none any more",
                "ask for another snapshot of the table if an object was renamed or dropped; else ALTER COLUMN ... TYPE "
                "oid, or give the table a replica identity without this column",
            ) from None


@dataclass(frozen=True, slots=True)
class _Copied:
    """size: bytes of COPY's output. cut: there were more."""

    columns: list[pa.Array]
    rows: int
    size: int
    cut: bool

    def __add__(self, more: _Copied) -> _Copied:
        if not self.rows:
            return more
        if not more.rows:
            return replace(self, cut=more.cut)
        columns = [pa.concat_arrays(pair) for pair in zip(self.columns, more.columns, strict=True)]
        return _Copied(columns, self.rows + more.rows, self.size + more.size, more.cut)


_NOTHING = _Copied([], 0, 0, cut=False)


def _copy(
    connection: Connection,
    select: str,
    width: int,
    rows: int,
    most_bytes: int,
    sort: bool,
    *,
    first: bool = True,
    joins: bool = True,
) -> _Copied:
    """first: one row must come at least, however long it is. sort, joins: what the planner may do."""
    settings = "".join(
        f"SET LOCAL {name} = {'on' if may else 'off'};"
        for name, may in (("enable_sort", sort), ("enable_hashjoin", joins), ("enable_mergejoin", joins))
    )

    def run(limit: int, room: int) -> tuple[RowMemory, bool]:
        memory = RowMemory(room)
        with _translate_errors(connection, of_rows=True), connection.cursor() as cursor:
            try:
                cursor.copy_expert(f"{settings} COPY ({select} LIMIT {limit}) TO STDOUT (FORMAT csv)", memory)
            except ValueError:  # the memory is full
                _stop_copy(connection)
                return memory, True
        return memory, False

    memory, cut = run(rows, max(0, most_bytes))
    if cut and first and not len(memory):
        memory, cut = run(1, _LARGEST_ROW)
        cut = True
    columns, count = memory.parse_rows(width)
    return _Copied(columns, count, len(memory), cut)


def _stop_copy(connection: Connection) -> None:
    connection.cancel()
    with connection.cursor() as cursor:
        try:
            cursor.execute(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}")
        except psycopg2.errors.QueryCanceled:  # COPY was over before it was to be cancelled
            cursor.execute(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}")


def _make_chunk(found: _Copied, *, complete: bool, last: str = "") -> Chunk:
    return Chunk(found.columns, found.rows, sum(column.nbytes for column in found.columns), complete, last)


def _make_empty_columns(width: int) -> list[pa.Array]:
    return [pa.array([], pa.binary()) for _ in range(width)]


def _make_quote(connection: Connection) -> Quote:
    return lambda text: _quote_literal(connection, text)


def _quote_literal(connection: Connection, text: str) -> str:
    return str(Literal(text).as_string(connection))


def _to_milliseconds(seconds: float) -> int:
    return 0 if not seconds else max(1, round(seconds * 1000))


_REFUSED = ("42", "21", "22", "25006", "0A", "54", "55000", "P0")
"""SQLSTATEs of what is wrong with a table or a condition, or with the values that a condition computes with."""

_REMEDIES = {
    "22021": "mend the row, whose bytes are not text, or leave it out with a condition (snapshot.where)",
    "22P05": "mend the row, which has a character that UTF-8 does not have, or leave it out (snapshot.where)",
    "42501": "grant the privilege: GRANT SELECT ON the table TO the role",
    "42": "correct the condition (snapshot.where): names outside of pg_catalog need their schema",
    "0A": "correct the condition (snapshot.where) if it has one, or leave the table out (snapshot.tables)",
    "25006": "correct the condition (snapshot.where): it may change nothing",
}
"""What SQLSTATEs begin with, and what to do."""

_NO_TEXT = ("22021", "22P05")
"""SQLSTATEs of values that cannot be sent in UTF-8."""

_MAY_QUOTE_ROWS = ("22", "P0")
"""SQLSTATEs whose messages hold values: of rows, unless they have a place in the statement."""


@contextmanager
def _translate_errors(connection: Connection, *, of_rows: bool = False) -> Iterator[None]:
    """of_rows: whether the statement computes with rows."""
    try:
        yield
    except psycopg2.errors.LockNotAvailable as error:
        raise LockNotFree(error.diag.message_primary or "the table is locked") from None
    except psycopg2.errors.QueryCanceled as error:
        raise ChunkTooSlow(error.diag.message_primary or "the query was cancelled") from None
    except psycopg2.Error as error:
        if (error.pgcode or "").startswith(_REFUSED):
            raise _make_refusal(error, of_rows) from None
        raise from_psycopg2(error, connection.dsn) from None


def _make_refusal(error: psycopg2.Error, of_rows: bool) -> TableRefused:
    code = error.pgcode or ""
    if code in _NO_TEXT:
        what = f"a row has an invalid byte sequence, or a character that UTF-8 has not ({code})"
        return ValueRefused(what, _REMEDIES[code], code)
    if of_rows and code.startswith(_MAY_QUOTE_ROWS) and not error.diag.statement_position:
        return ValueRefused(
            f"the server cannot compute with the values of a row ({type(error).__name__}, SQLSTATE {code})",
            "correct the condition; the server's log has the value",
            code,
        )
    remedy = next((remedy for state, remedy in _REMEDIES.items() if code.startswith(state)), "")
    return TableRefused(error.diag.message_primary or str(error), error.diag.message_hint or remedy)


@contextmanager
def _roll_back_on_error(connection: Connection) -> Iterator[None]:
    """A transaction that cannot be begun is over."""
    try:
        with _translate_errors(connection):
            yield
    except SourceError:
        with suppress(psycopg2.Error), connection.cursor() as cursor:
            cursor.execute("ROLLBACK")
        raise
