"""Whole tables and queries by COPY, for whoever wants them beside the stream."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

import psycopg2
from psycopg2.extensions import connection as Connection  # noqa: N812 - a class

from psql_streamer.errors import SourceRefused, SourceUnavailable
from psql_streamer.model import Column
from psql_streamer.pgtype import PostgresType
from psql_streamer.pgtypes.modifiers import VARHDRSZ
from psql_streamer.table_rows import TableReader, TableRows
from sources.postgres.catalog import Catalog
from sources.postgres.server_errors import from_psycopg2
from sources.postgres.server_types import ServerTypes
from sources.postgres.snapshot.copying import begin, connect_reader, end
from sources.postgres.snapshot.csv_rows import RowMemory
from sources.postgres.snapshot.selects import select_all
from sources.postgres.snapshot.tables import SnapshotTable, find_refusal, list_snapshot_tables

APPLICATION_NAME = "psql-streamer lookup"

_TABLE_LOCK_SECONDS = 10.0
_TABLE_ATTEMPTS = 3
_NUMERIC_OID = 1700


class PostgresTableReader(TableReader):
    """publications: of the tables that read_table may read. timeout: seconds for a connection to be made."""

    def __init__(self, dsn: str, timeout: float, publications: Sequence[str] = ()) -> None:
        self._dsn = dsn
        self._timeout = timeout
        self._publications = publications
        self._catalog = Catalog(dsn, timeout)
        self._types = ServerTypes(self._catalog)
        self._reading: Connection | None = None
        self._lock = threading.Lock()
        self._interrupted = False

    def read_table(self, schema: str, table: str, most_bytes: int) -> TableRows:
        name = f"{schema}.{table}"
        with self._open_connection() as connection:
            for _ in range(_TABLE_ATTEMPTS):
                described = self._describe(schema, table)
                begin(connection, described, _TABLE_LOCK_SECONDS)
                try:
                    relation = self._describe(schema, table).relation
                    if relation == described.relation:
                        rows = self._copy(connection, select_all(described), relation.columns, most_bytes, name)
                        return replace(rows, id=relation.id, unstreamed=described.unstreamed)
                finally:
                    end(connection)
        raise SourceUnavailable(f"the shape of {name} changed while it was read")

    def read_query(self, query: str, most_bytes: int) -> TableRows:
        # What is written behind it may end with a comment, which lasts to the end of its line.
        select = f"SELECT * FROM ({query.rstrip().rstrip(';')}\n) AS given"  # noqa: S608 - the operator's own query
        with self._open_connection() as connection, connection.cursor() as cursor:
            cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            try:
                cursor.execute(f"{select} LIMIT 0")
                columns = tuple(map(_make_column, cursor.description or ()))
                return self._copy(connection, select, columns, most_bytes, "the query's result")
            finally:
                with suppress(psycopg2.Error):
                    cursor.execute("ROLLBACK")

    def interrupt(self) -> None:
        self._interrupted = True
        self._catalog.interrupt()
        with self._lock, suppress(psycopg2.Error):
            if self._reading is not None:
                self._reading.cancel()

    def _describe(self, schema: str, table: str) -> SnapshotTable:
        with self._catalog.open_session() as session:
            session.require_publications(self._publications)
            self._types.load(session)
            tables = list_snapshot_tables(session, self._publications, self._types.resolve)
            found = next((one for one in tables if (one.relation.schema, one.relation.table) == (schema, table)), None)
            if found is None:
                raise SourceRefused(f"table {schema}.{table} is not published", "add it to the publication")
            refused = find_refusal(session, found)
        if refused is not None:
            raise SourceRefused(*refused)
        return found

    @contextmanager
    def _open_connection(self) -> Iterator[Connection]:
        connection = connect_reader(self._dsn, self._timeout, APPLICATION_NAME)
        with self._lock:
            self._reading = connection
        try:
            if self._interrupted:
                raise SourceUnavailable("interrupted before the table was read")
            yield connection
        except psycopg2.Error as error:
            raise from_psycopg2(error, self._dsn) from None
        finally:
            with self._lock:
                self._reading = None
            connection.close()

    def _copy(
        self, connection: Connection, select: str, columns: tuple[Column, ...], most_bytes: int, name: str
    ) -> TableRows:
        memory = RowMemory(most_bytes)
        with connection.cursor() as cursor:
            try:
                cursor.copy_expert(f"COPY ({select}) TO STDOUT (FORMAT csv)", memory)
            except ValueError:  # the memory is full
                connection.cancel()
                problem = f"{name} is larger than maxBytes, {most_bytes} bytes"
                raise SourceRefused(problem, "raise maxBytes, or read fewer rows or columns") from None
        arrays, rows = memory.parse_rows(len(columns))
        return TableRows(columns, arrays, rows)


def _make_column(described: psycopg2.extensions.Column) -> Column:
    """A column of a result. The server gives the base type of a domain (printtup.c, SendRowDescriptionMessage)."""
    typmod = -1
    if described.type_code == _NUMERIC_OID and described.precision not in (None, 65535):
        typmod = ((int(described.precision) << 16) | (int(described.scale or 0) & 0x7FF)) + VARHDRSZ
    return Column(described.name, PostgresType(int(described.type_code), typmod))
