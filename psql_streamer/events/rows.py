"""Changes cut into rows of one kind: the same action, with or without an old image.

A format then needs no case for each row. An update that changes the key becomes a delete of the old key and an
insert of the new one, so that what is keyed by it (a compacted topic, a consumer's table) ends up right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from psql_streamer.model import Changes, Column, Image, Op, Relation

Index = NDArray[np.int64]
Absent = Mapping[int, NDArray[np.bool_]]


@dataclass(frozen=True, slots=True)
class Values:
    """An Arrow array a column; absent: where a column is not in the image at all (which is not NULL)."""

    arrays: tuple[pa.Array, ...]
    absent: Absent = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one relation and one kind, one element of every array a row.

    new: None for deletes. old: None where no row has an old image.
    unchanged: column index -> rows whose TOASTed value the update left alone and the WAL does not hold.
    key_change: these rows are half of an update that changed the key.
    """

    relation: Relation
    columns: tuple[Column, ...]
    key: tuple[int, ...]
    op: Op
    ordinal: Index
    seq: Index
    lsn: NDArray[np.uint64]
    tx: NDArray[np.int32]
    new: Values | None
    old: Values | None
    unchanged: Absent = field(default_factory=dict)
    key_change: bool = False

    def __len__(self) -> int:
        return len(self.ordinal)

    @property
    def image(self) -> Values:
        """The row that the action left, or (delete) the one that it removed."""
        image = self.old if self.new is None else self.new
        assert image is not None  # noqa: S101 - a delete always has an old image
        return image


def split(changes: Changes, key: tuple[int, ...]) -> Iterator[Rows]:
    """The rows of `changes` by kind; key: indexes of the columns that events are keyed by."""
    has_old = np.zeros(len(changes), np.bool_)
    has_old[changes.before.rows] = True
    update = changes.op == Op.UPDATE
    yield from _of(changes, key, Op.INSERT, np.flatnonzero(changes.op == Op.INSERT))
    yield from _of(changes, key, Op.UPDATE, np.flatnonzero(update & ~has_old))
    for rows in _of(changes, key, Op.UPDATE, np.flatnonzero(update & has_old), old=True):
        yield from _by_key_change(rows)
    yield from _of(changes, key, Op.DELETE, np.flatnonzero(changes.op == Op.DELETE), old=True)


def _of(changes: Changes, key: tuple[int, ...], op: Op, at: Index, old: bool = False) -> Iterator[Rows]:
    if not len(at):
        return
    new_values = None if op is Op.DELETE else _values(changes.after, at, len(changes))
    old_values = _values(changes.before, at, len(changes)) if old else None
    unchanged: Absent = {}
    if new_values is not None:
        if old_values is not None:
            new_values = _fill_from_old(new_values, old_values)
        unchanged = new_values.absent
    yield Rows(
        changes.relation,
        changes.columns,
        key,
        op,
        changes.ordinal[at],
        changes.seq[at],
        changes.lsn[at],
        changes.tx[at],
        new_values,
        old_values,
        unchanged,
    )


def _values(image: Image, at: Index, rows: int) -> Values:
    """The image's elements for the rows `at`, in their order."""
    if len(image) == len(at) and np.array_equal(image.rows, at):
        return Values(image.columns, image.absent)
    place = np.full(rows, -1, np.int64)
    place[image.rows] = np.arange(len(image))
    taken = place[at]
    absent = {column: gone[taken] for column, gone in image.absent.items()}
    return Values(
        tuple(array.take(pa.array(taken)) for array in image.columns),
        {column: gone for column, gone in absent.items() if gone.any()},
    )


def _fill_from_old(new: Values, old: Values) -> Values:
    """Under REPLICA IDENTITY FULL the old row holds what the new one leaves out as unchanged."""
    arrays, absent = list(new.arrays), {}
    for column, gone in new.absent.items():
        missing = old.absent.get(column)
        held = gone if missing is None else gone & ~missing
        arrays[column] = pc.if_else(pa.array(held), old.arrays[column], arrays[column])
        if (gone & ~held).any():
            absent[column] = gone & ~held
    return Values(tuple(arrays), absent)


def _by_key_change(rows: Rows) -> Iterator[Rows]:
    changed = _key_changed(rows)
    if not changed.any():
        yield rows
        return
    if not changed.all():
        yield _take(rows, np.flatnonzero(~changed))
    moved = _take(rows, np.flatnonzero(changed))
    yield Rows(
        moved.relation,
        moved.columns,
        moved.key,
        Op.DELETE,
        moved.ordinal,
        moved.seq,
        moved.lsn,
        moved.tx,
        None,
        moved.old,
        key_change=True,
    )
    yield Rows(
        moved.relation,
        moved.columns,
        moved.key,
        Op.INSERT,
        moved.ordinal,
        moved.seq,
        moved.lsn,
        moved.tx,
        moved.new,
        None,
        moved.unchanged,
        key_change=True,
    )


def _key_changed(rows: Rows) -> NDArray[np.bool_]:
    changed = np.zeros(len(rows), np.bool_)
    if rows.new is None or rows.old is None:
        return changed
    for column in rows.key:
        new, old = rows.new.arrays[column], rows.old.arrays[column]
        differs = pc.fill_null(pc.not_equal(new, old), fill_value=False)
        one_null = pc.xor(pc.is_null(new), pc.is_null(old))
        known = ~rows.old.absent.get(column, np.zeros(len(rows), np.bool_))
        known &= ~rows.new.absent.get(column, np.zeros(len(rows), np.bool_))
        changed |= pc.or_(differs, one_null).to_numpy(zero_copy_only=False) & known
    return changed


def _take(rows: Rows, at: Index) -> Rows:
    if len(at) == len(rows):
        return rows
    return Rows(
        rows.relation,
        rows.columns,
        rows.key,
        rows.op,
        rows.ordinal[at],
        rows.seq[at],
        rows.lsn[at],
        rows.tx[at],
        _take_values(rows.new, at),
        _take_values(rows.old, at),
        {column: gone[at] for column, gone in rows.unchanged.items() if gone[at].any()},
        rows.key_change,
    )


def _take_values(values: Values | None, at: Index) -> Values | None:
    if values is None:
        return None
    absent = {column: gone[at] for column, gone in values.absent.items()}
    return Values(
        tuple(array.take(pa.array(at)) for array in values.arrays),
        {column: gone for column, gone in absent.items() if gone.any()},
    )
