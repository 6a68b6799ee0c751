"""The rows of a table at one place of the stream, by their key. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from psql_streamer.model import Column

Row: TypeAlias = tuple[bytes | None, ...]
"""The text forms of a row's values, in the order of the table's columns."""

_BETWEEN = b"\0"
"""Between the columns of a key: no text of PostgreSQL's has this byte."""

_LEAST_CHANGED, _CHANGED_SHARE = 1000, 50
"""Changed rows are put among the others when they are more than this, and more than one of so many."""

_OBJECTS_OF_A_ROW = 200
"""Bytes of the objects of a row that is held by itself."""


@dataclass(frozen=True, slots=True)
class RowChange:
    """One change of the table: the rows with this key before and after it; None where there is none.

    A TRUNCATE has no key.
    """

    batch_order: int
    key: bytes | None
    before: Row | None = None
    after: Row | None = None

    @property
    def is_truncate(self) -> bool:
        """Whether it takes all rows away."""
        return self.key is None


@dataclass(frozen=True, slots=True)
class TableState:
    """All rows. It never changes; `after` gives another one.

    arrays: of the rows as they were some time ago, `keys` theirs. changed: what has become of rows since then.
    """

    columns: tuple[Column, ...]
    arrays: tuple[pa.Array, ...]
    keys: pa.Array
    changed: Mapping[bytes, Row | None] = field(default_factory=dict)

    @classmethod
    def from_arrays(cls, columns: tuple[Column, ...], arrays: Sequence[pa.Array]) -> TableState:
        """arrays: text forms, one for each column."""
        key = [array for array, column in zip(arrays, columns, strict=True) if column.key]
        joined = key[0] if len(key) == 1 else pc.binary_join_element_wise(*key, pa.scalar(_BETWEEN, pa.binary()))
        return cls(columns, tuple(arrays), joined)

    @property
    def nbytes(self) -> int:
        """Memory, roughly."""
        changed = sum(_measure_row(row) for row in self.changed.values())
        return sum(int(array.nbytes) for array in (*self.arrays, self.keys)) + changed

    def make_key(self, row: Row) -> bytes:
        """The key of a row, whose columns are the table's."""
        return _BETWEEN.join(value or b"" for value, column in zip(row, self.columns, strict=True) if column.key)

    def list_rows(self) -> list[pa.Array]:
        """All rows, in any order."""
        return self._join_rows(self._find_unchanged(None), self.changed.values())

    def count(self) -> int:
        """How many rows there are."""
        there = sum(row is not None for row in self.changed.values())
        return len(self._find_unchanged(None)) + there if self.changed else len(self.keys)

    def get(self, keys: Collection[bytes]) -> dict[bytes, Row]:
        """The rows with these keys that are there."""
        wanted = pa.array(list(keys), pa.binary())
        at = pc.indices_nonzero(pc.is_in(self.keys, wanted))
        values = [array.take(at).to_pylist() for array in self.arrays]
        found: dict[bytes, Row] = dict(
            zip(self.keys.take(at).to_pylist(), zip(*values, strict=True) if values else (), strict=False)
        )
        for key in keys:
            if key in self.changed:
                row = self.changed[key]
                found.pop(key, None)
                if row is not None:
                    found[key] = row
        return found

    def select_rows(self, column: int, values: Collection[bytes]) -> list[pa.Array]:
        """The rows that have one of these values in a column."""
        wanted = set(values)
        others = [row for row in self.changed.values() if row is not None and row[column] in wanted]
        return self._join_rows(self._find_unchanged((column, wanted)), others)

    def with_changes(self, changes: Iterable[RowChange]) -> TableState:
        """The rows behind these changes."""
        state, changed = self, dict(self.changed)
        for change in changes:
            if change.key is None:
                state, changed = TableState.from_arrays(self.columns, [array[:0] for array in self.arrays]), {}
            else:
                changed[change.key] = change.after
        state = TableState(state.columns, state.arrays, state.keys, changed)
        if len(changed) <= max(_LEAST_CHANGED, len(state.keys) // _CHANGED_SHARE):
            return state
        return TableState.from_arrays(state.columns, state.list_rows())

    def _find_unchanged(self, only: tuple[int, set[bytes]] | None) -> pa.Array:
        """Which elements of the arrays are rows as they are; only: of those with one of these values in a column."""
        there = pa.array(np.ones(len(self.keys), np.bool_))
        if only is not None:
            there = pc.is_in(self.arrays[only[0]], pa.array(list(only[1]), pa.binary()))
        if self.changed:
            there = pc.and_not(there, pc.is_in(self.keys, pa.array(list(self.changed), pa.binary())))
        return pc.indices_nonzero(there)

    def _join_rows(self, at: pa.Array, others: Iterable[Row | None]) -> list[pa.Array]:
        more = [row for row in others if row is not None]
        return [
            pa.concat_arrays([array.take(at), pa.array([row[number] for row in more], pa.binary())])
            for number, array in enumerate(self.arrays)
        ]


def _measure_row(row: Row | None) -> int:
    return _OBJECTS_OF_A_ROW + (0 if row is None else sum(len(value or b"") for value in row))
