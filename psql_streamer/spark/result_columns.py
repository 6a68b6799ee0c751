"""The columns of a rule's result as columns of changes.

A value that comes back as it went gets its text form back, so that what a rule does not change leaves as PostgreSQL
wrote it, byte for byte, also where Spark's type cannot hold it (and Spark saw null).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from psql_streamer.cells import join_addresses
from psql_streamer.columns import ChosenCells, list_held_arrays
from psql_streamer.model import ArrowType, Column, Index, TextType
from psql_streamer.pgtype import Logical, PostgresType
from psql_streamer.pgtypes import casts
from psql_streamer.pgtypes.builtin import BY_OID
from psql_streamer.spark.exchange import Sent
from psql_streamer.spark.facts import Field
from psql_streamer.spark.lacking import Mask, merge_masks
from psql_streamer.spark.metadata import KEY_ONLY, UNCHANGED
from psql_streamer.spark.result_fields import Layout, Passed, find_source, is_key


class Survivor(NamedTuple):
    """A column of the result: its values by sorted image, and where its images lack it (None: nowhere).

    made: the values; or what they are selected from when they are asked for, which has them as the column `source`.
    held: None, or as what the new and the old images hold their values, which need not be made of it.
    """

    column: Column
    made: pa.Array | Given
    absent: Mask | None = None
    source: int = -1
    held: tuple[ChosenCells, ChosenCells] | None = None

    @property
    def values(self) -> pa.Array:
        return self.made.make_passed(self.source, self.absent) if isinstance(self.made, Given) else self.made


@dataclass(frozen=True, slots=True)
class Given:
    """The rows of a result. images: sorted. put_back: which of them the rule dropped. layout: what its columns are.
    held: what the new and the old images that were sent hold their columns as. alone: new images that go out without
    the old one, from which nobody can take what the update left alone any more; None: there are none.
    """

    sent: Sent
    images: Index
    put_back: Mask
    layout: Layout
    held: tuple[Sequence[pa.Array | ChosenCells], Sequence[pa.Array | ChosenCells]]
    alone: Mask | None = None

    @classmethod
    def from_images(cls, sent: Sent, images: Index, put_back: Mask, layout: Layout) -> Given:
        """Of these images."""
        changes = sent.changes
        return cls(
            sent,
            images,
            put_back,
            layout,
            (list_held_arrays(changes.after.columns), list_held_arrays(changes.before.columns)),
        )

    def find_rows(self, elements: Mask) -> Mask:
        """The changes that these elements of the result are of."""
        changes = self.sent.changes
        rows = np.zeros(len(changes), np.bool_)
        rows[np.concatenate((changes.after.rows, changes.before.rows))[self.images[elements]]] = True
        return rows

    def select_addresses(self) -> pa.StructArray | None:
        """Where the rows went before the rule, if they say so."""
        changes = self.sent.changes
        joined = join_addresses([(image.addresses, len(image)) for image in (changes.after, changes.before)])
        return None if joined is None else joined.take(pa.array(self.images))

    def complete(self, field: Field, values: pa.Array) -> pa.Array:
        """The values of a column with those of the rows that are put back: as they were sent, if the column is passed
        on, else null."""
        if not self.put_back.any():
            return values
        wanted = np.cumsum(~self.put_back) - 1
        came = values.take(pa.array(wanted, mask=self.put_back))
        source = field.source
        if source is None or source >= self.sent.own_columns:
            return came
        if not casts.choose_arrow_type(self.sent.changes.columns[source].type).equals(values.type):
            return came
        return pc.if_else(pa.array(self.put_back), self.sent.typed[source].take(pa.array(self.images)), came)

    def build_direction(self, field: Field, values: pa.Array, reads: frozenset[int]) -> tuple[pa.Array, Mask | None]:
        """A column that is not part of events; and where it cannot be known, and is null."""
        passed = field.source is not None and field.source < len(self.sent.changes.columns)
        absent = self._find_unseen_of_passed(field.source) if passed else self._find_absent_of_computed(reads)
        return _make_absent_null(self.complete(field, values), absent), absent

    def build_survivor(self, field: Field, values: pa.Array, reads: frozenset[int]) -> Survivor:
        """A column of the new changes."""
        columns = self.sent.changes.columns
        passed = field.source is not None and field.source < len(columns)
        absent = self._find_absent_of_passed(field.source) if passed else self._find_absent_of_computed(reads)
        source = find_source(self.sent, field)
        if source is None:
            return _make_computed_survivor(field.name, False, values, absent)
        column = columns[source]
        key = is_key(column, field, self.layout.names)
        kind = _find_kept_type(column, casts.choose_arrow_type(column.type), values.type, passed)
        if kind is None:
            return _make_computed_survivor(field.name, key, values, absent)
        texts = self._restore_texts(source, values, kind, passed)
        return _make_survivor(replace(column, name=field.name, key=key), texts, absent)

    def build_stayed_survivor(self, field: Field, passed: Passed | None) -> Survivor:
        """A column that the rule passes on and that did not travel. passed: None where it is not the changes' own."""
        sent = self.sent
        if passed is None:
            values = self._select_images(sent.select_column(cast(int, field.source)))
            return _make_computed_survivor(field.name, False, values, None)
        source, column = passed
        absent = self._find_absent_of_passed(source) if sent.lacking.absent else None
        if sent.read and source in sent.read:
            return _make_computed_survivor(field.name, column.key, self._select_images(sent.read[source]), absent)
        return Survivor(column, self, absent, source, self._find_held(source))

    def make_passed(self, source: int, absent: Mask | None) -> pa.Array:
        """The values of a column of the changes, by sorted image; null where an image lacks it."""
        sent = self.sent
        kept = sent.typed if isinstance(sent.changes.columns[source].type, ArrowType) else sent.seen
        return _make_absent_null(self._select_images(kept[source]), absent)

    def find_alone(self, elements: Index) -> Mask | None:
        """Which of these new images lack a value that only the old image has; None where none does."""
        lacking, images = self.sent.lacking, self.images[elements]
        alone = np.zeros(len(self.images), np.bool_)
        for column, absent in lacking.absent.items():
            unseen = lacking.unseen.get(column)
            alone[elements] |= absent[images] if unseen is None else absent[images] & ~unseen[images]
        return alone if alone.any() else None

    def _find_held(self, source: int) -> tuple[ChosenCells, ChosenCells] | None:
        """None where they are held as arrays, or the old image's values stand in for some of the new one's."""
        if self.alone is not None and source in self.sent.lacking.absent:
            return None
        new, old = self.held[0][source], self.held[1][source]
        return (new, old) if isinstance(new, ChosenCells) and isinstance(old, ChosenCells) else None

    def _select_images(self, values: pa.Array) -> pa.Array:
        are_all = np.array_equal(self.images, np.arange(len(self.sent.row_ids)))
        return values if are_all else values.take(pa.array(self.images))

    def _find_absent_of_passed(self, source: int | None) -> Mask | None:
        """An image that goes out alone has what a rule sees of it."""
        mask = None if source is None else self.sent.lacking.absent.get(source)
        if mask is None or self.alone is None:
            return None if mask is None else mask[self.images]
        unseen = self._find_unseen_of_passed(source)
        return mask[self.images] & ~self.alone if unseen is None else np.where(self.alone, unseen, mask[self.images])

    def _find_unseen_of_passed(self, source: int | None) -> Mask | None:
        mask = None if source is None else self.sent.lacking.unseen.get(source)
        return None if mask is None else mask[self.images]

    def _find_absent_of_computed(self, reads: frozenset[int]) -> Mask | None:
        """What is computed from values that are not there is not there either, unless the rule asks for it."""
        lacking = self.sent.lacking
        if not lacking.unseen:
            return self.put_back if self.put_back.any() else None
        mask = merge_masks((lacking.unseen[at] for at in reads if at in lacking.unseen), lacking.images)
        if self.sent.place(UNCHANGED) in reads:
            mask &= ~lacking.is_new
        if self.sent.place(KEY_ONLY) in reads:
            mask &= lacking.is_new
        mask = mask[self.images] | self.put_back
        return mask if mask.any() else None

    def _restore_texts(
        self, source: int, values: pa.Array, kind: PostgresType | TextType, passed: bool
    ) -> pa.BinaryArray:
        """The text forms: the original where the value is the one that was sent, else the new value's.

        passed: the rule passed the column on as it is, so that null where null was sent is the value that Spark could
        not hold. A rule that computes the column saw null there, and its null is meant.
        """
        sent = self.sent
        every = np.array_equal(self.images, np.arange(len(sent.row_ids)))
        originals = sent.seen[source]
        before = sent.typed[source] if every else sent.typed[source].take(pa.array(self.images))
        texts = originals if every else originals.take(pa.array(self.images))
        if passed and _are_same(before, values):
            return texts
        equal = pc.fill_null(_compare_values(before, values), False)
        if passed:
            equal = pc.or_(equal, pc.and_(pc.is_null(before), pc.is_null(values)))
        return pc.if_else(equal, texts, casts.to_text(values, kind))


def _find_kept_type(
    column: Column, sent: pa.DataType, received: pa.DataType, passed: bool
) -> PostgresType | TextType | None:
    """The type of a column of text forms that stays of it. Where Spark has only text for the type (jsonb, arrays,
    numeric without precision), what a rule computed is text and nothing more."""
    kind = column.type
    if isinstance(kind, ArrowType) or not received.equals(sent):
        return None
    form = kind.like if isinstance(kind, TextType) else kind
    known = form.known or BY_OID.get(form.oid)
    is_text = known is not None and known.logical is Logical.TEXT and not known.base_oid and known.element is None
    return kind if passed or not pa.types.is_string(received) or is_text else None


def _make_computed_survivor(name: str, key: bool, values: pa.Array, absent: Mask | None) -> Survivor:
    """A column that the rule made: text of the PostgreSQL type that its Arrow type corresponds to, if one does."""
    kind = casts.find_postgres_type(values.type)
    if kind is None:
        return _make_survivor(Column(name, ArrowType(values.type), key), values, absent)
    return _make_survivor(Column(name, kind, key), casts.to_text(values, kind), absent)


def _make_survivor(column: Column, values: pa.Array, absent: Mask | None) -> Survivor:
    return Survivor(column, _make_absent_null(values, absent), absent)


def _make_absent_null(values: pa.Array, absent: Mask | None) -> pa.Array:
    """Null where an image lacks the column."""
    if absent is None or not absent.any():
        return values
    return pc.if_else(pa.array(absent), pa.scalar(None, values.type), values)


def _are_same(one: pa.Array, other: pa.Array) -> bool:
    bits = _convert_floats(one), _convert_floats(other)
    return bool(bits[0].equals(bits[1]))


def _compare_values(one: pa.Array, other: pa.Array) -> pa.Array:
    return pc.equal(_convert_floats(one), _convert_floats(other))


def _convert_floats(values: pa.Array) -> pa.Array:
    """Floats as integers, by which NaN equals NaN and 0 does not equal -0."""
    if pa.types.is_float64(values.type):
        return values.view(pa.int64())
    return values.view(pa.int32()) if pa.types.is_float32(values.type) else values
