"""Row changes whose every field with an element a row is filled, also those that nobody has thought of yet."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pyarrow as pa

from psql_streamer.cells import CellTable
from psql_streamer.events.rows import Rows
from psql_streamer.model import (
    PART,
    ArrowType,
    Batch,
    Changes,
    Column,
    Position,
    Relation,
    SourceInfo,
    Transactions,
)

_COLUMNS = (Column("id", ArrowType(pa.int64()), key=True), Column("note", ArrowType(pa.string())))
_GIVEN = ("batch_order", "op", "seq", "tx")


def per_row_fields(kind: type[Changes | CellTable | Rows]) -> list[str]:
    """The fields that hold an element a row."""
    return [field.name for field in fields(kind) if re.search(r"\bNDArray\b|\bIndex\b", str(field.type))]


def filled_changes(orders: range, tx: int, table: str = "orders") -> Changes:
    """Inserts of one transaction. orders: the batch_order of each, of which its other values are made."""
    numbers = np.array(orders, np.int64)
    arrays = pa.array(numbers), pa.array([f"note {number}" for number in orders])
    relation = Relation(table, "public", table, _COLUMNS)
    changes = Changes.from_new_rows(relation, arrays, np.full(len(orders), tx, np.int32))
    changes = replace(changes, batch_order=numbers, seq=numbers + 100)
    return replace(changes, **{name: _made(name, numbers) for name in per_row_fields(Changes) if name not in _GIVEN})


def batch_with(*changes: Changes, transactions: int = 1) -> Batch:
    batch = Batch(
        SourceInfo("test", "test", "localhost", "test"),
        Position({"commit": transactions}, str(transactions)),
        Transactions(np.arange(1, transactions + 1, dtype=np.uint64), np.zeros(transactions, np.int64)),
        changes,
    )
    return replace(batch, nbytes=batch.overhead + 1000)


def values_by_order(rows: Changes | CellTable | Rows) -> dict[int, dict[str, Any]]:
    """The value of every field of each row, by its batch_order; the shape is a table's own."""
    names = [name for name in per_row_fields(type(rows)) if name != "shape"]
    missing = [name for name in names if getattr(rows, name) is None]
    assert missing == [], f"{type(rows).__name__} has lost {', '.join(missing)}"
    return dict(_values(rows, names))


def _values(rows: Changes | CellTable | Rows, names: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    columns = {name: getattr(rows, name).tolist() for name in names}
    for at, order in enumerate(columns["batch_order"]):
        yield order, {name: column[at] for name, column in columns.items()}


def _made(name: str, numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Values of a field that differ from row to row, and from the values that stand for nothing."""
    if name == "part":
        return np.array([(number, 1000) for number in numbers.tolist()], PART)
    if name == "uuid":
        return np.array([f"{number:036}" for number in numbers.tolist()], "S36")
    return numbers.astype(_dtype_of(name)) + 7


def _dtype_of(name: str) -> str:
    annotation = next(str(field.type) for field in fields(Changes) if field.name == name)
    found = re.search(r"np\.(\w+)", annotation)
    return found[1] if found else "int64"
