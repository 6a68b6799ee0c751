"""Changes by relation as rows of a small batch: what a handler made of few rows is written one by one as well.

A batch of five rows takes the encoder a fifth of the time by rows (decision 046).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat

import pyarrow as pa

from psql_streamer.cells import Shape
from psql_streamer.columns import ChosenCells, list_held_arrays
from psql_streamer.few_rows import ABSENT, Cell, FewRow, FewRows, RowCells
from psql_streamer.model import ArrowType, Changes, Image, RowOp

_NOT_IN_A_FEW_ROW = ("table_seq", "uuid", "part", "record_time")
"""Fields of Changes that FewRow does not have."""


def replace_shapes(few: FewRows, gone: Sequence[bool], made: Iterable[Changes]) -> FewRows | None:
    """The rows of those shapes that are not gone, and the changes, in batch order.

    gone: by shape. None where a change holds what a FewRow has no place for: a value of one of Arrow's types, a topic
    of its own, several rows made of one.
    """
    parts = [changes for changes in made if len(changes)]
    if not all(map(_is_plain, parts)):
        return None
    shapes = [Shape(changes.relation, changes.columns) for changes in parts]
    read = _Cells()
    rows = [row for number, changes in enumerate(parts) for row in _list_rows(number, changes, read)]
    places: dict[int, int] = {}
    for row in few.each:
        if not gone[row.shape]:
            if row.shape not in places:
                places[row.shape] = len(shapes)
                shapes.append(few.shapes[row.shape])
            rows.append(row._replace(shape=places[row.shape]))
    rows.sort(key=_get_batch_order)
    return FewRows(shapes, rows, few.transactions, few.batch_transactions)


def _get_batch_order(row: FewRow) -> int:
    return row.batch_order


def _is_plain(changes: Changes) -> bool:
    return (
        changes.place is not None
        and not any(isinstance(column.type, ArrowType) for column in changes.columns)
        and all(getattr(changes, name) is None for name in _NOT_IN_A_FEW_ROW)
        and changes.after.addresses is None
        and changes.before.addresses is None
    )


def _list_rows(shape: int, changes: Changes, read: _Cells) -> Iterator[FewRow]:
    assert changes.place is not None  # noqa: S101 - _is_plain
    each = zip(
        changes.batch_order.tolist(),
        changes.op.tolist(),
        changes.seq.tolist(),
        changes.tx.tolist(),
        changes.place.tolist(),
        _list_images(changes.after, len(changes), read),
        _list_images(changes.before, len(changes), read),
        strict=True,
    )
    for batch_order, op, seq, tx, place, after, before in each:
        yield FewRow(shape, batch_order, RowOp(op), seq, tx, place, after, before)


def _list_images(image: Image, rows: int, read: _Cells) -> list[RowCells | None]:
    """The image of each row; None for a row that has none."""
    found: list[RowCells | None] = [None] * rows
    if not len(image):
        return found
    columns = [read.list_column(held) for held in list_held_arrays(image.columns)]
    for number, gone in image.absent.items():
        columns[number] = [
            ABSENT if is_gone else cell for cell, is_gone in zip(columns[number], gone.tolist(), strict=True)
        ]
    tuples: Iterable[RowCells] = zip(*columns, strict=True) if columns else repeat((), len(image))
    for row, cells in zip(image.rows.tolist(), tuples, strict=True):
        found[row] = cells
    return found


class _Cells:
    """Columns as lists. Tables of cells, in which several columns lie, are read once."""

    def __init__(self) -> None:
        self._tables: dict[int, tuple[pa.Array, list[Cell]]] = {}  # by identity

    def list_column(self, held: pa.Array | ChosenCells) -> list[Cell]:
        """The cells of a column."""
        if not isinstance(held, ChosenCells):
            listed: list[Cell] = held.to_pylist()
            return listed
        if id(held.values) not in self._tables:
            self._tables[id(held.values)] = held.values, held.values.to_pylist()
        table = self._tables[id(held.values)][1]
        return [table[cell] for cell in held.cells.tolist()]
