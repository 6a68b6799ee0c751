"""Changes cut into rows of one kind: the same action, with or without an old image.

A format then needs no case for each row. An update that changes the key becomes a delete of the old key and an
insert of the new one, so that what is keyed by it (a compacted topic, a consumer's table) ends up right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from psql_streamer.events.json import text as json_text
from psql_streamer.events.unchanged import Unchanged
from psql_streamer.model import Changes, Column, Image, Relation, RowOp

Index = NDArray[np.int64]
Absent = Mapping[int, NDArray[np.bool_]]


@dataclass(frozen=True, slots=True)
class Values:
    """An Arrow array a column.

    absent: column index -> where the column is not in the image at all (which is not NULL).
    marked: column index -> where a marker stands for a value that the image lacks. marker: it, as JSON.
    """

    arrays: tuple[pa.Array, ...]
    absent: Absent = field(default_factory=dict)
    marked: Absent = field(default_factory=dict)
    marker: bytes = b""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one relation and one kind, one element of every array a row.

    new: None for deletes. old: None where no row has an old image.
    unchanged: column index -> rows that lack a TOASTed value because the update left it alone: absent or marked.
    key_change: these rows are half of an update that changed the key. other: the image of its other half.
    place, table_seq: as Changes has them.
    """

    relation: Relation
    columns: tuple[Column, ...]
    key: tuple[int, ...]
    op: RowOp
    ordinal: Index
    seq: Index
    tx: NDArray[np.int32]
    new: Values | None
    old: Values | None
    unchanged: Absent = field(default_factory=dict)
    key_change: bool = False
    other: Values | None = None
    place: NDArray[np.uint64] | None = None
    table_seq: Index | None = None

    def __len__(self) -> int:
        return len(self.ordinal)

    @property
    def image(self) -> Values:
        """The row that the action left, or (delete) the one that it removed."""
        image = self.old if self.new is None else self.new
        assert image is not None  # noqa: S101 - a delete always has an old image
        return image


def split(changes: Changes, key: tuple[int, ...], unchanged: Unchanged) -> Iterator[Rows]:
    """The rows of `changes` by kind.

    key: indexes of the columns that events are keyed by. unchanged: what becomes of values that an update left alone.
    ValueError: an op is none of a row's; nothing was given then.
    """
    by_op = {op: np.flatnonzero(changes.op == op) for op in _in_use(changes)}
    if sum(map(len, by_op.values())) != len(changes):
        raise ValueError(f"the changes of {changes.relation} hold op {_strange(changes.op)}, which no row has")
    for op, at in by_op.items():
        match op:
            case RowOp.INSERT | RowOp.READ:
                yield from _of(changes, key, op, at)
            case RowOp.UPDATE:
                yield from _updates(changes, key, at, unchanged)
            case RowOp.DELETE:
                yield from _of(changes, key, op, at, old=True)
            case _:
                assert_never(op)


def _in_use(changes: Changes) -> Sequence[RowOp]:
    """The ops of the changes, and maybe others; most batches have one."""
    first = changes.op[0] if len(changes) else 0
    one = [op for op in RowOp if op == first]
    return one if one and (changes.op == first).all() else list(RowOp)


def _strange(ops: NDArray[np.uint8]) -> int:
    return int(ops[~np.isin(ops, list(RowOp))][0])


def _updates(changes: Changes, key: tuple[int, ...], at: Index, unchanged: Unchanged) -> Iterator[Rows]:
    has_old = np.zeros(len(changes), np.bool_)
    has_old[changes.before.rows] = True
    for rows in _of(changes, key, RowOp.UPDATE, at[~has_old[at]]):
        yield _settled(rows, unchanged)
    for rows in _of(changes, key, RowOp.UPDATE, at[has_old[at]], old=True):
        yield from _by_key_change(_settled(rows, unchanged))


def _of(changes: Changes, key: tuple[int, ...], op: RowOp, at: Index, old: bool = False) -> Iterator[Rows]:
    if not len(at):
        return
    yield Rows(
        changes.relation,
        changes.columns,
        key,
        op,
        changes.ordinal[at],
        changes.seq[at],
        changes.tx[at],
        None if op is RowOp.DELETE else _values(changes.after, at, len(changes)),
        _values(changes.before, at, len(changes)) if old else None,
        place=None if changes.place is None else changes.place[at],
        table_seq=None if changes.table_seq is None else changes.table_seq[at],
    )


def _values(image: Image, at: Index, rows: int) -> Values:
    """The image's elements for the rows `at`, which all have one."""
    taken = image.take(at, rows)
    return Values(taken.columns, taken.absent)


def _settled(rows: Rows, policy: Unchanged) -> Rows:
    """With the values that an update left alone filled from the old row, marked or left out."""
    if rows.new is None or not rows.new.absent:
        return rows
    arrays = list(rows.new.arrays)
    absent: dict[int, NDArray[np.bool_]] = {}
    marked: dict[int, NDArray[np.bool_]] = {}
    for column, gone in rows.new.absent.items():
        lacking, treatment = gone, policy.of(rows.relation, rows.columns[column].name)
        # PostgreSQL sends the old key with an update whose key is TOASTed: a key is filled in, it must not be null.
        if rows.old is not None and (treatment != "omit" or column in rows.key):
            missing = rows.old.absent.get(column)
            held = gone if missing is None else gone & ~missing
            arrays[column] = pc.if_else(pa.array(held), rows.old.arrays[column], arrays[column])
            lacking = gone & ~held
        if not lacking.any():
            continue
        match treatment:
            case "marker":
                marked[column] = lacking
            case "fill" | "omit":
                absent[column] = lacking
            case _:
                assert_never(treatment)
    new = Values(tuple(arrays), absent, marked, json_text.name(policy.marker))
    return replace(rows, new=new, unchanged=absent | marked)


def _by_key_change(rows: Rows) -> Iterator[Rows]:
    changed = _key_changed(rows)
    if not changed.any():
        yield rows
        return
    if not changed.all():
        yield _take(rows, np.flatnonzero(~changed))
    moved = _take(rows, np.flatnonzero(changed))
    deleted = replace(moved, op=RowOp.DELETE, new=None, unchanged={}, key_change=True, other=moved.new)
    inserted = replace(moved, op=RowOp.INSERT, old=None, key_change=True, other=moved.old)
    yield from (deleted, inserted)


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
    return replace(
        rows,
        ordinal=rows.ordinal[at],
        seq=rows.seq[at],
        tx=rows.tx[at],
        place=None if rows.place is None else rows.place[at],
        table_seq=None if rows.table_seq is None else rows.table_seq[at],
        new=_take_values(rows.new, at),
        old=_take_values(rows.old, at),
        unchanged=_take_flags(rows.unchanged, at),
    )


def _take_values(values: Values | None, at: Index) -> Values | None:
    if values is None:
        return None
    return Values(
        tuple(array.take(pa.array(at)) for array in values.arrays),
        _take_flags(values.absent, at),
        _take_flags(values.marked, at),
        values.marker,
    )


def _take_flags(flags: Absent, at: Index) -> Absent:
    return {column: flagged[at] for column, flagged in flags.items() if flagged[at].any()}
