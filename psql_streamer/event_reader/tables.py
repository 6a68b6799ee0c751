"""The shapes of tables, as their events show them: names of columns, what they have held, and which make the key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from psql_streamer.cells import Shape
from psql_streamer.event_reader.kinds import bits_of, type_of
from psql_streamer.event_reader.parsed import Origin
from psql_streamer.model import Column, Relation, TextType

Names = tuple[str, ...]
_Name = tuple[Origin, str, str]


@dataclass(slots=True, eq=False)
class Table:
    """A table in one shape. bits: what each column has held, see kinds. number: of its Shape.

    relation: None until the batch ends that it is new in. before: its shape until then.
    """

    name: _Name
    columns: Names
    key: Names
    bits: list[int]
    number: int
    relation: Relation | None = None
    before: Relation | None = None
    layouts: dict[tuple[Names, Names, Names, bool], Layout] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Tables of one name come from several databases."""
        origin, schema, table = self.name
        return f"{origin.host}/{origin.database}/{schema}.{table}"

    def describe(self, version: int) -> Relation:
        """The shape as it stands now."""
        columns = tuple(
            Column(name, type_of(bits), name in self.key) for name, bits in zip(self.columns, self.bits, strict=True)
        )
        return Relation(self.id, self.name[1], self.name[2], columns, None, version)


@dataclass(frozen=True, slots=True)
class Layout:
    """How the values of an image lie in the columns of a table.

    places: for each value its column; None: they are the columns. width: how many columns the table has.
    """

    table: Table
    places: tuple[int, ...] | None
    width: int


class Tables:
    """Every table that was seen, of all origins. shapes: of the batches, a list that only grows."""

    def __init__(self) -> None:
        self.shapes: list[Shape] = []
        self._current: dict[_Name, Table] = {}
        self._last: dict[str, Relation] = {}
        self._new: list[Table] = []

    def remember(self, relations: Iterable[Relation]) -> None:
        """Shapes that were stored: they are not told of again."""
        self._last |= {relation.id: relation for relation in relations}

    def find(
        self, origin: Origin, schema: str, name: str, values: Names, key: Names, unchanged: Sequence[str], whole: bool
    ) -> Layout:
        """Where the values of an image belong. values: its columns, in their order. key: those of the record's key.
        unchanged: columns that the image leaves out. whole: whether it has all others; else it may have the key alone.
        """
        full_name = origin, schema, name
        table = self._current.get(full_name) or self._meet(full_name, values, key)
        sought = values, key, tuple(unchanged), whole
        layout = table.layouts.get(sought)
        if layout is None:
            table = self._fit(table, values, key, unchanged, whole)
            layout = table.layouts[sought] = _lay_out(table, values)
        return layout

    def widen(self, table: Table, bits: Sequence[int]) -> Table:
        """The table with columns that have held these as well; another one if that makes another shape."""
        together = [old | new for old, new in zip(table.bits, bits, strict=True)]
        if table.relation is None or list(map(type_of, together)) == list(map(type_of, table.bits)):
            table.bits = together
            return table
        return self._add(table, table.columns, table.key, together)

    def settle(self, used: Iterable[Table]) -> Sequence[Table]:
        """Describe the tables whose shape is new; no shape changes behind that. used: in the order of their use."""
        new = [table for table in used if table.relation is None]
        for table in new:
            table.before = self._last.get(table.id)
            table.relation = table.describe(1 if table.before is None else table.before.version + 1)
            self._last[table.id] = table.relation
            self.shapes[table.number] = Shape(table.relation, table.relation.columns)
        return new

    def _meet(self, name: _Name, values: Names, key: Names) -> Table:
        table = Table(name, values, key, [0] * len(values), len(self.shapes))
        stored = self._last.get(table.id)
        if stored is not None:
            table.columns = tuple(column.name for column in stored.columns)
            table.key = tuple(column.name for column in stored.columns if column.key)
            table.bits = [bits_of(column.type) for column in stored.columns if isinstance(column.type, TextType)]
            table.relation = stored
        else:
            table.key = tuple(column for column in values if column in key)
        return self._hold(table)

    def _fit(self, table: Table, values: Names, key: Names, unchanged: Sequence[str], whole: bool) -> Table:
        """The table itself, or its next shape if the image does not fit it."""
        there, columns = {*values, *unchanged}, set(table.columns)
        fits = there == columns if whole else there <= columns
        if fits and tuple(name for name in table.columns if name in key) == table.key:
            return table
        names = (*values, *(name for name in unchanged if name not in values))
        if not whole:
            names = (*table.columns, *(name for name in names if name not in columns))
        held = dict(zip(table.columns, table.bits, strict=True))
        return self._add(
            table, names, tuple(name for name in names if name in key), [held.get(name, 0) for name in names]
        )

    def _add(self, before: Table, columns: Names, key: Names, bits: list[int]) -> Table:
        table = Table(before.name, columns, key, bits, len(self.shapes))
        return self._hold(table, current=self._current[before.name] is before)

    def _hold(self, table: Table, current: bool = True) -> Table:
        relation = table.relation or table.describe(0)
        self.shapes.append(Shape(relation, relation.columns))
        if current:
            self._current[table.name] = table
        return table


def _lay_out(table: Table, values: Names) -> Layout:
    places = None if values == table.columns else tuple(table.columns.index(name) for name in values)
    return Layout(table, places, len(table.columns))
