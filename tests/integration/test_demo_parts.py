from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Producer

from psql_streamer.demo import shop
from psql_streamer.demo.shop import Shop
from psql_streamer.demo.watcher import Watcher
from psql_streamer.embedded.mock_kafka import MockKafka
from tests.database import Database


def test_the_shop_counts_what_postgresql_committed(either_postgres: Database) -> None:
    there = shop.create(either_postgres.dsn)
    announced: list[str] = []
    writer = Shop(either_postgres.dsn, announced.append, there)
    writer.start()
    wait_until(lambda: writer.transactions >= 60 or not writer.is_alive())
    writer.close()
    assert writer.error is None
    for table in shop.TABLES:
        left = either_postgres.value(f"SELECT count(*) FROM shop.{table}")
        counts = writer.committed
        assert counts[table, "read"] + counts[table, "insert"] - counts[table, "delete"] == left
    assert {action for _, action in writer.committed} == {"read", "insert", "update", "delete"}
    kinds = sorted(text.partition(":")[0] for text in announced)
    assert kinds == [
        "ALTER TABLE shop.orders ADD COLUMN coupon",
        "INSERT INTO shop.baskets",
        "ROLLBACK",
        "ROLLBACK TO SAVEPOINT",
    ]
    assert writer.fates == {
        ("customers", "insert", "left out"): either_postgres.value(
            "SELECT count(*) FROM shop.customers WHERE 'test' = ANY (tags)"
        ),
        ("baskets", "insert", "more by explode"): either_postgres.value(
            "SELECT sum(jsonb_array_length(contents) - 1) FROM shop.baskets"
        ),
        ("baskets", "insert", "dead letter"): either_postgres.value(
            'SELECT count(*) FROM shop.baskets WHERE contents @> \'[{"quantity": "a handful"}]\''
        ),
    }


def test_a_shop_whose_server_goes_away_says_so(database: Database) -> None:
    writer = Shop(database.dsn, print, shop.create(database.dsn))
    writer.start()
    wait_until(lambda: writer.transactions > 3)
    database.execute("ALTER TABLE shop.orders RENAME TO closed")
    wait_until(lambda: not writer.is_alive())
    assert "shop.orders" in str(writer.error)


def test_the_watcher_counts_each_identity_once_and_reads_to_the_end(mock_kafka: MockKafka) -> None:
    produce(mock_kafka, [event(seq) for seq in (0, 1, 1, 2)])
    watcher = Watcher(mock_kafka.bootstrap, ["t"], (), print)
    watcher.start()
    watcher.finish()
    assert watcher.error == ""
    assert watcher.consumed == {("orders", "insert"): 3}
    assert watcher.repeated == 1


def test_the_watcher_shows_what_was_added_apart_and_counts_what_it_does_not_show(mock_kafka: MockKafka) -> None:
    produce(mock_kafka, [event(seq) for seq in range(100)])
    lines: list[str] = []
    watcher = Watcher(mock_kafka.bootstrap, ["t"], ["vat"], lines.append)
    watcher.start()
    watcher.finish()
    assert lines[0].startswith("orders      insert")
    assert lines[0].endswith("amount=12.50 | + vat=2.40")
    hidden = sum(int(line.split()[2]) for line in lines if "... and" in line)
    assert len([line for line in lines if line.startswith("orders")]) + hidden == 100


def test_the_watcher_counts_dead_letters_and_rows_that_lack_the_lookup_apart(mock_kafka: MockKafka) -> None:
    produce(mock_kafka, [event(seq) for seq in range(3)])
    produce(mock_kafka, [event(3)], "dead", {"dead_letter_reason": "the value of column amount cannot be coerced"})
    lines: list[str] = []
    watcher = Watcher(mock_kafka.bootstrap, ["t"], (), lines.append, "dead", {"orders": "segment"})
    watcher.start()
    watcher.finish()
    assert watcher.error == ""
    assert (watcher.consumed, watcher.dead) == ({("orders", "insert"): 3}, {("orders", "insert"): 1})
    assert (watcher.with_lookup, watcher.without_lookup) == ({}, {"orders": 3})
    assert "orders      insert dead letter: the value of column amount cannot be coerced" in lines


@pytest.mark.parametrize(("action", "timed"), [("read", True), ("insert", False)])
def test_the_watcher_shows_no_latency_where_the_time_of_an_event_says_none(
    mock_kafka: MockKafka, action: str, timed: bool
) -> None:
    produce(mock_kafka, [event(0, action), event(1, action)])
    lines: list[str] = []
    watcher = Watcher(mock_kafka.bootstrap, ["t"], (), lines.append, timed=timed)
    watcher.start()
    watcher.finish()
    assert watcher.consumed.total() == 2
    assert watcher.latencies == []
    assert not any(" ms " in line for line in lines)


@pytest.mark.parametrize("value", [b"not json", b'{"Table": "orders"}'])
def test_an_event_that_is_none_ends_the_watcher_with_a_reason(mock_kafka: MockKafka, value: bytes) -> None:
    produce(mock_kafka, [value])
    watcher = Watcher(mock_kafka.bootstrap, ["t"], (), print)
    watcher.start()
    wait_until(lambda: not watcher.is_alive())
    assert watcher.error.startswith("the consumer stopped")


def event(seq: int, action: str = "insert") -> bytes:
    now = datetime.now(UTC).isoformat()
    row = {"Table": "orders", "Action": action, "UUID": str(seq), "Timestamp": now}
    return json.dumps(row).encode()[:-1] + b', "Columns": {"amount": 12.50, "vat": 2.40}}'


def produce(cluster: MockKafka, values: list[Any], topic: str = "t", headers: dict[str, str] | None = None) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for value in values:
        producer.produce(topic, value, headers=headers or {})
    assert producer.flush(30) == 0


def wait_until(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
