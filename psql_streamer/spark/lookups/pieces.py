"""Which changes of a batch see a table alike: a rule runs once for each such piece, over the rows that it needs.

The table changes in the middle of a batch. A change is joined with the rows as they are at its own place, wherever the
batch begins or ends. Where a rule finds rows by the value of one column, only changes of rows with that value matter;
else every change of the table begins another piece.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from psql_streamer.model import Changes, Index
from psql_streamer.spark.lacking import fill_unchanged_values
from psql_streamer.spark.lookups.table_state import Row, RowChange, TableState


@dataclass(frozen=True, slots=True)
class Use:
    """How a rule finds rows of a table: those whose `column` has the value that one of `sent`, columns of the changes,
    has. None: in any other way.
    """

    column: int
    sent: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Moving:
    """A table while a batch goes on: its rows before the batch, and its changes in it, in order."""

    state: TableState
    changes: Sequence[RowChange]


Version = tuple[str, bytes | None]
"""Of a lookup, rows that have the same value; None for all rows."""


@dataclass(slots=True)
class Piece:
    """rows: of the changes; None for all. seen: how many changes of a Version come before these rows, where not 0."""

    rows: Index | None = None
    seen: dict[Version, int] = field(default_factory=dict)


def split(changes: Changes, tables: Mapping[str, Moving], uses: Mapping[str, Use | None]) -> list[Piece]:
    """The pieces of the changes, each with rows in their order."""
    needs: dict[int, dict[Version, int]] = defaultdict(dict)
    for name, moving in tables.items():
        if moving.changes:
            _note_needs(needs, name, changes, moving, uses[name])
    if not needs:
        return [Piece()]
    pieces: list[tuple[dict[Version, int], list[int]]] = []
    for row in sorted(needs):
        piece = next((piece for piece in pieces if _agree(piece[0], needs[row])), None)
        if piece is None:
            piece = ({}, [])
            pieces.append(piece)
        piece[0].update(needs[row])
        piece[1].append(row)
    (seen, rows), *more = pieces
    others = np.setdiff1d(np.arange(len(changes)), np.array(sorted(needs), np.int64))
    first = Piece(np.sort(np.concatenate((others, np.array(rows, np.int64)))), seen)
    return [first, *(Piece(np.array(rows, np.int64), seen) for seen, rows in more)]


def select_rows(name: str, moving: Moving, use: Use | None, changes: Changes, piece: Piece) -> list[pa.Array]:
    """The rows of a table that a piece sees, as text forms by column. changes: those of the piece."""
    if use is None:
        seen = piece.seen.get((name, None), 0)
        return moving.state.with_changes(moving.changes[:seen]).list_rows() if seen else moving.state.list_rows()
    values = {
        value for image in _list_images(changes, use) for value in pc.unique(image).to_pylist() if value is not None
    }
    moved = {value: seen for (of, value), seen in piece.seen.items() if of == name and value is not None}
    found = moving.state.select_rows(use.column, values - moved.keys())
    more = [row for value, seen in moved.items() for row in _compute_rows_after(moving, use.column, value, seen)]
    return [
        pa.concat_arrays([array, pa.array([row[at] for row in more], pa.binary())]) for at, array in enumerate(found)
    ]


def _note_needs(
    needs: dict[int, dict[Version, int]], name: str, changes: Changes, moving: Moving, use: Use | None
) -> None:
    """By row, which versions of the table it must see, where that is not the one before the batch alone."""
    orders = changes.batch_order
    if use is None:
        all_orders = [change.batch_order for change in moving.changes]
        for row, seen in enumerate(np.searchsorted(all_orders, orders, side="left").tolist()):
            needs[row][name, None] = seen
        return
    by_value, truncates = _group_orders(moving.changes, use.column)
    for image, rows in zip(
        _list_images(changes, use), (changes.after.rows, changes.before.rows) * len(use.sent), strict=True
    ):
        touched = pc.is_valid(image) if truncates else pc.is_in(image, pa.array(list(by_value), pa.binary()))
        for at in pc.indices_nonzero(touched).to_pylist():
            value, row = image[at].as_py(), int(rows[at])
            needs[row][name, value] = bisect_left(_merge_orders(by_value, truncates, value), int(orders[row]))


def _list_images(changes: Changes, use: Use) -> list[pa.Array]:
    """The values by which rows are found: of new images, then of old ones, for each of the columns."""
    return [
        image
        for column in use.sent
        for image in (fill_unchanged_values(changes, column), changes.before.columns[column])
    ]


def _group_orders(changes: Sequence[RowChange], column: int) -> tuple[dict[bytes, list[int]], list[int]]:
    """Where rows with a value changed, by value; and where all of them went away."""
    found: dict[bytes, list[int]] = defaultdict(list)
    for change in changes:
        for value in _collect_values(change, column):
            found[value].append(change.batch_order)
    return found, [change.batch_order for change in changes if change.is_truncate]


def _merge_orders(by_value: Mapping[bytes, list[int]], truncates: list[int], value: bytes) -> list[int]:
    own = by_value.get(value, [])
    return sorted([*own, *truncates]) if truncates else own


def _compute_rows_after(moving: Moving, column: int, value: bytes, seen: int) -> Collection[Row]:
    """The rows with a value behind so many changes of such rows."""
    arrays = moving.state.select_rows(column, [value])
    rows: dict[bytes, Row] = {
        moving.state.make_key(row): row for row in zip(*(array.to_pylist() for array in arrays), strict=True)
    }
    touching = [change for change in moving.changes if change.is_truncate or value in _collect_values(change, column)]
    for change in touching[:seen]:
        if change.key is None:
            rows.clear()
        elif change.after is not None and change.after[column] == value:
            rows[change.key] = change.after
        else:
            rows.pop(change.key, None)
    return rows.values()


def _collect_values(change: RowChange, column: int) -> set[bytes]:
    found = {row[column] for row in (change.before, change.after) if row is not None}
    return {value for value in found if value is not None}


def _agree(seen: Mapping[Version, int], wanted: Mapping[Version, int]) -> bool:
    return all(seen.get(version, count) == count for version, count in wanted.items())
