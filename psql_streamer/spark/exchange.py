"""Changes -> the Arrow table that Spark gets.

Every image is a row of the table: first all new images, then all old ones, so that a rule that masks a column
masks it in both. `_row` is the place in that order; it comes back with every row and says which image it is.
Columns travel typed.

What must survive the exchange
------------------------------
Spark promises neither the order of rows nor that a row stays: a rule may filter, and partitions come back as they are
done. `_row` is the thread: rows are sorted by it when they return (kept.py), an image that did not return was dropped
by the rule, and with it the change, unless its key must still be deleted. So `_row` must not be computed: a rule that
gives the column another value would swap the identities of changes without a word. Catalyst's plan says where each
column of the result comes from (row_tracking.py), and a `_row` that is not the one that was sent is refused.

Not all values are there. A key-only old row, or a TOASTed value that an update left alone, is NULL in the table,
which the rule cannot tell from a NULL of the database. What the rule computes from such a value is not there either:
the plan says which columns a computed column reads (`facts`), and the result is marked as absent for the images that
lack one of them (lacking.py). A filter that reads such a value lets the row pass, because dropping it would lose a
change.

A value that the rule does not touch returns as PostgreSQL wrote it: not Spark's value as text, but the very text that
was sent (`texts`), looked up by `_row`, so that nothing is lost on the way through a type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from psql_streamer.errors import HandlerRefused
from psql_streamer.hashed import Hashed
from psql_streamer.model import ArrowType, Changes, Column, Transactions
from psql_streamer.pgtypes import casts
from psql_streamer.pgtypes.descriptions import HashedColumns
from psql_streamer.spark.alike import Tables
from psql_streamer.spark.lacking import Lacking, fill_unchanged_values, find_lacking
from psql_streamer.spark.metadata import IMAGE_SHIFT, METADATA, ROW, Images

_MOST_ARROW_SCHEMAS = 1000


class _Arrays(Sequence[pa.Array]):
    """Arrays, each made when it is first asked for."""

    def __init__(self, count: int, make: Callable[[int], pa.Array]) -> None:
        self._made: list[pa.Array | None] = [None] * count
        self._make = make

    def __len__(self) -> int:
        return len(self._made)

    @overload
    def __getitem__(self, index: int) -> pa.Array: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[pa.Array]: ...
    def __getitem__(self, index: int | slice) -> pa.Array | Sequence[pa.Array]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        if self._made[index] is None:
            self._made[index] = self._make(index)
        return self._made[index]


@dataclass(frozen=True)
class Sent:
    """What goes to Spark, and what is needed to understand what comes back.

    columns: of the changes.
    shape: the schema of the table: the changes' own columns first, then metadata columns, then `_row`.
    texts, seen, typed: by column of the changes, all new images followed by all old ones. texts: as they came. seen:
        with the values that an update left alone, where they are known. typed: these, as they are in the table.
    row_ids: what `_row` holds.
    read: columns that are sent as something else than `typed`, because a rule coerces them.
    bits: the columns that have a bit in `_row`, see Lacking.compute_flags.
    """

    changes: Changes
    columns: HashedColumns
    shape: Hashed[pa.Schema]
    texts: Sequence[pa.BinaryArray]
    seen: Sequence[pa.BinaryArray]
    typed: Sequence[pa.Array]
    metadata: Sequence[pa.Array]
    row_ids: NDArray[np.int64]
    lacking: Lacking
    bits: tuple[int, ...]
    read: Mapping[int, pa.Array] = field(default_factory=dict)

    @property
    def schema(self) -> pa.Schema:
        """Of the table."""
        return self.shape.value

    @cached_property
    def own_columns(self) -> int:
        """How many of the table's columns are the changes' own."""
        return len(self.texts)

    @property
    def row_column(self) -> int:
        """The index of `_row`, the last one."""
        return len(self.schema) - 1

    @cached_property
    def names(self) -> list[str]:
        """The names of all columns of the table."""
        names: list[str] = self.schema.names
        return names

    @cached_property
    def table(self) -> pa.Table:
        """All columns."""
        return self.select_columns(range(len(self.schema)))

    def select_columns(self, columns: Sequence[int]) -> pa.Table:
        """Some columns of the table. The others are not made typed."""
        arrays = [self.select_column(at) for at in columns]
        return pa.Table.from_arrays(arrays, schema=pa.schema([self.schema.field(at) for at in columns]))

    def select_column(self, at: int) -> pa.Array:
        """A column of the table."""
        if at < self.own_columns:
            return self.read[at] if at in self.read else self.typed[at]
        metadata = at - self.own_columns
        return self.metadata[metadata] if metadata < len(self.metadata) else pa.array(self.row_ids)

    def with_read(self, read: Mapping[int, pa.Array]) -> Sent:
        """The same with these columns in place of the typed ones."""
        schema = self.schema
        for at, array in read.items():
            schema = schema.set(at, pa.field(schema.field(at).name, array.type))
        return replace(self, shape=Hashed(schema), read=read)

    def place(self, name: str) -> int | None:
        """The index of a metadata column; None where it was not sent."""
        return next((at for at in range(self.own_columns, len(self.names)) if self.names[at] == name), None)


def send(
    changes: Changes,
    hashed: HashedColumns,
    transactions: Transactions,
    wanted: Callable[[str], bool],
    bits: Sequence[int] = (),
    tables: Tables | None = None,
) -> Sent:
    """The table for Spark.

    hashed: the columns of the changes.
    wanted: whether the rule may use a metadata column of this name. bits: columns that a filter of the rule reads.
    tables: which relation each row is of, if they are of several.
    """
    metadata = tuple(name for name in METADATA if wanted(name))
    _refuse_clashes(changes, [*metadata, ROW] if metadata else [])
    lacks = find_lacking(changes)
    columns = changes.columns
    texts = _Arrays(len(columns), lambda at: _join_images(changes.after.columns[at], changes.before.columns[at]))
    seen = _Arrays(len(columns), lambda at: _join_seen_texts(changes, at, texts[at]))
    typed = _Arrays(len(columns), lambda at: _cast_texts(seen[at], columns[at]))
    images = Images(changes, transactions, lacks, np.concatenate((changes.after.rows, changes.before.rows)), tables)
    made = _Arrays(len(metadata), lambda at: METADATA[metadata[at]].make(images))
    row = (np.arange(lacks.images) << IMAGE_SHIFT) | lacks.compute_flags(bits)
    shape = _make_shape(hashed, metadata)
    return Sent(changes, hashed, shape, texts, seen, typed, made, row, lacks, tuple(bits))


@lru_cache(maxsize=_MOST_ARROW_SCHEMAS)
def _make_shape(columns: HashedColumns, metadata: tuple[str, ...]) -> Hashed[pa.Schema]:
    own = [(column.name, casts.choose_arrow_type(column.type)) for column in columns.value]
    return Hashed(pa.schema([*own, *((name, METADATA[name].type) for name in metadata), (ROW, pa.int64())]))


def find_row_of_image(sent: Sent, image: int) -> int:
    """Which of the changes an image belongs to."""
    after, before = sent.changes.after, sent.changes.before
    return int(after.rows[image] if image < len(after) else before.rows[image - len(after)])


def _refuse_clashes(changes: Changes, ours: list[str]) -> None:
    """Spark does not tell names apart by case, unless told to."""
    theirs = {column.name.lower() for column in changes.columns}
    clash = next((name for name in ours if name in theirs), None)
    if clash:
        raise HandlerRefused(
            f"a rule of [spark.tables] cannot run on {changes.relation}: its column {clash} has the name of a "
            "column that the handler adds",
            "rename the column, or use a rule that does not need it",
        )


def _join_seen_texts(changes: Changes, column: int, texts: pa.Array) -> pa.Array:
    new = fill_unchanged_values(changes, column)
    return texts if new is changes.after.columns[column] else _join_images(new, changes.before.columns[column])


def _cast_texts(texts: pa.Array, column: Column) -> pa.Array:
    """What is no text is typed already."""
    return texts if isinstance(column.type, ArrowType) else casts.cast(texts, column.type)


def _join_images(after: pa.Array, before: pa.Array) -> pa.Array:
    if len(before) == 0:
        return after
    return before if len(after) == 0 else pa.concat_arrays([after, before])
