"""The columns of a rule's result: which of the changes' columns they are, and which are the service's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from psql_streamer.errors import HandlerRefused
from psql_streamer.model import Column
from psql_streamer.spark.directions import DIRECTIONS, is_direction
from psql_streamer.spark.exchange import Sent
from psql_streamer.spark.facts import Field
from psql_streamer.spark.metadata import METADATA, ROW


class Kind(Enum):
    """What a column of a result is."""

    DIRECTION = "direction"
    OURS = "ours"
    OF_EVENTS = "of events"


class Passed(NamedTuple):
    """A column of the changes that a rule passes on. source: its place there. column: as it is in the result."""

    source: int
    column: Column


@dataclass(slots=True)
class Layout:
    """What the columns of a result are, for tables with the same columns. names: of those that become part of events.
    kinds: of each. passed: the changes' own columns, by their places in the result.
    """

    names: set[str]
    kinds: tuple[Kind, ...]
    passed: Mapping[int, Passed]
    _columns: tuple[Column, ...] = ()

    def share_columns(self, columns: tuple[Column, ...]) -> tuple[Column, ...]:
        """Columns that a batch has become, or the same object as for the batch before if they are equal: OfShapes
        knows it again.
        """
        before = self._columns  # another thread may set it
        if before == columns:
            return before
        self._columns = columns
        return columns


def make_layout(sent: Sent, fields: Sequence[Field], where: str) -> Layout:
    """HandlerRefused when two columns have the same name."""
    names = collect_column_names(sent, fields, where)
    kinds = tuple(_find_kind(sent, field) for field in fields)
    passed = {
        at: Passed(field.source, _name_column(sent.changes.columns[field.source], field, names))
        for at, (field, kind) in enumerate(zip(fields, kinds, strict=True))
        if kind is Kind.OF_EVENTS and field.source is not None and field.source < sent.own_columns
    }
    return Layout(names, kinds, passed)


def _find_kind(sent: Sent, field: Field) -> Kind:
    if is_direction(field, sent.changes.columns):
        return Kind.DIRECTION
    return Kind.OURS if is_ours(sent, field) else Kind.OF_EVENTS


def _name_column(column: Column, field: Field, names: set[str]) -> Column:
    key = is_key(column, field, names)
    return column if (field.name, key) == (column.name, column.key) else replace(column, name=field.name, key=key)


def collect_column_names(sent: Sent, fields: Sequence[Field], where: str) -> set[str]:
    """The names of a result's columns that become part of events; HandlerRefused when two have the same."""
    names = [field.name for field in fields if not is_ours(sent, field)]
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise HandlerRefused(
            f"{where} gives two columns named {twice[0]}",
            f"name one of them otherwise; SELECT * EXCEPT ({twice[0]}), ... AS {twice[0]} replaces a column",
        )
    return set(names)


def find_source_columns(sent: Sent, fields: Sequence[Field]) -> set[int]:
    """The columns of the changes that are in a result under whatever name, or that it has a column in the place of."""
    found = (find_source(sent, field) for field in fields if not is_ours(sent, field))
    return {source for source in found if source is not None}


def find_computed_key(sent: Sent, fields: Sequence[Field]) -> str | None:
    """A key column that a result computes: a row without it cannot be put back."""
    theirs = [field for field in fields if not is_ours(sent, field)]
    names = {field.name for field in theirs}
    for field in theirs:
        source = find_source(sent, field)
        passed = field.source is not None and field.source < sent.own_columns
        if source is not None and not passed and is_key(sent.changes.columns[source], field, names):
            return field.name
    return None


def find_source(sent: Sent, field: Field) -> int | None:
    """The column of the changes that a column of the result is, or takes the place of."""
    if field.source is not None and field.source < sent.own_columns:
        return field.source
    name = field.stands_for or field.name
    return next((at for at, column in enumerate(sent.changes.columns) if column.name == name), None)


def is_key(column: Column, field: Field, names: set[str]) -> bool:
    """A renamed key is still the key, unless the column is there under its own name as well."""
    return column.key and (column.name in (field.name, field.stands_for) or column.name not in names)


def is_ours(sent: Sent, field: Field) -> bool:
    """Whether it is a metadata column under its own name, `_row`, or one that says where an event goes; under another
    name it is the rule's. So is one that takes the place of a column of the table: metadata is not sent beside it.
    """
    if field.name not in _OURS:
        return False
    if is_direction(field, sent.changes.columns):
        return True
    if field.name == ROW:
        return field.source is None or field.source >= sent.own_columns
    return field.name not in DIRECTIONS and find_source(sent, field) is None


_OURS = DIRECTIONS | METADATA.keys() | {ROW}
"""Names that columns of the service have, and that columns of a table may have, too."""
