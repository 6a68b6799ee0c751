"""A `sql` source on tables whose newest rows are deleted and whose rows commit late: every row once, none under another
one's number.
"""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from psycopg2.extensions import connection

from psql_streamer.model import Batch, Position
from sources.sql.source import SqlSource
from tests.database import Database
from tests.sql_sources import Row, execute, identities_of, read_quiet, rows_of, sql_source, url_of
from tests.started_source import started

_TABLES = ("a", "b", "visits")
"""Two with a key of one integer; the key of `visits` is two columns."""

_CREATE = (
    "CREATE TABLE a (id bigint PRIMARY KEY)",
    "CREATE TABLE b (id bigint PRIMARY KEY)",
    "CREATE TABLE visits (shop varchar(9), id bigint, PRIMARY KEY (shop, id))",
)

_SETTLE_SECONDS = 5.0


def inserted(table: str, key: int) -> str:
    return f"INSERT INTO {table} VALUES ({key})" if table != "visits" else f"INSERT INTO visits VALUES ('s', {key})"


@dataclass
class Clock:
    """What a source takes for the time."""

    now: float = 0.0

    def monotonic(self) -> float:
        return self.now


@dataclass
class Open:
    """A transaction that has written a row and is not committed. until: the clock when it must have ended."""

    table: str
    key: int
    until: float
    end: Callable[[bool], None]


@dataclass
class Story:
    """Writers that take keys in ascending order, commit in any, and delete the newest rows now and then.

    begin: writes a row, and gives what ends its transaction (told whether to commit). there: the keys of a table.
    """

    moments: random.Random
    clock: Clock
    begin: Callable[[str, int], Callable[[bool], None]]
    run: Callable[[str], object]
    there: Callable[[str], list[int]]
    keys: int = 0
    open: list[Open] = field(default_factory=list)
    deleted: set[tuple[str, int]] = field(default_factory=set)

    def go_on(self) -> None:
        self.clock.now += self.moments.uniform(0, 0.6)
        what = self.moments.random()
        if what < 0.5 and len(self.open) < 8:
            self._begin()
        elif what < 0.7 and self.open:
            self._end(self.moments.choice(self.open))
        elif what < 0.9:
            self._delete_newest(self.moments.choice(_TABLES))
        for one in [one for one in self.open if one.until <= self.clock.now]:
            self._end(one)

    def end(self) -> None:
        for one in list(self.open):
            self._end(one)

    def _begin(self) -> None:
        self.keys += self.moments.randint(1, 3)
        table = self.moments.choice(_TABLES)
        until = self.clock.now + self.moments.choice([0.0, 1.0, _SETTLE_SECONDS - 1.0])
        self.open.append(Open(table, self.keys, until, self.begin(table, self.keys)))

    def _end(self, one: Open) -> None:
        self.open.remove(one)
        one.end(self.moments.random() < 0.9)

    def _delete_newest(self, table: str) -> None:
        for newest in self.there(table)[-1:]:
            self.run(f"DELETE FROM {table} WHERE id = {newest}")
            self.deleted.add((table, newest))


def commit_later(run: Callable[[str], object]) -> Callable[[str, int], Callable[[bool], None]]:
    """For a database in which only one can write: the row is written when it is committed."""

    def begin(table: str, key: int) -> Callable[[bool], None]:
        def end(commits: bool) -> None:
            if commits:
                run(inserted(table, key))

        return end

    return begin


@contextmanager
def sessions_of(database: Database) -> Iterator[Callable[[str, int], Callable[[bool], None]]]:
    """A session for each transaction."""
    with ExitStack() as sessions:
        free: list[connection] = []

        def begin(table: str, key: int) -> Callable[[bool], None]:
            session = free.pop() if free else sessions.enter_context(database.session())
            with session.cursor() as cursor:
                cursor.execute(inserted(table, key))

            def end(commits: bool) -> None:
                session.commit() if commits else session.rollback()
                free.append(session)

            return end

        yield begin


@pytest.fixture(params=["by time", "by writers"])
def story(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """What makes a story from a seed, and what makes a source of its tables."""
    clock = Clock()
    if request.param == "by time":
        monkeypatch.setattr("sources.sql.watched_table.time", clock)
        file = tmp_path / "shop.sqlite"
        execute(file, *_CREATE)

        def there(table: str) -> list[int]:
            return sqlite_keys(file, table)

        def run(sql: str) -> None:
            execute(file, sql)

        yield (
            lambda seed: Story(random.Random(seed), clock, commit_later(run), run, there),
            lambda: source_of(f"sqlite:///{file}", settle=f"{_SETTLE_SECONDS:g}s"),
        )
        return
    database: Database = request.getfixturevalue("database")
    for statement in _CREATE:
        database.execute(statement)

    def keys(table: str) -> list[int]:
        return [key for (key,) in database.query(f"SELECT id FROM {table} ORDER BY 1")]

    with sessions_of(database) as begin:
        yield (
            lambda seed: Story(random.Random(seed), clock, begin, database.execute, keys),
            lambda: source_of(url_of(database)),
        )


def sqlite_keys(file: Path, table: str) -> list[int]:
    with closing(sqlite3.connect(file)) as session:
        return [key for (key,) in session.execute(f"SELECT id FROM {table} ORDER BY 1")]


def source_of(url: str, **options: Any) -> SqlSource:
    return sql_source(url, *_TABLES, pollInterval="1ms", batchSize=2, shrunkTables="accept", **options)


def tell(story: Story, source: SqlSource, steps: int, ended: bool) -> list[Batch]:
    """What is read while it goes on, and, at its end, what is left then."""
    batches: list[Batch] = []
    for _ in range(steps):
        story.go_on()
        batches += read_quiet(source, 0.004)
    if ended:
        story.end()
        for _ in range(4):
            story.clock.now += _SETTLE_SECONDS
            batches += read_quiet(source, 0.1)
    return batches


def rows_by_table(batches: list[Batch]) -> Iterator[tuple[str, Row]]:
    for batch in batches:
        for changes in batch.changes:
            for row in rows_of([replace(batch, changes=(changes,))]):
                yield changes.relation.table, row


@pytest.mark.behaviour("P2", "P3")
@pytest.mark.parametrize("seed", [0, *(pytest.param(more, marks=pytest.mark.soak) for more in range(1, 6))])
def test_every_row_comes_once_and_under_a_number_of_its_own(story: Any, seed: int) -> None:
    """Though the newest rows are deleted, others commit late, and the source starts again now and then."""
    make_story, make_source = story
    told: Story = make_story(seed)
    batches: list[Batch] = []
    position: Position | None = None
    for part in range(3):
        with started(make_source(), position) as source:
            batches += tell(told, source, 120, ended=part == 2)
        if batches:
            position = Position(json.loads(json.dumps(dict(batches[-1].position.data))), "")
    rows = [(table, int(row["id"] or 0)) for table, row in rows_by_table(batches)]
    assert len(rows) > 10
    assert len(rows) == len(set(rows)), "no row twice"
    left = {(table, key) for table in _TABLES for key in told.there(table)}
    assert left <= set(rows), "none is left out"
    assert set(rows) <= left | told.deleted
    identities = identities_of(batches)
    assert identities == sorted(set(identities)), "numbers increase"
