"""The row changes of a small batch, one by one: for a handful of rows a loop costs less than arrays do.

Most batches of a quiet database have a few rows. Numpy and Arrow take some microseconds for a call, and a batch of
cells takes hundreds of calls, whatever it holds. So a decoder gives few rows as they were read, and an encoder writes
them so. Cells and columns are made when somebody asks for them (decision 048).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from functools import cached_property
from typing import Final, NamedTuple, TypeAlias, overload

import numpy as np
import pyarrow as pa

from psql_streamer.cells import CellTable, Shape, Tabular, Tuples
from psql_streamer.model import Changes, Counted, RowOp, Transactions


class Lacking(Enum):
    """What stands for a value that an image does not have: it is no SQL NULL."""

    ABSENT = "absent"


ABSENT: Final = Lacking.ABSENT

Cell: TypeAlias = bytes | Lacking | None
"""PostgreSQL's text form, SQL NULL, or ABSENT (a key-only old row, unchanged TOAST)."""

RowCells: TypeAlias = tuple[Cell, ...]
"""An image of one row: a cell for each column of its relation."""


class FewTransaction(NamedTuple):
    """A transaction; its fields are as those of Transactions. moment: of its commit."""

    commit: int
    moment: int
    id: int


class FewRow(NamedTuple):
    """One row change; its fields are as CellTable's. after, before: the images; None where there is none."""

    shape: int
    batch_order: int
    op: RowOp
    seq: int
    tx: int
    place: int
    after: RowCells | None
    before: RowCells | None

    @property
    def image(self) -> RowCells:
        """The row that the action left, or (delete) the one that it removed."""
        image = self.before if self.after is None else self.after
        assert image is not None  # noqa: S101 - a delete always has an old image
        return image

    @property
    def size(self) -> int:
        """Bytes of its values."""
        size = 0
        for image in (self.after, self.before):
            for cell in image or ():
                if isinstance(cell, bytes):
                    size += len(cell)
        return size


class FewRows(Tabular):
    """Row changes in batch order.

    shapes: as CellTable has them. transactions: those of the batch, as batch_transactions has them for columns. A batch
    that has others is written by cells.
    """

    def __init__(
        self,
        shapes: Sequence[Shape],
        each: Sequence[FewRow],
        transactions: Sequence[FewTransaction],
        batch_transactions: Transactions,
    ) -> None:
        self.shapes = shapes
        self.each = each
        self.transactions = transactions
        self.batch_transactions = batch_transactions

    @property
    def rows(self) -> int:
        return len(self.each)

    @cached_property
    def overhead(self) -> int:
        cells = values = 0
        for row in self.each:
            for image in (row.after, row.before):
                if image is not None:
                    cells += len(image)
                    values += len(image) - image.count(None) - image.count(ABSENT)
        return _OBJECTS + _ROW_OBJECTS * len(self.each) + _CELL_OBJECTS * cells + _VALUE_OBJECTS * values

    @property
    def next_batch_order(self) -> int:
        return self.each[-1].batch_order + 1 if self.each else 0

    def count_rows(self) -> Iterator[Counted]:
        found: dict[tuple[int, RowOp], tuple[int, int]] = {}
        for row in self.each:
            kind = row.shape, row.op
            rows, size = found.get(kind, (0, 0))
            found[kind] = rows + 1, size + row.size
        for (shape, op), (rows, size) in found.items():
            yield Counted(self.shapes[shape].relation, op, rows, size)

    @overload
    def __getitem__(self, index: int) -> Changes: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Changes]: ...
    def __getitem__(self, index: int | slice) -> Changes | Sequence[Changes]:
        return self.cells[index]

    def __len__(self) -> int:
        return len({row.shape for row in self.each})

    @cached_property
    def cells(self) -> CellTable:
        """The same as a table of cells."""
        each = self.each
        return CellTable(
            self.shapes,
            np.array([row.shape for row in each], np.int32),
            np.array([row.batch_order for row in each], np.int64),
            np.array([row.op for row in each], np.uint8),
            np.array([row.seq for row in each], np.int64),
            np.array([row.tx for row in each], np.int32),
            _build_tuples([row.after for row in each]),
            _build_tuples([row.before for row in each]),
            np.array([row.place for row in each], np.uint64),
        )


# Measured as resident memory of batches of 1 to 32 rows of 2 to 1,500 columns. A cell is a pointer, and where it has a
# value, an object of Python's with a head of 33 bytes.
_OBJECTS, _ROW_OBJECTS, _CELL_OBJECTS, _VALUE_OBJECTS = 2048, 400, 8, 48


def _build_tuples(images: Sequence[RowCells | None]) -> Tuples:
    """The images of all rows, of which some have none."""
    rows = [row for row, image in enumerate(images) if image is not None]
    cells = [cell for image in images for cell in image or ()]
    begins = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(images[row] or ()) for row in rows], out=begins[1:])
    absent = np.array([cell is ABSENT for cell in cells], np.bool_)
    return Tuples(
        np.array(rows, np.int64),
        begins,
        pa.array([None if cell is ABSENT else cell for cell in cells], pa.binary()),
        absent if absent.any() else None,
    )
