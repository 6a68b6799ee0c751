"""The backlog that everything drains: one table, and a slot for every run made before it was filled."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg2

from psql_streamer.embedded.postgres import EmbeddedPostgres

PUBLICATION = "bench"
SERVER_SETTINGS = {"max_wal_size": "8GB", "shared_buffers": "256MB", "synchronous_commit": "off"}


@dataclass(frozen=True)
class Table:
    """columns: as CREATE TABLE takes them, the key first. values: the SQL of each in row `i`."""

    name: str
    columns: str
    values: str


ORDERS = Table(
    "orders",
    "id bigint PRIMARY KEY, name text, email text, amount numeric(12, 2), created_at timestamptz, active boolean",
    """i, 'customer ' || i, 'customer' || i || '@example.com', (i % 100000)::numeric / 100,
    timestamptz '2024-01-01 10:00:00+00' + i * interval '1.000001 second', i % 3 = 0""",
)


@dataclass(frozen=True)
class Backlog:
    """Where it is. end_lsn: the WAL's end when all rows were in it."""

    socket_dsn: str
    rows: int
    wal_bytes: int
    end_lsn: str


def fill(
    server: EmbeddedPostgres, rows: int, slots: Sequence[str], table: Table = ORDERS, rows_per_transaction: int = 1000
) -> Backlog:
    """Make the table, the publication and the slots, then the rows."""
    connection = psycopg2.connect(server.dsn())
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {table.name} ({table.columns})")
        cursor.execute(f"CREATE PUBLICATION {PUBLICATION} FOR TABLE {table.name}")
        for slot in slots:
            cursor.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
        cursor.execute("SELECT pg_current_wal_lsn()")
        before = cursor.fetchone()[0]
        cursor.execute(
            f"DO $$ BEGIN FOR lowest IN 1..{rows} BY {rows_per_transaction} LOOP INSERT INTO {table.name} SELECT "
            f"{table.values} FROM generate_series(lowest, least(lowest + {rows_per_transaction} - 1, {rows})) i; "
            "COMMIT; END LOOP; END $$"
        )
        cursor.execute("CHECKPOINT")
        cursor.execute("SELECT pg_current_wal_lsn(), pg_current_wal_lsn() - %s::pg_lsn", (before,))
        end_lsn, size = cursor.fetchone()
    connection.close()
    return Backlog(server.dsn(), rows, int(size), str(end_lsn))


def version(bin_dir: Path) -> str:
    """`18.1`, of the server in a folder of binaries."""
    output = subprocess.run([bin_dir / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
    return output.split()[2]
