"""Sources of type `sql`, and reading from them as the pipeline does."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from psycopg2.extensions import parse_dsn

from psql_streamer.model import Batch
from sources.sql import polled_table
from sources.sql.options import SqlOptions
from sources.sql.source import SqlSource
from tests.database import Database
from tests.started_source import started

Row = dict[str, str | None]
"""Column -> text form."""


def sql_source(url: str, *tables: Any, **options: Any) -> SqlSource:
    """A source, not started, that polls ten times a second unless options say otherwise."""
    given = {"type": "sql", "url": url, "tables": list(tables), "pollInterval": "100ms"}
    return SqlSource("db1", SqlOptions.model_validate(given | options))


def url_of(database: Database, driver: str = "postgresql+psycopg2") -> str:
    """SQLAlchemy's URL of a test's database."""
    given = parse_dsn(database.dsn)
    user = quote(given.get("user", ""), safe="")
    query = "&".join(f"{name}={quote(given[name], safe='')}" for name in ("host", "port") if name in given)
    password = f":{quote(given['password'], safe='')}" if "password" in given else ""
    return f"{driver}://{user}{password}@/{given['dbname']}?{query}"


@contextmanager
def polling(database: Database, *tables: object, **options: object) -> Iterator[SqlSource]:
    """A source of these tables of PostgreSQL, started; of `orders` where none are given."""
    with started(sql_source(url_of(database), *(tables or ("orders",)), **options)) as source:
        yield source


def execute(file: Path, *statements: str) -> None:
    """Statements in a transaction of their own in a SQLite file."""
    with closing(sqlite3.connect(file)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def read(source: SqlSource, enough: Callable[[list[Batch]], bool], timeout: float = 30.0) -> list[Batch]:
    """Batches, each confirmed at once, until there are enough."""
    batches: list[Batch] = []
    deadline = time.monotonic() + timeout
    while not enough(batches):
        assert time.monotonic() < deadline, f"{str(rows_of(batches))[:2000]} after {timeout} s: {source.status()}"
        batch = source.read(0.05)
        if batch is not None:
            source.confirm(batch.position)
            batches.append(batch)
    return batches


def read_rows(source: SqlSource, count: int) -> list[Row]:
    """So many rows."""
    return rows_of(read(source, lambda batches: sum(map(len, batches)) >= count))


def notes(source: SqlSource, count: int) -> list[str | None]:
    """The column `note` of so many rows."""
    return [row["note"] for row in read_rows(source, count)]


def shorten_lock_waits(monkeypatch: pytest.MonkeyPatch, left_alone: float) -> None:
    """A locked table is waited for a moment, and then left alone for so many seconds. Before the source is made."""
    monkeypatch.setattr("sources.sql.source.LOCK_SECONDS", 0.3)
    monkeypatch.setattr("sources.sql.locked_tables._LEFT_ALONE_SECONDS", left_alone)


def require_that_deletions_do_not_matter(source: SqlSource, run: Callable[[str], object]) -> None:
    """Rows of `orders` that are deleted behind the cursor leave no trace, and those behind them come."""
    run("INSERT INTO orders (note) VALUES ('a'), ('b')")
    read_rows(source, 2)
    run("DELETE FROM orders")
    assert rows_of(read_quiet(source, 0.3)) == []
    run("INSERT INTO orders (note) VALUES ('c')")
    assert notes(source, 1) == ["c"]


def read_quiet(source: SqlSource, seconds: float = 0.5) -> list[Batch]:
    """What comes within some seconds."""
    until = time.monotonic() + seconds
    return read(source, lambda _: time.monotonic() > until)


def bound_batches(monkeypatch: pytest.MonkeyPatch, held: int, at_once: int) -> list[int]:
    """Have batches hold so many bytes, and drivers be asked for so many rows; for how many they are, each time."""
    for name in ("piece_reading", "polled_table", "row_limits"):
        monkeypatch.setattr(f"sources.sql.{name}.READ_BYTES", held)
    for name in ("engine._ROWS_AT_ONCE", "postgresql._WIDE_ROWS_AT_ONCE", "postgresql._NARROW_ROWS_AT_ONCE"):
        monkeypatch.setattr(f"sources.sql.engines.{name}", at_once)
    asked: list[int] = []
    fetch = polled_table.fetch_rows

    def note(of: Callable[[int], Sequence[Any]], at_once: int, enough: int) -> Any:
        def give(rows: int) -> Sequence[Any]:
            asked.append(rows)
            return of(rows)

        return fetch(give, at_once, enough)

    monkeypatch.setattr(polled_table, "fetch_rows", note)
    return asked


def require_bounded_batches(source: SqlSource, insert: Callable[[Sequence[str]], object], most: int) -> None:
    """Narrow rows, wide ones and narrow ones again come in batches of so many bytes, each row once, in their order.

    insert: notes of rows of `orders`.
    """
    given = [*(["x" * 50] * 30), *(["y" * 30_000] * 20), *(["z"] * 30)]
    insert(given)
    with started(source):
        batches = read(source, lambda batches: sum(map(len, batches)) >= len(given))
        batches += read_quiet(source, 0.3)
    assert [row["note"] for row in rows_of(batches)] == given
    assert identities_of(batches) == [(at + 1, 0) for at in range(len(given))]
    assert max(batch.nbytes for batch in batches) < most


def read_beside_writers(
    source: SqlSource, write: Callable[[int, threading.Event], None], count: Callable[[], int], quiet: float
) -> list[Batch]:
    """What comes while six threads write, and until all of it is there; and what more comes in some quiet seconds.

    write: is given its number, and what is set when it is to end. count: of all rows that there are.
    """
    ended = threading.Event()
    writers = [threading.Thread(target=write, args=(seed, ended)) for seed in range(6)]
    for writer in writers:
        writer.start()
    try:
        batches = read_quiet(source, 1.5)
    finally:
        ended.set()
        for writer in writers:
            writer.join()
    there = count()
    batches += read(source, lambda more: sum(map(len, batches + more)) >= there)
    return batches + read_quiet(source, quiet)


def rows_of(batches: Sequence[Batch]) -> list[Row]:
    """The rows of batches, in their order."""
    found: list[Row] = []
    for batch in batches:
        for changes in batch.changes:
            names = [column.name for column in changes.columns]
            columns = [[_text(value) for value in array.to_pylist()] for array in changes.after.columns]
            found += [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    return found


def identities_of(batches: Sequence[Batch]) -> list[tuple[int, int]]:
    """Commit number and seq of every row."""
    return [
        (int(batch.transactions.commit[tx]), int(seq))
        for batch in batches
        for changes in batch.changes
        for tx, seq in zip(changes.tx.tolist(), changes.seq.tolist(), strict=True)
    ]


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()
