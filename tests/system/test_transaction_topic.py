"""Debezium's transaction metadata, from PostgreSQL to the topic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.database import Database
from tests.kafka_reader import consume
from tests.sections import kafka_section, postgres_section
from tests.service import Service


def test_transactions_begin_and_end_around_their_events_for_the_sink_that_asks(
    database: Database, kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY)")
    database.execute("CREATE PUBLICATION p FOR ALL TABLES")
    plain = kafka_section(kafka, f"{topic_prefix}.plain", "plain", format="debezium")
    asking = {"debeziumTransactions": True, "transactionTopic": f"{topic_prefix}.transactions"}
    told = kafka_section(kafka, f"{topic_prefix}.told", "told", format="debezium", **asking)
    config = postgres_section(database) + plain + told
    with Service(tmp_path, config) as service:
        service.start()
        database.execute("BEGIN; INSERT INTO a VALUES (1); INSERT INTO b VALUES (1), (2); COMMIT")
        database.execute("INSERT INTO b VALUES (3)")
        service.until_durable(database)
        assert service.stop() == 0

    said = sorted(values(kafka, f"{topic_prefix}.transactions"), key=commit_lsn)
    # The messages by which the test waits are transactions, too.
    of_messages = {one["id"] for one in said if "MESSAGE" in str(one["data_collections"])}
    begun, ended, begun_too, ended_too = (one for one in said if one["id"] not in of_messages)
    assert [one["status"] for one in (begun, ended, begun_too, ended_too)] == ["BEGIN", "END", "BEGIN", "END"]
    assert (ended["id"], ended_too["id"]) == (begun["id"], begun_too["id"])
    assert counts(ended) == (3, {"public.a": 1, "public.b": 2})
    assert counts(ended_too) == (1, {"public.b": 1})

    blocks = [value["transaction"] for value in values(kafka, f"{topic_prefix}.told.public.b")]
    assert sorted((one["id"], one["total_order"], one["data_collection_order"]) for one in blocks) == [
        (begun["id"], 2, 1),
        (begun["id"], 3, 2),
        (begun_too["id"], 1, 1),
    ]
    untold = [value["transaction"] for value in values(kafka, f"{topic_prefix}.plain.public.b")]
    assert untold == [None, None, None]


def counts(ended: dict[str, Any]) -> tuple[int, dict[str, int]]:
    """Of all events, and by table."""
    return ended["event_count"], {one["data_collection"]: one["event_count"] for one in ended["data_collections"]}


def values(kafka: str, topic: str) -> list[dict[str, Any]]:
    """What the records hold, in no order over partitions."""
    return [json.loads(record.value or b"") for record in consume(kafka, [topic])]


def commit_lsn(record: dict[str, Any]) -> int:
    """The second part of a transaction's id."""
    return int(record["id"].partition(":")[2])
