"""A `sql` source whose keys are texts: what their collations say of their order, and of which of them are equal."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from psql_streamer.errors import PositionRefused, SourceRefused
from psql_streamer.model import Position
from sources.sql.source import SqlSource
from tests.database import Database
from tests.mariadb import Schema
from tests.sql_sources import execute, read_quiet, read_rows, rows_of, sql_source, url_of
from tests.started_source import started


def require_that_another_order_is_told_of(
    make: Callable[[], SqlSource], alter: Callable[[], object], insert: Callable[[str], object], said: str
) -> None:
    """While it runs, before a row comes by the new order; and behind a restart."""
    with started(make()) as source:
        read_rows(source, 2)
        stored = Position(json.loads(json.dumps(dict(source._progress.position.data))), "x")
        alter()
        insert("0")
        insert("z")
        with pytest.raises(PositionRefused, match=said):
            read_quiet(source, 3)
        assert not source.status().ok
    with pytest.raises(PositionRefused, match=said), started(make(), stored):
        pass


@pytest.mark.behaviour("P5")
def test_a_collation_of_the_key_that_changes_is_told_of(database: Database) -> None:
    database.execute("CREATE TABLE visits (id text COLLATE \"C\" PRIMARY KEY); INSERT INTO visits VALUES ('B'), ('a')")
    require_that_another_order_is_told_of(
        lambda: sql_source(url_of(database), "visits", settle="0s"),
        lambda: database.execute("ALTER TABLE visits ALTER id TYPE text COLLATE ucs_basic"),
        lambda key: database.execute("INSERT INTO visits VALUES (%s)", key),
        "by id, which was text COLLATE C, and is text COLLATE ucs_basic now: its values have another order",
    )


@pytest.mark.behaviour("P5")
def test_a_collation_of_the_key_that_changes_is_told_of_at_mysql_and_mariadb(every_schema: Schema) -> None:
    url = f"mysql+pymysql://root@{every_schema.host}:{every_schema.port}/{every_schema.name}"
    every_schema.execute(
        "CREATE TABLE visits (id varchar(20) COLLATE utf8mb4_bin PRIMARY KEY)", "INSERT INTO visits VALUES ('B'), ('a')"
    )
    require_that_another_order_is_told_of(
        lambda: sql_source(url, "visits"),
        lambda: every_schema.execute("ALTER TABLE visits CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"),
        lambda key: every_schema.execute(f"INSERT INTO visits VALUES ('{key}')"),
        "COLLATE utf8mb4_bin, and is .*COLLATE utf8mb4_general_ci now: its values have another order",
    )


def test_the_long_utf8_of_mysql_has_the_order_of_the_short_one(every_schema: Schema) -> None:
    url = f"mysql+pymysql://root@{every_schema.host}:{every_schema.port}/{every_schema.name}"
    every_schema.execute(
        "CREATE TABLE visits (id varchar(20) CHARACTER SET utf8 COLLATE utf8_general_ci PRIMARY KEY)",
        "INSERT INTO visits VALUES ('a'), ('B')",
    )
    with started(sql_source(url, "visits")) as source:
        read_rows(source, 2)
        every_schema.execute("ALTER TABLE visits CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci")
        every_schema.execute("INSERT INTO visits VALUES ('c')")
        assert read_rows(source, 1) == [{"id": "c"}]


@pytest.mark.behaviour("P5")
def test_a_collation_of_the_key_that_changes_in_a_sqlite_file_is_told_of(tmp_path: Path) -> None:
    file = tmp_path / "shop.sqlite"
    execute(file, "CREATE TABLE visits (id TEXT PRIMARY KEY)", "INSERT INTO visits VALUES ('B'), ('a')")
    require_that_another_order_is_told_of(
        lambda: sql_source(f"sqlite:///{file}", "visits"),
        lambda: execute(
            file,
            "ALTER TABLE visits RENAME TO old",
            "CREATE TABLE visits (id TEXT COLLATE NOCASE PRIMARY KEY)",
            "INSERT INTO visits SELECT * FROM old",
        ),
        lambda key: execute(file, f"INSERT INTO visits VALUES ('{key}')"),
        "by id, which was TEXT COLLATE BINARY, and is TEXT COLLATE NOCASE now: its values have another order",
    )


@pytest.mark.behaviour("P5")
@pytest.mark.parametrize(
    "unique",
    ["UNIQUE (id COLLATE BINARY)", "PRIMARY KEY (id COLLATE BINARY)", "PRIMARY KEY (id COLLATE BINARY)) WITHOUT ROWID"],
)
def test_an_index_that_tells_texts_apart_that_the_column_does_not_makes_no_key_unique(
    tmp_path: Path, unique: str
) -> None:
    file = tmp_path / "shop.sqlite"
    made = f"CREATE TABLE visits (id TEXT NOT NULL COLLATE NOCASE, {unique}"
    execute(file, made if "ROWID" in made else f"{made})", "INSERT INTO visits VALUES ('a'), ('A'), ('b')")
    with pytest.raises(SourceRefused, match=r"its key \(id\) is not unique.*another collation"):
        sql_source(f"sqlite:///{file}", {"table": "visits", "key": "id"}).start(None)


def test_an_index_that_takes_more_texts_for_equal_than_the_column_does_makes_it_unique(tmp_path: Path) -> None:
    file = tmp_path / "shop.sqlite"
    execute(file, "CREATE TABLE visits (id TEXT NOT NULL)", "CREATE UNIQUE INDEX i ON visits (id COLLATE NOCASE)")
    execute(file, "INSERT INTO visits VALUES ('a'), ('B')")
    with started(sql_source(f"sqlite:///{file}", {"table": "visits", "key": "id"})) as source:
        assert [row["id"] for row in rows_of(read_quiet(source, 0.5))] == ["B", "a"]


@pytest.mark.behaviour("P5")
def test_an_index_of_postgresql_that_tells_texts_apart_that_the_column_does_not_makes_no_key_unique(
    database: Database,
) -> None:
    database.execute(
        "CREATE COLLATION loose (provider = libc, locale = 'C');"
        "UPDATE pg_collation SET collisdeterministic = false WHERE collname = 'loose';"
        'CREATE TABLE visits (id text COLLATE loose NOT NULL); CREATE UNIQUE INDEX i ON visits (id COLLATE "C")'
    )
    source = sql_source(url_of(database), {"table": "visits", "key": "id"})
    with pytest.raises(SourceRefused, match=r"its key \(id\) is not unique.*another collation"):
        source.start(None)
    database.execute("CREATE UNIQUE INDEX j ON visits (id)")
    source.start(None)
    source.stop()
