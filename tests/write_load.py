"""A steady load of small transactions, to have something going on while parts are killed and restarted."""

from __future__ import annotations

import random
import threading
import time
from types import TracebackType
from typing import Self

import psycopg2
from psycopg2.extensions import cursor

from tests.database import Database

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


class WriteLoad:
    """Writes from a thread of its own, from `with` to its end or to `stop`.

    committed: transactions that are known to have been committed with at least one change. A connection that breaks is
    made again; whether its last transaction was committed nobody knows, so `committed` is a lower bound then.
    """

    def __init__(self, database: Database, pause: float = 0.005, seed: int = 0) -> None:
        self.committed = 0
        self._database = database
        self._pause = pause
        self._random = random.Random(seed)
        self._next_id = 0
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="write load", daemon=True)

    def large_transaction(self, rows: int) -> None:
        """Insert so many rows and change some of them, in one transaction; from the caller's thread."""
        first = _LARGE_FROM + self._random.randrange(1000) * 1_000_000
        self._database.execute(
            "INSERT INTO kept SELECT i, repeat('large ', i %% 20), i FROM generate_series(%s, %s) i;"
            "UPDATE kept SET n = -n, v = NULL WHERE id >= %s AND id %% 10 = 0;"
            "UPDATE kept SET id = -id WHERE id >= %s AND id %% 100 = 7",
            *(first, first + rows - 1, first, first),
        )
        self.committed += 1

    def until_more(self, transactions: int = 100, timeout: float = 60.0) -> None:
        """Wait until so many more transactions have been committed; raises what the thread failed with."""
        enough, deadline = self.committed + transactions, time.monotonic() + timeout
        while self.committed < enough:
            if self._failure is not None:
                raise self._failure
            assert time.monotonic() < deadline, f"no {transactions} transactions in {timeout} s"
            time.sleep(0.02)

    def stop(self) -> None:
        """Return when nothing is written any more; raises what the thread failed with."""
        self._stopping.set()
        self._thread.join(60)
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join(60)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    self._write()
                except psycopg2.Error as error:
                    if error.pgcode and not error.pgcode.startswith(_AWAY):
                        raise
                    self._stopping.wait(0.05)
        except BaseException as error:
            self._failure = error

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
