"""Numbers for the columns of all relations, as they are met: what a writer knows of a column stands at its number."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from psql_streamer.cells import OfShapes, Shape
from psql_streamer.model import Column
from psql_streamer.pgtypes.descriptions import HashedColumns, hash_columns

_MOST_COLUMNS = 1 << 17
"""Columns that are numbered at a time; behind this many all are forgotten, and numbered anew."""


class ColumnNumbers:
    """Columns keep their numbers from batch to batch; equal ones have the same. For one thread.

    add: keeps what is to be known of columns that follow each other, and gives the number of the first one. forget:
    told when all numbers are void.
    """

    def __init__(self, add: Callable[[tuple[Column, ...]], int], forget: Callable[[], None]) -> None:
        self._add = add
        self._tell_of_end = forget
        self._firsts = OfShapes(self._look_up_first)
        self._equal: dict[HashedColumns, int] = {}
        self._count = 0
        self._most = _MOST_COLUMNS

    def number_shapes(self, shapes: Sequence[Shape]) -> Sequence[int]:
        """For each shape the number of its first column; the others follow."""
        firsts = self._firsts.make_each(shapes)
        if self._count > self._most:
            self._forget()
            firsts = self._firsts.make_each(shapes)
            self._most = max(_MOST_COLUMNS, 2 * self._count)  # those in use are not forgotten each time
        return firsts

    def _look_up_first(self, shape: Shape) -> int:
        alike = hash_columns(shape.columns)
        first = self._equal.get(alike)
        if first is None:
            first = self._equal[alike] = self._add(shape.columns)
            self._count = first + len(shape.columns)
        return first

    def _forget(self) -> None:
        self._equal.clear()
        self._firsts = OfShapes(self._look_up_first)
        self._count = 0
        self._tell_of_end()
