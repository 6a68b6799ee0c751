"""The rows of a batch by kind: the same action, with or without an old image, whatever relations they are of.

A format then needs no case for each row. An update that changes the key becomes a delete of the old key and an
insert of the new one, so that what is keyed by it (a compacted topic, a consumer's table) ends up right.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from psql_streamer.cells import (
    ArrowCells,
    CellTable,
    Shape,
    Tuples,
    expand_ranges,
    group_by_type,
    select_known_fields,
    select_tuples,
)
from psql_streamer.events import addresses
from psql_streamer.events.per_transaction import Fragment
from psql_streamer.events.unchanged import Unchanged
from psql_streamer.growing import GrowingArray
from psql_streamer.model import NO_PLACE, NO_UUID, UNCOUNTED, Index, RowOp, select_row_fields

Mask = NDArray[np.bool_]


class Keys:
    """For each shape of a table the indexes of the columns that its events are keyed by.

    counts: of these. columns: of all shapes, one behind the other; firsts: where those of each shape begin.
    """

    def __init__(self, of_shapes: Sequence[tuple[int, ...]]) -> None:
        self.of_shapes: list[tuple[int, ...]] = []
        self._counts = GrowingArray(np.int64)
        self._columns = GrowingArray(np.int64)
        self._firsts = GrowingArray(np.int64)
        self.add(of_shapes)

    def add(self, of_shapes: Sequence[tuple[int, ...]]) -> None:
        """Keys of shapes that come behind those that are known."""
        behind = len(self._columns.array)
        self.of_shapes += of_shapes
        counts = np.array([len(key) for key in of_shapes], np.int64)
        self.counts = self._counts.extend(counts)
        self.columns = self._columns.extend([column for key in of_shapes for column in key])
        self.firsts = self._firsts.extend(behind + np.cumsum(counts) - counts)

    def __getitem__(self, shape: int) -> tuple[int, ...]:
        return self.of_shapes[shape]


_PLACE_BITS = 16
"""More than the columns of any relation take (PostgreSQL source, MaxHeapAttributeNumber)."""


@dataclass(frozen=True, slots=True)
class Cells:
    """A tuple for each row. tuples: theirs; its `absent` says where a column is not in the image at all (not NULL).

    marked: for each cell whether a marker stands for a value that the image lacks; None: nowhere.
    place: which column of its relation each cell is, where these are the cells of keys; None: every tuple has all of
    them, in their order.
    """

    tuples: Tuples
    marked: Mask | None = None
    place: Index | None = None

    def list_places(self) -> Index:
        """Which column of its relation each cell is."""
        begins = self.tuples.begins
        return expand_ranges(np.zeros(len(begins) - 1, np.int64), begins) if self.place is None else self.place

    def list_shape_columns(self, rows: Rows, shape: int) -> NDArray[np.int32]:
        """The columns that the tuples of a shape have."""
        if self.place is not None:
            return np.array(rows.keys[shape], np.int32)
        return np.arange(len(rows.shapes[shape].columns), dtype=np.int32)

    def take(self, at: Index) -> Cells:
        """The tuples of these rows. at: increasing."""
        marked = self.marked
        if marked is not None:
            marked = _drop_if_empty(marked[self.tuples.find_cells(at)[1]])
        return Cells(self.tuples.take(at, np.arange(len(at))), marked)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one kind, in their order; one element of every array a row.

    shapes: the relations and their columns; shape: index into these. keys: of each shape, the columns that events are
    keyed by.
    new: None for deletes. old: None where no row has an old image.
    unchanged: for each cell of `new` whether the row lacks a TOASTed value because the update left it alone: it is
    absent or marked; None: nowhere. marker: the text that stands for such a value where it is marked.
    key_change: these rows are half of an update that changed the key. other: the image of its other half.
    place, table_seq, uuid, part, record_time: as Changes has them; part is None for rows that are changes.
    of_snapshot: whether a snapshot gave them, and so no transaction.
    """

    shapes: Sequence[Shape]
    shape: NDArray[np.int32]
    keys: Keys
    op: RowOp
    batch_order: Index
    seq: Index
    tx: NDArray[np.int32]
    new: Cells | None
    old: Cells | None
    unchanged: Mask | None = None
    marker: str = ""
    key_change: bool = False
    other: Cells | None = None
    place: NDArray[np.uint64] | None = None
    table_seq: Index | None = None
    uuid: NDArray[np.bytes_] | None = None
    part: NDArray[np.void] | None = None
    record_time: Index | None = None
    of_snapshot: bool = False
    only: int | None = field(init=False)
    """The shape of all rows, if they have one."""

    def __post_init__(self) -> None:
        first = int(self.shape[0])
        object.__setattr__(self, "only", None if np.count_nonzero(self.shape != first) else first)

    def __len__(self) -> int:
        return len(self.batch_order)

    @property
    def image(self) -> Cells:
        """The row that the action left, or (delete) the one that it removed."""
        image = self.old if self.new is None else self.new
        assert image is not None  # noqa: S101 - a delete always has an old image
        return image

    @property
    def addresses(self) -> pa.StructArray | None:
        """Where a handler sends the events of these rows, as Image has it; None where it says nothing."""
        return self.image.tuples.addresses

    @property
    def keyed(self) -> Mask:
        """Which rows have key columns."""
        found: Mask = self.keys.counts[self.shape] > 0
        return found

    def select_key_cells(self, image: Cells) -> Cells:
        """The cells of an image that make the keys: none for rows that have no key. What is absent is null."""
        cells, place, begins = _find_key_cells(self, image)
        tuples = image.tuples
        return Cells(
            Tuples(
                tuples.rows,
                begins,
                tuples.picked.take(cells),
                None,
                tuple(one for typed in tuples.typed if len((one := typed.select_cells(cells)).at)),
            ),
            place=place,
        )

    def render_by_relation(self, make: Callable[[str, str], bytes]) -> Fragment:
        """A text of each row's relation. make: the text of one, of its schema and name; called once for each."""
        if self.only is not None:
            relation = self.shapes[self.only].relation
            return make(relation.schema, relation.table)
        there = np.flatnonzero(np.bincount(self.shape))
        relations = [self.shapes[at].relation for at in there.tolist()]
        return self._repeat_texts(there, [make(relation.schema, relation.table) for relation in relations])

    def render_by_shape(self, make: Callable[[Shape, tuple[int, ...]], bytes]) -> Fragment:
        """The same of its shape and the columns of its key."""
        if self.only is not None:
            return make(self.shapes[self.only], self.keys[self.only])
        there = np.flatnonzero(np.bincount(self.shape))
        return self._repeat_texts(there, [make(self.shapes[at], self.keys[at]) for at in there.tolist()])

    def _repeat_texts(self, there: Index, texts: Sequence[bytes]) -> pa.Array:
        """The texts of some shapes, by row."""
        number = np.empty(int(there[-1]) + 1, np.int32)
        number[there] = np.arange(len(there))
        return pa.DictionaryArray.from_arrays(pa.array(number[self.shape]), pa.array(texts, pa.binary()))


def split(table: CellTable, keys: Keys, unchanged: Unchanged, snapshots: Collection[int] = ()) -> Iterator[Rows]:
    """The rows of a table by kind.

    unchanged: what becomes of values that an update left alone. snapshots: as the indexes of Transactions.snapshots.
    ValueError: an op is none of a row's; nothing was given then.
    """
    by_op = {op: np.flatnonzero(table.op == op) for op in _list_ops(table)}
    if sum(map(len, by_op.values())) != table.rows:
        raise ValueError(_describe_strange_op(table))
    for op, at in by_op.items():
        match op:
            case RowOp.INSERT:
                # Of an update that changed the key, as another instance wrote it: it lacks what that left alone.
                yield from (_settle_unchanged(rows, unchanged) for rows in _select_rows(table, keys, op, at))
            case RowOp.READ:
                yield from _split_by_snapshot(table, keys, op, at, snapshots)
            case RowOp.UPDATE:
                yield from _split_updates(table, keys, at, unchanged)
            case RowOp.DELETE:
                yield from _split_by_snapshot(table, keys, op, at, snapshots, old=True)
            case _:
                assert_never(op)


def _list_ops(table: CellTable) -> Sequence[RowOp]:
    """The ops of the rows, and maybe others; most batches have one."""
    first = table.op[0] if table.rows else 0
    one = [op for op in RowOp if op == first]
    return one if one and (table.op == first).all() else list(RowOp)


def _describe_strange_op(table: CellTable) -> str:
    at = int(np.flatnonzero(~np.isin(table.op, list(RowOp)))[0])
    relation = table.shapes[int(table.shape[at])].relation
    return f"the changes of {relation} hold op {table.op[at]}, which no row has"


def _split_by_snapshot(
    table: CellTable, keys: Keys, op: RowOp, at: Index, snapshots: Collection[int], old: bool = False
) -> Iterator[Rows]:
    if not snapshots:
        yield from _select_rows(table, keys, op, at, old)
        return
    of_snapshot = np.isin(table.tx[at], list(snapshots))
    yield from _select_rows(table, keys, op, at[~of_snapshot], old)
    for rows in _select_rows(table, keys, op, at[of_snapshot], old):
        yield replace(rows, of_snapshot=True)


def _split_updates(table: CellTable, keys: Keys, at: Index, unchanged: Unchanged) -> Iterator[Rows]:
    has_old = np.zeros(table.rows, np.bool_)
    has_old[table.before.rows] = True
    for rows in _select_rows(table, keys, RowOp.UPDATE, at[~has_old[at]]):
        yield _settle_unchanged(rows, unchanged)
    for rows in _select_rows(table, keys, RowOp.UPDATE, at[has_old[at]], old=True):
        yield from _split_by_key_change(_settle_unchanged(rows, unchanged))


def _select_rows(table: CellTable, keys: Keys, op: RowOp, at: Index, old: bool = False) -> Iterator[Rows]:
    for some in _split_by_known(table, at):
        yield _make_rows(table, keys, op, some, old)


def _split_by_known(table: CellTable, at: Index) -> Iterator[Index]:
    """The rows apart by whether their place, number in the transaction and UUID are known, and whether they are parts;
    mostly they are alike.
    """
    unplaced = None if table.place is None else table.place[at] == NO_PLACE
    uncounted = None if table.table_seq is None else table.table_seq[at] == UNCOUNTED
    unnamed = None if table.uuid is None else table.uuid[at] == NO_UUID
    whole = None if table.part is None else table.part["of"][at] == 0
    flags = [flag for flag in (unplaced, uncounted, unnamed, whole) if flag is not None and np.count_nonzero(flag)]
    if not len(at):
        return
    if not flags:
        yield at
        return
    code = sum(flag.astype(np.int8) << bit for bit, flag in enumerate(flags))
    for one in np.unique(code).tolist():
        yield at[code == one]


def _make_rows(table: CellTable, keys: Keys, op: RowOp, at: Index, old: bool) -> Rows:
    return Rows(
        table.shapes,
        table.shape[at],
        keys,
        op,
        table.batch_order[at],
        table.seq[at],
        table.tx[at],
        None if op is RowOp.DELETE else Cells(select_tuples(table.after, at)),
        Cells(select_tuples(table.before, at)) if old else None,
        **select_known_fields(table, at),
    )


def _settle_unchanged(rows: Rows, policy: Unchanged) -> Rows:
    """With the values that an update left alone filled from the old row, marked or left out."""
    if rows.new is None or rows.new.tuples.absent is None:
        return rows
    new = rows.new.tuples
    lacking = np.flatnonzero(rows.new.tuples.absent)
    row = np.searchsorted(new.begins, lacking, side="right") - 1
    place = lacking - new.begins[row]
    fill, mark = _choose_treatments(rows, rows.shape[row], place, policy)
    values, typed = new.values, new.typed
    if rows.old is not None:
        old = rows.old.tuples
        source = old.begins[row] + place
        held = fill if old.absent is None else fill & ~old.absent[source]
        values = _fill_values(values, lacking[held], old.values.take(pa.array(source[held])))
        typed = _fill_typed(typed, lacking[held], old.typed, source[held])
        lacking, mark = lacking[~held], mark[~held]
    gone, marked = np.zeros(len(values), np.bool_), np.zeros(len(values), np.bool_)
    gone[lacking[~mark]] = True
    marked[lacking[mark]] = True
    filled = replace(new, held=values, absent=_drop_if_empty(gone), typed=typed)
    image = Cells(filled, _drop_if_empty(marked))
    return replace(rows, new=image, unchanged=_drop_if_empty(gone | marked), marker=policy.marker)


def _choose_treatments(rows: Rows, shape: NDArray[np.int32], place: Index, policy: Unchanged) -> tuple[Mask, Mask]:
    """For each cell whether the old row's value stands in, if there is one, and whether a marker does else."""
    columns, which = np.unique(shape.astype(np.int64) << _PLACE_BITS | place, return_inverse=True)
    fill, mark = np.zeros(len(columns), np.bool_), np.zeros(len(columns), np.bool_)
    for at, column in enumerate(columns.tolist()):
        of, number = rows.shapes[column >> _PLACE_BITS], column & (1 << _PLACE_BITS) - 1
        treatment = policy.find_treatment(of.relation, of.columns[number].name)
        # PostgreSQL sends the old key with an update whose key is TOASTed: a key is filled in, it must not be null.
        fill[at] = treatment != "omit" or number in rows.keys[column >> _PLACE_BITS]
        match treatment:
            case "marker":
                mark[at] = True
            case "fill" | "omit":
                pass
            case _:
                assert_never(treatment)
    return fill[which], mark[which]


def _fill_values(values: pa.Array, at: Index, others: pa.Array) -> pa.Array:
    """The values with others at these places."""
    if not len(at):
        return values
    where = np.zeros(len(values), np.bool_)
    where[at] = True
    return pc.replace_with_mask(values, pa.array(where), others)


def _fill_typed(
    typed: tuple[ArrowCells, ...], at: Index, old: tuple[ArrowCells, ...], source: Index
) -> tuple[ArrowCells, ...]:
    """The same of Arrow's values. source: which cells of the old tuples stand in."""
    if not old or not len(at):
        return typed
    others = (cells.select_cells(source) for cells in old)
    return group_by_type(
        [*(_drop_cells(cells, at) for cells in typed), *(ArrowCells(at[one.at], one.values) for one in others)]
    )


def _drop_cells(cells: ArrowCells, at: Index) -> ArrowCells:
    stays = ~np.isin(cells.at, at)
    return ArrowCells(cells.at[stays], cells.values.filter(pa.array(stays)))


def _split_by_key_change(rows: Rows) -> Iterator[Rows]:
    changed = _find_key_changes(rows)
    if not changed.any():
        yield rows
        return
    if not changed.all():
        yield take(rows, np.flatnonzero(~changed))
    moved = take(rows, np.flatnonzero(changed))
    deleted = replace(moved, op=RowOp.DELETE, new=None, unchanged=None, key_change=True, other=moved.new)
    inserted = replace(moved, op=RowOp.INSERT, old=None, key_change=True, other=moved.old)
    yield from (deleted, inserted)


def _find_key_changes(rows: Rows) -> Mask:
    changed = np.zeros(len(rows), np.bool_)
    if rows.new is None or rows.old is None:
        return changed
    new_cells, _, begins = _find_key_cells(rows, rows.new)
    old_cells, _, _ = _find_key_cells(rows, rows.old)
    new, old = rows.new.tuples, rows.old.tuples
    differs = _differ(new.picked.take(new_cells), old.picked.take(old_cells))
    for one in new.typed:
        for other in old.typed:
            if one.values.type.equals(other.values.type):
                differs |= _differ_in_type(one.find(new_cells), one.values, other.find(old_cells), other.values)
    for image, cells in ((new, new_cells), (old, old_cells)):
        if image.absent is not None:
            differs &= ~image.absent[cells]
    changed[np.repeat(np.arange(len(rows)), np.diff(begins))[differs]] = True
    return addresses.differ(new.addresses, old.addresses, changed)


def _differ(new: pa.Array, old: pa.Array) -> Mask:
    differs = pc.fill_null(pc.not_equal(new, old), fill_value=False)
    if new.null_count or old.null_count:
        differs = pc.or_(differs, pc.xor(pc.is_null(new), pc.is_null(old)))
    found: Mask = differs.to_numpy(zero_copy_only=False)
    return found


def _differ_in_type(at: Index, values: pa.Array, at_old: Index, old_values: pa.Array) -> Mask:
    """The same of Arrow's values. at, at_old: for each cell which of the values it is, -1 for none of them."""
    both = (at >= 0) & (at_old >= 0)
    found = np.zeros(len(at), np.bool_)
    if both.any():
        found[both] = _differ(values.take(pa.array(at[both])), old_values.take(pa.array(at_old[both])))
    return found


def _find_key_cells(rows: Rows, image: Cells) -> tuple[Index, Index, Index]:
    """The cells of the keys, which column of its relation each is, and where those of each row begin."""
    if rows.only is not None:
        key = np.array(rows.keys[rows.only], np.int64)
        cells = (image.tuples.begins[:-1, None] + key).reshape(-1)
        return cells, np.tile(key, len(rows)), np.arange(len(rows) + 1) * len(key)
    keys = rows.keys
    begins = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(keys.counts[rows.shape], out=begins[1:])
    place = keys.columns[expand_ranges(keys.firsts[rows.shape], begins)]
    return np.repeat(image.tuples.begins[:-1], np.diff(begins)) + place, place, begins


def take(rows: Rows, at: Index) -> Rows:
    """Some of the rows. at: which, increasing."""
    if len(at) == len(rows):
        return rows
    unchanged = rows.unchanged
    if unchanged is not None and rows.new is not None:
        unchanged = _drop_if_empty(unchanged[rows.new.tuples.find_cells(at)[1]])
    return replace(
        rows,
        shape=rows.shape[at],
        **select_row_fields(rows, at),
        new=rows.new and rows.new.take(at),
        old=rows.old and rows.old.take(at),
        other=rows.other and rows.other.take(at),
        unchanged=unchanged,
    )


def _drop_if_empty(flags: Mask) -> Mask | None:
    return flags if flags.any() else None
