"""A `sql` source on SQLite and PostgreSQL: what it reads, under which identity, and when it stops."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import make_url

from psql_streamer.checkpoint.resume import choose_position
from psql_streamer.checkpoint.store_format import StoredPosition
from psql_streamer.errors import PositionRefused, SourceRefused, SourceUnavailable
from psql_streamer.events.routing import Router
from psql_streamer.interfaces import Severity
from psql_streamer.model import Batch, Position, Relation
from psql_streamer.snapshots import SnapshotRequest
from sources.sql import polled_table
from sources.sql.database import Database as SqlDatabase
from tests.database import Database
from tests.encoding import encoder_of
from tests.sql_sources import (
    bound_batches,
    execute,
    identities_of,
    read,
    read_beside_writers,
    read_quiet,
    read_rows,
    require_bounded_batches,
    rows_of,
    sql_source,
    url_of,
)
from tests.started_source import started


class Shop:
    """A database of either kind. serial: how a key that counts is declared."""

    def __init__(self, url: str, run: Callable[[str], object], serial: str) -> None:
        self.url = url
        self.run = run
        self.serial = serial

    @property
    def is_postgresql(self) -> bool:
        """Not SQLite."""
        return self.url.startswith("postgresql")

    def source(self, *tables: Any, **options: Any) -> Any:
        """A source, not started, of `orders` if nothing is said."""
        return sql_source(self.url, *(tables or ("orders",)), **options)


def sqlite_shop(file: Path) -> Shop:
    return Shop(f"sqlite:///{file}", lambda sql: execute(file, sql), "INTEGER PRIMARY KEY AUTOINCREMENT")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "shop.sqlite"


@pytest.fixture(params=["sqlite", "postgresql"])
def shop(request: pytest.FixtureRequest, file: Path) -> Shop:
    if request.param == "sqlite":
        return sqlite_shop(file)
    database: Database = request.getfixturevalue("database")
    return Shop(url_of(database), database.execute, "bigserial PRIMARY KEY")


@pytest.fixture
def orders(shop: Shop) -> Shop:
    shop.run(f"CREATE TABLE orders (id {shop.serial}, note text)")
    return shop


def insert(shop: Shop, *notes: str) -> None:
    shop.run("INSERT INTO orders (note) VALUES " + ", ".join(f"('{note}')" for note in notes))


def notes(rows: list[dict[str, str | None]]) -> list[str | None]:
    return [row["note"] for row in rows]


def stored(batches: list[Batch]) -> Position:
    """The last position, as the store gives it back."""
    position = batches[-1].position
    return Position(json.loads(json.dumps(dict(position.data))), position.shown)


def shapes(batches: list[Batch]) -> list[list[str]]:
    """The columns of each shape that was announced."""
    return [[column.name for column in one.relation.columns] for batch in batches for one in batch.schema_changes]


# What is read.


def test_rows_come_within_a_poll_and_gaps_do_not_stop_it(orders: Shop) -> None:
    with started(orders.source()) as source:
        insert(orders, "a")
        began = time.monotonic()
        assert notes(read_rows(source, 1)) == ["a"]
        assert time.monotonic() - began < 1.0
        orders.run("INSERT INTO orders VALUES (100, 'far')")
        assert notes(read_rows(source, 1)) == ["far"]
        assert source.stats()["rows"] == 2
        assert list(source.stats()["cursors"].values()) == [100]


def test_a_backlog_comes_in_batches_without_pauses(orders: Shop) -> None:
    insert(orders, *map(str, range(50)))
    with started(orders.source(batchSize=8, pollInterval="1h")) as source:
        batches = read(source, lambda batches: sum(map(len, batches)) == 50)
    assert [len(batch) for batch in batches if len(batch)] == [8, 8, 8, 8, 8, 8, 2]
    assert notes(rows_of(batches)) == list(map(str, range(50)))


def test_a_backlog_of_more_than_a_plan_has_comes_without_pauses(orders: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sources.sql.watched_table.POLL_PIECE_ROWS", 10)
    insert(orders, *map(str, range(35)))
    with started(orders.source(pollInterval="1h")) as source:
        assert notes(read_rows(source, 35)) == list(map(str, range(35)))


@pytest.mark.parametrize(("start_at", "expected"), [("beginning", ["a", "b", "c"]), ("now", ["c"]), (1, ["b", "c"])])
def test_reading_starts_where_start_at_says(orders: Shop, start_at: Any, expected: list[str]) -> None:
    insert(orders, "a", "b")
    with started(orders.source(startAt=start_at)) as source:
        read_quiet(source, 0.1) if start_at == "now" else None
        insert(orders, "c")
        assert notes(read_rows(source, len(expected))) == expected


@pytest.mark.behaviour("N39")
def test_who_asks_for_a_snapshot_is_told_how_the_rows_are_read_again(orders: Shop) -> None:
    insert(orders, "a", "b")
    with started(orders.source(startAt="now")) as source:
        read_quiet(source, 0.1)
        with pytest.raises(SourceRefused, match=r'startAt = "beginning".*position forget'):
            source.review_snapshot(SnapshotRequest("x"))
    with started(orders.source(startAt="beginning")) as source:  # a position that was forgotten
        assert notes(read_rows(source, 2)) == ["a", "b"]


@pytest.mark.parametrize("before", [["before"], []])
def test_now_is_the_moment_of_the_first_start_though_nothing_came(orders: Shop, before: list[str]) -> None:
    for note in before:
        insert(orders, note)
    with started(orders.source(startAt="now")) as source:
        batches = read_quiet(source, 0.2)
    insert(orders, "while it was down")
    with started(orders.source(startAt="now"), stored(batches)) as source:
        assert notes(read_rows(source, 1)) == ["while it was down"]


def test_rows_and_columns_are_chosen(orders: Shop) -> None:
    insert(orders, "a:1", "b%2", "a:3")
    entry = {"table": "orders", "columns": ["note"], "where": "note LIKE 'a%' AND note <> ':x'"}
    with started(orders.source(entry)) as source:
        assert read_rows(source, 2) == [{"note": "a:1"}, {"note": "a:3"}]


def test_updates_and_deletes_are_not_seen(orders: Shop) -> None:
    insert(orders, "a", "b", "c")
    with started(orders.source()) as source:
        read_rows(source, 3)
        orders.run("UPDATE orders SET note = 'changed' WHERE id < 3")
        orders.run("DELETE FROM orders WHERE id = 2")
        insert(orders, "d")
        assert notes(read_rows(source, 1)) == ["d"]
        assert rows_of(read_quiet(source, 0.3)) == []


def test_names_are_taken_as_they_are(shop: Shop) -> None:
    table, columns = 'my "odd" %table; --', ["select", "a:b", "c%d", 'e"f', "Ünï cödé", "c0"]
    quoted = ['"' + name.replace('"', '""') + '"' for name in (table, *columns)]
    shop.run(
        f"CREATE TABLE {quoted[0]} ({quoted[1]} integer PRIMARY KEY, {', '.join(f'{q} integer' for q in quoted[2:])})"
    )
    shop.run(f"INSERT INTO {quoted[0]} VALUES (1, 2, 3, 4, 5, 6), (7, 8, 9, 10, 11, 12)")
    with started(shop.source(quoted[0], batchSize=1)) as source:
        batches = read(source, lambda batches: sum(map(len, batches)) == 2)
    assert rows_of(batches)[0] == dict(zip(columns, "123456", strict=True))
    assert batches[-1].changes[0].relation.table == table


def test_batches_of_wide_rows_are_small(orders: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sources.sql.row_limits.READ_BYTES", 1000)
    monkeypatch.setattr("sources.sql.row_limits.FIRST_ROWS", 3)
    insert(orders, *(["x" * 300] * 12))
    with started(orders.source()) as source:
        batches = read(source, lambda batches: sum(map(len, batches)) == 12)
    assert [len(batch) for batch in batches if len(batch)] == [3, 3, 3, 3]


def test_wide_rows_behind_narrow_ones_are_not_read_together(orders: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = bound_batches(monkeypatch, 100_000, 4)
    require_bounded_batches(orders.source(), lambda given: insert(orders, *given), 200_000)
    assert max(asked) == 4


def test_rows_that_take_too_long_are_asked_for_again_in_smaller_numbers(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = sqlite_shop(file)
    orders.run("CREATE TABLE orders (id INTEGER PRIMARY KEY AUTOINCREMENT, note text)")
    insert(orders, *"abcdefgh")
    monkeypatch.setattr("sources.sql.row_limits.FIRST_ROWS", 8)
    read_now = polled_table.fetch_rows
    slow = [1.5]

    def read_late(fetch: Any, at_once: int, enough: int) -> Any:
        time.sleep(slow.pop() if slow else 0)
        return read_now(fetch, at_once, enough)

    monkeypatch.setattr(polled_table, "fetch_rows", read_late)
    monkeypatch.setattr("sources.sql.database._GRACE_SECONDS", 0.0)
    with started(orders.source(timeout="1s")) as source:
        with pytest.raises(SourceUnavailable, match=r"took longer than 1 s \(at most 8 rows; 1 are asked for next\)"):
            read_rows(source, 8)
        assert "very large values" in source.status().reason
        assert notes(read_rows(source, 8)) == list("abcdefgh")


def test_no_more_than_three_looks_that_were_given_up_run_at_once(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.touch()
    monkeypatch.setattr("sources.sql.database._GRACE_SECONDS", 0.0)
    database = SqlDatabase(make_url(f"sqlite:///{file}"), 0.15, 0.15)
    release, begun = threading.Event(), threading.Semaphore(0)

    def hang(_: object) -> None:
        begun.release()
        release.wait(20)

    for _ in range(3):
        with pytest.raises(SourceUnavailable, match="hanging took longer than"):
            database.look(hang, "hanging")
    with pytest.raises(SourceUnavailable, match="hanging: 3 earlier looks at the database took too long"):
        database.look(hang, "hanging")
    release.set()
    assert database.look(lambda _: 7, "looking") == 7
    assert [begun.acquire(blocking=False) for _ in range(4)] == [True, True, True, False]
    database.close()


def test_a_query_and_a_view_are_read_by_the_key_that_is_named(orders: Shop) -> None:
    insert(orders, "a", "b")
    orders.run("CREATE VIEW shouted AS SELECT id, upper(note) AS note FROM orders")
    query = {"query": "SELECT id, note FROM orders WHERE note <> ':a'", "name": "chosen", "key": "id"}
    with started(orders.source(query, {"table": "shouted", "key": "id"}, settle="0s")) as source:
        rows = read_rows(source, 4)
    assert sorted(json.dumps(row["note"]).strip('"\\') for row in rows) == ["A", "B", "a", "b"]


def test_keys_of_texts_and_of_several_columns_are_read_in_their_order(shop: Shop) -> None:
    shop.run("CREATE TABLE visits (shop varchar(10), at timestamp, n integer, PRIMARY KEY (shop, at, n))")
    keys = [(f"s{at % 3}", f"2026-01-0{1 + at % 2} 10:00:00.500000", at) for at in range(20)]
    for row in keys:
        shop.run(f"INSERT INTO visits VALUES {row}")
    with started(shop.source("visits", batchSize=3, settle="100ms")) as source:
        batches = read(source, lambda batches: sum(map(len, batches)) == 20)
        assert [row["n"] for row in rows_of(batches)] == [str(key[2]) for key in sorted(keys)]
        shop.run("INSERT INTO visits VALUES ('s9', '2026-01-01 10:00:00', 99)")
        assert [row["n"] for row in read_rows(source, 1)] == ["99"]
    found = identities_of(batches)
    assert found == sorted(set(found))
    start = ["s2", "2026-01-02 10:00:00.500000", 11]
    with started(shop.source("visits", startAt=start, settle="100ms")) as source:
        assert [row["n"] for row in read_rows(source, 2)] == ["17", "99"]


@pytest.mark.parametrize("declared", ["float", "boolean", "json"])
def test_a_key_that_has_no_order_is_refused(shop: Shop, declared: str) -> None:
    shop.run(f"CREATE TABLE odd (k {declared}, id integer PRIMARY KEY)")
    with pytest.raises(SourceRefused, match=r"odd.*order of k"):
        shop.source({"table": "odd", "key": ["k", "id"]}).start(None)


def test_rows_without_a_key_are_not_read_and_check_says_so(shop: Shop) -> None:
    shop.run("CREATE TABLE orders (k integer UNIQUE, note varchar(9))")
    shop.run("INSERT INTO orders VALUES (1, 'a'), (NULL, 'never'), (2, 'b')")
    entry = {"table": "orders", "key": "k"}
    assert [one for one in shop.source(entry).check() if "rows in which k is NULL are not read" in one.problem]
    with started(shop.source(entry)) as source:
        assert notes(read_rows(source, 2)) == ["a", "b"]
        assert rows_of(read_quiet(source, 0.3)) == []
    with started(shop.source(entry, startAt="now")) as source:
        read_quiet(source, 0.1)
        shop.run("INSERT INTO orders VALUES (3, 'c')")
        assert notes(read_rows(source, 1)) == ["c"]


def test_rows_are_not_read_in_which_a_later_part_of_the_key_is_null(shop: Shop) -> None:
    shop.run("CREATE TABLE orders (a integer NOT NULL, b integer, note varchar(9), UNIQUE (a, b))")
    shop.run("INSERT INTO orders VALUES (1, 1, 'a'), (2, NULL, 'never'), (3, 1, 'b')")
    with started(shop.source({"table": "orders", "key": ["a", "b"]})) as source:
        assert notes(read_rows(source, 2)) == ["a", "b"]
        shop.run("INSERT INTO orders VALUES (4, NULL, 'never'), (4, 1, 'c')")
        assert notes(read_rows(source, 1)) == ["c"]
        assert rows_of(read_quiet(source, 0.3)) == []


@pytest.mark.parametrize("key", ["a", "a, b"])
def test_check_says_that_a_table_has_no_integer_key(shop: Shop, key: str) -> None:
    shop.run(f"CREATE TABLE orders (a varchar(36), b integer, PRIMARY KEY ({key}))")
    [found] = [one for one in shop.source().check() if "no integer key" in one.problem]
    assert found.severity is Severity.WARNING
    assert f"in the order of ({key})" in found.problem
    assert "UUID" in found.remedy


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"where": "nowhere > 1"}, "nowhere"),
        ({"where": "id > 0;"}, "looking at table"),
        ({"startAt": "a"}, "is no whole number"),
        ({"startAt": [1, 2]}, "startAt has 2 values"),
    ],
)
def test_check_finds_conditions_and_starts_that_would_stop_it(orders: Shop, entry: dict[str, Any], said: str) -> None:
    [found] = [one for one in orders.source({"table": "orders"} | entry).check() if one.severity is Severity.ERROR]
    assert said in found.problem
    well = {"table": "orders", "where": "id > 1 AND note <> ':a' AND note NOT LIKE '%b' -- not b", "startAt": 1}
    assert not [one for one in orders.source(well).check() if one.severity is Severity.ERROR]


def test_check_says_nothing_of_the_order_of_an_integer_key(orders: Shop) -> None:
    assert not [one for one in orders.source().check() if "integer key" in one.problem]


def test_a_key_that_is_not_unique_is_refused(orders: Shop) -> None:
    with pytest.raises(SourceRefused, match=r"\(note\) is not unique"):
        orders.source({"table": "orders", "key": "note"}).start(None)


def test_a_table_a_column_and_a_key_that_are_missing_are_named(orders: Shop) -> None:
    orders.run("CREATE TABLE loose (a integer)")
    for entry, problem in [
        ("nowhere", "nowhere does not exist"),
        ("loose", "loose has no primary key"),
        ({"table": "orders", "columns": ["nope"]}, "orders has no column nope"),
    ]:
        with pytest.raises(SourceRefused, match=problem):
            orders.source(entry).start(None)
        assert [found for found in orders.source(entry).check() if problem in found.problem]


def test_keys_of_a_query_of_which_nothing_is_known_are_compared_as_what_they_are(orders: Shop) -> None:
    insert(orders, *map(str, range(25)))
    query = {"query": "SELECT id * 1 AS id, note FROM orders", "name": "q", "key": "id"}
    with started(orders.source(query, batchSize=4, settle="0s")) as source:
        assert len(read_rows(source, 25)) == 25
        insert(orders, "more")
        assert len(read_rows(source, 1)) == 1
        assert rows_of(read_quiet(source, 0.3)) == []


def test_keys_of_a_query_that_are_floats_are_refused(file: Path) -> None:
    shop = sqlite_shop(file)
    shop.run("CREATE TABLE orders (id INTEGER PRIMARY KEY, note TEXT)")
    insert(shop, "a", "b")
    query = {"query": "SELECT id * 0.5 AS half, note FROM orders", "name": "q", "key": "half"}
    with started(shop.source(query)) as source, pytest.raises(SourceRefused, match="half, which holds floats"):
        read_quiet(source, 2)


@pytest.mark.behaviour("P4")
@pytest.mark.parametrize(
    ("odd", "kind"),
    [("2.5", "floats"), ("'secret'", "texts"), ("'1_0'", "texts"), ("'1 2'", "texts"), ("x'00'", "blobs")],
)
def test_a_key_of_integers_that_holds_something_else_stops_the_source_by_its_name(
    file: Path, odd: str, kind: str
) -> None:
    shop = sqlite_shop(file)
    shop.run("CREATE TABLE orders (id INT PRIMARY KEY, note TEXT)")
    shop.run(f"INSERT INTO orders VALUES (1, 'a'), ({odd}, 'b'), (3, 'c')")
    with started(shop.source()) as source, pytest.raises(SourceRefused, match=f"id, which holds {kind}") as caught:
        read_quiet(source, 2)
    assert "secret" not in str(caught.value)


def test_the_least_and_the_largest_integer_are_keys_like_others(orders: Shop) -> None:
    least, largest = -(2**63), 2**63 - 1
    orders.run(f"INSERT INTO orders VALUES ({least}, 'a'), (0, 'b'), ({largest}, 'c')")
    with started(orders.source()) as source:
        batches = read(source, lambda batches: sum(map(len, batches)) == 3)
    assert notes(rows_of(batches)) == ["a", "b", "c"]
    commits = [commit for commit, _ in identities_of(batches)]
    assert commits == sorted(set(commits))
    assert max(commits) < 2**63


# The shapes of tables.


def test_columns_that_are_added_dropped_and_retyped_between_polls_are_followed(orders: Shop) -> None:
    with started(orders.source()) as source:
        insert(orders, "a")
        batches = read(source, lambda batches: any(map(len, batches)))
        orders.run("ALTER TABLE orders ADD COLUMN more integer")
        orders.run("INSERT INTO orders (note, more) VALUES ('b', 7)")
        batches += read(source, lambda batches: any(map(len, batches)))
        orders.run("ALTER TABLE orders DROP COLUMN note")
        orders.run("INSERT INTO orders (more) VALUES (8)")
        batches += read(source, lambda batches: any(map(len, batches)))
    assert shapes(batches) == [["id", "note"], ["id", "note", "more"], ["id", "more"]]
    assert rows_of(batches)[1:] == [{"id": "2", "note": "b", "more": "7"}, {"id": "3", "more": "8"}]
    changes = [one for batch in batches for one in batch.schema_changes]
    assert [one.relation.version for one in changes] == [1, 2, 3]
    assert [one.before for one in changes] == [None, changes[0].relation, changes[1].relation]


def test_a_column_of_another_type_makes_another_shape(shop: Shop) -> None:
    shop.run(f"CREATE TABLE orders (id {shop.serial}, n integer)")
    with started(shop.source()) as source:
        shop.run("INSERT INTO orders (n) VALUES (1)")
        first = read(source, lambda batches: any(map(len, batches)))
        if shop.is_postgresql:
            shop.run("ALTER TABLE orders ALTER n TYPE text")
        else:
            shop.run("ALTER TABLE orders RENAME TO old")
            shop.run("CREATE TABLE orders (id integer PRIMARY KEY, n text)")
            shop.run("INSERT INTO orders SELECT id, n FROM old")
        shop.run("INSERT INTO orders VALUES (2, 'two')")
        second = read(source, lambda batches: any(map(len, batches)))
    types = [one.relation.columns[1].type for one in (*first[-1].schema_changes, *second[-1].schema_changes)]
    assert [kind.native.lower() for kind in types] == ["integer", "text"]
    assert rows_of(second) == [{"id": "2", "n": "two"}]


def test_a_shape_that_is_remembered_is_not_announced_again(orders: Shop) -> None:
    insert(orders, "a")
    with started(orders.source()) as source:
        batches = read(source, lambda batches: any(map(len, batches)))
    known: list[Relation] = [one.relation for batch in batches for one in batch.schema_changes]
    insert(orders, "b")
    again = orders.source()
    again.remember(known)
    with started(again, stored(batches)) as source:
        batches = read(source, lambda batches: any(map(len, batches)))
    assert shapes(batches) == []
    assert notes(rows_of(batches)) == ["b"]


# Identity.


def test_with_one_table_the_commit_number_is_the_key(orders: Shop) -> None:
    orders.run("INSERT INTO orders VALUES (5, 'a'), (7, 'b')")
    with started(orders.source()) as source:
        batches = read(source, lambda batches: sum(map(len, batches)) == 2)
    assert identities_of(batches) == [(5, 0), (7, 0)]


@pytest.mark.behaviour("P3")
@pytest.mark.parametrize("keys", ["integers", "texts"])
def test_rows_that_are_sent_again_have_the_identity_and_the_time_that_they_had(orders: Shop, keys: str) -> None:
    """Wherever the service was killed, and though rows came and the size of batches changed meanwhile."""
    key = "integer" if keys == "integers" else "varchar(9)"
    orders.run(f"CREATE TABLE visits (id {key} PRIMARY KEY, note text)")

    def add(first: int) -> None:
        insert(orders, *map(str, range(first, first + 5)))
        for at in range(first, first + 3):
            orders.run(f"INSERT INTO visits VALUES ('{100 + at}', 'v{at}')")

    tables = ("orders", "visits")
    with started(orders.source(*tables, batchSize=2)) as source:
        add(0)
        batches = read(source, lambda batches: sum(map(len, batches)) == 8)
        add(10)
        batches += read(source, lambda more: sum(map(len, more)) == 8)
    everything = described(batches)
    assert [identity for identity, _ in everything] == sorted({identity for identity, _ in everything})
    had = 0
    for at, batch in enumerate(batches):
        had += len(batch)
        position = stored(batches[: at + 1])
        left = everything[had:]
        if not position.data["pieces"] and left:
            continue  # what comes next was read behind a later position
        in_plan = sum(map(len, plan_behind(batches, at)))
        with started(orders.source(*tables, batchSize=3), position) as again:
            found = described(read(again, lambda more, n=in_plan: sum(map(len, more)) >= n))
        assert found[:in_plan] == left[:in_plan], f"from {position}"


def plan_behind(batches: list[Batch], at: int) -> Iterator[Batch]:
    """The batches behind this one that are of the same plan."""
    plans = batches[at].position.data["plans"]
    return (batch for batch in batches[at + 1 :] if batch.position.data["plans"] == plans)


def described(batches: list[Batch]) -> list[tuple[tuple[int, int], Any]]:
    moments = [int(moment) for batch in batches for moment in batch.transactions.commit_ts]
    return list(zip(identities_of(batches), zip(rows_of(batches), moments, strict=True), strict=True))


def test_rows_are_given_when_the_plan_for_them_is_stored(orders: Shop) -> None:
    insert(orders, "a")
    with started(orders.source()) as source:
        plan = source.read(1.0)
        assert plan is not None
        assert not len(plan)
        assert source.read(0.2) is None
        source.confirm(plan.position)
        rows = source.read(1.0)
        assert notes(rows_of([rows])) == ["a"]


def test_a_row_that_is_deleted_meanwhile_takes_no_other_rows_identity(shop: Shop) -> None:
    shop.run("CREATE TABLE visits (id varchar(9) PRIMARY KEY, note text)")
    shop.run("INSERT INTO visits VALUES ('a', '1'), ('b', '2'), ('c', '3')")
    with started(shop.source("visits", batchSize=1)) as source:
        batches = read(source, lambda batches: sum(map(len, batches)) == 3)
    plan = stored(batches[:1])
    shop.run("DELETE FROM visits WHERE id = 'a'")
    with started(shop.source("visits"), plan) as source:
        again = read(source, lambda batches: sum(map(len, batches)) == 2)
    assert set(identities_of(again)).isdisjoint(identities_of(batches))


def test_the_time_is_that_of_the_column_that_is_named(shop: Shop) -> None:
    shop.run(f"CREATE TABLE orders (id {shop.serial}, at timestamp)")
    shop.run("INSERT INTO orders (at) VALUES ('2026-01-31 10:00:00.25'), (NULL)")
    with started(shop.source({"table": "orders", "timestamp": "at"})) as source:
        batches = read(source, lambda batches: any(map(len, batches)))
    given, poll = batches[-1].transactions.commit_ts.tolist()
    assert given == 1769853600250000
    assert abs(poll / 1e6 - time.time()) < 60


def test_a_time_that_is_none_is_refused(orders: Shop) -> None:
    for entry in ({"timestamp": "note"}, {"timestamp": "id", "columns": ["note"]}):
        with pytest.raises(SourceRefused, match=r"cannot be the time of its events|is not among"):
            orders.source({"table": "orders", **entry}).start(None)


def test_a_database_of_which_nothing_is_known_is_read_by_time_with_the_same_values(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = "n bigint, amount numeric(10, 2), price double precision, at timestamp, moment timestamptz, day date, "
    columns += "clock time, paid boolean, note text, photo bytea, doc json"
    row = "7, 12.5, 0.1, '2026-01-31 10:00:00.5', '2026-01-31 10:00:00+02', '2026-01-31', '10:00:00.25', true, 'Zoë', "
    row += """decode('dead', 'hex'), '{"a": [1, null]}'"""
    database.execute(f"CREATE TABLE orders (id bigserial PRIMARY KEY, {columns})")
    database.execute(f"INSERT INTO orders VALUES (1, {row}), (2{', NULL' * 11})")
    with started(sql_source(url_of(database), "orders")) as source:
        known = read_rows(source, 2)
    monkeypatch.setattr("sources.sql.engines.kinds._BY_DIALECT", {})
    with started(sql_source(url_of(database), "orders", settle="300ms")) as source:
        began = time.monotonic()
        assert read_rows(source, 2) == known
        assert time.monotonic() - began >= 0.3
    query = {"query": "SELECT * FROM orders", "name": "all_of_it", "key": "id"}
    with started(sql_source(url_of(database), query, settle="0s", batchSize=1)) as source:
        assert [row["note"] for row in read_rows(source, 2)] == ['"Zoë"', None]


@pytest.mark.behaviour("P4")
def test_equal_rows_have_equal_checksums_on_every_engine(file: Path, database: Database) -> None:
    columns = "amount decimal(10, 2), price double precision, at timestamp, day date, paid boolean, note text, doc json"
    row = "12.5, 0.1, '2026-01-31 10:00:00.500', '2026-01-31', true, 'Zoë \"q\"', '{\"a\": [1, null]}'"
    nothing = ", ".join(["NULL"] * 7)
    found = []
    for shop in (sqlite_shop(file), Shop(url_of(database), database.execute, "bigserial PRIMARY KEY")):
        shop.run(
            f"CREATE TABLE orders (id {shop.serial}, {columns}, photo {'blob' if 'lite' in shop.url else 'bytea'})"
        )
        blob = "x'dead'" if "lite" in shop.url else "'\\xdead'"
        names = "amount, price, at, day, paid, note, doc, photo"
        shop.run(f"INSERT INTO orders ({names}) VALUES ({row}, {blob}), ({nothing}, NULL)")
        with started(shop.source()) as source:
            batches = read(source, lambda batches: any(map(len, batches)))
        encoder = encoder_of("event", Router({}, "", "t"), {})
        [records] = [encoder.encode(batch) for batch in batches if len(batch)]
        found.append([json.loads(value) for value in records.values.to_pylist()])
    ours, theirs = ([(event["Checksum"], event["Columns"]) for event in events] for events in found)
    assert ours == theirs
    assert ours[0][1]["amount"] == 12.5


# Stops.


def test_a_position_by_another_key_is_refused(orders: Shop) -> None:
    orders.run("CREATE UNIQUE INDEX by_both ON orders (note, id)")
    insert(orders, "a")
    with started(orders.source()) as source:
        batches = read(source, lambda batches: any(map(len, batches)))
    with pytest.raises(PositionRefused, match="is by id, and its key is note, id now"):
        orders.source({"table": "orders", "key": ["note", "id"]}).start(stored(batches))


@pytest.mark.behaviour("P5")
@pytest.mark.parametrize("restored", ["TRUNCATE", "another table"])
def test_a_table_that_is_shorter_than_the_cursor_stops_the_source(orders: Shop, restored: str) -> None:
    insert(orders, "a", "b", "c")
    with started(orders.source()) as source:
        batches = read(source, lambda batches: sum(map(len, batches)) == 3)
        if restored == "TRUNCATE" and orders.is_postgresql:
            orders.run("TRUNCATE orders RESTART IDENTITY")
        else:
            orders.run("DROP TABLE orders")
            orders.run(f"CREATE TABLE orders (id {orders.serial}, note text)")
        if restored == "another table":
            insert(orders, "x")
        said = r"last row of .*orders.*larger key"
        if restored == "another table" and orders.is_postgresql:
            said = "is another table now"
        with pytest.raises(PositionRefused, match=said):
            read_quiet(source, 2)
    with started(orders.source(shrunkTables="accept"), stored(batches)) as source:
        insert(orders, "y", "z", "new", "newer")
        batches = read(source, lambda batches: notes(rows_of(batches))[-1:] == ["newer"])
        assert len(rows_of(batches)) == (2 if restored == "another table" else 1), "those with larger keys"


def test_a_clock_that_is_set_back_or_forth_makes_the_last_row_no_older(
    orders: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert(orders, "a")
    with started(orders.source()) as source:
        read_rows(source, 1)
        now = time.time
        for seconds in (-3600, 3600):
            monkeypatch.setattr(time, "time", lambda seconds=seconds: now() + seconds)
            assert 0 <= source.stats()["last_row_age_seconds"] < 60


def test_status_and_stats_say_how_it_is(orders: Shop) -> None:
    source = orders.source()
    assert not source.status().ok
    insert(orders, "a")
    with started(source):
        read_rows(source, 1)
        read_quiet(source, 0.3)
        stats = source.stats()
        assert source.status().reason == "polls every 0.1 s, tables: 1"
    assert (stats["rows"], stats["unsettled_rows"], stats["reconnects"]) == (1, 0, 0)
    assert stats["polls"] >= 2
    assert 0 <= stats["last_row_age_seconds"] < 5
    assert not source.status().ok


# SQLite alone.


def another_file(place: Path) -> None:
    other = sqlite_shop(place)
    other.run("CREATE TABLE orders (id INTEGER PRIMARY KEY, note text)")
    insert(other, "x", "y")


def move_another_file_to(file: Path) -> None:
    another_file(file.with_name("other"))
    file.with_name("other").rename(file)


def remove_and_make_again(file: Path) -> None:
    """ext4 gives the new file the inode of the old one, if that is free."""
    file.unlink()
    another_file(file)


REPLACED = pytest.mark.parametrize("replace", [move_another_file_to, remove_and_make_again])


@pytest.fixture
def shop_file(file: Path) -> Path:
    """With one row, and an identity of its own: file systems keep the time of birth in steps of some milliseconds."""
    shop = sqlite_shop(file)
    shop.run("CREATE TABLE orders (id INTEGER PRIMARY KEY, note text)")
    insert(shop, "a")
    time.sleep(0.05)
    return file


@pytest.mark.behaviour("P5")
@REPLACED
def test_a_file_that_is_replaced_is_noticed(shop_file: Path, replace: Callable[[Path], None]) -> None:
    source = sqlite_shop(shop_file).source()
    source.read_stream_identity()
    with started(source):
        read_rows(source, 1)
        replace(shop_file)
        with pytest.raises(PositionRefused, match="was replaced"):
            read_quiet(source, 2)
        with pytest.raises(PositionRefused, match="was replaced"):
            source.start(None)


@pytest.mark.behaviour("P5")
@REPLACED
def test_a_file_that_is_replaced_between_two_starts_is_noticed(
    shop_file: Path, replace: Callable[[Path], None]
) -> None:
    source = sqlite_shop(shop_file).source()
    position = StoredPosition(Position({}, ""), source.read_stream_identity())
    source.stop()
    again = sqlite_shop(shop_file).source()
    assert choose_position(again, position, again.read_stream_identity()).position == position.position
    again.stop()
    replace(shop_file)
    another = sqlite_shop(shop_file).source()
    with pytest.raises(PositionRefused, match="was made with"):
        choose_position(another, position, another.read_stream_identity())


def test_a_position_that_knows_the_inode_alone_is_taken(shop_file: Path) -> None:
    source = sqlite_shop(shop_file).source()
    identity = {"database": str(shop_file), "inode": str(shop_file.stat().st_ino)}
    choose_position(source, StoredPosition(Position({}, ""), identity), source.read_stream_identity())


@pytest.mark.parametrize("journal", ["DELETE", "WAL"])
def test_what_is_done_to_a_file_in_ordinary_use_makes_no_other_file_of_it(shop_file: Path, journal: str) -> None:
    shop = sqlite_shop(shop_file)
    execute_alone(shop_file, f"PRAGMA journal_mode = {journal}")
    source = shop.source()
    identity = source.read_stream_identity()
    with started(source):
        read_rows(source, 1)
        for statement in ("VACUUM", "ANALYZE", "REINDEX", "PRAGMA wal_checkpoint(TRUNCATE)"):
            execute_alone(shop_file, statement)
        os.utime(shop_file)
        shop_file.chmod(0o644)
        with closing(sqlite3.connect(shop_file)) as here, closing(sqlite3.connect(f"{shop_file}.copy")) as copy:
            here.backup(copy)
            copy.backup(here)
        insert(shop, "b")
        assert notes(read_rows(source, 1)) == ["b"]
        assert source.read_stream_identity() == identity


def execute_alone(file: Path, statement: str) -> None:
    """Outside of a transaction."""
    with closing(sqlite3.connect(file, isolation_level=None)) as session:
        session.execute(statement)


def test_the_file_is_held_while_the_source_runs_and_let_go_when_it_stops(shop_file: Path) -> None:
    def is_held() -> bool:
        return any(one.exists() and one.samefile(shop_file) for one in Path("/proc/self/fd").iterdir())

    source = sqlite_shop(shop_file).source()
    for _ in range(2):
        source.read_stream_identity()
        with started(source):
            read_rows(source, 1)
            assert is_held()
        source.stop()
        assert not is_held()


@pytest.mark.behaviour("P5")
@pytest.mark.parametrize(
    ("declared", "value", "kind"),
    [("DECIMAL(10, 2)", "'not a number'", "text"), ("INTEGER", "2.5", "a float"), ("TEXT", "x'ff'", "a blob"),
     ("JSON", "'{'", "text"), ("TEXT", "CAST(x'ff41' AS TEXT)", "text that is no UTF-8")],
)  # fmt: skip
def test_a_value_that_a_column_is_not_declared_for_stops_the_source_and_is_not_shown(
    file: Path, declared: str, value: str, kind: str
) -> None:
    shop = sqlite_shop(file)
    shop.run(f"CREATE TABLE orders (id INTEGER PRIMARY KEY, note {declared})")
    shop.run(f"INSERT INTO orders VALUES (1, NULL), (42, {value})")
    with started(shop.source()) as source, pytest.raises(SourceRefused) as caught:
        read_quiet(source, 2)
    assert f"column note of the row with id 42 holds {kind}, and is declared {declared}" in str(caught.value)
    assert value.strip("'") not in str(caught.value).replace("{ ", "")
    if "ff41" not in value:
        with started(shop.source({"table": "orders", "text": "note"})) as source:
            assert len(read_rows(source, 2)) == 2


def test_a_column_without_a_type_holds_anything_as_json(file: Path) -> None:
    shop = sqlite_shop(file)
    shop.run("CREATE TABLE orders (id INTEGER PRIMARY KEY, x)")
    shop.run("INSERT INTO orders (x) VALUES (1), (2.5), ('a\"b'), (x'ff'), (NULL)")
    with started(shop.source()) as source:
        assert [row["x"] for row in read_rows(source, 5)] == ["1", "2.5", '"a\\"b"', '"/w=="', None]


def test_a_file_that_is_locked_is_tried_again(file: Path) -> None:
    shop = sqlite_shop(file)
    shop.run("CREATE TABLE orders (id INTEGER PRIMARY KEY, note text)")
    with started(shop.source(timeout="200ms")) as source:
        with closing(sqlite3.connect(file)) as owner:
            owner.execute("BEGIN EXCLUSIVE")
            with pytest.raises(SourceUnavailable, match=r"main\.orders: database is locked"):
                read_quiet(source, 3)
        insert(shop, "a")
        assert notes(read_rows(source, 1)) == ["a"]


@pytest.mark.behaviour("P2")
def test_writers_of_sqlite_are_not_held_up_and_lose_nothing(file: Path) -> None:
    shop = sqlite_shop(file)
    shop.run(f"CREATE TABLE orders (id {shop.serial}, note text)")
    with started(shop.source(pollInterval="5ms", batchSize=7)) as source:
        batches: list[Batch] = []
        for at in range(60):
            insert(shop, *(f"{at}.{one}" for one in range(at % 5 + 1)))
            batches += read_quiet(source, 0.01)
        count = sum(at % 5 + 1 for at in range(60))
        batches += read(source, lambda more: sum(map(len, batches + more)) >= count)
    assert [row["id"] for row in rows_of(batches)] == [str(key) for key in range(1, count + 1)]


@pytest.mark.behaviour("P2")
def test_rows_of_sqlites_writers_who_take_turns_come_all_and_in_the_order_of_their_keys(file: Path) -> None:
    shop = sqlite_shop(file)
    shop.run(f"CREATE TABLE orders (id {shop.serial}, note text)")

    def write(seed: int, ended: threading.Event) -> None:
        moments = random.Random(seed)
        with closing(sqlite3.connect(file, timeout=30)) as connection:
            while not ended.is_set():
                connection.execute("BEGIN IMMEDIATE")
                for _ in range(moments.randint(1, 4)):
                    connection.execute("INSERT INTO orders (note) VALUES ('n')")
                time.sleep(moments.uniform(0, 0.005))
                connection.rollback() if moments.random() < 0.2 else connection.commit()
                time.sleep(moments.uniform(0, 0.005))

    def keys() -> list[int]:
        with closing(sqlite3.connect(file, timeout=30)) as connection:
            return [key for (key,) in connection.execute("SELECT id FROM orders ORDER BY id")]

    with started(shop.source(pollInterval="5ms", batchSize=7)) as source:
        batches = read_beside_writers(source, write, lambda: len(keys()), 0.1)
    found = [int(row["id"] or 0) for row in rows_of(batches)]
    assert len(found) > 50
    assert found == keys()


def test_check_warns_of_keys_that_are_given_again(file: Path) -> None:
    shop = sqlite_shop(file)
    shop.run("CREATE TABLE orders (id INTEGER PRIMARY KEY, note text)")
    [found] = shop.source().check()
    assert found.severity is Severity.WARNING
    assert "no AUTOINCREMENT" in found.problem


def test_a_file_that_is_not_there_or_no_database_is_refused(file: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceRefused, match="no such file"):
        sqlite_shop(tmp_path / "nowhere").source().read_stream_identity()
    file.write_text("no database at all, but long enough to have a header of its own" * 10)
    with pytest.raises(SourceRefused, match="not a database"):
        sqlite_shop(file).source().start(None)
