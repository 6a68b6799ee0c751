"""The backlog that everything drains: a table of six columns, and a slot for every run made before it was filled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg2

from psql_streamer.embedded.postgres import EmbeddedPostgres

PUBLICATION = "bench"
_ROWS_PER_TRANSACTION = 1000
_TABLE = """
CREATE TABLE orders (
    id bigint PRIMARY KEY, name text, email text, amount numeric(12, 2), created_at timestamptz, active boolean
)
"""
_INSERT = """
INSERT INTO orders
SELECT i, 'customer ' || i, 'customer' || i || '@example.com', (i %% 100000)::numeric / 100,
       timestamptz '2024-01-01 10:00:00+00' + i * interval '1.000001 second', i %% 3 = 0
FROM generate_series(%s, %s) i
"""


@dataclass(frozen=True)
class Backlog:
    """Where it is. end_lsn: the WAL's end when all rows were in it."""

    socket_dsn: str
    rows: int
    wal_bytes: int
    end_lsn: str


def fill(server: EmbeddedPostgres, rows: int, slots: Sequence[str]) -> Backlog:
    """Make the table, the publication and the slots, then the rows, a thousand a transaction."""
    connection = psycopg2.connect(server.dsn())
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute(_TABLE)
        cursor.execute(f"CREATE PUBLICATION {PUBLICATION} FOR TABLE orders")
        for slot in slots:
            cursor.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
        cursor.execute("SELECT pg_current_wal_lsn()")
        before = cursor.fetchone()[0]
        for first in range(1, rows + 1, _ROWS_PER_TRANSACTION):
            cursor.execute(_INSERT, (first, min(first + _ROWS_PER_TRANSACTION - 1, rows)))
        cursor.execute("CHECKPOINT")
        cursor.execute("SELECT pg_current_wal_lsn(), pg_current_wal_lsn() - %s::pg_lsn", (before,))
        end_lsn, size = cursor.fetchone()
    connection.close()
    return Backlog(server.dsn(), rows, int(size), str(end_lsn))


def version(bin_dir: Path) -> str:
    """`18.1`, of the server in a folder of binaries."""
    import subprocess

    output = subprocess.run([bin_dir / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
    return output.split()[2]
