"""The changes that a batch has of a table, one by one, held against its rows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from psql_streamer.model import Changes, Column, Image, ReplicaIdentity, RowOp, Truncate
from psql_streamer.spark.lookups.table_state import Row, RowChange, TableState


@dataclass(frozen=True, slots=True)
class _Raw:
    """A change as it came: rows by the table's columns, or None. lacks: columns that the new row came without.

    is_full: whether the old row is the whole row.
    """

    batch_order: int
    tx: int
    is_full: bool
    old: Row | None
    new: Row | None
    lacks: tuple[int, ...] = ()


@dataclass(slots=True)
class _Rows:
    """Rows by their key, while changes are applied.

    hidden: those that are there beside the one in `shown`. A deferrable key may be that of several rows within a
    transaction. Only whole old rows tell which of them a change is of.
    """

    shown: dict[bytes, Row]
    hidden: dict[bytes, list[Row]] = field(default_factory=dict)

    def take(self, key: bytes, one: _Raw) -> Iterator[RowChange]:
        """Take the old row of a change away."""
        others = self.hidden.get(key, [])
        if one.old in others:
            others.remove(one.old)
        elif key in self.shown:
            before, after = self.shown.pop(key), others.pop() if others else None
            if after is not None:
                self.shown[key] = after
            yield RowChange(one.batch_order, key, before, after)


def compute_row_changes(
    state: TableState, changes: Iterable[Changes], truncates: Iterable[Truncate]
) -> list[RowChange]:
    """What a batch does to the rows of a state, in order. What leaves a row as it is does not count.

    A value that an update did not send (unchanged TOAST) is the one that the row had. changes: of the table, in any of
    its shapes: columns go by their names.
    """
    raw = sorted(
        (one for part in changes for one in _list_raw_changes(part, state.columns)), key=lambda one: one.batch_order
    )
    gone = sorted(truncate.batch_order for truncate in truncates)
    named = {state.make_key(row) for one in raw for row in (one.old, one.new) if row is not None}
    rows = _Rows(state.get(named) if named else {})
    made: list[RowChange] = []
    tx = None
    for one in raw:
        if one.tx != tx:
            tx = one.tx
            rows.hidden.clear()
        while gone and gone[0] < one.batch_order:
            made.append(RowChange(gone.pop(0), None))
            rows = _Rows({})
        made += _apply_change(one, state, rows)
    return made + [RowChange(order, None) for order in gone]


def _apply_change(one: _Raw, state: TableState, rows: _Rows) -> Iterator[RowChange]:
    old_key = None if one.old is None else state.make_key(one.old)
    if one.new is None:
        if old_key is not None:
            yield from rows.take(old_key, one)
        return
    new, new_key = one.new, state.make_key(one.new)
    had = one.old if one.is_full else rows.shown.get(new_key if old_key is None else old_key)
    if had is not None and one.lacks:
        new = tuple(had[at] if at in one.lacks else value for at, value in enumerate(new))
        new_key = state.make_key(new)
    moves = old_key is not None and (old_key != new_key or bool(rows.hidden.get(old_key)))
    if old_key is not None and moves:
        yield from rows.take(old_key, one)
    before = rows.shown.get(new_key)
    if moves and one.is_full and before is not None:
        rows.hidden.setdefault(new_key, []).append(before)
    if before != new:
        rows.shown[new_key] = new
        yield RowChange(one.batch_order, new_key, before, new)


def _list_raw_changes(changes: Changes, columns: Sequence[Column]) -> Iterator[_Raw]:
    old, new = (
        _collect_rows(changes.before, changes.columns, columns),
        _collect_rows(changes.after, changes.columns, columns),
    )
    lacks = _find_lacks(changes, columns)
    is_full = changes.relation.replica_identity is ReplicaIdentity.FULL
    each = zip(changes.batch_order.tolist(), changes.tx.tolist(), changes.op.tolist(), strict=True)
    for number, (order, tx, op) in enumerate(each):
        after, before = None if op == RowOp.DELETE else new.get(number), old.get(number)
        yield _Raw(order, tx, is_full and before is not None, before, after, lacks.get(number, ()))


def _collect_rows(image: Image, columns: Sequence[Column], wanted: Sequence[Column]) -> dict[int, Row]:
    """Row of the changes -> its image. A column that the stream does not have is null."""
    arrays = {column.name: array for column, array in zip(columns, image.columns, strict=True)}
    nulls = [None] * len(image)
    values = [arrays[one.name].to_pylist() if one.name in arrays else nulls for one in wanted]
    return dict(zip(image.rows.tolist(), zip(*values, strict=True), strict=True))


def _find_lacks(changes: Changes, wanted: Sequence[Column]) -> dict[int, tuple[int, ...]]:
    places = {column.name: at for at, column in enumerate(wanted)}
    found: dict[int, tuple[int, ...]] = {}
    for column, gone in changes.after.absent.items():
        name = changes.columns[column].name
        if name in places:
            for row in changes.after.rows[gone].tolist():
                found[row] = (*found.get(row, ()), places[name])
    return found
