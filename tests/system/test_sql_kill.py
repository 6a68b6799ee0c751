"""A service that polls SQLite, or PostgreSQL with overlapping writers, killed under load: every row is in Kafka, and
repeats are the same bytes.
"""

from __future__ import annotations

import json
import random
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.beside import run_beside
from tests.database import Database
from tests.kafka_reader import consume
from tests.sections import kafka_section
from tests.service import Service
from tests.sql_sources import execute, url_of


def polled(url: str, tables: str) -> str:
    """Source db1, in batches so small that kills come between those of one poll."""
    return f"""
[source.db1]
type = "sql"
url = "{url}"
tables = {tables}
pollInterval = "20ms"
batchSize = 50
"""


def kill_again_and_again(service: Service, kills: int, moments: random.Random) -> None:
    """At some moment after it has read rows. In the end it runs."""
    for _ in range(kills):
        service.start(wait=False)
        service.until(lambda: service.stats().get("source.db1", {}).get("rows", 0) > 0, "rows")
        time.sleep(moments.uniform(0.05, 0.4))
        service.kill()
    service.start()


def until_stored(service: Service, position: str) -> None:
    service.until(lambda: service.stats().get("source.db1", {}).get("stored_position") == position, position)


TABLES = '["orders", { table = "visits", key = ["shop", "n"] }]'


@contextmanager
def adding(file: Path) -> Iterator[None]:
    """Rows in both tables, some at once, until the end."""

    def add(ended: threading.Event) -> None:
        count = 0
        with closing(sqlite3.connect(file, timeout=30)) as connection:
            while not ended.wait(0.003):
                count += 1
                with connection:
                    connection.executemany("INSERT INTO orders (note) VALUES (?)", [(str(count),)] * (count % 40))
                    connection.execute("INSERT INTO visits VALUES ('a', ?)", (count,))

    with run_beside(add):
        yield


@pytest.mark.behaviour("P1", "K10")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kills", "exactly_once"),
    [(1, False), pytest.param(20, False, marks=pytest.mark.soak), pytest.param(4, True, marks=pytest.mark.soak)],
)
def test_a_service_killed_again_and_again_while_rows_are_added_loses_none(
    kafka: str, topic_prefix: str, tmp_path: Path, kills: int, exactly_once: bool
) -> None:
    once = {"exactlyOnce": True, "transactionalId": topic_prefix} if exactly_once else {}
    file = tmp_path / "shop.sqlite"
    execute(
        file,
        "PRAGMA journal_mode = WAL",
        "CREATE TABLE orders (id INTEGER PRIMARY KEY AUTOINCREMENT, note TEXT)",
        "CREATE TABLE visits (shop TEXT, n INTEGER, PRIMARY KEY (shop, n))",
    )
    sink = kafka_section(kafka, topic_prefix, **once)
    with Service(tmp_path, polled(f"sqlite:///{file}", TABLES) + sink) as service:
        with adding(file):
            kill_again_and_again(service, kills, random.Random(topic_prefix))
        counts = [len(rows(file, table)) for table in ("orders", "visits")]
        until_stored(service, f"main.orders={counts[0]}, main.visits=a,{counts[1]}")
        metrics = service.text("/metrics")
        assert service.stop() == 0
        service.start()
        execute(file, "INSERT INTO orders (note) VALUES ('behind a stop in order')")
        counts[0] += 1
        ends = f"main.orders={counts[0]}, main.visits=a,{counts[1]}"
        service.until(lambda: service.stats().get("source.db1", {}).get("stored_position") == ends, ends)
        assert service.stats()["sink.k"]["events"] == 1, "nothing is sent again after a stop in order"
        assert service.stop() == 0
    assert f'psql_streamer_cursor{{source="db1",table="main.orders"}} {counts[0] - 1}.0' in metrics
    for metric in ("source_rows_total", "source_polls_total", "unsettled_rows", "last_row_age_seconds"):
        assert f'psql_streamer_{metric}{{source="db1"}} ' in metrics

    topics = [f"{topic_prefix}.main.orders", f"{topic_prefix}.main.visits"]
    events = delivered(kafka, topics, sum(counts), "read_committed" if exactly_once else "read_uncommitted")
    assert not exactly_once or len(events) == sum(counts)
    for table in ("orders", "visits"):
        sent = {tuple(event["Columns"].values()) for event in events if event["Table"] == table}
        assert sent == set(rows(file, table))


def take_ids_early_and_commit_late(database: Database, seed: str, ended: threading.Event) -> None:
    """In one transaction after the other, until the end. Some are rolled back."""
    moments = random.Random(seed)
    with database.session() as session, session.cursor() as cursor:
        while not ended.is_set():
            cursor.execute(
                "INSERT INTO orders (note) SELECT %s FROM generate_series(1, %s)", (seed, moments.randint(1, 20))
            )
            time.sleep(moments.uniform(0, 0.05))
            (session.rollback if moments.random() < 0.1 else session.commit)()


@contextmanager
def committing_out_of_order(database: Database) -> Iterator[None]:
    """Four writers at once, until the end."""
    with run_beside(*(partial(take_ids_early_and_commit_late, database, str(number)) for number in range(4))):
        yield


@pytest.mark.behaviour("P2")
@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("kills", [20])
def test_rows_that_commit_out_of_order_are_not_lost_by_kills(
    database: Database, kafka: str, topic_prefix: str, tmp_path: Path, kills: int
) -> None:
    database.execute("CREATE TABLE orders (id bigserial PRIMARY KEY, note text)")
    with Service(tmp_path, polled(url_of(database), '["orders"]') + kafka_section(kafka, topic_prefix)) as service:
        with committing_out_of_order(database):
            kill_again_and_again(service, kills, random.Random(topic_prefix))
        until_stored(service, f"public.orders={database.value('SELECT max(id) FROM orders')}")
        assert service.stop() == 0
    there = database.query("SELECT id, note FROM orders")
    events = delivered(kafka, [f"{topic_prefix}.public.orders"], len(there))
    assert {tuple(event["Columns"].values()) for event in events} == set(there)


def delivered(
    kafka: str, topics: list[str], rows: int, isolation_level: str = "read_uncommitted"
) -> list[dict[str, Any]]:
    """All events, of so many different rows."""
    records = consume(kafka, topics, timeout=60, isolation_level=isolation_level)
    events = [json.loads(record.value or b"") for record in records]
    by_uuid: dict[str, set[bytes | None]] = defaultdict(set)
    for event, record in zip(events, records, strict=True):
        by_uuid[event["UUID"]].add(record.value)
    assert max(map(len, by_uuid.values())) == 1, "a repeat is the same bytes"
    assert len({(event["Commit"], event["Seq"]) for event in events}) == len(by_uuid) == rows
    return events


def rows(file: Path, table: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(file)) as connection:
        return connection.execute(f"SELECT * FROM {table}").fetchall()
