"""Rows of PostgreSQL that a rule splits and sends to topics of its own, as they are in Kafka."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Any

import pytest

from psql_streamer.model import Batch
from psql_streamer.pipeline.coalescing import cut
from psql_streamer.spark.handler import SparkHandler
from sinks.kafka.sink import KafkaSink
from tests.database import Database
from tests.kafka_reader import Record, consume
from tests.kafka_sinks import create_topic, options
from tests.source_at_work import read_all, streaming

_SCHEMA = """
CREATE TABLE orders (id int PRIMARY KEY, region text NOT NULL, amount numeric(10, 2) NOT NULL, items text NOT NULL);
ALTER TABLE orders REPLICA IDENTITY FULL;
CREATE PUBLICATION p FOR TABLE orders;
"""

_RULE = """
    SELECT id, region, amount, at, item,
        '{prefix}.' || region AS _topic, struct(id, item) AS _key, map('region', region) AS _headers
    FROM changes LATERAL VIEW posexplode(split(items, ',')) AS at, item WHERE item <> 'none'
"""

_ORACLE = """
    SELECT region, json_build_object('id', id, 'item', item)::text,
        json_build_object('id', id, 'region', region, 'amount', amount, 'at', at - 1, 'item', item)
    FROM orders, string_to_table(items, ',') WITH ORDINALITY AS parts (item, at) WHERE item <> 'none'
"""

_REGIONS = ("eu", "us")


def _write(database: Database, chance: random.Random) -> None:
    """Orders with up to five items each, no two the same."""

    def items() -> str:
        return ",".join(chance.sample("abcdef", chance.randint(1, 5))) if chance.random() < 0.9 else "none"

    with database.session() as session, session.cursor() as at:
        for number in range(200):
            one, another = chance.randrange(40), chance.randrange(40)
            match chance.choice(("insert", "insert", "update", "update", "move", "renumber", "delete")):
                case "insert":
                    at.execute(
                        "INSERT INTO orders VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING",
                        (one, chance.choice(_REGIONS), number, items()),
                    )
                case "update":
                    at.execute("UPDATE orders SET items = %s, amount = amount + 0.5 WHERE id = %s", (items(), one))
                case "move":
                    at.execute("UPDATE orders SET region = %s WHERE id = %s", (chance.choice(_REGIONS), one))
                case "renumber":
                    at.execute(
                        "UPDATE orders SET id = %s WHERE id = %s AND NOT EXISTS (SELECT FROM orders WHERE id = %s)",
                        (another, one, another),
                    )
                case "delete":
                    at.execute("DELETE FROM orders WHERE id = %s", (one,))
            if chance.random() < 0.3:
                session.commit()
        session.commit()


def _deliver(batches: Iterable[Batch], handler: SparkHandler, kafka: str) -> None:
    sink = KafkaSink("kafka1", options(kafka, headers=True))
    sink.start()
    try:
        for batch in batches:
            for piece in cut(handler.handle(batch), 50):
                sink.write(piece)
    finally:
        sink.stop()


def _fold(records: Iterable[Record]) -> dict[tuple[str, str], Any]:
    """(topic, key) -> the row of the last event."""
    found: dict[tuple[str, str], Any] = {}
    for record in records:
        event = json.loads(record.value or b"null")
        where = (record.topic, json.dumps(json.loads(record.key or b"null")))
        found[where] = None if event["Action"] == "delete" else event["Columns"]
    return {where: row for where, row in found.items() if row is not None}


def _identity(record: Record) -> tuple[Any, ...]:
    event = json.loads(record.value or b"null")
    moved = record.headers.get("key_change") and event["Action"] == "delete"
    return event["CommitLSN"], event["Seq"], event.get("Part", 0), bool(moved)


@pytest.mark.behaviour("K8", "K9")
def test_split_rows_in_topics_of_their_own_fold_to_what_the_rule_says_of_the_table(
    database: Database, kafka: str, topic_prefix: str, spark: Any
) -> None:
    """Twice: a repeat in batches of another size is the same, byte for byte."""
    database.execute(_SCHEMA)
    handler = spark(orders={"sql": _RULE.format(prefix=topic_prefix)})
    topics = [create_topic(kafka, f"{topic_prefix}.{region}", partitions=3) for region in _REGIONS]
    with streaming(database) as source:
        _write(database, random.Random(7))
        once = read_all(source, database)
    with streaming(database, batchSize=60) as source:
        again = read_all(source, database)
    assert len(again) > len(once)
    expected = {
        (f"{topic_prefix}.{region}", json.dumps(json.loads(key))): row for region, key, row in database.query(_ORACLE)
    }

    _deliver(once, handler, kafka)
    first = consume(kafka, topics)
    assert _fold(first) == expected
    assert {record.topic for record in first} == set(topics)
    assert len({_identity(record) for record in first}) == len(first)
    assert len({json.loads(record.value or b"")["UUID"] for record in first}) == len(first)
    assert {record.headers["region"] for record in first} == {b"eu", b"us"}

    _deliver(again, handler, kafka)
    both = consume(kafka, topics)
    assert sorted(_bytes_of(both)) == sorted([*_bytes_of(first)] * 2)


def _bytes_of(records: Iterable[Record]) -> list[tuple[Any, ...]]:
    return [(one.topic, one.key, one.value, sorted(one.headers.items())) for one in records]
