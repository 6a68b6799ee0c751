"""Rows of Python's values as lines of changes, for tests of rules."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

Row = Mapping[str, Any]
"""Column -> value: None, text, or a value of Python's."""

_TYPES: Mapping[type, str] = {
    bool: "boolean",
    int: "bigint",
    float: "double precision",
    Decimal: "numeric",
    datetime: "timestamp",
    date: "date",
    time: "time",
    UUID: "uuid",
    bytes: "bytea",
    dict: "jsonb",
    list: "jsonb",
    str: "text",
}


@dataclass(frozen=True, slots=True)
class RowChange:
    """A change of a row. before, after: the columns that its images have."""

    op: str
    before: Row | None
    after: Row | None


def inserted(row: Row) -> RowChange:
    """A new row."""
    return RowChange("insert", None, row)


def updated(row: Row, before: Row | None = None) -> RowChange:
    """A row as it is after an update; a column that is not there is TOAST that did not change.

    before: the old row, or its key. The rule sees of it what the replica identity gives.
    """
    return RowChange("update", before, row)


def deleted(before: Row) -> RowChange:
    """The old row, or its key."""
    return RowChange("delete", before, None)


def render_rows(
    table: str,
    rows: Sequence[Row | RowChange],
    types: Mapping[str, str],
    key: Sequence[str],
    full: bool,
) -> list[str]:
    """Lines that `read_lines` takes. types: of columns whose type is not that of their values. key: columns; none: `id`
    if there is one. full: whether the table has REPLICA IDENTITY FULL.
    """
    given = [row if isinstance(row, RowChange) else inserted(row) for row in rows]
    images = [image for change in given for image in (change.before, change.after) if image is not None]
    names = list(dict.fromkeys(name for image in images for name in image))
    keys = key or (["id"] if "id" in names else names[:1])
    changes = given if full else [_narrow_to_key(change, keys) for change in given]
    schema, dot, name = table.rpartition(".")
    relation = {
        "schema": schema if dot else "public",
        "table": name,
        "replica_identity": "full" if full else "default",
        "columns": [
            {
                "name": one,
                "type": types.get(one) or _choose_type(image.get(one) for image in images),
                "key": one in keys,
            }
            for one in names
        ],
    }
    return [json.dumps({"relation": relation}), *(json.dumps(_render_change(change, names)) for change in changes)]


def _narrow_to_key(change: RowChange, keys: Sequence[str]) -> RowChange:
    """Without FULL, PostgreSQL sends of an old row its key, and of that of an update only one that changed."""
    if change.before is None:
        return change
    before = {name: value for name, value in change.before.items() if name in keys}
    if change.after is not None and all(change.after.get(name, value) == value for name, value in before.items()):
        return replace(change, before=None)
    return replace(change, before=before)


def _render_change(change: RowChange, names: Sequence[str]) -> dict[str, Any]:
    whole = dict.fromkeys(names) if change.op == "insert" else {}
    images = {"before": change.before, "after": None if change.after is None else {**whole, **change.after}}
    shown = {
        side: {name: _render_value(value) for name, value in one.items()}
        for side, one in images.items()
        if one is not None
    }
    return {"op": change.op, **shown}


def _choose_type(values: Iterable[Any]) -> str:
    """By the first value that says something."""
    value = next((value for value in values if value is not None), "")
    if isinstance(value, datetime) and value.tzinfo is not None:
        return "timestamptz"
    return next((name for kind, name in _TYPES.items() if isinstance(value, kind)), "text")


def _render_value(value: Any) -> Any:
    """JSON, or PostgreSQL's text form."""
    match value:
        case datetime() if value.tzinfo is not None:
            return value.astimezone(UTC).replace(tzinfo=None).isoformat(" ") + "+00"
        case datetime():
            return value.isoformat(" ")
        case date() | time():
            return value.isoformat()
        case bytes():
            return f"\\x{value.hex()}"
        case float():
            return repr(value)
        case None | bool() | int() | str() | dict() | list():
            return value
        case _:
            return str(value)
