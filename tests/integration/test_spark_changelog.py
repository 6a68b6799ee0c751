"""A lookup that is a table of the stream: changes are joined with its rows as they were at their place."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from psql_streamer.errors import HandlerUnavailable
from psql_streamer.interfaces import Severity
from psql_streamer.model import Batch, Changes, Position
from psql_streamer.pipeline.coalescing import merge
from psql_streamer.spark.handler import SparkHandler
from psql_streamer.spark.options import SparkOptions
from psql_streamer.spark.running import Runner
from tests.database import Database
from tests.integration.conftest import MASTER
from tests.source_at_work import read_all, source_of
from tests.spark_changes import values

TABLES = """
CREATE TABLE customers (id int PRIMARY KEY, segment text, notes text);
ALTER TABLE customers ALTER notes SET STORAGE EXTERNAL;
CREATE TABLE orders (id bigserial PRIMARY KEY, customer_id bigint, expected text);
CREATE PUBLICATION p FOR ALL TABLES;
INSERT INTO customers SELECT i, 'first ' || i, repeat('x', 3000) FROM generate_series(1, 5) i;
"""
CUSTOMERS = {"customers": {"kind": "changelog", "source": "db1", "table": "public.customers"}}
BY_KEY = {"sql": "SELECT c.id, c.expected, l.segment FROM changes c LEFT JOIN customers l ON l.id = c.customer_id"}
AS_A_WHOLE = {
    "sql": """SELECT id, expected, (SELECT max(segment) FROM customers WHERE id + 0 = customer_id) AS segment
        FROM changes"""
}
ORDER = "INSERT INTO orders (customer_id, expected) SELECT %s, (SELECT segment FROM customers WHERE id = %s)"

Joined = dict[tuple[int, int], tuple[Any, Any]]
"""(commit number, seq) of an order -> the segment that it was joined with, and the one that it had then."""


class Stream:
    """A source and a handler with a changelog, as the pipeline uses them. folder: None keeps nothing."""

    def __init__(self, database: Database, folder: Path | None, rule: dict[str, Any], **options: Any) -> None:
        self.database = database
        self.source = source_of(database, **options)
        tables = {"orders": rule} if rule.keys() & {"sql", "function"} else rule
        self.handler = SparkHandler("spark", SparkOptions(master=MASTER, tables=tables, lookups=CUSTOMERS))
        self.handler.attach({"db1": self.source}, folder)
        self.positions: list[Position] = []

    def start(self, position: Position | None = None) -> Stream:
        self.handler.start()
        self.source.read_stream_identity()
        assert [
            one for one in self.handler.review({"db1": self.source.list_published()}) if one.severity is Severity.ERROR
        ] == []
        self.handler.begin_stream("db1", position)
        self.source.start(position)
        return self

    def stop(self) -> None:
        self.source.stop()
        self.handler.stop()

    def join(self, merged: int = 1) -> Joined:
        """Everything that is committed now. merged: batches that are handled as one."""
        batches = read_all(self.source, self.database)
        found: Joined = {}
        for at in range(0, len(batches), merged):
            batch = merge(batches[at : at + merged])
            found |= segments(self.handler.handle(batch))
            self.positions.append(batch.position)
        return found


def segments(batch: Batch) -> Joined:
    found: Joined = {}
    for part in batch.changes:
        if part.relation.table == "orders":
            commits = batch.transactions.commit[part.tx].tolist()
            places = zip(commits, part.seq.tolist(), strict=True)
            found |= dict(zip(places, zip(values(part, "segment"), values(part, "expected"), strict=True), strict=True))
    return found


def wrong(joined: Joined) -> list[Any]:
    return [pair for pair in joined.values() if pair[0] != pair[1]]


@pytest.fixture
def streams(engine: SparkHandler, database: Database, tmp_path: Path) -> Iterator[Any]:
    """Starts streams; one at a time."""
    database.execute(TABLES)
    with ExitStack() as stack:
        now: list[Stream] = []

        def start(rule: dict[str, Any] = BY_KEY, position: Position | None = None, **options: Any) -> Stream:
            if now:
                now.pop().stop()
            now.append(Stream(database, tmp_path / "kept", rule, **options))
            return now[0].start(position)

        stack.callback(lambda: [stream.stop() for stream in now])
        yield start


def order(database: Database, customer: int) -> None:
    database.execute(ORDER, customer, customer)


def write_at_random(database: Database, chance: random.Random, steps: int) -> None:
    """Orders between changes of customers, in transactions of any size."""
    with database.session() as session, session.cursor() as cursor:
        for _ in range(steps):
            customer = chance.randrange(1, 8)
            what = chance.random()
            if what < 0.5:
                cursor.execute(ORDER, (customer, customer))
            elif what < 0.65:
                cursor.execute("UPDATE customers SET segment = %s WHERE id = %s", (f"s{chance.random()}", customer))
            elif what < 0.7:
                cursor.execute("DELETE FROM customers WHERE id = %s", (customer,))
            elif what < 0.9:
                cursor.execute(
                    "INSERT INTO customers VALUES (%s, %s, repeat('y', 3000)) ON CONFLICT DO NOTHING",
                    (customer, f"n{chance.random()}"),
                )
            elif what < 0.99:
                cursor.execute(
                    "UPDATE customers SET id = %s WHERE id = %s AND NOT EXISTS (SELECT FROM customers WHERE id = %s)",
                    (customer % 7 + 1, customer, customer % 7 + 1),
                )
            else:
                cursor.execute("TRUNCATE customers")
            if chance.random() < 0.4:
                session.commit()
        session.commit()


def test_orders_are_joined_with_customers_as_they_were_when_they_were_written(streams: Any, database: Database) -> None:
    stream = streams(batchSize=40)
    order(database, 1)
    assert list(stream.join().values()) == [(b"first 1", b"first 1")]
    write_at_random(database, random.Random(1), 150)
    joined = stream.join(merged=3)
    assert len(joined) > 50
    assert wrong(joined) == []
    assert len({segment for segment, _ in joined.values()}) > 10
    stats = stream.handler.stats()["lookups"]["customers"]
    assert stats["rows"] == database.value("SELECT count(*) FROM customers")
    assert stats["changes"] > 20


def pass_on(changes: Any) -> Any:
    """A rule that reads no lookup."""
    return changes.selectExpr("id", "expected", "customer_id AS segment", "_row")


@pytest.mark.parametrize(
    ("rule", "runs"),
    [
        (BY_KEY, 2),
        ({"sql": BY_KEY["sql"].replace("l.id = c.customer_id", "c.customer_id = l.id AND l.segment <> ''")}, 2),
        ({"sql": "SELECT id, expected, customer_id AS segment, 'customers' AS of FROM changes"}, 1),
        pytest.param(AS_A_WHOLE, 5, marks=pytest.mark.soak),
        ({"function": f"{__name__}:pass_on"}, 1),
    ],
)
def test_a_join_by_the_key_runs_as_often_as_a_key_has_versions(
    streams: Any, database: Database, monkeypatch: pytest.MonkeyPatch, rule: dict[str, Any], runs: int
) -> None:
    stream = streams(rule)
    order(database, 1)
    stream.join()
    for customer in (1, 2, 3, 4):
        order(database, customer)
        database.execute("UPDATE customers SET segment = 'later' WHERE id = %s", customer)
    order(database, 2)
    batch = merge(read_all(stream.source, database))
    ran: list[int] = []
    run = Runner.run
    monkeypatch.setattr(Runner, "run", lambda self, job: ran.append(len(job.changes)) or run(self, job))
    stream.handler.handle(batch)
    assert (len(ran), sum(ran)) == (runs, 5)


@pytest.mark.soak
def test_a_query_that_reads_the_lookup_in_any_other_way_sees_the_same(streams: Any, database: Database) -> None:
    stream = streams(AS_A_WHOLE)
    order(database, 1)
    stream.join()
    write_at_random(database, random.Random(2), 30)
    joined = stream.join(merged=3)
    assert len(joined) > 10
    assert wrong(joined) == []


@pytest.mark.soak
@pytest.mark.parametrize("seed", [3])
def test_repeats_behind_a_crash_are_joined_as_the_first_time(streams: Any, database: Database, seed: int) -> None:
    chance = random.Random(seed)
    stream = streams(batchSize=30)
    order(database, 1)
    stream.join()
    write_at_random(database, chance, 80)
    first = stream.join()
    durable = stream.positions[len(stream.positions) // 3]
    stream.handler.note_durable("db1", durable)
    write_at_random(database, chance, 30)
    again = streams(position=durable, batchSize=17)
    repeated = again.join(merged=4)
    assert wrong(first) == wrong(repeated) == []
    assert len(repeated.keys() & first.keys()) > 5
    assert again.handler.stats()["lookups"]["customers"]["loads"] == 0, "it goes on with what is on disk"


def test_a_start_behind_a_stop_goes_on_with_what_is_on_disk(streams: Any, database: Database) -> None:
    stream = streams()
    order(database, 1)
    database.execute("UPDATE customers SET segment = 'later' WHERE id = 1")
    stream.join()
    stream.handler.note_durable("db1", stream.positions[-1])
    again = streams(position=stream.positions[-1])
    order(database, 1)
    assert list(again.join().values()) == [(b"later", b"later")]
    assert again.handler.stats()["lookups"]["customers"]["loads"] == 0


def test_what_went_by_while_the_lookup_was_not_there_is_read_anew(streams: Any, database: Database) -> None:
    stream = streams()
    order(database, 1)
    stream.join()
    stream.handler.note_durable("db1", stream.positions[-1])
    stream.handler.stop()
    database.execute("UPDATE customers SET segment = 'unseen' WHERE id = 1")
    missed = read_all(stream.source, database)[-1].position
    again = streams(position=missed)
    order(database, 1)
    assert list(again.join().values()) == [(b"unseen", b"unseen")]
    assert again.handler.stats()["lookups"]["customers"]["loads"] == 1


def test_a_table_with_another_shape_is_read_anew(streams: Any, database: Database) -> None:
    rule = {
        "sql": "SELECT c.id, c.expected, l.* EXCEPT (id) FROM changes c LEFT JOIN customers l ON l.id = c.customer_id"
    }
    stream = streams(rule)
    order(database, 1)
    stream.join()
    database.execute("ALTER TABLE customers ADD tier text DEFAULT 'bronze'; ALTER TABLE customers DROP notes")
    database.execute("UPDATE customers SET segment = 'later' WHERE id = 2")
    order(database, 1)
    order(database, 2)
    assert wrong(stream.join()) == []
    order(database, 3)
    [batch] = [one for one in read_all(stream.source, database) if len(one.changes)]
    [part] = stream.handler.handle(batch).changes
    assert [column.name for column in part.columns] == ["id", "expected", "segment", "tier"]
    assert values(part, "tier") == [b"bronze"]


def test_a_table_that_cannot_be_read_keeps_batches_waiting_and_says_so(streams: Any, database: Database) -> None:
    stream = streams()
    order(database, 1)
    [batch] = [one for one in read_all(stream.source, database) if len(one.changes)]
    database.execute("ALTER TABLE customers RENAME TO away")
    with pytest.raises(HandlerUnavailable, match=r"lookup customers: table public\.customers is not published"):
        stream.handler.handle(batch)
    assert not stream.handler.status().ok
    assert "lookup customers cannot be kept" in stream.handler.status().reason
    database.execute("ALTER TABLE away RENAME TO customers")
    assert len(stream.handler.handle(batch).changes[0]) == 1
    assert stream.handler.status().ok


def test_a_table_with_another_shape_is_read_anew_also_where_that_fails_at_first(
    streams: Any, database: Database
) -> None:
    stream = streams({"sql": "SELECT c.id, c.expected, l.* EXCEPT (id) FROM changes c JOIN customers l ON l.id = c.id"})
    order(database, 1)
    stream.join()
    database.execute("ALTER TABLE customers ADD tier text DEFAULT 'bronze'")
    database.execute("UPDATE customers SET segment = 'later' WHERE id = 3")
    order(database, 2)
    [batch] = [one for one in [merge(read_all(stream.source, database))] if len(one.changes)]
    database.execute("ALTER TABLE customers RENAME TO away")
    with pytest.raises(HandlerUnavailable, match=r"lookup customers: table public\.customers is not published"):
        stream.handler.handle(batch)
    database.execute("ALTER TABLE away RENAME TO customers")
    [part] = [one for one in stream.handler.handle(batch).changes if one.relation.table == "orders"]
    assert values(part, "tier") == [b"bronze"]


def test_a_review_refuses_tables_that_are_not_streamed_or_have_no_key(streams: Any, database: Database) -> None:
    stream = streams()
    database.execute("ALTER TABLE customers DROP CONSTRAINT customers_pkey")
    found = [str(one) for one in stream.handler.review({"db1": stream.source.list_published()})]
    assert any("lookup customers: public.customers has no key" in one for one in found)
    found = [str(one) for one in stream.handler.review({"db1": []})]
    assert any("source db1 does not publish public.customers" in one for one in found)


@pytest.mark.parametrize(
    ("publish", "told"), [("insert", "updates and deletes and truncates"), ("insert, update, truncate", "deletes")]
)
def test_changes_that_a_publication_leaves_out_are_told_of(
    streams: Any, database: Database, caplog: pytest.LogCaptureFixture, publish: str, told: str
) -> None:
    database.execute(f"ALTER PUBLICATION p SET (publish = '{publish}')")
    stream = streams()
    order(database, 1)
    with caplog.at_level(logging.WARNING, "psql_streamer.spark"):
        assert wrong(stream.join()) == []
    [line] = caplog.messages
    assert f"lookup customers: source db1 does not publish {told} of public.customers, so rows stay" in line


def test_tables_that_are_alike_go_through_together_also_with_a_changelog(streams: Any, database: Database) -> None:
    database.execute("CREATE TABLE returns (id bigserial PRIMARY KEY, customer_id bigint, expected text)")
    stream = streams({"*": BY_KEY, "customers": {"sql": "SELECT * FROM changes"}})
    order(database, 1)
    stream.join()
    for _ in range(2):
        order(database, 1)
        database.execute("INSERT INTO returns (customer_id) VALUES (2)")
        database.execute("UPDATE customers SET segment = segment || '!' WHERE id < 3")
    made = stream.handler.handle(merge(read_all(stream.source, database))).changes
    joined = sorted((part.relation.table, one) for part in made for one in found(part))
    assert joined == [
        *(("orders", b"first 1"), ("orders", b"first 1!")),
        *(("returns", b"first 2"), ("returns", b"first 2!")),
    ]


def found(part: Changes) -> list[Any]:
    return values(part, "segment") if part.relation.table != "customers" else []


DEFERRABLE = """
ALTER TABLE customers DROP CONSTRAINT customers_pkey, ADD PRIMARY KEY (id) DEFERRABLE;
ALTER TABLE customers REPLICA IDENTITY FULL;
"""


@pytest.mark.parametrize("rule", [BY_KEY, AS_A_WHOLE])
@pytest.mark.parametrize("merged", [pytest.param(1, marks=pytest.mark.soak), 100])
def test_keys_that_change_places_in_one_statement_are_joined_as_they_are_behind_it(
    streams: Any, database: Database, merged: int, rule: dict[str, Any]
) -> None:
    database.execute(DEFERRABLE)
    stream = streams(rule)
    order(database, 1)
    assert wrong(stream.join()) == []
    database.execute("UPDATE customers SET id = id + 1")
    for customer in range(1, 7):
        order(database, customer)
    database.execute("UPDATE customers SET id = 8 - id")
    for customer in range(1, 7):
        order(database, customer)
    database.execute("DELETE FROM customers WHERE id = 2")
    order(database, 2)
    joined = stream.join(merged)
    assert len(joined) == 13
    assert wrong(joined) == []


ANOTHER = """
CREATE TABLE another (LIKE customers INCLUDING ALL);
INSERT INTO another SELECT i, 'another ' || i, 'n' FROM generate_series(1, 4) i;
"""
RENAME = "ALTER TABLE customers RENAME TO former; ALTER TABLE another RENAME TO customers"


@pytest.mark.parametrize("rule", [BY_KEY, AS_A_WHOLE])
@pytest.mark.parametrize("how", [RENAME, "DROP TABLE customers; ALTER TABLE another RENAME TO customers"])
def test_another_table_of_the_same_columns_that_gets_the_name_is_read_anew(
    streams: Any, database: Database, rule: dict[str, Any], how: str
) -> None:
    stream = streams(rule)
    order(database, 1)
    stream.join()
    database.execute(ANOTHER)
    # Of the table before, in the batch in which the other one comes.
    database.execute("UPDATE customers SET segment = 'former' WHERE id = 1; INSERT INTO customers VALUES (7, 'former')")
    database.execute(how)
    database.execute("UPDATE customers SET segment = 'later' WHERE id = 2")
    for customer in (1, 2, 3, 5, 7):
        order(database, customer)
    joined = stream.join(merged=100)
    assert (len(joined), wrong(joined)) == (5, [])
    stats = stream.handler.stats()["lookups"]["customers"]
    assert (stats["rows"], stats["loads"]) == (4, 2)


def test_a_table_that_gets_its_former_name_back_is_read_anew(streams: Any, database: Database) -> None:
    stream = streams()
    database.execute(ANOTHER)
    order(database, 1)
    stream.join()
    for swap in (RENAME, "ALTER TABLE customers RENAME TO another; ALTER TABLE former RENAME TO customers"):
        database.execute(swap)
        database.execute("UPDATE customers SET segment = segment || '!' WHERE id < 3")
        for customer in (1, 2, 3, 5):
            order(database, customer)
        assert wrong(stream.join()) == []
    assert stream.handler.stats()["lookups"]["customers"]["loads"] == 3


def test_a_table_that_has_another_under_its_name_after_a_restart_is_read_anew(streams: Any, database: Database) -> None:
    stream = streams()
    order(database, 1)
    stream.join()
    database.execute("UPDATE customers SET segment = 'x' WHERE id = 1")
    stream.join()
    stream.handler.note_durable("db1", stream.positions[-1])
    again = streams(position=stream.positions[-1])
    database.execute(ANOTHER)
    database.execute(RENAME)
    database.execute("UPDATE customers SET segment = 'later' WHERE id = 2")
    for customer in (1, 2, 5):
        order(database, customer)
    assert wrong(again.join()) == []


def test_a_stream_that_is_behind_gives_the_new_table_no_rows_of_the_one_before(
    streams: Any, database: Database
) -> None:
    stream = streams()
    database.execute(ANOTHER)
    for number in range(20, 24):
        database.execute("INSERT INTO customers VALUES (%s, 'of the table before')", number)
    database.execute(RENAME)
    database.execute("UPDATE customers SET segment = 'later' WHERE id = 2")
    for customer in (1, 2, 5, 20):
        order(database, customer)
    assert wrong(stream.join(merged=1)) == []
    stats = stream.handler.stats()["lookups"]["customers"]
    assert stats["rows"] == 4
    assert stats["loads"] <= 2, "it is not read for each change of the table before"
