"""Tables that a rule sees alike go through Spark as one: a job costs the same for one table as for a hundred.

Only under a rule that gives each row by itself, whatever other rows there are: a query of projections and filters over
the changes alone. What a function does nobody knows, and aggregates, windows and joins would mix the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from psql_streamer.cells import CellTable, Shape
from psql_streamer.model import Changes, Relation
from psql_streamer.pgtypes.descriptions import hash_columns

if TYPE_CHECKING:
    from psql_streamer.spark.rules import Rule


@dataclass(frozen=True, slots=True)
class Tables:
    """Which relation each row of joined changes is of. number: index into relations. batch_order: increasing."""

    relations: Sequence[Relation]
    number: NDArray[np.int32]
    batch_order: NDArray[np.int64]

    def name_relations(self, rows: NDArray[np.int64], name: Callable[[Relation], str]) -> pa.Array:
        """The name of the relation of some rows."""
        names = pa.array([name(relation) for relation in self.relations], pa.string())
        return names.take(pa.array(self.number[rows]))

    def restore_relations(self, made: Changes) -> CellTable:
        """What a rule made of the joined changes, with the relations that they are of."""
        table = CellTable.from_changes([made])
        number = self.number[np.searchsorted(self.batch_order, table.batch_order)]
        return replace(table, shapes=[Shape(relation, made.columns) for relation in self.relations], shape=number)


@dataclass(frozen=True, slots=True)
class Joined:
    """Changes of tables that a rule sees alike, as if all were of the first. tables: None for a single one."""

    members: tuple[Changes, ...]
    changes: Changes
    tables: Tables | None = None


def group_changes(ruled: Sequence[Changes], rule_of: Callable[[Relation], Rule]) -> list[list[Changes]]:
    """The changes of tables that the same rule sees with the same columns and replica identity, together."""
    groups: dict[tuple[object, ...], list[Changes]] = {}
    if len(ruled) == 1:
        return [list(ruled)]
    for changes in ruled:
        relation = changes.relation
        columns = hash_columns(changes.columns)
        key = (rule_of(relation).name, columns, relation.columns, relation.replica_identity)
        groups.setdefault(key, []).append(changes)
    return list(groups.values())


def join_changes(members: Sequence[Changes]) -> Joined:
    """The changes of several tables as one."""
    first = members[0]
    if len(members) == 1:
        return Joined((first,), first)
    table = CellTable.from_changes(members)
    one = replace(table, shapes=[Shape(first.relation, first.columns)], shape=np.zeros_like(table.shape))
    tables = Tables([shape.relation for shape in table.shapes], table.shape, table.batch_order)
    return Joined(tuple(members), one[0], tables)
