"""What batches say of rows, in a form that can be compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from psql_streamer.model import Batch, Changes, Image

RowContent = tuple[tuple[int, int, int], str, str]
"""Of a row change: (commit number, seq, part), the op, and its new and old values as text."""


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
