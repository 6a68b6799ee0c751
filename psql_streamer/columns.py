"""The columns of an image, of which those that nobody asks for are not made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, overload

import pyarrow as pa

from psql_streamer.model import Index


class ChosenCells(NamedTuple):
    """A column that lies in a table of cells. values: all cells of the table. The cells of the column are behind
    `firsts` by so many.
    """

    values: pa.BinaryArray
    firsts: Index
    behind: int

    @property
    def cells(self) -> Index:
        """The index of each element's cell."""
        found: Index = self.firsts + self.behind
        return found

    def is_beside(self, other: object, by: int) -> bool:
        """Whether the other is the column so many places behind this one."""
        return (
            isinstance(other, ChosenCells)
            and other.values is self.values
            and other.firsts is self.firsts
            and other.behind == self.behind + by
        )

    def make_column(self) -> pa.BinaryArray:
        """The column."""
        return self.values.take(pa.array(self.cells))


def choose_each(values: pa.BinaryArray, firsts: Index, behind: Iterable[int]) -> list[pa.Array | ChosenCells]:
    """A column for each of these numbers, see ChosenCells. Columns without elements are alike: one stands for all."""
    if not len(firsts):
        none = ChosenCells(values, firsts, 0)
        return [none for _ in behind]
    return [ChosenCells(values, firsts, by) for by in behind]


class Columns(Sequence[pa.Array]):
    """Arrays, as a tuple has them; one that lies in a table of cells is made when it is first asked for."""

    def __init__(self, held: Iterable[pa.Array | ChosenCells]) -> None:
        self._held = list(held)
        self._made = [None if isinstance(one, ChosenCells) else one for one in self._held]

    @property
    def held(self) -> Sequence[pa.Array | ChosenCells]:
        """The arrays as they are."""
        return self._held

    def __len__(self) -> int:
        return len(self._held)

    @overload
    def __getitem__(self, index: int) -> pa.Array: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[pa.Array, ...]: ...
    def __getitem__(self, index: int | slice) -> pa.Array | tuple[pa.Array, ...]:
        if isinstance(index, slice):
            return tuple(self[at] for at in range(*index.indices(len(self))))
        made, held = self._made[index], self._held[index]
        if made is None and isinstance(held, ChosenCells):
            made = self._made[index] = held.make_column()
        return made

    def __iter__(self) -> Iterator[pa.Array]:
        return (self[at] for at in range(len(self)))

    def __add__(self, other: Sequence[pa.Array]) -> tuple[pa.Array, ...]:
        return (*self, *other)

    def __radd__(self, other: Sequence[pa.Array]) -> tuple[pa.Array, ...]:
        return (*other, *self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)


def list_held_arrays(columns: Sequence[pa.Array]) -> Sequence[pa.Array | ChosenCells]:
    """The arrays as they are held."""
    return columns.held if isinstance(columns, Columns) else columns
