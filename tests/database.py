"""A fresh database for a test, and the ways a test talks to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psycopg2
from psycopg2.extensions import connection, make_dsn, parse_dsn


@dataclass(frozen=True, slots=True)
class Database:
    """dsn: of the superuser, over the unix socket where the server has one. version: major version."""

    name: str
    dsn: str
    version: int

    def execute(self, sql: str, *parameters: Any) -> int:
        """Run one or more statements in a transaction of their own; PostgreSQL's row count of the last."""
        with self.session() as session, session.cursor() as cursor:
            cursor.execute(sql, parameters or None)
            session.commit()
            return int(cursor.rowcount)

    def query(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """All rows of a SELECT."""
        with self.session() as session, session.cursor() as cursor:
            cursor.execute(sql, parameters or None)
            return [tuple(row) for row in cursor.fetchall()]

    def value(self, sql: str, *parameters: Any) -> Any:
        """The one value of a SELECT."""
        [(value,)] = self.query(sql, *parameters)
        return value

    @contextmanager
    def session(self, *, autocommit: bool = False) -> Iterator[connection]:
        """A psycopg2 connection, for transactions that interleave; rolled back and closed at the end."""
        session = psycopg2.connect(self.dsn)
        try:
            session.autocommit = autocommit
            yield session
        finally:
            session.close()


@contextmanager
def fresh_database(server_dsn: str, name: str, encoding: str = "") -> Iterator[Database]:
    """A database that did not exist; afterwards it is dropped, and its replication slots before it.

    encoding: of its text; "" for the server's own.
    """
    options = f"TEMPLATE template0 ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C'" if encoding else ""
    server = psycopg2.connect(server_dsn)
    server.autocommit = True
    try:
        with server.cursor() as cursor:
            cursor.execute(f'CREATE DATABASE "{name}" {options}')
        dsn = make_dsn(**(parse_dsn(server_dsn) | {"dbname": name}))
        try:
            yield Database(name, dsn, server.server_version // 10_000)
        finally:
            _drop(server, name)
    finally:
        server.close()


def _drop(server: connection, name: str) -> None:
    with server.cursor() as cursor:
        cursor.execute("SELECT slot_name, active_pid FROM pg_replication_slots WHERE database = %s", (name,))
        for slot, pid in cursor.fetchall():
            if pid is not None:
                # Returns when the walsender is gone (PostgreSQL 14), so that the slot can be dropped.
                cursor.execute("SELECT pg_terminate_backend(%s, 10000)", (pid,))
            with suppress(psycopg2.errors.UndefinedObject):  # a temporary one, which has ended with its session
                cursor.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
        cursor.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
