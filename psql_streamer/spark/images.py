"""Changes -> the Arrow table that Spark gets -> Changes.

Every image is a row of the table: first all new images, then all old ones, so that a rule that masks a column
masks it in both. `_row` is the place in that order; it comes back with every row and says which image it is.
Columns travel typed. A value that comes back as it went gets its text form back, so that what a rule does not
change leaves as PostgreSQL wrote it, byte for byte, also where Spark's type cannot hold it (and Spark saw null).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from psql_streamer.errors import HandlerRefused
from psql_streamer.model import Changes, Column, Image, Op, Transactions
from psql_streamer.pgoutput import casts

ROW = "_row"
"""The image's place; rides along whatever a rule does."""

_ROW_TYPE = pa.int64()
_PLAIN_TEXT_OIDS = frozenset({18, 19, casts.TEXT_OID, 1042, 1043})  # "char", name, text, bpchar, varchar


@dataclass(frozen=True, slots=True)
class Field:
    """A column of a rule's result. source: index of the sent column that it is, unchanged, if it is one."""

    name: str
    source: int | None


@dataclass(frozen=True, slots=True)
class Sent:
    """What went to Spark, and what is needed to understand what comes back.

    columns: the changes' own first, then metadata columns, then `_row`.
    texts, typed: per column of the changes, all new images followed by all old ones.
    """

    changes: Changes
    texts: tuple[pa.BinaryArray, ...]
    typed: tuple[pa.Array, ...]
    table: pa.Table

    @property
    def own_columns(self) -> int:
        """How many of the table's columns are the changes' own."""
        return len(self.texts)


def send(changes: Changes, transactions: Transactions, wanted: Callable[[str], bool]) -> Sent:
    """The table for Spark. wanted: whether the rule may use a metadata column of this name."""
    names = [column.name for column in changes.columns]
    metadata = {name: make for name, make in METADATA.items() if wanted(name)}
    _refuse_clashes(changes, [*metadata, ROW] if metadata else [])
    texts = tuple(map(_joined, changes.after.columns, changes.before.columns))
    typed = tuple(map(_typed, texts, changes.columns))
    rows = np.concatenate((changes.after.rows, changes.before.rows))
    arrays = [
        *typed,
        *(make(changes, transactions, rows) for make in metadata.values()),
        pa.array(np.arange(len(rows))),
    ]
    return Sent(changes, texts, typed, pa.Table.from_arrays(arrays, names=[*names, *metadata, ROW]))


def receive(sent: Sent, fields: Sequence[Field], result: pa.Table, where: str) -> Changes | None:
    """The changes that a rule's result stands for; None when it left nothing.

    fields: one for every column of `result`. Raises HandlerRefused when `_row` is missing, repeated or null.
    """
    order, images = _order(result.column(_row_column(sent, fields)), sent.table.num_rows, where)
    kept = _Kept.of(sent.changes, images)
    if kept.rows.size == 0:
        return None
    data = [(field, result.column(at)) for at, field in enumerate(fields) if not _is_ours(sent, field)]
    names = _distinct([field.name for field, _ in data], where)
    survivors = [_survivor(sent, field, images, _taken(array, order), names) for field, array in data]
    return replace(
        sent.changes,
        columns=tuple(survivor.column for survivor in survivors),
        ordinal=sent.changes.ordinal[kept.rows],
        op=sent.changes.op[kept.rows],
        seq=sent.changes.seq[kept.rows],
        lsn=sent.changes.lsn[kept.rows],
        tx=sent.changes.tx[kept.rows],
        tally=sent.changes.tally[kept.rows],
        after=_image(survivors, kept.after, kept.after_rows),
        before=_image(survivors, kept.before, kept.before_rows),
    )


def image_identity(sent: Sent, transactions: Transactions, image: int) -> tuple[int, int]:
    """(commit_lsn, seq) of the change that an image belongs to."""
    changes = sent.changes
    after = len(changes.after)
    row = changes.after.rows[image] if image < after else changes.before.rows[image - after]
    return int(transactions.commit_lsn[changes.tx[row]]), int(changes.seq[row])


# --- metadata columns

Rows = NDArray[np.int64]
_ACTIONS = pa.array([Op(byte).action if byte in set(Op) else None for byte in range(256)], pa.string())


def _image_names(changes: Changes, _: Transactions, rows: Rows) -> pa.Array:
    old = np.arange(len(rows)) >= len(changes.after)
    return pa.array(["after", "before"]).take(pa.array(old.astype(np.int8)))


METADATA: dict[str, Callable[[Changes, Transactions, Rows], pa.Array]] = {
    "_op": lambda changes, _, rows: _ACTIONS.take(pa.array(changes.op[rows])),
    "_image": _image_names,
    "_commit_lsn": lambda changes, tx, rows: pa.array(tx.commit_lsn[changes.tx[rows]].astype(np.int64)),
    "_seq": lambda changes, _, rows: pa.array(changes.seq[rows]),
    "_xid": lambda changes, tx, rows: pa.array(tx.xid[changes.tx[rows]].astype(np.int64)),
    "_commit_ts": lambda changes, tx, rows: pa.array(tx.commit_ts[changes.tx[rows]]).cast(pa.timestamp("us", "UTC")),
}
"""What a rule may use beside the table's own columns. They do not become part of events under these names."""


def _row_column(sent: Sent, fields: Sequence[Field]) -> int:
    """Where `_row` is. A table may have a column of that name too; a function may have made all columns anew."""
    ours = sent.table.num_columns - 1
    named = [at for at, field in enumerate(fields) if field.name == ROW]
    return next((at for at in named if fields[at].source == ours), named[0])


def _distinct(names: list[str], where: str) -> set[str]:
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise HandlerRefused(
            f"{where} gives two columns named {twice[0]}",
            f"name one of them otherwise; SELECT * EXCEPT ({twice[0]}), ... AS {twice[0]} replaces a column",
        )
    return set(names)


def _is_ours(sent: Sent, field: Field) -> bool:
    """Whether it is a metadata column under its own name, or `_row`; under another name it is the rule's."""
    is_theirs = field.source is not None and field.source < sent.own_columns
    return not is_theirs and (field.name == ROW or field.name in METADATA)


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


# --- order and selection


def _order(row: pa.ChunkedArray, sent: int, where: str) -> tuple[NDArray[np.int64] | None, NDArray[np.int64]]:
    """How to sort the result (None: it is sorted), and the sorted image numbers."""
    if row.null_count or not row.type.equals(_ROW_TYPE):
        raise HandlerRefused(
            f"{where} gives rows that belong to no change ({ROW} is null)",
            "do not add rows: use an inner or left join with changes on the left side",
        )
    images = row.to_numpy()
    order = None
    if np.any(images[1:] <= images[:-1]):
        order = np.argsort(images, kind="stable")
        images = images[order]
        if np.any(images[1:] == images[:-1]):
            raise HandlerRefused(
                f"{where} gives several rows for one change",
                "make the other side of its join unique, or aggregate it before the join",
            )
    if len(images) and not 0 <= images[0] <= images[-1] < sent:
        raise HandlerRefused(f"{where} gives {ROW} values that it was not given", f"pass {ROW} on as it is")
    return order, images


@dataclass(frozen=True, slots=True)
class _Kept:
    """Which rows stay, and which elements of the result are their images.

    rows: of the old changes. after, before: elements of the result. after_rows, before_rows: rows of the new changes.
    """

    rows: NDArray[np.int64]
    after: NDArray[np.int64]
    before: NDArray[np.int64]
    after_rows: NDArray[np.int64]
    before_rows: NDArray[np.int64]

    @classmethod
    def of(cls, changes: Changes, images: NDArray[np.int64]) -> _Kept:
        """An insert or update stays with its new image, a delete with its old one; an old image goes with its row."""
        new = int(np.searchsorted(images, len(changes.after)))
        after_rows = changes.after.rows[images[:new]]
        before_rows = changes.before.rows[images[new:] - len(changes.after)]
        stays = np.zeros(len(changes), np.bool_)
        stays[after_rows] = True
        stays[before_rows[changes.op[before_rows] == Op.DELETE]] = True
        with_row = stays[before_rows]
        number = np.cumsum(stays) - 1
        return cls(
            rows=np.flatnonzero(stays),
            after=np.arange(new),
            before=new + np.flatnonzero(with_row),
            after_rows=number[after_rows],
            before_rows=number[before_rows[with_row]],
        )


# --- columns


@dataclass(frozen=True, slots=True)
class _Survivor:
    """A column of the result: its values by sorted image, and where its images lack it (None: nowhere)."""

    column: Column
    values: pa.Array
    absent: NDArray[np.bool_] | None


def _survivor(sent: Sent, field: Field, images: NDArray[np.int64], values: pa.Array, names: set[str]) -> _Survivor:
    columns = sent.changes.columns
    passed = field.source is not None and field.source < len(columns)
    same_name = next((at for at, column in enumerate(columns) if column.name == field.name), None)
    source = field.source if passed else same_name
    if source is None:
        return _made(field.name, False, values, None)
    sent_column = columns[source]
    # A renamed key is still the key, unless the column is there under its own name as well.
    key = sent_column.key and (field.name == sent_column.name or sent_column.name not in names)
    absent = _absent(sent.changes, source, images)
    if absent is not None:
        absent &= pc.is_null(values).to_numpy(zero_copy_only=False)
    if not _keeps_type(sent_column, sent.typed[source].type, values.type, passed):
        return _made(field.name, key, values, absent)
    column = replace(sent_column, name=field.name, key=key)
    return _Survivor(column, _texts(sent, source, images, values, passed), absent)


def _keeps_type(column: Column, sent: pa.DataType, received: pa.DataType, passed: bool) -> bool:
    """Whether a column stays of its PostgreSQL type. Where Spark has only text for the type (jsonb, arrays, numeric
    without precision), what a rule computed is text and nothing more."""
    if column.type_oid == 0 or not received.equals(sent):
        return False
    return passed or not pa.types.is_string(received) or column.type_oid in _PLAIN_TEXT_OIDS


def _made(name: str, key: bool, values: pa.Array, absent: NDArray[np.bool_] | None) -> _Survivor:
    """A column that the rule made: text of the PostgreSQL type that its Arrow type corresponds to, if one does."""
    column = casts.column_of(name, values.type, key)
    if column is None:
        return _Survivor(Column(name, 0, key=key, arrow=values.type), values, absent)
    return _Survivor(column, casts.to_text(values, column), absent)


def _texts(sent: Sent, source: int, images: NDArray[np.int64], values: pa.Array, passed: bool) -> pa.BinaryArray:
    """The text forms: the original where the value is the one that was sent, else the new value's.

    passed: the rule passed the column on as it is, so that null where null was sent is the value that Spark could
    not hold. A rule that computes the column saw null there, and its null is meant.
    """
    every = len(images) == len(sent.typed[source])
    before = sent.typed[source] if every else sent.typed[source].take(pa.array(images))
    texts = sent.texts[source] if every else sent.texts[source].take(pa.array(images))
    if passed and _same(before, values):
        return texts
    equal = pc.fill_null(_equal(before, values), False)
    if passed:
        equal = pc.or_(equal, pc.and_(pc.is_null(before), pc.is_null(values)))
    return pc.if_else(equal, texts, casts.to_text(values, sent.changes.columns[source]))


def _same(one: pa.Array, other: pa.Array) -> bool:
    bits = _bits(one), _bits(other)
    return bool(bits[0].equals(bits[1]))


def _equal(one: pa.Array, other: pa.Array) -> pa.Array:
    return pc.equal(_bits(one), _bits(other))


def _bits(values: pa.Array) -> pa.Array:
    """Floats as integers, by which NaN equals NaN and 0 does not equal -0."""
    if pa.types.is_float64(values.type):
        return values.view(pa.int64())
    return values.view(pa.int32()) if pa.types.is_float32(values.type) else values


def _absent(changes: Changes, source: int, images: NDArray[np.int64]) -> NDArray[np.bool_] | None:
    if source not in changes.after.absent and source not in changes.before.absent:
        return None
    masks = [image.absent.get(source, np.zeros(len(image), np.bool_)) for image in (changes.after, changes.before)]
    mask: NDArray[np.bool_] = np.concatenate(masks)[images]
    return mask


def _image(survivors: list[_Survivor], elements: NDArray[np.int64], rows: NDArray[np.int64]) -> Image:
    absent = {
        at: survivor.absent[elements]
        for at, survivor in enumerate(survivors)
        if survivor.absent is not None and survivor.absent[elements].any()
    }
    return Image(tuple(_elements(survivor.values, elements) for survivor in survivors), rows, absent)


def _elements(values: pa.Array, elements: NDArray[np.int64]) -> pa.Array:
    """A slice where they are neighbours, which they mostly are."""
    if len(elements) == 0:
        return values[:0]
    first, last = int(elements[0]), int(elements[-1])
    return values[first : last + 1] if last - first + 1 == len(elements) else values.take(pa.array(elements))


def _typed(texts: pa.Array, column: Column) -> pa.Array:
    """What another handler made (type_oid 0) is typed already."""
    return texts if column.type_oid == 0 else casts.cast(texts, column)


def _joined(after: pa.Array, before: pa.Array) -> pa.Array:
    if len(before) == 0:
        return after
    return before if len(after) == 0 else pa.concat_arrays([after, before])


def _taken(values: pa.ChunkedArray, order: NDArray[np.int64] | None) -> pa.Array:
    array = values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()
    return array if order is None else array.take(pa.array(order))
