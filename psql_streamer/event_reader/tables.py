"""The shapes of tables, as their events show them: names of columns, what they have held, and which make the key."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import NamedTuple

from psql_streamer.cells import Shape
from psql_streamer.event_reader.kinds import DOCUMENT, choose_type, look_up_bits
from psql_streamer.event_reader.parsed import Origin
from psql_streamer.model import Column, Relation, TextType

Names = tuple[str, ...]
NO_NAMES: Names = ()
_Name = tuple[tuple[str, str], str, str]


@dataclass(slots=True, eq=False)
class Table:
    """A table in one shape. bits: what each column has held, see kinds. number: no other one has it.

    keyless: whether its rows have no key, while the table has one. relation: None until the batch ends that it is new
    in. shape: which of the batches' shapes it is, none until then. wider: the same shape with columns that hold more,
    which has taken its place. guessed: whether the order of its columns may be another one than that of the table.
    """

    name: _Name
    columns: Names
    key: Names
    keyless: bool
    bits: list[int]
    number: int
    relation: Relation | None = None
    shape: int = -1
    wider: Table | None = None
    guessed: bool = False
    layouts: dict[tuple[Names, Names, Names, bool], Layout] = field(default_factory=dict)

    def describe(self, version: int) -> Relation:
        """The shape as it stands now."""
        columns = tuple(
            Column(name, choose_type(bits), name in self.key)
            for name, bits in zip(self.columns, self.bits, strict=True)
        )
        return Relation(make_id(self.name), self.name[1], self.name[2], columns, None, version)


@dataclass(frozen=True, slots=True)
class Layout:
    """How the values of an image lie in the columns of a table.

    places: for each value its column; None: they are the columns. width: how many columns the table has.
    """

    table: Table
    places: tuple[int, ...] | None
    width: int


class Told(NamedTuple):
    """A table whose shape is another one than before, if there was any."""

    table: Table
    before: Relation | None


@dataclass(slots=True)
class _Known:
    """What is known of a table. current: its shape. shapes: all that it had, by columns, key, and whether rows lack the
    key. held: what each column has held, in whatever shape. told: the shape that was told last. version: the last one.
    """

    current: Table
    told: Relation | None
    version: int
    shapes: dict[tuple[Names, Names, bool], Table] = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=dict)


class Tables:
    """Every table that was seen, of all origins. shapes: of the batches, a list that only grows. Whoever writes a batch
    looks at it while the next one is read, and keeps what it made of each: no shape stands there that may still change.
    """

    def __init__(self) -> None:
        self.shapes: list[Shape] = []
        self._numbers = count()
        self._known: dict[_Name, _Known] = {}
        self._stored: dict[str, Relation] = {}
        self._asked: tuple[Origin, str, str, Names, Names, Sequence[str], bool] | None = None
        self._answer: Layout
        self._undo: list[Callable[[], object]] = []

    def mark(self) -> None:
        """What follows may be taken back, until something is noted of what columns have held."""
        self._undo.clear()

    def roll_back(self) -> None:
        """Know no more than at the mark."""
        while self._undo:
            self._undo.pop()()
        self._asked = None

    def remember(self, relations: Iterable[Relation]) -> None:
        """Shapes that were stored: they are not told of again."""
        self._stored |= {relation.id: relation for relation in relations}

    def find(
        self, origin: Origin, schema: str, name: str, values: Names, key: Names, unchanged: Sequence[str], whole: bool
    ) -> Layout:
        """Where the values of an image belong. values: its columns, in their order. key: those of the record's key.
        Without any, it says nothing of the table's key. unchanged: columns that the image leaves out. whole:
        whether it has all others; else it may have the key alone.
        """
        # Most images are like the one before, and tuples of the same strings are compared faster than hashed.
        asked = origin, schema, name, values, key, unchanged, whole
        if asked != self._asked:
            self._answer = self._find(*asked)
            self._asked = asked
        return self._answer

    def find_current(self, origin: Origin, schema: str, name: str) -> Table:
        """The shape that a table has, for a change that does not say it."""
        full_name = origin.home, schema, name
        return (self._known.get(full_name) or self._meet(full_name, (), ())).current

    def note(self, table: Table, bits: Sequence[int]) -> None:
        """Its columns have held these as well, whatever shape the table has next."""
        held = self._known[table.name].held
        for name, new in zip(table.columns, bits, strict=True):
            held[name] = held.get(name, 0) | new

    def widen(self, table: Table) -> Table:
        """The table with columns that hold all that was noted; another one if that makes another shape."""
        if table.wider is not None:
            return self.widen(table.wider)
        known = self._known[table.name]
        bits = [known.held.get(name, 0) for name in table.columns]
        if table.relation is None or list(map(choose_type, bits)) == list(map(choose_type, table.bits)):
            table.bits = bits
            return table
        self._asked = None
        table.wider = self._add(known, table.name, table.columns, table.key, table.keyless, table.guessed)
        if known.current is table:
            known.current = table.wider
        return table.wider

    def settle(self, used: Iterable[Table]) -> Sequence[Told]:
        """Describe the tables; no shape changes behind that. The result has those whose shape is not the one that was
        told last. used: in the order of their use.
        """
        told = []
        for table in used:
            known = self._known[table.name]
            relation = self._describe(known, table)
            if known.told is not relation:
                told.append(Told(table, known.told))
                known.told = relation
        return told

    def _find(
        self, origin: Origin, schema: str, name: str, values: Names, key: Names, unchanged: Sequence[str], whole: bool
    ) -> Layout:
        full_name = origin.home, schema, name
        known = self._known.get(full_name) or self._meet(full_name, values, key)
        table = known.current
        sought = values, key, tuple(unchanged), whole
        layout = table.layouts.get(sought)
        if layout is None or layout.table.wider is not None:
            layout = _lay_out(self._fit(known, values, key, unchanged, whole), values)
            if len(table.layouts) >= _MOST_LAYOUTS:
                table.layouts.clear()
            table.layouts[sought] = layout
            self._undo.append(lambda: table.layouts.pop(sought, None))
        if known.current is not layout.table:
            self._undo.append(partial(setattr, known, "current", known.current))
            known.current = layout.table
        return layout

    def _describe(self, known: _Known, table: Table) -> Relation:
        if table.relation is None:
            if table.keyless:
                keyed = known.shapes.get((table.columns, table.key, False))
                keyed = keyed or self._add(known, table.name, table.columns, table.key, False, table.guessed)
                table.relation = self._describe(known, self.widen(keyed))
            else:
                known.version += 1
                table.relation = table.describe(known.version)
        if table.shape < 0:
            table.shape = len(self.shapes)
            self.shapes.append(_make_shape(table, table.relation))
        return table.relation

    def _meet(self, name: _Name, values: Names, key: Names) -> _Known:
        stored = self._stored.get(make_id(name))
        if stored is not None and (stored.schema, stored.table) == name[1:]:
            columns = tuple(column.name for column in stored.columns)
            its_key = tuple(column.name for column in stored.columns if column.key)
            held = {column.name: _look_up_bits(column) for column in stored.columns}
        else:
            stored, columns, held = None, values, {}
            its_key = tuple(column for column in values if column in key)
        table = Table(name, columns, its_key, False, [held.get(one, 0) for one in columns], next(self._numbers), stored)
        table.guessed = stored is not None
        known = _Known(table, stored, 0 if stored is None else stored.version, held=held)
        self._known[name] = known
        self._undo.append(partial(self._known.pop, name))
        return self._hold(known, table)

    def _fit(self, known: _Known, values: Names, key: Names, unchanged: Sequence[str], whole: bool) -> Table:
        """The shape that the table has, or the next one if the image does not fit it."""
        table = known.current
        columns = _order_columns(table, values, unchanged, whole)
        its_key = tuple(name for name in columns if name in key)
        keyless = not its_key
        if keyless:
            its_key = tuple(name for name in columns if name in table.key)
        sought = columns, its_key, keyless and bool(its_key)
        guessed = bool(unchanged) and (table.guessed or not {*unchanged} <= {*table.columns})
        return known.shapes.get(sought) or self._add(known, table.name, *sought, guessed if whole else table.guessed)

    def _add(self, known: _Known, name: _Name, columns: Names, key: Names, keyless: bool, guessed: bool) -> Table:
        bits = [known.held.get(column, 0) for column in columns]
        table = Table(name, columns, key, keyless, bits, next(self._numbers), guessed=guessed)
        self._hold(known, table)
        return table

    def _hold(self, known: _Known, table: Table) -> _Known:
        shape = table.columns, table.key, table.keyless
        known.shapes[shape] = table
        self._undo.append(partial(known.shapes.pop, shape))
        return known


_MOST_LAYOUTS = 1000


def _order_columns(table: Table, values: Names, unchanged: Sequence[str], whole: bool) -> Names:
    """Those of the table with an image's. An event keeps the order of its columns: a checksum is made of that.

    Where a column lies that an image leaves out, it does not say. The order of the table is kept where the image does
    not contradict it, or where it is known: some writers have no order.
    """
    had, there = set(table.columns), {*values, *unchanged}
    joined = (*table.columns, *(name for name in (*values, *unchanged) if name not in had))
    if not whole:
        return joined
    columns = tuple(name for name in joined if name in there)
    if (there == had and not table.guessed) or (unchanged and _is_in_order(values, columns)):
        return columns
    return _put_among(values, columns)


def _put_among(values: Names, columns: Names) -> Names:
    """The values in their order, and each of the other columns behind the one that it was behind."""
    ordered, given = list(values), {*values}
    for before, name in zip((None, *columns), columns, strict=False):
        if name not in given:
            ordered.insert(0 if before is None else ordered.index(before) + 1, name)
    return tuple(ordered)


def _is_in_order(some: Names, columns: Names) -> bool:
    rest = iter(columns)
    return all(name in rest for name in some)


def make_id(name: _Name) -> str:
    """Tables of one name come from several databases, and any of the names may hold any character."""
    home, schema, table = name
    return json.dumps([*home, schema, table], ensure_ascii=False)


def _look_up_bits(column: Column) -> int:
    return look_up_bits(column.type) if isinstance(column.type, TextType) else DOCUMENT


def _make_shape(table: Table, relation: Relation) -> Shape:
    """Rows without a key are of columns of which none is the key's."""
    if not table.keyless:
        return Shape(relation, relation.columns)
    return Shape(relation, tuple(replace(column, key=False) for column in relation.columns))


def _lay_out(table: Table, values: Names) -> Layout:
    if values == table.columns:
        return Layout(table, None, len(values))
    at = {name: place for place, name in enumerate(table.columns)}
    return Layout(table, tuple(at[name] for name in values), len(table.columns))
