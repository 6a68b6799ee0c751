"""The backlog that everything drains: a database with its tables, and a slot for every run made before its rows."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg2

from benchmarks.load import Load
from benchmarks.tables import FILLER, Table
from psql_streamer.embedded.postgres import EmbeddedPostgres

PUBLICATION = "bench"

SERVER_SETTINGS = {
    "max_wal_size": "8GB",
    "shared_buffers": "256MB",
    "synchronous_commit": "off",
    # Several databases, each with two slots for every run.
    "max_replication_slots": "200",
    # Ten thousand tables in a transaction: each is locked, and so is its index.
    "max_locks_per_transaction": "1024",
    # It would take a core from whoever is measured at that moment, and make walsenders forget what they know of tables.
    "autovacuum": "off",
}

_TABLES_AT_ONCE = 500


@dataclass(frozen=True)
class Backlog:
    """Where it is. end_lsn: the WAL's end when all rows were in it."""

    dsn: str
    wal_bytes: int
    end_lsn: str


def fill(server: EmbeddedPostgres, database: str, load: Load, slots: Sequence[str]) -> Backlog:
    """Make the database, its tables, the publication and the slots, then the rows."""
    make_tables(server, database, load.tables)
    with connected(server.build_dsn(database)) as cursor:
        for statement in load.prepare():
            cursor.execute(statement)
        for slot in slots:
            make_slot(cursor, slot)
        cursor.execute("SELECT pg_current_wal_lsn()")
        before = cursor.fetchone()[0]
        cursor.execute(load.write())
        cursor.execute("CHECKPOINT")
        cursor.execute("SELECT pg_current_wal_lsn(), pg_current_wal_lsn() - %s::pg_lsn", (before,))
        end_lsn, size = cursor.fetchone()
    return Backlog(server.build_dsn(database), int(size), str(end_lsn))


def make_tables(server: EmbeddedPostgres, database: str, tables: Sequence[Table]) -> None:
    """Make the database, what values are cut from, the tables, and a publication of all of them."""
    with connected(server.build_dsn()) as cursor:
        cursor.execute(f"CREATE DATABASE {database}")
    with connected(server.build_dsn(database)) as cursor:
        cursor.execute(FILLER)
        for first in range(0, len(tables), _TABLES_AT_ONCE):
            some = tables[first : first + _TABLES_AT_ONCE]
            cursor.execute(";".join(f"CREATE TABLE {table.name} ({table.columns}){table.then}" for table in some))
        cursor.execute(f"CREATE PUBLICATION {PUBLICATION} FOR ALL TABLES")


def make_slot(cursor: Any, slot: str) -> None:
    """For pgoutput, in the database of the session."""
    cursor.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))


class connected:  # noqa: N801 - reads as a verb in `with`
    """A cursor whose statements commit on their own; the connection ends with the block."""

    def __init__(self, dsn: str) -> None:
        self._connection = psycopg2.connect(dsn)
        self._connection.autocommit = True

    def __enter__(self) -> Any:
        return self._connection.cursor()

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def version(bin_dir: Path) -> str:
    """`18.1`, of the server in a folder of binaries."""
    output = subprocess.run([bin_dir / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
    return output.split()[2]
