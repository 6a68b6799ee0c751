"""A `sql` source whose tables are altered, exchanged or locked while it reads them: it stops in words, and leaves
nothing out in silence.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from psql_streamer.errors import PositionRefused, SourceRefused
from psql_streamer.interfaces import Severity
from psql_streamer.model import Position
from sources.sql.source import SqlSource
from tests.database import Database
from tests.mariadb import Schema
from tests.sql_sources import (
    execute,
    identities_of,
    notes,
    polling,
    read,
    read_quiet,
    read_rows,
    rows_of,
    shorten_lock_waits,
    sql_source,
    url_of,
)
from tests.started_source import started


@pytest.fixture
def orders(database: Database) -> Database:
    """Three rows, and a number beside the key."""
    database.execute(
        "CREATE TABLE orders (id bigint PRIMARY KEY, number bigint NOT NULL, note text);"
        "INSERT INTO orders SELECT n, n - 500, 'before' FROM generate_series(998, 1000) n"
    )
    return database


def problems(source: SqlSource, severity: Severity) -> str:
    return "\n".join(str(one) for one in source.check() if one.severity is severity)


def position_of(source: SqlSource, rows: int) -> dict[str, Any]:
    """What is stored behind so many rows."""
    read_rows(source, rows)
    data: dict[str, Any] = json.loads(json.dumps(dict(source._progress.position.data)))
    return data


# The key.


@pytest.mark.behaviour("P5")
@pytest.mark.parametrize(
    ("altered", "said"),
    [
        ("ADD PRIMARY KEY (number)", "is by id, and its key is number now"),
        ("ADD PRIMARY KEY (number), ADD COLUMN more int", "is by id, and its key is number now"),
        ("ADD PRIMARY KEY (number, id), ADD COLUMN more int", "is by id, and its key is number, id now"),
    ],
)
def test_a_primary_key_that_moves_stops_the_source_before_rows_are_left_out(
    orders: Database, altered: str, said: str
) -> None:
    with polling(orders) as source:
        read_rows(source, 3)
        orders.execute(f"ALTER TABLE orders DROP CONSTRAINT orders_pkey, {altered}")
        orders.execute("INSERT INTO orders (id, number, note) SELECT 2000, n, 'after' FROM generate_series(501, 520) n")
        with pytest.raises(PositionRefused, match=said):
            read_quiet(source, 2)
        assert not source.status().ok


@pytest.mark.behaviour("P5")
def test_a_key_that_moves_is_noticed_though_no_row_comes_by_the_old_one(
    orders: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sources.sql.watched_table._KEYS_SECONDS", 0.2)
    with polling(orders) as source:
        read_rows(source, 3)
        orders.execute("ALTER TABLE orders DROP CONSTRAINT orders_pkey, ADD PRIMARY KEY (number, id)")
        orders.execute("INSERT INTO orders VALUES (1, 2000, 'other tenant')")
        with pytest.raises(PositionRefused, match="is by id, and its key is number, id now"):
            read_quiet(source, 2)


@pytest.mark.behaviour("P5")
def test_a_key_that_is_unique_no_more_stops_the_source_before_its_next_rows(orders: Database) -> None:
    with polling(orders, {"table": "orders", "key": "id"}) as source:
        read_rows(source, 3)
        orders.execute("ALTER TABLE orders DROP CONSTRAINT orders_pkey")
        orders.execute("INSERT INTO orders VALUES (1001, 1, 'a'), (1001, 2, 'b')")
        with pytest.raises(SourceRefused, match=r"its key \(id\) is not unique"):
            read_quiet(source, 2)


def test_an_index_that_comes_and_columns_that_change_are_no_reason_to_stop(orders: Database) -> None:
    with polling(orders, {"table": "orders", "key": "id"}) as source:
        read_rows(source, 3)
        orders.execute("CREATE UNIQUE INDEX more ON orders (number); ALTER TABLE orders ALTER id TYPE integer")
        orders.execute("ALTER TABLE orders DROP CONSTRAINT orders_pkey, ADD UNIQUE (id), ADD COLUMN city text")
        orders.execute("INSERT INTO orders VALUES (1001, 1, 'a', 'Uz')")
        assert [row["city"] for row in read_rows(source, 1)] == ["Uz"]


@pytest.mark.behaviour("P5")
def test_a_key_that_moves_in_a_sqlite_file_stops_the_source(tmp_path: Path) -> None:
    file = tmp_path / "shop.sqlite"
    execute(file, "CREATE TABLE orders (id INTEGER PRIMARY KEY, number INTEGER)", "INSERT INTO orders VALUES (9, 1)")
    with started(sql_source(f"sqlite:///{file}", "orders")) as source:
        read_rows(source, 1)
        execute(file, "DROP TABLE orders", "CREATE TABLE orders (id INTEGER, number INTEGER PRIMARY KEY)")
        execute(file, "INSERT INTO orders VALUES (10, 1), (10, 2)")
        with pytest.raises(PositionRefused, match="is by id, and its key is number now"):
            read_quiet(source, 2)


# Keys that are not what they seem.


@pytest.mark.behaviour("P5")
def test_the_key_of_a_table_with_children_is_not_unique(orders: Database) -> None:
    orders.execute("CREATE TABLE late_orders () INHERITS (orders); INSERT INTO late_orders VALUES (1000, 1, 'again')")
    source = sql_source(url_of(orders), "orders")
    with pytest.raises(SourceRefused, match=r"tables inherit from orders, .*SELECT \* FROM ONLY orders"):
        source.start(None)
    assert "tables inherit from orders" in problems(source, Severity.ERROR)
    only = {"query": "SELECT * FROM ONLY orders", "name": "orders", "key": "id"}
    with polling(orders, only, settle="0s") as source:
        assert notes(source, 3) == ["before"] * 3


@pytest.mark.behaviour("P5")
@pytest.mark.parametrize("made", ["(number) WHERE note = 'x'", "(abs(number))", "CONCURRENTLY"])
def test_an_index_that_does_not_cover_all_rows_makes_no_key_unique(orders: Database, made: str) -> None:
    orders.execute("UPDATE orders SET number = 7")
    with orders.session(autocommit=True) as session, session.cursor() as cursor:
        if made == "CONCURRENTLY":
            with pytest.raises(Exception, match="could not create unique index"):
                cursor.execute("CREATE UNIQUE INDEX CONCURRENTLY numbers ON orders (number)")
        else:
            cursor.execute("UPDATE orders SET number = id")
            cursor.execute(f"CREATE UNIQUE INDEX numbers ON orders {made}")
    source = sql_source(url_of(orders), {"table": "orders", "key": "number"})
    said = "index numbers is not valid" if made == "CONCURRENTLY" else "add the columns of the primary key"
    with pytest.raises(SourceRefused, match=rf"\(number\) is not unique.*{said}"):
        source.start(None)
    assert "is not unique" in problems(source, Severity.ERROR)


def test_an_index_that_includes_columns_is_unique_by_its_key_alone(orders: Database) -> None:
    orders.execute("CREATE UNIQUE INDEX numbers ON orders (number, id) INCLUDE (note)")
    with polling(orders, {"table": "orders", "key": ["number", "id"]}) as source:
        read_rows(source, 3)
    with pytest.raises(SourceRefused, match="is not unique"):
        sql_source(url_of(orders), {"table": "orders", "key": ["number", "note"]}).start(None)


@pytest.mark.behaviour("P5")
def test_rows_that_row_level_security_hides_are_not_left_out_in_silence(orders: Database) -> None:
    role = f"poor {orders.name}"
    orders.execute(
        f'CREATE ROLE "{role}" LOGIN; GRANT SELECT ON orders TO "{role}"; ALTER TABLE orders ENABLE ROW LEVEL SECURITY;'
        f'CREATE POLICY few ON orders TO "{role}" USING (id = 999)'
    )
    try:
        url = url_of(orders).replace("://postgres@", f"://poor%20{orders.name}@")
        source = sql_source(url, "orders")
        with pytest.raises(SourceRefused, match=r"row-level security of orders hides rows.*BYPASSRLS"):
            source.start(None)
        assert "row-level security of orders hides rows" in problems(source, Severity.ERROR)
        with polling(orders) as source:
            assert len(read_rows(source, 3)) == 3, "the owner sees all rows"
    finally:
        orders.execute(f'DROP OWNED BY "{role}"; DROP ROLE "{role}"')


@pytest.mark.parametrize(
    ("declared", "may_be_null"),
    [
        ("id TEXT PRIMARY KEY, note TEXT", True),
        ("id INT PRIMARY KEY, note TEXT", True),
        ("id INTEGER PRIMARY KEY DESC, note TEXT", True),
        ("id INTEGER, note TEXT, PRIMARY KEY (id, note)", True),
        ("id INTEGER PRIMARY KEY, note TEXT", False),
        ("id TEXT NOT NULL PRIMARY KEY, note TEXT", False),
    ],
)
def test_a_primary_key_of_sqlite_may_be_null_and_check_says_so(
    tmp_path: Path, declared: str, may_be_null: bool
) -> None:
    file = tmp_path / "shop.sqlite"
    execute(file, f"CREATE TABLE orders ({declared})")
    said = "is NULL are not read" in problems(sql_source(f"sqlite:///{file}", "orders"), Severity.WARNING)
    assert said == may_be_null
    if may_be_null:
        execute(file, "INSERT INTO orders VALUES (NULL, 'none')")
        with started(sql_source(f"sqlite:///{file}", "orders")) as source:
            assert rows_of(read_quiet(source, 0.3)) == []
            execute(file, "INSERT INTO orders VALUES (1, 'a'), (NULL, 'none')")
            assert notes(source, 1) == ["a"]


def test_primary_keys_of_tables_without_rowid_are_never_null(tmp_path: Path) -> None:
    file = tmp_path / "shop.sqlite"
    execute(file, "CREATE TABLE orders (id TEXT PRIMARY KEY) WITHOUT ROWID")
    assert "is NULL" not in problems(sql_source(f"sqlite:///{file}", "orders"), Severity.WARNING)


@pytest.mark.behaviour("P5")
def test_a_cache_behind_a_function_is_found_where_the_server_knows_it_and_told_of_where_not(
    database: Database,
) -> None:
    database.execute(
        "CREATE SEQUENCE ids CACHE 50;"
        "CREATE FUNCTION known() RETURNS bigint LANGUAGE sql BEGIN ATOMIC SELECT nextval('ids'); END;"
        "CREATE FUNCTION outer_known() RETURNS bigint LANGUAGE sql BEGIN ATOMIC SELECT known(); END;"
        "CREATE FUNCTION hidden() RETURNS bigint LANGUAGE sql AS $$ SELECT nextval('ids') $$;"
        "CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.id := hidden(); RETURN NEW; END $$;"
        "CREATE TABLE a (id bigint PRIMARY KEY DEFAULT known());"
        "CREATE TABLE b (id bigint PRIMARY KEY DEFAULT outer_known());"
        "CREATE TABLE c (id bigint PRIMARY KEY DEFAULT hidden());"
        "CREATE TABLE d (id bigint PRIMARY KEY);"
        "CREATE TRIGGER fill BEFORE INSERT ON d FOR EACH ROW EXECUTE FUNCTION fill();"
        "CREATE TABLE e (id bigserial PRIMARY KEY, note text DEFAULT upper('a'));"
        "CREATE TRIGGER fill BEFORE INSERT ON e FOR EACH ROW EXECUTE FUNCTION fill()"
    )
    for table in ("a", "b"):
        with pytest.raises(SourceRefused, match="ids has CACHE 50"):
            sql_source(url_of(database), table).start(None)
    said = problems(sql_source(url_of(database), "c", "d", "e"), Severity.WARNING)
    assert "table c: function hidden() gives its key" in said
    assert "table d: a trigger may give its key" in said
    assert "table e: a trigger" not in said, "a sequence gives its key"


# Another table, and another type.


@pytest.mark.behaviour("P5")
def test_a_table_that_was_rotated_between_two_polls_is_another_one(orders: Database) -> None:
    with polling(orders) as source:
        stored = Position(position_of(source, 3), "x")
        orders.execute(
            "BEGIN; ALTER TABLE orders RENAME TO orders_old; CREATE TABLE orders (LIKE orders_old INCLUDING ALL);"
            "INSERT INTO orders SELECT n, n, 'new' FROM generate_series(1, 1010) n; COMMIT"
        )
        with pytest.raises(PositionRefused, match=r"public.orders is another table now.*shrunkTables"):
            read_quiet(source, 2)
    with pytest.raises(PositionRefused, match="another table"), started(sql_source(url_of(orders), "orders"), stored):
        pass
    with started(sql_source(url_of(orders), "orders", shrunkTables="accept"), stored) as source:
        assert len(read_rows(source, 10)) == 10
        stored = Position(position_of(source, 0), "x")
    with started(sql_source(url_of(orders), "orders"), stored):
        pass


def test_a_position_that_does_not_know_the_table_is_taken_and_learns_it(orders: Database) -> None:
    with polling(orders) as source:
        data = position_of(source, 3)
    known = data["tables"]["public.orders"]
    assert set(known) >= {"key", "last", "identity", "types"}
    data["tables"]["public.orders"] = {"key": known["key"], "last": known["last"]}
    orders.execute("INSERT INTO orders VALUES (1001, 1, 'a')")
    with started(sql_source(url_of(orders), "orders"), Position(data, "x")) as source:
        assert position_of(source, 1)["tables"]["public.orders"] == {**known, "last": [1001]}


@pytest.mark.parametrize("added", ["'x'", "'10000'"])
def test_a_key_of_another_type_is_told_of_as_that(orders: Database, database: Database, added: str) -> None:
    database.execute(
        "CREATE TABLE visits (at timestamptz PRIMARY KEY); INSERT INTO visits VALUES ('2026-01-01 00:00:01.4')"
    )
    with polling(orders) as source, polling(orders, "visits", settle="0s") as visits:
        old, of_visits = position_of(source, 3), position_of(visits, 1)
        orders.execute(f"ALTER TABLE orders ALTER id TYPE text; INSERT INTO orders VALUES ({added}, 1, 'a')")
        database.execute("ALTER TABLE visits ALTER at TYPE timestamptz(0)")
        said = "by id, which was bigint, and is text now.*startAt.*position forget"
        with pytest.raises(PositionRefused, match=said):
            read_quiet(source, 2)
        with pytest.raises(PositionRefused, match=r"timestamp with time zone, and is timestamp\(0\) with"):
            read_quiet(visits, 2)
    with pytest.raises(PositionRefused, match=said), started(sql_source(url_of(orders), "orders"), Position(old, "x")):
        pass
    del old["tables"]["public.orders"]["types"]
    with (
        pytest.raises(PositionRefused, match="by id, which was a whole number, and is text now"),
        started(sql_source(url_of(orders), "orders"), Position(old, "x")),
    ):
        pass
    visiting = sql_source(url_of(orders), "visits", settle="0s")
    with pytest.raises(PositionRefused, match="time zone"), started(visiting, Position(of_visits, "x")):
        pass


def require_that_another_type_is_told_of(
    altered: str, source: SqlSource, alter: Callable[[str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that becomes a text, by which the last row that was read stays the last one, is told of."""
    monkeypatch.setattr("sources.sql.watched_table._KEYS_SECONDS", 0.4)
    with started(source):
        read_rows(source, 2)
        alter(f"ALTER TABLE visits {altered}")
        alter("INSERT INTO visits VALUES ('10')")
        with pytest.raises(PositionRefused, match=r"of .*visits is by id, which was int.*, and is .* now"):
            read_quiet(source, 3)


@pytest.mark.parametrize("others", [(), ("orders",)])
def test_a_key_of_another_type_is_told_of_though_the_last_row_stays_the_last_one(
    orders: Database, others: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.execute("DELETE FROM orders; CREATE TABLE visits (id int PRIMARY KEY); INSERT INTO visits VALUES (8), (9)")
    source = sql_source(url_of(orders), "visits", *others)
    require_that_another_type_is_told_of("ALTER id TYPE text", source, orders.execute, monkeypatch)


def test_a_key_of_another_type_is_told_of_at_mysql_and_mariadb(
    every_schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    every_schema.execute("CREATE TABLE visits (id int PRIMARY KEY)", "INSERT INTO visits VALUES (8), (9)")
    url = f"mysql+pymysql://root@{every_schema.host}:{every_schema.port}/{every_schema.name}"
    source = sql_source(url, "visits")
    require_that_another_type_is_told_of("MODIFY id varchar(20)", source, every_schema.execute, monkeypatch)


# Other writers, and locks.


@pytest.mark.behaviour("P2")
def test_what_commits_after_now_comes_though_its_key_is_smaller_than_others(database: Database) -> None:
    database.execute(
        "CREATE TABLE orders (id bigserial PRIMARY KEY, note text);"
        "CREATE TABLE visits (shop text, n bigserial, note text, PRIMARY KEY (shop, n));"
        "INSERT INTO orders (note) SELECT 'old' FROM generate_series(1, 1500);"
        "INSERT INTO visits (shop, note) SELECT 'a', 'old' FROM generate_series(1, 20)"
    )
    with database.session() as late:
        with late.cursor() as cursor:
            cursor.execute(
                "INSERT INTO orders (note) VALUES ('late'); INSERT INTO visits (shop, note) VALUES ('a', 'late')"
            )
        database.execute("INSERT INTO orders (note) VALUES ('early')")
        database.execute("INSERT INTO visits (shop, note) VALUES ('b', 'early')")
        with polling(database, "orders", "visits", startAt="now") as source:
            assert rows_of(read_quiet(source, 0.3)) == []
            assert source.stats()["unsettled_rows"] == 0, "what is left out is not waited for"
            stored = Position(position_of(source, 0), "x")
        with started(sql_source(url_of(database), "orders", "visits", startAt="now"), stored) as source:
            late.commit()
            assert notes(source, 2) == ["late", "late"]
            database.execute("INSERT INTO orders (note) VALUES ('after')")
            assert notes(source, 1) == ["after"]
            assert "skipped" not in str(position_of(source, 0))


def test_a_table_that_is_locked_does_not_keep_the_others_from_being_read(
    orders: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_lock_waits(monkeypatch, 1.5)
    orders.execute("CREATE TABLE a (LIKE orders INCLUDING ALL); CREATE TABLE z (LIKE orders INCLUDING ALL)")
    with orders.session() as owner, polling(orders, "a", "orders", "z", timeout="4s") as source:
        read_rows(source, 3)
        with owner.cursor() as cursor:
            cursor.execute("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE; INSERT INTO orders VALUES (2000, 1, 'b')")
        orders.execute("INSERT INTO a VALUES (1, 1, 'a'); INSERT INTO z VALUES (1, 1, 'z')")
        assert notes(source, 2) == ["a", "z"]
        assert "locked, and tried again while the other tables are read: public.orders" in source.status().reason
        began = time.monotonic()
        orders.execute("INSERT INTO a VALUES (2, 1, 'more')")
        assert notes(source, 1) == ["more"]
        assert time.monotonic() - began < 1, "it is left alone"
        owner.commit()
        assert notes(source, 1) == ["b"]
        assert source.status().ok
        assert "locked" not in source.status().reason


@pytest.mark.behaviour("P3")
def test_a_table_that_is_locked_behind_a_plan_is_read_later_with_other_numbers(
    orders: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_lock_waits(monkeypatch, 0.1)
    orders.execute("CREATE TABLE z (LIKE orders INCLUDING ALL); INSERT INTO z VALUES (1, 1, 'z')")
    with orders.session() as owner, polling(orders, "orders", "z", batchSize=2) as source:
        batches = read(source, lambda batches: sum(map(len, batches)) == 2)
        with owner.cursor() as cursor:
            cursor.execute("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE")
        batches += read(source, lambda batches: any(map(len, batches)))
        owner.rollback()
        batches += read(source, lambda batches: any(map(len, batches)))
    assert [row["id"] for row in rows_of(batches)] == ["998", "999", "1", "1000"]
    commits = [commit for commit, _ in identities_of(batches)]
    assert commits == sorted(set(commits))


@pytest.mark.behaviour("P2")
def test_servers_that_tell_writers_by_a_list_give_what_commits_after_now_and_read_beside_a_lock(schema: Schema) -> None:
    table = "(id INT AUTO_INCREMENT PRIMARY KEY, note TEXT)"
    schema.execute(f"CREATE TABLE a {table}", f"CREATE TABLE b {table}", "INSERT INTO a (note) VALUES ('old')")
    url = f"mysql+pymysql://root@{schema.host}:{schema.port}/{schema.name}"
    with schema.session() as late:
        late.execute("BEGIN")
        late.execute("INSERT INTO a (note) VALUES ('late')")
        schema.execute("INSERT INTO a (note) VALUES ('early')")
        with started(sql_source(url, "a", "b", startAt="now")) as source:
            assert rows_of(read_quiet(source, 0.3)) == []
            late.execute("COMMIT")
            assert notes(source, 1) == ["late"]
            late.execute("LOCK TABLES a WRITE")
            schema.execute("INSERT INTO b (note) VALUES ('b')")
            assert notes(source, 1) == ["b"]
            assert f"locked, and tried again while the other tables are read: {schema.name}.a" in source.status().reason
