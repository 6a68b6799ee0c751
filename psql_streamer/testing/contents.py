"""What batches say of rows, in a form that can be compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from psql_streamer.model import Batch, Changes, ColumnType, Image

RowContent = tuple[tuple[int, int, int], str, str]
"""Of a row change: (commit number, seq, part), the op, and its new and old values as text."""

Lacking = tuple[int, str, ColumnType]
"""A value that a new row lacks: the row's batch_order, and the column's name and type."""

_TOLD_LENGTH = 4
"""The fewest characters of a value that a text is said to tell."""


def collect_row_contents(batches: Iterable[Batch]) -> list[RowContent]:
    """Of all row changes, in the order of their identities."""
    return sorted(
        content for batch in batches for changes in batch.changes for content in _list_contents(batch, changes)
    )


def collect_new_rows(batches: Iterable[Batch]) -> list[Mapping[str, Any]]:
    """The new rows in their order, by column. Values in the text form of PostgreSQL's types are text."""
    found: list[tuple[int, int, Mapping[str, Any]]] = []
    for number, batch in enumerate(batches):
        for changes in batch.changes:
            for row, values in _collect_values(changes, changes.after).items():
                found.append((number, int(changes.batch_order[row]), values))
    return [values for *_, values in sorted(found, key=lambda one: one[:2])]


def collect_lacking(batch: Batch) -> set[Lacking]:
    """The values of new rows that are absent."""
    return set(_list_nulls(batch, are_absent=True))


def collect_nulls(batch: Batch) -> set[Lacking]:
    """The values of new rows that are NULL, and not absent."""
    return set(_list_nulls(batch, are_absent=False))


def find_told_value(changes: Iterable[Changes], text: str) -> str | None:
    """A value of some rows that a text tells; None where it tells none. Short ones may stand in any text."""
    for one in changes:
        relation = one.relation
        named = " ".join([relation.schema, relation.table, *(column.name for column in one.columns)])
        for image in (one.after, one.before):
            for array in image.columns:
                for value in map(str, map(_decode_text, array.drop_null().to_pylist())):
                    if len(value) >= _TOLD_LENGTH and value in text and value not in named:
                        return value
    return None


def _list_nulls(batch: Batch, are_absent: bool) -> Iterator[Lacking]:
    for changes in batch.changes:
        image, orders = changes.after, changes.batch_order
        for index, (column, array) in enumerate(zip(changes.columns, image.columns, strict=True)):
            absent = image.absent.get(index, np.zeros(len(image), np.bool_))
            null = array.is_null().to_numpy(zero_copy_only=False)
            for row in image.rows[null & (absent if are_absent else ~absent)].tolist():
                yield int(orders[row]), column.name, column.type


def _list_contents(batch: Batch, changes: Changes) -> Iterator[RowContent]:
    commits = batch.transactions.commit[changes.tx].tolist()
    parts = [0] * len(changes) if changes.part is None else changes.part["number"].tolist()
    after, before = _collect_values(changes, changes.after), _collect_values(changes, changes.before)
    for row, (op, seq) in enumerate(zip(changes.op.tolist(), changes.seq.tolist(), strict=True)):
        values = f"{after.get(row)} instead of {before.get(row)}"
        yield (commits[row], seq, parts[row]), f"{changes.relation} {op}", values


def _collect_values(changes: Changes, image: Image) -> dict[int, dict[str, Any]]:
    """By row and column; without the columns that the image lacks."""
    found: dict[int, dict[str, Any]] = {row: {} for row in image.rows.tolist()}
    for index, (column, array) in enumerate(zip(changes.columns, image.columns, strict=True)):
        absent = image.absent.get(index)
        for at, (row, value) in enumerate(zip(found, array.to_pylist(), strict=True)):
            if absent is None or not absent[at]:
                found[row][column.name] = _decode_text(value)
    return found


def _decode_text(value: Any) -> Any:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value
