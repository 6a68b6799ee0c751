"""The tables of a session: their shapes, and how the images of their rows are read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from psql_streamer.binlog.cell_types import CellType, choose_form
from psql_streamer.binlog.layouts import Layout, Layouts
from psql_streamer.binlog.statements import Statement
from psql_streamer.binlog.table_map import FieldType, TableMap, read_names, read_table_map
from psql_streamer.binlog.table_names import TableNames
from psql_streamer.cells import Shape
from psql_streamer.errors import SourceRefused
from psql_streamer.model import Column, Relation

Wanted = Callable[[str, str], bool]


@dataclass(slots=True)
class Table:
    """What a TABLE_MAP says. number: of its shape; -1 where the table is not wanted. cells: of its columns. layouts:
    by the bitmap of the columns that images have. shown: how many of the columns the table's owner knows of.
    """

    name: str
    number: int
    cells: tuple[CellType, ...] = ()
    layouts: dict[bytes, Layout] = field(default_factory=dict)
    layouts_by_head: dict[bytes, tuple[Layout, ...]] = field(default_factory=dict)
    shown: int = 0

    bitmap_bytes: int = field(init=False)  # of a bit for each column
    head_bytes: int = field(init=False)  # of the number of columns and one bitmap, in a rows event

    def __post_init__(self) -> None:
        self.bitmap_bytes = (len(self.cells) + 7) // 8
        self.head_bytes = (1 if len(self.cells) < 251 else 3) + self.bitmap_bytes


class TableShapes:
    """The shapes that tables have had in a session, numbered; a number stands for the same shape for ever."""

    def __init__(
        self, wanted: Wanted, mariadb: bool, remembered: Mapping[str, Relation], folds_names: bool = False
    ) -> None:
        self.shapes: list[Shape] = []
        self.layouts = Layouts()
        self._current: dict[str, Relation] = {}
        self._remembered = dict(remembered)
        self.names = TableNames(folds_names, ((one.schema, one.table) for one in remembered.values()))
        self._wanted = wanted
        self._mariadb = mariadb
        self._read: dict[bytes, Table] = {}

    def look_up_shape(self, schema: str, table: str) -> Relation:
        """The shape that a table has; without columns where the stream has not shown any."""
        name = f"{schema}.{table}"
        return self._current.get(name) or self._remembered.get(name) or Relation(name, schema, table, ())

    def wants(self, schema: str, table: str) -> bool:
        """Whether changes of a table are wanted."""
        return self._wanted(schema, table)

    def find_named_tables(self, statement: Statement) -> list[Relation]:
        """The wanted tables that a statement names, or that are known of the schema that it drops."""
        if statement.tables:
            return [self.look_up_shape(*table) for table in dict.fromkeys(statement.tables) if self._wanted(*table)]
        if not statement.drops_schema:
            return []
        known = {**self._remembered, **self._current}.values()
        return [one for one in known if one.schema == statement.schema and self._wanted(one.schema, one.table)]

    def read(self, body: bytes) -> Table:
        """body: of a TABLE_MAP event, behind its fixed part. SourceRefused when columns have no names."""
        found = self._read.get(body)
        if found is None:
            if len(self._read) >= _MOST_REMEMBERED:
                self._read.clear()
            found = self._read[body] = self._make(body)
        return found

    def show(self, table: Table) -> tuple[Relation, Relation | None] | None:
        """The table is in this shape from now on: the shape and the one before, if it is another one."""
        relation = self.shapes[table.number].relation
        before = self._current.get(relation.id) or self._remembered.get(relation.id)
        if before is relation:
            return None
        same = before is not None and before.columns == relation.columns
        version = before.version + (not same) if before else 1
        if relation.version != version:
            relation = replace(relation, version=version)
            table.number = self._add(relation)
        self._current[relation.id] = relation
        return None if same else (relation, before)

    def learn(self, shape: Relation) -> tuple[Relation, Relation | None, bool]:
        """A table's shape as the catalog has it: with its version, the one before, and whether it is another one."""
        before = self._current.get(shape.id) or self._remembered.get(shape.id)
        if before is not None and before.columns == shape.columns:
            return before, before, False
        relation = replace(shape, version=before.version + 1 if before else 1)
        self._current[shape.id] = relation
        return relation, before, True

    def forget_old(self) -> None:
        """Once they are many, go on with another list. Batches keep theirs.

        Between statements only, because tables that were read have numbers of this one.
        """
        if len(self.shapes) > _MOST_OLD * (len(self._current) + _FEW_TABLES):
            self.shapes = []
            self.layouts = Layouts()
            self._read.clear()

    def _make(self, body: bytes) -> Table:
        schema, name = read_names(body)
        self.names.note(schema, name)
        if not self._wanted(schema, name):
            return Table(f"{schema}.{name}", -1)
        found = read_table_map(body, self._mariadb)
        if not found.named:
            raise SourceRefused(
                f"a TABLE_MAP event of {found} does not name its columns",
                "SET GLOBAL binlog_row_metadata=FULL on the server, and start at a position behind that",
            )
        forms = [choose_form(one, found) for one in found.fields]
        columns = tuple(Column(one.name, form.type, one.key) for one, form in zip(found.fields, forms, strict=True))
        columns = columns[: _count_shown(found) if self._mariadb else len(columns)]
        number = self._add(Relation(str(found), schema, name, columns))
        return Table(str(found), number, tuple(form.cell for form in forms), shown=len(columns))

    def _add(self, relation: Relation) -> int:
        self.shapes.append(Shape(relation, relation.columns))
        return len(self.shapes) - 1

    def look_up_layout(self, table: Table, present: bytes) -> Layout:
        """Of the images that have these columns. present: a bit for each column, the lowest first."""
        found = table.layouts.get(present)
        if found is None:
            # Bits behind the last column mean nothing; MySQL sets them.
            bits = int.from_bytes(present, "little")
            there = [bool(bits >> place & 1) for place in range(len(table.cells))]
            found = table.layouts[present] = self.layouts.add(table.cells, there, table.shown)
        return found


_HASH = re.compile(r"DB_ROW_HASH_\d+")
"""What MariaDB calls the columns that it adds at the end of a table for UNIQUE keys of TEXT, BLOB and long VARCHAR. No
SELECT sees them.
"""


def _count_shown(table: TableMap) -> int:
    """How many columns there are without those."""
    count = len(table.fields)
    while (
        count and table.fields[count - 1].type is FieldType.LONGLONG and _HASH.fullmatch(table.fields[count - 1].name)
    ):
        count -= 1
    return count


_MOST_OLD, _FEW_TABLES = 4, 64
"""Shapes for each table, behind which those that no longer hold are forgotten."""

_MOST_REMEMBERED = 10_000
"""TABLE_MAP events whose reading is remembered."""
