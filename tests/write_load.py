"""A steady load of small transactions on PostgreSQL."""

from __future__ import annotations

import time

import psycopg2
from psycopg2.extensions import cursor

from tests.database import Database
from tests.steady_load import SteadyLoad

SCHEMA = """
CREATE TABLE kept (id int PRIMARY KEY, v text, n int);
CREATE TABLE emptied (id int PRIMARY KEY, v text);
CREATE PUBLICATION p FOR TABLE kept, emptied;
"""
TABLES = ("public.kept", "public.emptied")

_LARGE_FROM = 1_000_000
"""Ids that the small transactions leave alone."""

_AWAY = ("08", "57P")
"""SQLSTATE classes of a server that is not there: connection exceptions, shutdown; without one, libpq's own errors."""


class WriteLoad(SteadyLoad):
    """On PostgreSQL, see SteadyLoad."""

    errors = psycopg2.Error

    def __init__(self, database: Database, pause: float = 0.005, seed: int = 0) -> None:
        super().__init__(pause, seed)
        self._database = database

    def large_transaction(self, rows: int) -> None:
        first = _LARGE_FROM + self._random.randrange(1000) * 1_000_000
        self._database.execute(
            "INSERT INTO kept SELECT i, repeat('large ', i %% 20), i FROM generate_series(%s, %s) i;"
            "UPDATE kept SET n = -n, v = NULL WHERE id >= %s AND id %% 10 = 0;"
            "UPDATE kept SET id = -id WHERE id >= %s AND id %% 100 = 7",
            *(first, first + rows - 1, first, first),
        )
        self.committed += 1

    def _is_away(self, error: Exception) -> bool:
        return isinstance(error, psycopg2.Error) and (not error.pgcode or error.pgcode.startswith(_AWAY))

    def _write(self) -> None:
        with self._database.session() as session, session.cursor() as at:
            while not self._stopping.is_set():
                changes = self._transaction(at)
                session.commit()
                self.committed += changes > 0
                time.sleep(self._pause)

    def _transaction(self, at: cursor) -> int:
        """Some changes; how many."""
        if self._random.random() < 0.01:
            at.execute("TRUNCATE emptied")
            return 1
        changes = 0
        for _ in range(self._random.randint(1, 6)):
            self._next_id += 1
            one, other = self._random.randint(1, self._next_id), self._next_id
            statement, values = self._random.choice(
                [
                    ("INSERT INTO kept VALUES (%s, %s, 0)", (other, f"new {other} 'ü\\")),
                    ("INSERT INTO emptied VALUES (%s, %s)", (other, f"new {other}")),
                    ("UPDATE kept SET n = n + 1, v = %s WHERE id BETWEEN %s AND %s", (None, one, one + 3)),
                    ("UPDATE kept SET n = n + 1 WHERE id BETWEEN %s AND %s", (one, one + 3)),
                    ("UPDATE kept SET id = %s WHERE id = (SELECT max(id) FROM kept WHERE id < %s)", (other, one)),
                    ("DELETE FROM emptied WHERE id BETWEEN %s AND %s", (one, one + 5)),
                    ("DELETE FROM kept WHERE id BETWEEN %s AND %s", (one, one + 1)),
                ]
            )
            at.execute(statement, values)
            changes += at.rowcount
        return changes
