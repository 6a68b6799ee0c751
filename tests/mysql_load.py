"""A steady load of small transactions on MariaDB, to have something going on while parts are killed and restarted."""

from __future__ import annotations

import random
import threading
import time
from types import TracebackType
from typing import Any, Self

import pymysql

from tests.mariadb import Schema

TABLES = ("kept", "emptied")
_AWAY = {0, 1053, 1180, 1927, 2003, 2006, 2013, 4031}
"""Errors of a server that is not there, or leaves."""


def make_tables(schema: Schema) -> None:
    """The tables that the load changes."""
    schema.execute(
        "CREATE TABLE kept (id INT PRIMARY KEY, v TEXT, n INT)", "CREATE TABLE emptied (id INT PRIMARY KEY, v TEXT)"
    )


def contents(schema: Schema) -> dict[str, dict[str, dict[str, Any]]]:
    """What the tables hold, as events have it: "schema.table" -> key -> row."""
    columns = {"kept": ("id", "v", "n"), "emptied": ("id", "v")}
    return {
        f"{schema.name}.{table}": {
            str(row[0]): dict(zip(names, row, strict=True))
            for row in schema.query(f"SELECT {', '.join(names)} FROM {table}")
        }
        for table, names in columns.items()
    }


class MysqlLoad:
    """Writes from a thread of its own, from `with` to its end or to `stop`; some of it is rolled back.

    committed: transactions with changes that are known to have been committed.
    """

    def __init__(self, schema: Schema, pause: float = 0.003, seed: int = 0) -> None:
        self.committed = 0
        self._schema = schema
        self._pause = pause
        self._random = random.Random(seed)
        self._next_id = 0
        self._large_id = 1_000_000
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="write load", daemon=True)

    def large_transaction(self, rows: int) -> None:
        """Insert so many rows and change some of them, in one transaction; from the caller's thread."""
        first, self._large_id = self._large_id, self._large_id + 1_000_000
        self._schema.transaction(
            f"INSERT INTO kept SELECT seq, REPEAT('large ', seq % 20), seq FROM seq_{first}_to_{first + rows - 1}",
            f"UPDATE kept SET n = -n, v = NULL WHERE id >= {first} AND id % 10 = 0",
            f"UPDATE kept SET id = -id WHERE id >= {first} AND id % 100 = 7",
        )
        self.committed += 1

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
                except pymysql.Error as error:
                    if error.args and error.args[0] not in _AWAY:
                        raise
                    self._stopping.wait(0.05)
        except BaseException as error:
            self._failure = error

    def _write(self) -> None:
        with self._schema.session() as cursor:
            while not self._stopping.is_set():
                cursor.execute("START TRANSACTION")
                changes = self._transaction(cursor)
                undone = self._random.random() < 0.1
                cursor.execute("ROLLBACK" if undone else "COMMIT")
                self.committed += changes > 0 and not undone
                time.sleep(self._pause)

    def _transaction(self, cursor: Any) -> int:
        """Some changes; how many."""
        if self._random.random() < 0.01:
            cursor.execute("TRUNCATE emptied")
            return 0  # it commits by itself
        changes = 0
        for _ in range(self._random.randint(1, 6)):
            self._next_id += 1
            one, other = self._random.randint(1, self._next_id), self._next_id
            statement = self._random.choice(
                [
                    f"INSERT INTO kept VALUES ({other}, 'new {other} ''ü', 0)",
                    f"INSERT INTO emptied VALUES ({other}, NULL)",
                    f"UPDATE kept SET n = n + 1, v = CONCAT(COALESCE(v, ''), '!') WHERE id = {one}",
                    f"UPDATE emptied SET v = 'changed' WHERE id = {one}",
                    f"UPDATE kept SET id = {other} WHERE id = {one}",
                    f"DELETE FROM kept WHERE id = {one}",
                    "SAVEPOINT s",
                ]
            )
            changes += cursor.execute(statement)
            if statement == "SAVEPOINT s":
                cursor.execute(f"INSERT INTO kept VALUES ({-other}, 'undone', 0)")
                cursor.execute("ROLLBACK TO SAVEPOINT s")
        return changes
