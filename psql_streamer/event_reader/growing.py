"""What becomes an array, an element a row, while rows come one by one or many at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from psql_streamer.event_reader.tables import Table
from psql_streamer.model import Index


class Growing:
    """Values of one kind. dtype: of the array."""

    __slots__ = ("_arrays", "_dtype", "_last", "append")

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self._dtype = np.dtype(dtype)
        self._arrays: list[npt.NDArray[Any]] = []
        self._last: list[Any] = []
        self.append = self._last.append

    def extend(self, values: npt.ArrayLike) -> None:
        """Put many values behind the others."""
        self._close()
        self._arrays.append(np.asarray(values, self._dtype))

    def join(self) -> npt.NDArray[Any]:
        """All values."""
        self._close()
        if not self._arrays:
            return np.empty(0, self._dtype)
        if len(self._arrays) > 1:
            self._arrays = [np.concatenate(self._arrays)]
        return self._arrays[0]

    def _close(self) -> None:
        if self._last:
            self._arrays.append(np.array(self._last, self._dtype))
            self._last.clear()


class GrowingTables:
    """The table of each row. Most rows have the one of the row before."""

    __slots__ = ("_counts", "_rows", "_tables")

    def __init__(self) -> None:
        self._tables: list[Table] = []
        self._counts: list[int] = []
        self._rows = 0

    def __len__(self) -> int:
        return self._rows

    def append(self, table: Table, count: int = 1) -> None:
        """So many rows are of this one."""
        self._rows += count
        if self._tables and self._tables[-1] is table:
            self._counts[-1] += count
        else:
            self._tables.append(table)
            self._counts.append(count)

    def replace(self, now: dict[int, Table]) -> None:
        """Other tables, by the number of the one that each takes the place of."""
        self._tables = [now.get(table.number, table) for table in self._tables]

    def collect_by_number(self) -> dict[int, Table]:
        """Each table once."""
        return {table.number: table for table in self._tables}

    def find_first_rows(self) -> dict[Table, int]:
        """The first row of each."""
        first, row = dict[Table, int](), 0
        for table, count in zip(self._tables, self._counts, strict=True):
            first.setdefault(table, row)
            row += count
        return first

    def spread(self, find: Callable[[Table], int]) -> Index:
        """What is found of the table, for each row."""
        found = np.array([find(table) for table in self._tables], np.int64)
        return np.repeat(found, self._counts) if self._tables else found
