"""A source that is not PostgreSQL's through the whole service: every format, Kafka, Spark, a restart."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.connect_schema import misfits
from tests.kafka_reader import Record, consume
from tests.service import Service

FORMATS = {"event": "", "envelope": "", "flat": "", "debezium": "debeziumSchemas = true"}


def config(file: Path, kafka: str, prefix: str) -> str:
    """A sink for each format without a handler, and one with Spark."""
    sinks = [
        f"""
[sink.{form}]
type = "kafka"
sources = ["shop"]
hosts = ["{kafka}"]
handlers = ["{handler}"]
format = "{form if form in FORMATS else "event"}"
headers = true
topicFallback = "{prefix}.{form}"
schemaTopic = "{prefix}.shapes"
{FORMATS.get(form, "")}
"""
        for form, handler in [*((form, "passthrough") for form in FORMATS), ("spark", "spark")]
    ]
    return f"""
[source.shop]
type = "tests.sqlite_source:SqliteSource"
path = "{file}"
table = "orders"
[spark]
master = "local[2]"
[spark.tables.orders]
sql = "SELECT *, amount * 2 AS twice FROM changes"
{"".join(sinks)}
"""


def test_a_source_of_ones_own_goes_through_every_format_spark_and_kafka(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    file = tmp_path / "shop.sqlite"
    _execute(file, "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT, amount REAL)")
    _execute(file, "INSERT INTO orders (customer, amount) VALUES ('ann', 1.5), (NULL, 2.25)")
    with Service(tmp_path, config(file, kafka, topic_prefix)) as service:
        service.start()
        _until_stored(service, 2)
        assert service.stop() == 0
        _execute(file, "INSERT INTO orders (customer, amount) VALUES ('eve', 4)")
        service.start()
        _until_stored(service, 3)
        assert "position_lsn" not in "".join(
            line for line in service.text("/metrics").splitlines() if 'source="shop"' in line
        )
        assert service.stop() == 0
    found = {form: sorted(consume(kafka, [f"{topic_prefix}.{form}"]), key=_key) for form in (*FORMATS, "spark")}
    for form, records in found.items():
        assert [_key(record) for record in records] == [1, 2, 3], f"{form}: every row once, and the restart went on"
        assert "lsn" not in str([record.value for record in records]).lower(), f"{form}: no word of PostgreSQL's"
    headers = found["event"][0].headers
    assert (headers["commit"], headers["op"]) == (b"1", b"insert")
    assert not headers.keys() & {"commit_lsn", "xid"}
    event = json.loads(found["event"][1].value or b"")
    assert event["Columns"] == {"id": 2, "customer": None, "amount": 2.25}
    assert (event["Commit"], event["Transaction"]) == (2, None)
    assert json.loads(found["flat"][0].value or b"") == {"id": 1, "customer": "ann", "amount": 1.5}
    assert json.loads(found["spark"][2].value or b"")["Columns"] == {
        "id": 3, "customer": "eve", "amount": 4.0, "twice": 8.0
    }  # fmt: skip
    _check_debezium(json.loads(found["debezium"][0].value or b""))
    shape = json.loads(consume(kafka, [f"{topic_prefix}.shapes"])[0].value or b"")
    assert [column["type"] for column in shape["after"]["columns"]] == ["INTEGER", "TEXT", "REAL"]


def _check_debezium(event: Any) -> None:
    """It says what it is, and its schema fits."""
    payload = event["payload"]
    assert misfits(event["schema"], payload) == []
    assert (payload["source"]["connector"], payload["source"]["table"]) == ("sqlite", "orders")
    assert not payload["source"].keys() & {"lsn", "txId", "xmin"}
    source = next(field for field in event["schema"]["fields"] if field["field"] == "source")
    assert source["name"] == "io.debezium.connector.sqlite.Source"


def _key(record: Record) -> int:
    key = json.loads(record.key or b"")
    return int(key.get("payload", key)["id"])


def _until_stored(service: Service, rowid: int) -> None:
    stored = f"orders.rowid={rowid}"
    service.until(
        lambda: service.stats().get("source.shop", {}).get("stored_position", "").endswith(stored),
        f"{stored} to be stored",
    )


def _execute(file: Path, sql: str) -> None:
    with closing(sqlite3.connect(file)) as database, database:
        database.execute(sql)
