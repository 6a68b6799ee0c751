"""A configuration file of the Go psql-streamer: it starts the service and gives that service's events."""

from __future__ import annotations

import json
import re
import uuid
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from psycopg2.extensions import parse_dsn

from psql_streamer.config import load
from psql_streamer.lsn import Lsn
from sources.postgres.options import PostgresOptions
from tests.database import Database
from tests.kafka_reader import Record, consume
from tests.service import Service

# Every key that the Go service reads. Only addresses, names and paths are this test's.
_GO_CONFIG = """\
http = "{http}"
tickerInterval = "1s"
boltdb = "{folder}/psql-streamer.db"

[source.orders]
type = "postgres"
dsn = "{dsn}"
publication = "orders_publication"
replicationSlot = "{slot}_1"
timeout = "2s"
startRetryInterval = "5s"
sendRetryInterval = "100ms"
batchSize = 100
batchFlushInterval = "1s"
walPositionOverride = 0
walRetain = 1048576
verbose = false
debug = false

[source.stock]
type = "postgres"
dsn = "{dsn}"
publication = "stock_publication"
replicationSlot = "{slot}_2"

[source.copies]
type = "kafka"
hosts = ["{kafka}"]
topics = ["{topic}-orders", "{topic}-fallback"]
groupID = "{topic}"
sendRetryInterval = "100ms"
batchSize = 100
batchFlushInterval = "1s"
verbose = false
debug = false

[sink.kafka]
type = "kafka"
sources = ["orders", "stock"]
hosts = ["{kafka}"]
handlers = ["passthrough"]
topicFallback = "{topic}-fallback"
timeout = "2s"
maxAttempts = 3
rebalanceInterval = "15s"
requiredAcks = -1
async = false
batchSize = 100
batchTimeout = "5ms"
verbose = false
debug = false

[sink.kafka.tableTopicMapping]
orders = "{topic}-orders"
order_items = "{topic}-orders"

[sink.again]
type = "kafka"
sources = ["copies"]
hosts = ["{kafka}"]
handlers = ["passthrough"]
topicFallback = "{topic}-copies"

[sink.log]
type = "stub_log"
sources = ["orders"]

[sink.discard]
type = "stub_discard"
sources = ["stock"]
"""
_TABLES = """
CREATE TABLE orders (id int PRIMARY KEY, customer text, amount numeric(12, 2), paid boolean, note text);
CREATE TABLE order_items (id int PRIMARY KEY, pieces int);
CREATE TABLE returns (id int PRIMARY KEY, reason text);
CREATE TABLE stock (id int PRIMARY KEY, pieces int);
CREATE PUBLICATION orders_publication FOR TABLE orders, order_items, returns;
CREATE PUBLICATION stock_publication FOR TABLE stock;
"""
_GO_FIELDS = {"Host", "Database", "Table", "Action", "WALPosition", "Timestamp", "UUID", "Columns"}


def test_the_go_services_file_starts_the_service_and_gives_its_events(
    database: Database, kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    database.execute(_TABLES)
    with Service(tmp_path, "") as service:
        config = _GO_CONFIG.format(
            http=f"127.0.0.1:{service.port}",
            folder=tmp_path,
            dsn=database.dsn,
            slot=database.name,
            kafka=kafka,
            topic=topic_prefix,
        )
        service.config.write_text(config)
        service.start(wait=False)
        service.until(lambda: {"source.orders", "source.stock"} <= _well(service), "both slots to be streamed")
        before = _wal_end(database)  # source.copies waits for topics that the first rows make
        database.execute("INSERT INTO orders VALUES (1, 'Zoë', 12.50, false, NULL)")
        database.execute("UPDATE orders SET paid = true WHERE id = 1")
        database.execute("DELETE FROM orders WHERE id = 1")
        database.execute("INSERT INTO order_items VALUES (7, 3)")
        database.execute("INSERT INTO returns VALUES (9, 'broken')")
        database.execute("INSERT INTO stock VALUES (5, 40)")
        after = _wal_end(database)
        for source in ("orders", "stock"):
            service.until_durable(database, source)
        service.until(lambda: service.stats()["sink.again"].get("events", 0) >= 6, "the copies")
        service.until(lambda: service.status()[0] == 200, "the service to be well")
        stats = service.stats()
        service.until(lambda: "sink.log: events=" in service.tail(), "the statistics that tickerInterval asks for")
        assert service.stop() == 0

    records = consume(kafka, [f"{topic_prefix}-orders", f"{topic_prefix}-fallback"])
    by_table = {table: _of(records, table) for table in ("orders", "order_items", "returns", "stock")}
    topics = {table: {record.topic for record in found} for table, found in by_table.items()}
    assert topics == {
        "orders": {f"{topic_prefix}-orders"},
        "order_items": {f"{topic_prefix}-orders"},
        "returns": {f"{topic_prefix}-fallback"},
        "stock": {f"{topic_prefix}-fallback"},
    }

    copies = consume(kafka, [f"{topic_prefix}-copies"])
    assert {(record.key, record.value) for record in copies} == {(record.key, record.value) for record in records}

    insert, update, delete = map(_event, by_table["orders"])
    row = {"id": 1, "customer": "Zoë", "amount": 12.50, "paid": False, "note": None}
    assert (insert["Action"], insert["Columns"]) == ("insert", row)
    assert (update["Action"], update["Columns"]) == ("update", row | {"paid": True})
    assert (delete["Action"], delete["Columns"]) == ("delete", {"id": 1})
    assert _event(by_table["stock"][0])["Columns"] == {"id": 5, "pieces": 40}

    events = [_event(record) for record in records]
    assert {event["Host"] for event in events} == {parse_dsn(database.dsn)["host"]}
    assert {event["Database"] for event in events} == {database.name}
    assert all(before <= event["WALPosition"] < after for event in events)
    assert insert["WALPosition"] < update["WALPosition"] < delete["WALPosition"]
    now = database.value("SELECT now()")
    assert all(timedelta() <= now - _instant(event["Timestamp"]) < timedelta(minutes=5) for event in events)
    assert len({uuid.UUID(event["UUID"]) for event in events}) == len(events) == 6

    assert stats["sink.kafka"]["events"] == 6
    assert stats["sink.log"]["events"] >= 5, "logical messages count as well"
    assert stats["sink.discard"]["events"] >= 1


def test_a_postgres_source_of_that_file_has_the_go_services_meaning(tmp_path: Path) -> None:
    file = tmp_path / "go.toml"
    file.write_text(
        _GO_CONFIG.format(http=":0", folder=tmp_path, dsn="dbname=shop", slot="s", kafka="localhost:9092", topic="t")
    )
    config = load(file, {})
    assert config.lmdb == tmp_path / "psql-streamer.db"
    source = config.sources["orders"].options
    assert isinstance(source, PostgresOptions)
    assert (source.batch_size, source.batch_flush_interval, source.wal_retain) == (100, 1.0, 1 << 20)
    [warning] = config.warnings
    assert "batchSize = 100" in warning, "it works, and there is something better"


def _well(service: Service) -> set[str]:
    """The parts that are well."""
    return {part for part, status in service.status()[1].get("parts", {}).items() if status["ok"]}


def _of(records: list[Record], table: str) -> list[Record]:
    """A table's records in the order of their commits."""
    found = [record for record in records if _event(record)["Table"] == table]
    return sorted(found, key=lambda record: int(_event(record)["WALPosition"]))


def _event(record: Record) -> dict[str, Any]:
    """The event, with every field that the Go service documents, as it documents it."""
    assert record.value is not None
    event: dict[str, Any] = json.loads(record.value)
    assert event.keys() >= _GO_FIELDS
    assert isinstance(event["WALPosition"], int)
    assert isinstance(event["Columns"], dict)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", event["Timestamp"]), "RFC 3339"
    return event


def _instant(timestamp: str) -> datetime:
    return datetime.fromisoformat(timestamp)


def _wal_end(database: Database) -> int:
    return Lsn.parse(database.value("SELECT pg_current_wal_insert_lsn()::text"))
