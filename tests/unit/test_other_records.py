"""Records that others write beside changes, and what Debezium says of databases that psql-streamer does not read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.test_event_reader import Record, read, written

SOURCE = {"connector": "oracle", "ts_ms": 1_795_000_000_000, "db": "SHOP", "schema": "S", "table": "T"}


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ({"ts_ms": 1}, "a heartbeat of Debezium"),
        ({"schema": {"type": "struct"}, "payload": {"ts_ms": 1}}, "a heartbeat of Debezium"),
        ({"schema": {"type": "struct"}, "payload": None}, "no value in its schema"),
        ({"status": "BEGIN", "id": "5:7", "event_count": None, "ts_ms": 1}, "begin or the end of a transaction"),
        ({"status": "END", "id": "5:7", "event_count": 2, "ts_ms": 1}, "begin or the end of a transaction"),
        ({"source": SOURCE, "databaseName": "SHOP", "ddl": "DROP TABLE t"}, "change of a table"),
        ({"op": "SCHEMA", "schema": "s", "table": "t", "before": None, "after": {}, "source": {}}, "change of a table"),
        ({"op": "DDL", "schema": "s", "table": "t", "statement": "", "source": {}}, "change of a table"),
        ({"id": 1, "status": "BEGIN"}, "none of the formats"),
        ([1], "none of the formats"),
    ],
)
def test_a_record_that_is_written_beside_changes_is_named(value: object, what: str) -> None:
    (refused,) = read([Record(None, json.dumps(value).encode())]).refused
    assert what in refused.reason


def test_a_transaction_of_debezium_that_is_no_number_goes_out_as_it_came() -> None:
    change = {"op": "c", "before": None, "after": {"ID": 1}, "source": SOURCE | {"txId": "04000b00d4050000"}}
    found = read([Record(b'{"ID":1}', json.dumps(change).encode())])
    assert not found.refused
    event: dict[str, Any] = json.loads(next(iter(written("event", found.batches[0]))).value_bytes or b"")
    assert (event["Schema"], event["Table"], event["Transaction"]) == ("S", "T", "04000b00d4050000")


def test_a_transaction_of_postgresql_is_a_number() -> None:
    source = SOURCE | {"connector": "postgresql", "txId": "five", "lsn": 1}
    change = {"op": "c", "before": None, "after": {"ID": 1}, "source": source}
    (refused,) = read([Record(None, json.dumps(change).encode())]).refused
    assert "txId" in refused.reason
