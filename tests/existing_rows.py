"""Tables that have rows when a service first starts, and writers that change them while they are read."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg2
from psycopg2.extensions import cursor

from psql_streamer.checkpoint.store import Store
from tests.background_writer import BackgroundWriter
from tests.database import Database
from tests.fold import Row, Tables, commit_of, parse
from tests.kafka_reader import Record
from tests.service import Service

TABLES = ("public.some", "public.more", "public.others")

_AWAY = ("08", "57P")
"""SQLSTATE classes of a server that is not there: connection exceptions, shutdown; without one, libpq's own errors."""


def make_tables(database: Database, rows: int) -> None:
    """The tables, with so many rows each: ids from 1."""
    for table in TABLES:
        database.execute(
            f"CREATE TABLE {table} (id int PRIMARY KEY, v text, n int);"
            f"INSERT INTO {table} SELECT i, 'there ' || i, 0 FROM generate_series(1, {rows}) i"
        )
    database.execute(f"CREATE PUBLICATION p FOR TABLE {', '.join(TABLES)}")


class RowLoad(BackgroundWriter):
    """Changes rows of all tables.

    inserted: rows, new ones and those under a new key, that were written, whether or not they were committed.
    """

    errors = psycopg2.Error

    def __init__(self, database: Database, rows: int, seed: int = 0, pause: float = 0.005) -> None:
        super().__init__(pause, seed)
        self.inserted = 0
        self._database = database
        self._rows = rows

    def _is_away(self, error: Exception) -> bool:
        code = error.pgcode if isinstance(error, psycopg2.Error) else None
        return not code or code.startswith(_AWAY)

    def _write(self) -> None:
        with self._database.session() as session, session.cursor() as at:
            while not self._stopping.is_set():
                for _ in range(self._random.randint(1, 4)):
                    self._change(at, self._random.choice(TABLES))
                if self._random.random() < 0.1:
                    session.rollback()
                else:
                    session.commit()
                self._stopping.wait(self._pause)

    def _change(self, at: cursor, table: str) -> None:
        one = self._random.randint(1, self._rows)
        new = self._rows + self._random.randint(1, 1_000_000_000)
        statement, values = self._random.choice(
            [
                (f"INSERT INTO {table} VALUES (%s, %s, 0)", (new, f"new {new} 'ü\\")),
                (f"UPDATE {table} SET n = n + 1, v = %s WHERE id BETWEEN %s AND %s", (None, one, one + 3)),
                (f"UPDATE {table} SET n = n + 1 WHERE id BETWEEN %s AND %s", (one, one + 10)),
                (f"UPDATE {table} SET id = %s WHERE id = %s", (new, one)),
                (f"UPDATE {table} SET id = -id, v = 'moved' WHERE id = %s", (one,)),
                (f"DELETE FROM {table} WHERE id = %s", (one,)),
            ]
        )
        at.execute(statement, values)
        self.inserted += "INSERT" in statement or "SET id" in statement


def snapshot_state(service: Service) -> str:
    """How the last snapshot of db1 is, by the position that is stored; empty where there is none."""
    store = Store(service.lmdb)
    store.open_to_read()
    try:
        record = store.get("db1")
    finally:
        store.close()
    runs = [] if record is None else record.position.data.get("snapshots", [])
    return str(runs[-1]["state"]) if runs else ""


def reads(records: Sequence[Record]) -> int:
    """How many of the records are of a snapshot."""
    return sum(b'"Action":"read"' in (record.value or b"") for record in records)


def fold_with_reads(records: Sequence[Record]) -> Tables:
    """Tables from records in the `event` format, by commit LSN: "schema.table" -> id -> row.

    A READ that contradicts what the stream said of its row before is an AssertionError, and so is a repeat of a change
    that differs from the first. All rows have all columns.
    """
    tables: Tables = {}
    touched: dict[tuple[str, str], Row | None] = {}
    for event in _in_order(records):
        name, key = f"{event['Schema']}.{event['Table']}", str(event["Columns"]["id"])
        table, after = tables.setdefault(name, {}), event["Columns"]
        match event["Action"]:
            case "read":
                said = touched.get((name, key), after)
                assert said == after, f"READ of {name} {key} is {after}, the stream said {said}"
                table[key] = after
            case "delete":
                table.pop(key, None)
                touched[name, key] = None
            case _:
                table[key] = touched[name, key] = after
    return tables


def _in_order(records: Sequence[Record]) -> list[Row]:
    seen: dict[tuple[int, int, bool, str], Row] = {}
    for event in map(parse, records):
        is_read = event["Action"] == "read"
        # Rows of a snapshot that are given once more may have another number among those of the same LSN.
        number = 0 if is_read else event["Seq"]
        place = (commit_of(event), number, event["Action"] != "delete", event["UUID"] if is_read else "")
        first = seen.setdefault(place, event)
        ignored = {"Seq", "Timestamp"} if is_read else set()
        assert {**first, **{name: event[name] for name in ignored}} == event, f"a repeat of {place} differs"
    return [seen[place] for place in sorted(seen)]
