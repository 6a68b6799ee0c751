"""Folds events back into tables, to be compared with what SELECT gives: PostgreSQL is the oracle."""

from __future__ import annotations

import json
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from tests.database import Database
from tests.kafka_reader import Record

Row = dict[str, Any]
Tables = dict[str, dict[str, Row]]


def parse(record: Record) -> dict[str, Any]:
    """A record's value, numbers exact."""
    assert record.value is not None
    value: dict[str, Any] = json.loads(record.value, parse_float=Decimal)
    return value


def fold_events(records: Iterable[Record], key: str = "id") -> Tables:
    """Tables from records in the `event` format, in the order of (CommitLSN, Seq): "schema.table" -> key -> row.

    Repeats of a change must be equal to the first. Partitions may be mixed: identity tells the order.
    """
    tables: Tables = {}
    for event in _in_order(map(parse, records)):
        table = tables.setdefault(f"{event['Schema']}.{event['Table']}", {})
        columns = event["Columns"]
        match event["Action"]:
            case "truncate":
                table.clear()
            case "delete":
                table.pop(str(columns[key]), None)
            case "insert":
                table[str(columns[key])] = columns
            case "update":
                kept = table.get(str(columns[key]), {})
                table[str(columns[key])] = {**kept, **columns}
    return tables


def fold_envelopes(records: Iterable[Record], key: str = "id") -> Tables:
    """As fold_events, for the `envelope` format."""
    events = (_as_event_fields(envelope) for envelope in map(parse, records))
    tables: Tables = {}
    for event in _in_order(events):
        table = tables.setdefault(f"{event['Schema']}.{event['Table']}", {})
        columns = event["Columns"] or {}
        if event["Action"] == "truncate":
            table.clear()
        elif event["Action"] == "delete":
            table.pop(str(columns[key]), None)
        else:
            table[str(columns[key])] = {**table.get(str(columns[key]), {}), **columns}
    return tables


def select(database: Database, table: str, key: str = "id") -> dict[str, Row]:
    """The table as it is, every row as the JSON that our events use for it."""
    rows = database.query(
        "SELECT set_config('timezone', 'UTC', true), set_config('bytea_output', 'hex', true), "
        f"(SELECT coalesce(json_agg(to_json(t)), '[]'::json)::text FROM {table} t)"
    )
    parsed: list[Row] = json.loads(rows[0][2], parse_float=Decimal)
    return {str(row[key]): {name: _as_event(value) for name, value in row.items()} for row in parsed}


def _as_event_fields(envelope: dict[str, Any]) -> dict[str, Any]:
    return {
        "Action": envelope["op"].lower(),
        "Schema": envelope["schema"],
        "Table": envelope["table"],
        "Columns": envelope["before"] if envelope["after"] is None else envelope["after"],
        "CommitLSN": _number(envelope["source"]["commit_lsn"]),
        "Seq": envelope["source"]["seq"],
    }


def _as_event(value: Any) -> Any:
    """PostgreSQL's to_json writes `+00:00` where events have `Z`."""
    return value[:-6] + "Z" if isinstance(value, str) and value.endswith("+00:00") else value


def _in_order(events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sorted by identity, repeats dropped; a key change's delete goes before its insert."""
    seen: dict[tuple[int, int, bool], dict[str, Any]] = {}
    for event in events:
        deletes = event["Action"] == "delete"
        identity = (commit_of(event), event["Seq"], not deletes)
        assert seen.setdefault(identity, event) == event, f"a repeat of {identity} differs from the first"
    return [seen[identity] for identity in sorted(seen)]


def commit_of(event: dict[str, Any]) -> int:
    """The commit number: PostgreSQL's events call it CommitLSN, all others Commit."""
    return int(event["CommitLSN"] if "CommitLSN" in event else event["Commit"])


def _number(lsn: str) -> int:
    high, low = lsn.split("/")
    return (int(high, 16) << 32) | int(low, 16)
