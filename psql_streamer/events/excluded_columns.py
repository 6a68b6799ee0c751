"""Columns that no event has: taken out of the cells before anything is made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from psql_streamer.cells import CellTable, OfShapes, Shape, Tuples, expand_ranges
from psql_streamer.events.unchanged import ANY_COLUMN, Unchanged
from psql_streamer.model import Column, Index, Relation, SchemaChange

KEY_LEFT_OUT_REMEDY = "name other key columns under `key`, or leave the column in"


def describe_key_left_out(relation: Relation, column: str) -> str:
    """What is wrong where a column of the key is to be left out."""
    return f'excludeColumns leaves out the column "{column}" of {relation}, which is part of its key'


class ExcludedColumns:
    """names: columns as `unchanged` has them: schema.table.column, table.column, column, and patterns of these.

    ValueError, naming the entry, for one that cannot work. For one thread.
    """

    def __init__(self, names: Sequence[str] = ()) -> None:
        for name in names:
            if name.rpartition(".")[2] == ANY_COLUMN:
                raise ValueError(f"{name} leaves no column: leave the table out with excludeTables")
        self._rules = Unchanged(dict.fromkeys(names, "omit"))
        self._kept = OfShapes(self._keep)
        self._shapes = OfShapes(self._narrow)

    def __bool__(self) -> bool:
        return bool(self._rules.rules)

    def has(self, relation: Relation, column: str) -> bool:
        """Whether events do not have a column of this name."""
        return self._rules.find_rule(relation, column) is not None

    def list_excluded_keys(self, relation: Relation) -> Sequence[str]:
        """The columns of a table's key that events do not have."""
        return [column.name for column in relation.columns if column.key and self.has(relation, column.name)]

    def leave_out(self, table: CellTable) -> CellTable:
        """The rows without these columns."""
        shapes, kept = self._shapes.make_each(table.shapes), self._kept.make_each(table.shapes)
        flags = np.concatenate(kept) if kept else np.empty(0, np.bool_)
        first = np.cumsum([0, *map(len, kept)])[:-1]
        return replace(
            table,
            shapes=shapes,
            after=_leave_out(table.after, first[table.shape[table.after.rows]], flags),
            before=_leave_out(table.before, first[table.shape[table.before.rows]], flags),
        )

    def narrow(self, change: SchemaChange) -> SchemaChange:
        """A shape of a table without these columns."""
        before = change.before
        return replace(
            change,
            relation=self.narrow_relation(change.relation),
            before=None if before is None else self.narrow_relation(before),
        )

    def narrow_relation(self, relation: Relation) -> Relation:
        """The same of one relation."""
        return replace(relation, columns=self._select_columns(Shape(relation, relation.columns)))

    def _keep(self, shape: Shape) -> NDArray[np.bool_]:
        return np.array([not self.has(shape.relation, column.name) for column in shape.columns], np.bool_)

    def _narrow(self, shape: Shape) -> Shape:
        return Shape(shape.relation, self._select_columns(shape))

    def _select_columns(self, shape: Shape) -> tuple[Column, ...]:
        return tuple(column for column in shape.columns if not self.has(shape.relation, column.name))


def _leave_out(image: Tuples, first: Index, flags: NDArray[np.bool_]) -> Tuples:
    """first: where in the flags the columns of each tuple begin."""
    kept = flags[expand_ranges(first, image.begins)]
    return image if kept.all() else image.narrow(np.flatnonzero(kept))
