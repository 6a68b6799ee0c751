"""A `sql` source of many tables: looked at in groups, and no table is left out or taken for another one."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg2
import pytest

from psql_streamer.errors import PositionRefused, SourceRefused, SourceUnavailable
from sources.sql.source import SqlSource
from tests.database import Database
from tests.mariadb import Schema
from tests.sql_sources import (
    execute,
    identities_of,
    notes,
    read,
    read_quiet,
    read_rows,
    rows_of,
    shorten_lock_waits,
    sql_source,
    url_of,
)
from tests.started_source import started

TABLES = [f"t{at:02}" for at in range(60)]
"""More than a group has."""


def test_rows_of_many_tables_come_together_once_and_in_order(file: Path) -> None:
    source = sql_source(f"sqlite:///{file}", *TABLES)
    for round_ in range(2):
        execute(file, *(f"INSERT INTO {name} (note) VALUES ('{name}-{round_}')" for name in TABLES))
    with started(source):
        batches = read(source, lambda batches: sum(map(len, batches)) >= 120)
        expected = [f"{name}-{round_}" for name in TABLES for round_ in range(2)]
        assert [row["note"] for row in rows_of(batches)] == expected
        assert [changes.relation.table for batch in batches for changes in batch.changes] == TABLES
        assert [(one.relation.table, one.tx, one.batch_order) for batch in batches for one in batch.schema_changes] == [
            (name, 2 * at, 2 * at) for at, name in enumerate(TABLES)
        ]
        execute(file, "INSERT INTO t51 (note) VALUES ('late')", "INSERT INTO t07 (note) VALUES ('late')")
        batches += read(source, lambda batches: sum(map(len, batches)) >= 2) + read_quiet(source, 0.3)
        assert [changes.relation.table for changes in batches[-1].changes] == ["t07", "t51"]
        assert len([batch for batch in batches if len(batch)]) == 2
    identities = identities_of(batches)
    assert identities == sorted(set(identities))


def test_a_batch_of_several_tables_has_no_more_rows_than_batch_size(file: Path) -> None:
    for name in TABLES[:5]:
        execute(file, *[f"INSERT INTO {name} (note) VALUES ('{name}')"] * 3)
    with started(sql_source(f"sqlite:///{file}", *TABLES, batchSize=4)) as source:
        batches = read(source, lambda batches: sum(map(len, batches)) >= 15)
    assert max(map(len, batches)) == 4
    assert [row["note"] for row in rows_of(batches)] == [name for name in TABLES[:5] for _ in range(3)]


def test_an_idle_poll_of_many_tables_is_a_statement_for_a_group(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with started(sql_source(f"sqlite:///{file}", *TABLES)) as source:
        read_quiet(source, 0.3)
        said: list[str] = []
        look = source._database.look
        monkeypatch.setattr(source._database, "look", lambda work, doing: (said.append(doing), look(work, doing))[1])
        source._due = 0.0
        for table in source._tables.values():
            table._keys_at = -math.inf  # it asks for the keys, too
        assert source.read(0.05) is None
        assert not any(table.are_keys_due for table in source._tables.values())
    assert said == [
        "looking for new rows in main.t00 and 49 other tables",
        "looking for new rows in main.t50 and 9 other tables",
    ]


def test_the_table_that_something_is_wrong_with_is_named(file: Path) -> None:
    source = sql_source(f"sqlite:///{file}", *TABLES)
    with started(source):
        read_quiet(source, 0.3)
        execute(file, "DROP TABLE t33", "INSERT INTO t32 (note) VALUES ('a')")
        with pytest.raises(SourceRefused, match=r"table t33 does not exist"):
            read_quiet(source, 2)
    errors = [str(one) for one in source.check() if "t33" in str(one)]
    assert len(errors) == 1
    assert "table t33 does not exist" in errors[0]


@pytest.mark.parametrize(
    ("altered", "said"),
    [
        (
            "ALTER TABLE b DROP CONSTRAINT b_pkey, ADD PRIMARY KEY (note)",
            "of public.b is by id, and its key is note now",
        ),
        (
            "ALTER TABLE b RENAME TO old; CREATE TABLE b (LIKE old INCLUDING ALL); INSERT INTO b VALUES (7, 'b')",
            "public.b is another table now",
        ),
    ],
)
def test_a_key_that_moves_in_one_of_many_is_noticed_though_its_largest_one_stays(
    database: Database, monkeypatch: pytest.MonkeyPatch, altered: str, said: str
) -> None:
    monkeypatch.setattr("sources.sql.watched_table._KEYS_SECONDS", 0.4)
    with three_tables(database) as source:
        database.execute(altered)
        with pytest.raises(PositionRefused, match=said):
            read_quiet(source, 3)


def test_a_key_that_is_unique_no_more_is_noticed_in_one_of_many_at_mariadb(
    schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sources.sql.watched_table._KEYS_SECONDS", 0.4)
    table = "(id INT AUTO_INCREMENT PRIMARY KEY, note INT NOT NULL)"
    schema.execute(f"CREATE TABLE a {table}", f"CREATE TABLE b {table}", "INSERT INTO b (note) VALUES (1)")
    url = f"mysql+pymysql://root@{schema.host}:{schema.port}/{schema.name}"
    with started(sql_source(url, "a", "b")) as source:
        read_rows(source, 1)
        schema.execute("ALTER TABLE b MODIFY id INT, DROP PRIMARY KEY, ADD PRIMARY KEY (note)")
        with pytest.raises(PositionRefused, match=r"\.b is by id, and its key is note now"):
            read_quiet(source, 3)


def test_each_table_that_is_locked_is_named_and_no_other_one_waits_for_it(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_lock_waits(monkeypatch, 1.0)
    with three_tables(database) as source, database.session() as owner:
        with owner.cursor() as cursor:
            cursor.execute("LOCK TABLE a, b IN ACCESS EXCLUSIVE MODE; INSERT INTO a VALUES (8, 'late')")
        database.execute("INSERT INTO c VALUES (8, 'c')")
        assert notes(source, 1) == ["c"]
        assert "locked, and tried again while the other tables are read: public.a" in source.status().reason
        assert "public.b" in source.status().reason
        owner.commit()
        assert notes(source, 1) == ["late"]
        read_quiet(source, 1.5)
        assert "locked" not in source.status().reason


def test_a_piece_of_a_locked_table_is_put_off_between_those_of_others(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_lock_waits(monkeypatch, 0.5)
    with three_tables(database) as source, database.session() as owner:
        database.execute("".join(f"INSERT INTO {name} VALUES (8, '{name}');" for name in "abc"))
        batches = read(source, lambda batches: len(batches) == 1)
        assert [piece.table for piece in source._progress.pieces] == ["public.a", "public.b", "public.c"]
        with owner.cursor() as cursor:
            cursor.execute("LOCK TABLE b IN ACCESS EXCLUSIVE MODE")
        batches += read(source, lambda batches: sum(map(len, batches)) == 2)
        owner.rollback()
        batches += read(source, lambda batches: sum(map(len, batches)) == 1)
    assert [row["note"] for row in rows_of(batches)] == ["a", "c", "b"]
    commits = [commit for commit, _ in identities_of(batches)]
    assert commits == sorted(set(commits))


def test_who_writes_is_asked_behind_the_largest_keys_of_all_tables(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with three_tables(database) as source:
        asked: list[str] = []
        for table in source._tables.values():
            find = table.find_newest
            monkeypatch.setattr(
                table, "find_newest", lambda *given, find=find, name=table.id: (asked.append(name), find(*given))[1]
            )
        kind = source._database.kind
        find_writers = kind.find_writers_of
        monkeypatch.setattr(kind, "find_writers_of", lambda *given: (asked.append("writers"), find_writers(*given))[1])
        with database.session() as late:
            with late.cursor() as cursor:
                cursor.execute("INSERT INTO c VALUES (8, 'late')")
            database.execute("INSERT INTO a VALUES (9, 'a'); INSERT INTO c VALUES (9, 'c')")
            assert notes(source, 1) == ["a"]
            assert asked[:3] == ["public.a", "public.c", "writers"]
            late.commit()
        assert notes(source, 2) == ["late", "c"]


@contextmanager
def three_tables(database: Database) -> Iterator[SqlSource]:
    """A source that has read a row of each."""
    for name in "abc":
        database.execute(f"CREATE TABLE {name} (id bigint PRIMARY KEY, note text); INSERT INTO {name} VALUES (7, 'x')")
    with started(sql_source(url_of(database), *"abc")) as source:
        read_rows(source, 3)
        yield source


def test_no_lock_is_held_on_one_table_while_another_one_is_waited_for(database: Database) -> None:
    """A transaction that locks both, the one that is held first, is not in the way of the source."""
    database.execute("CREATE TABLE a (id bigserial PRIMARY KEY, note text); CREATE TABLE b (LIKE a INCLUDING ALL)")
    with started(sql_source(url_of(database), "a", "b", timeout="1s")) as source, database.session() as other:
        read_quiet(source, 0.3)
        with other.cursor() as cursor:
            cursor.execute("LOCK TABLE b IN ACCESS EXCLUSIVE MODE")
            read_until_locked(source, database)
            assert "public.b" in source.status().reason
            other.rollback()
        assert rows_of(read_quiet(source, 0.3)) == []


def read_until_locked(source: SqlSource, database: Database) -> None:
    """While the source waits for `b`, `a` can be locked."""
    locked: list[bool] = []

    def lock() -> None:
        with database.session() as session, session.cursor() as cursor:
            cursor.execute("SET lock_timeout = '400ms'")
            try:
                cursor.execute("LOCK TABLE a IN ACCESS EXCLUSIVE MODE")
                locked.append(True)
            except psycopg2.errors.LockNotAvailable:
                locked.append(False)
            session.rollback()

    asks = threading.Timer(0.5, lock)
    asks.start()
    try:
        read_quiet(source, 1.5)
    finally:
        asks.join()
        assert locked == [True]


@pytest.mark.parametrize("is_dropped", [True, False])
def test_a_table_leaves_the_configuration_in_the_middle_of_a_plan_only_if_it_is_gone(
    file: Path, caplog: pytest.LogCaptureFixture, is_dropped: bool
) -> None:
    execute(file, *(f"INSERT INTO {name} (note) VALUES ('{name}')" for name in TABLES[:2]))
    with started(sql_source(f"sqlite:///{file}", *TABLES[:2])) as source:
        plan = read(source, bool)[0]
    if is_dropped:
        execute(file, f"DROP TABLE {TABLES[0]}")
        with started(sql_source(f"sqlite:///{file}", TABLES[1]), plan.position) as source:
            assert notes(source, 1) == [TABLES[1]]
        assert f"main.{TABLES[0]} is not in tables" in caplog.text
    else:
        with pytest.raises(PositionRefused, match=r"in the middle of rows of main\.t00"):
            sql_source(f"sqlite:///{file}", TABLES[1]).start(plan.position)


def test_a_start_that_is_interrupted_names_no_table(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = sql_source(f"sqlite:///{file}", *TABLES)
    look = source._database.look
    looks: list[str] = []

    def look_then_interrupt(work: object, doing: object) -> object:
        looks.append("")
        if len(looks) == 3:  # the schema, the first group, and in the second one
            source.interrupt()
        return look(work, doing)  # type: ignore[arg-type, type-var]

    monkeypatch.setattr(source._database, "look", look_then_interrupt)
    with pytest.raises(
        SourceUnavailable, match="interrupted when 50 of 60 tables had been looked at: raise startTimeout"
    ):
        source.start(None)
    source.stop()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.sqlite"
    execute(path, *(f"CREATE TABLE {name} (id INTEGER PRIMARY KEY AUTOINCREMENT, note text)" for name in TABLES))
    return path
