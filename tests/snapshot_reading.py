"""A session that reads tables for a snapshot, and what it reads of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from psycopg2.extensions import connection

from sources.postgres.catalog import Session
from sources.postgres.snapshot import copying
from sources.postgres.snapshot.tables import SnapshotTable, list_snapshot_tables
from tests.database import Database

Row = tuple[str | None, ...]

EVERY_BYTE = 1 << 30


@dataclass(frozen=True)
class Reader:
    """A connected reader."""

    connection: connection
    session: Session

    def tables(self, *publications: str) -> dict[str, SnapshotTable]:
        """By name, those of publications; of `p` if none are given."""
        return {
            table.relation.table: table
            for table in list_snapshot_tables(self.session, publications or ["p"], lambda _: None)
        }

    @contextmanager
    def transaction(self, table: SnapshotTable) -> Iterator[None]:
        """Under the lock of a table."""
        copying.begin(self.connection, table, 10)
        try:
            yield
        finally:
            copying.end(self.connection)

    def rows(self, table: SnapshotTable, where: str = "", after: Sequence[str] | None = None) -> list[Row]:
        """All rows of a table behind a key, or from the first; a table without a key by its pages."""
        with self.transaction(table):
            if table.key:
                return rows_of(copying.read_chunk(self.connection, table, after, where, 1_000_000, EVERY_BYTE))
            return [
                row
                for part in table.parts
                for row in rows_of(
                    copying.read_pages(self.connection, table, part, 0, None, where, 1_000_000, EVERY_BYTE)
                )
            ]


@contextmanager
def reading(database: Database, **dsn: str) -> Iterator[Reader]:
    """A reader of a database. dsn: parameters besides."""
    more = " ".join(f"{name}={value}" for name, value in dsn.items())
    made = copying.connect_reader(f"{database.dsn} {more}", 5.0)
    session = Session(made, None)
    try:
        yield Reader(made, session)
    finally:
        session.close()


def rows_of(chunk: copying.Chunk) -> list[Row]:
    """The rows of a chunk, as texts."""
    if not chunk.columns:
        return [()] * chunk.rows
    return list(zip(*map(texts, chunk.columns), strict=True))


def texts(column: pa.Array) -> list[str | None]:
    """The values of a column; null is None."""
    return [None if value is None else value.decode() for value in column.to_pylist()]
