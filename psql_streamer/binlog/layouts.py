"""Layouts: which cells the images of a table's rows have, and what they are; flat, so that numpy reads many at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from psql_streamer.binlog.cell_types import CellType
from psql_streamer.model import Index


class Steps(NamedTuple):
    """How a walker gets over an image. variable: bytes to skip, and the bytes of the length behind them; rest: bytes
    behind the last one.
    """

    variable: tuple[tuple[int, int], ...]
    rest: int


class Layout:
    """The images of one table that have the same columns. number: in the session. nulls: bytes of the NULL bitmap.

    present: the cell type of each column that the image has. cells: width and prefix of each.
    """

    def __init__(self, number: int, present: Sequence[CellType]) -> None:
        self.number = number
        self.nulls = (len(present) + 7) // 8
        self.cells = [(cell.width, cell.prefix) for cell in present]
        self._steps: dict[bytes, Steps] = {}

    def look_up_steps(self, nulls: bytes) -> Steps:
        """For images with this NULL bitmap."""
        found = self._steps.get(nulls)
        if found is None:
            if len(self._steps) >= _MOST_STEPS:
                self._steps.clear()
            found = self._steps[nulls] = self._make_steps(nulls)
        return found

    def _make_steps(self, nulls: bytes) -> Steps:
        bits, skip, variable = int.from_bytes(nulls, "little"), 0, []
        for place, (width, prefix) in enumerate(self.cells):
            if bits >> place & 1:
                continue
            if prefix:
                variable.append((skip, prefix))
                skip = 0
            else:
                skip += width
        return Steps(tuple(variable), skip)


_MOST_STEPS = 256
"""Bitmaps of a layout whose steps are remembered."""


@dataclass(frozen=True, slots=True)
class LayoutArrays:
    """All layouts of a session: cells of each one behind those of the one before, a cell for each column of the table.

    columns: cells of each layout. first: which is its first. nulls: bytes of its bitmap. width, prefix, kind: of each
    cell; kind is the number of its cell type. bit: its place in the NULL bitmap, -1 where the image lacks it.
    """

    columns: Index
    first: Index
    nulls: Index
    width: Index
    prefix: Index
    kind: NDArray[np.uint16]
    bit: Index


class Layouts:
    """The layouts and cell types of a session."""

    def __init__(self) -> None:
        self.cell_types: list[CellType] = []
        self._numbers: dict[CellType, int] = {}
        self._cells: list[tuple[int, int, int, int]] = []
        self._heads: list[tuple[int, int, int]] = []
        self._arrays: LayoutArrays | None = None

    def add(self, cells: Sequence[CellType], present: Sequence[bool], shown: int) -> Layout:
        """A layout. cells: of the table's columns. present: for each whether images have it. shown: how many are
        given; those behind them have a fixed width.
        """
        there = [cell for cell, is_there in zip(cells, present, strict=True) if is_there]
        layout = Layout(len(self._heads), there)
        self._heads.append((shown, len(self._cells), layout.nulls))
        place = 0
        for cell, is_there in zip(cells[:shown], present[:shown], strict=True):
            self._cells.append((cell.width, cell.prefix, self._number(cell), place if is_there else -1))
            place += is_there
        self._arrays = None
        return layout

    def _number(self, cell: CellType) -> int:
        if cell not in self._numbers:
            self._numbers[cell] = len(self.cell_types)
            self.cell_types.append(cell)
        return self._numbers[cell]

    @property
    def arrays(self) -> LayoutArrays:
        """As they are at this moment."""
        if self._arrays is None:
            columns, first, nulls = np.array(self._heads, np.int64).reshape(-1, 3).T
            cells = np.array(self._cells, np.int64).reshape(-1, 4).T
            self._arrays = LayoutArrays(columns, first, nulls, cells[0], cells[1], cells[2].astype(np.uint16), cells[3])
        return self._arrays
