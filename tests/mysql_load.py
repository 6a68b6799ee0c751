"""A steady load of small transactions on MariaDB, between which tables are altered and emptied."""

from __future__ import annotations

import time
from typing import Any

import pymysql

from tests.mariadb import Schema
from tests.steady_load import SteadyLoad

TABLES = ("kept", "emptied")
_AWAY = {0, 1053, 1180, 1927, 2003, 2006, 2013, 4031}
"""Errors of a server that is not there, or leaves."""


_OTHER_SHAPES = (
    "ALTER TABLE kept MODIFY n BIGINT AFTER id",
    "ALTER TABLE kept MODIFY n INT AFTER v",
    "ALTER TABLE emptied MODIFY v VARCHAR(500) FIRST",
    "ALTER TABLE emptied MODIFY v TEXT AFTER id",
)
"""Columns of other types, in another order; the values stay what they are."""


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


class MysqlLoad(SteadyLoad):
    """On MariaDB, see SteadyLoad; some of it is rolled back."""

    errors = pymysql.Error

    def __init__(self, schema: Schema, pause: float = 0.003, seed: int = 0) -> None:
        super().__init__(pause, seed)
        self._schema = schema
        self._large_id = 1_000_000

    def large_transaction(self, rows: int) -> None:
        first, self._large_id = self._large_id, self._large_id + 1_000_000
        self._schema.transaction(
            "INSERT INTO kept (id, v, n) SELECT seq, REPEAT('large ', seq % 20), seq "
            f"FROM seq_{first}_to_{first + rows - 1}",
            f"UPDATE kept SET n = -n, v = NULL WHERE id >= {first} AND id % 10 = 0",
            f"UPDATE kept SET id = -id WHERE id >= {first} AND id % 100 = 7",
        )
        self.committed += 1

    def _is_away(self, error: Exception) -> bool:
        return not error.args or error.args[0] in _AWAY

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
        chance = self._random.random()
        if chance < 0.02:
            cursor.execute("TRUNCATE emptied" if chance < 0.01 else self._random.choice(_OTHER_SHAPES))
            return 0  # it commits by itself
        changes = 0
        for _ in range(self._random.randint(1, 6)):
            self._next_id += 1
            one, other = self._random.randint(1, self._next_id), self._next_id
            statement = self._random.choice(
                [
                    f"INSERT INTO kept (id, v, n) VALUES ({other}, 'new {other} ''ü', 0)",
                    f"INSERT INTO emptied (id, v) VALUES ({other}, NULL)",
                    f"UPDATE kept SET n = n + 1, v = CONCAT(COALESCE(v, ''), '!') WHERE id = {one}",
                    f"UPDATE emptied SET v = 'changed' WHERE id = {one}",
                    f"UPDATE kept SET id = {other} WHERE id = {one}",
                    f"DELETE FROM kept WHERE id = {one}",
                    "SAVEPOINT s",
                ]
            )
            changes += cursor.execute(statement)
            if statement == "SAVEPOINT s":
                cursor.execute(f"INSERT INTO kept (id, v, n) VALUES ({-other}, 'undone', 0)")
                cursor.execute("ROLLBACK TO SAVEPOINT s")
        return changes
