"""The table that comes back from Spark -> Changes.

`_row` says which image each row is, whatever order they are in. A value that comes back as it went gets its text form
back, so that what a rule does not change leaves as PostgreSQL wrote it, byte for byte, also where Spark's type cannot
hold it (and Spark saw null).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from psql_streamer.cells import NO_UUID
from psql_streamer.columns import ChosenCells, Columns, held_in
from psql_streamer.errors import HandlerRefused
from psql_streamer.events.addresses import keyed_by
from psql_streamer.events.identity import uuids_of_parts
from psql_streamer.events.json.text import join
from psql_streamer.events.json.values import render_of
from psql_streamer.model import ArrowType, Changes, Column, Image, Index, RowOp, TextType
from psql_streamer.pgtype import Logical, PostgresType
from psql_streamer.pgtypes import casts
from psql_streamer.pgtypes.builtin import BY_OID
from psql_streamer.spark.directions import PART, REASONS, Directed, directed, is_direction, refused, remedy
from psql_streamer.spark.exchange import Sent
from psql_streamer.spark.facts import Field
from psql_streamer.spark.failures import RowsRefused
from psql_streamer.spark.kept import Kept, images_to_put_back
from psql_streamer.spark.lacking import Mask, union
from psql_streamer.spark.metadata import IMAGE_SHIFT, KEY_ONLY, METADATA, ROW, UNCHANGED
from psql_streamer.spark.parts import Elements, count_up, number_keys, order_by_content, pair
from psql_streamer.spark.row_tracking import Lineage, row_column
from psql_streamer.spark.splitting import UNKNOWN, Splitting

_ROW_TYPE = pa.int64()

LET_PASS = (
    f"let them pass: ... WHERE ... OR {KEY_ONLY} OR size({UNCHANGED}) > 0, with outer joins in place of inner ones"
)
"""What to do about a rule that drops what it cannot judge."""


class Result:
    """What a job gave. place: where in the table each column of the result is, by its index; a column that has no place
    did not travel, because the rule passes it on. None: all are there, in their order.
    """

    def __init__(self, table: pa.Table, place: Mapping[int, int] | None = None) -> None:
        self._table = table
        self._place = place

    def stayed(self, at: int) -> bool:
        """Whether the rule passes the column on, and it did not travel."""
        return self._place is not None and at not in self._place

    def column(self, at: int) -> pa.ChunkedArray:
        """A column that travelled."""
        return self._table.column(at if self._place is None else self._place[at])


@dataclass(frozen=True, slots=True)
class Received:
    """changes: None when the rule left nothing. images: which came back or were put back, sorted. unaddressed: rows
    that lack the values of which the rule makes their topic, key or headers.
    """

    changes: Changes | None
    images: Index
    unaddressed: int = 0


def receive(
    sent: Sent, lineage: Lineage, result: Result, where: str, splitting: Callable[[], Splitting] = lambda: UNKNOWN
) -> Received:
    """The changes that a rule's result stands for.

    lineage: of the columns of `result`. splitting: how it comes to several rows for one image; asked for where it
    matters. Raises HandlerRefused when `_row` is missing or null, RowsRefused for rows that cannot be used.
    """
    fields = lineage.fields
    came = _order(fields, sent, result, splitting, where)
    back = images_to_put_back(sent, lineage.facts, came.images)
    images = came.images if not len(back) else np.sort(np.concatenate((came.images, back)))
    names = column_names(sent, fields, where)
    if len(back):
        _refuse_without_key(sent, fields, where)
    given = _Given(sent, images, np.isin(images, back), names)
    survivors, directions = [], []
    for at, field in enumerate(fields):
        if is_direction(field, sent.changes.columns):
            directions.append((field, *given.direction(field, came.taken(result, at), _reads(lineage, at))))
        elif _is_ours(sent, field):
            continue
        elif result.stayed(at):
            survivors.append(given.stayed(field))
        else:
            survivor = given.survivor(field, given.complete(field, came.taken(result, at)), _reads(lineage, at))
            survivors.append(survivor)
            if field.source is None:
                _refuse_broken_texts(given, survivor, where)
                if survivor.column.key:
                    _refuse_lost_keys(given, field, survivor, where)
    said = directed(directions, len(images), where)
    if said.addresses is not None:
        _refuse_rows(sent, images, refused(said.addresses), where)
    kept = _kept(given, came, survivors, said, splitting)
    if kept.rows.size == 0:
        return Received(None, images)
    place, table_seq, uuid = sent.changes.place, sent.changes.table_seq, sent.changes.uuid
    return Received(
        replace(
            sent.changes,
            columns=tuple(survivor.column for survivor in survivors),
            batch_order=sent.changes.batch_order[kept.rows],
            op=kept.op,
            seq=sent.changes.seq[kept.rows],
            tx=sent.changes.tx[kept.rows],
            place=None if place is None else place[kept.rows],
            table_seq=None if table_seq is None else table_seq[kept.rows],
            uuid=None if uuid is None else _uuids(uuid[kept.rows], kept.part),
            part=kept.part if sent.changes.part is None else sent.changes.part[kept.rows],
            after=_image(given, survivors, said, kept.after, kept.after_rows),
            before=_image(given, survivors, said, kept.before, kept.before_rows),
        ),
        images,
        _count_unaddressed(said, kept),
    )


def _reads(lineage: Lineage, at: int) -> frozenset[int]:
    """A `_row` that was added is behind the columns that the facts are of, and is never asked for."""
    return lineage.facts.reads[at] if lineage.facts is not None else frozenset()


def column_names(sent: Sent, fields: Sequence[Field], where: str) -> set[str]:
    """The names of a result's columns that become part of events; HandlerRefused when two have the same."""
    names = [field.name for field in fields if not _is_ours(sent, field)]
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise HandlerRefused(
            f"{where} gives two columns named {twice[0]}",
            f"name one of them otherwise; SELECT * EXCEPT ({twice[0]}), ... AS {twice[0]} replaces a column",
        )
    return set(names)


def key_columns(sent: Sent, fields: Sequence[Field]) -> set[int]:
    """The columns of the changes that are in a result under whatever name, or that it has a column in the place of."""
    found = (_source(sent, field) for field in fields if not _is_ours(sent, field))
    return {source for source in found if source is not None}


def _is_ours(sent: Sent, field: Field) -> bool:
    """Whether it is a metadata column under its own name, `_row`, or one that says where an event goes; under another
    name it is the rule's.
    """
    if is_direction(field, sent.changes.columns):
        return True
    is_theirs = field.source is not None and field.source < sent.own_columns
    return not is_theirs and (field.name == ROW or field.name in METADATA)


def computed_key(sent: Sent, fields: Sequence[Field]) -> str | None:
    """A key column that a result computes: a row without it cannot be put back."""
    theirs = [field for field in fields if not _is_ours(sent, field)]
    names = {field.name for field in theirs}
    for field in theirs:
        source = _source(sent, field)
        passed = field.source is not None and field.source < sent.own_columns
        if source is not None and not passed and _is_key(sent.changes.columns[source], field, names):
            return field.name
    return None


def _refuse_without_key(sent: Sent, fields: Sequence[Field], where: str) -> None:
    """A row that the rule dropped can be put back as far as the rule passes its columns on."""
    key = computed_key(sent, fields)
    if key is not None:
        raise HandlerRefused(
            f"{where}: the rule drops rows that it cannot judge, because they lack values that it reads. It computes "
            f"the key column {key}, so these rows cannot be put back",
            LET_PASS,
        )


# --- rows


@dataclass(frozen=True, slots=True)
class _Came:
    """What came back. order: how to sort the result by image and part; None: it is sorted. images: of the sorted
    result. numbers: of its parts; None where every image came once and has no number. by_rule: whether the rule gives
    them.
    """

    order: Index | None
    images: Index
    numbers: Index | None
    by_rule: bool = False

    def taken(self, result: Result, at: int) -> pa.Array:
        """A column, sorted."""
        return _taken(result.column(at), self.order)


def _order(
    fields: Sequence[Field], sent: Sent, result: Result, splitting: Callable[[], Splitting], where: str
) -> _Came:
    at = row_column(fields, len(sent.names) - 1)
    row = result.column(at)
    if row.null_count or not row.type.equals(_ROW_TYPE):
        raise HandlerRefused(
            f"{where} gives rows that belong to no change ({ROW} is null)",
            "do not add rows: use an inner or left join with changes on the left side",
        )
    ids = row.to_numpy()
    order = None
    if np.any(ids[1:] < ids[:-1]):
        order = np.argsort(ids, kind="stable")
        ids = ids[order]
    images = ids >> IMAGE_SHIFT
    given = sent.row_ids
    if len(ids) and not (images[0] >= 0 and images[-1] < len(given) and np.array_equal(given[images], ids)):
        raise HandlerRefused(f"{where} gives values of {ROW} that are not in its input", f"pass {ROW} on as it is")
    several = bool(np.any(ids[1:] == ids[:-1]))
    part = next(
        (i for i, one in enumerate(fields) if one.name == PART and is_direction(one, sent.changes.columns)), None
    )
    if several and sent.changes.part is not None:
        raise HandlerRefused(f"{where} splits rows that a handler before it has split", "let one of them do it")
    came = _Came(order, images, None)
    if part is not None:
        return _numbered(came, came.taken(result, part), sent, where)
    if not several:
        return came
    if not splitting().ordered:
        # What the rule passes on is the same in all rows of an image.
        columns_made = [i for i in range(len(fields)) if i != at and not result.stayed(i)]
        content = order_by_content([came.taken(result, i) for i in columns_made], images)
        came = replace(came, order=content if order is None else order[content])
    return replace(came, numbers=count_up(images))


def _numbered(came: _Came, given: pa.Array, sent: Sent, where: str) -> _Came:
    """Sorted by the numbers that the rule gives. One that is null is 0: an outer join or explode has found nothing."""
    numbers = given.cast(pa.int64()).fill_null(0).to_numpy()
    images = came.images
    order = np.lexsort((numbers, images))
    numbers = numbers[order]
    same = (images[1:] == images[:-1]) & (numbers[1:] == numbers[:-1])
    if same.any():
        _refuse_rows(sent, images, [(PART, np.append(same, False))], where)
    return _Came(order if came.order is None else came.order[order], images, numbers, by_rule=True)


def _refuse_rows(sent: Sent, images: Index, found: Iterable[tuple[str, Mask]], where: str) -> None:
    """RowsRefused for the changes of which some element is found."""
    for column, elements in found:
        rows = np.zeros(len(sent.changes), np.bool_)
        every = np.concatenate((sent.changes.after.rows, sent.changes.before.rows))
        rows[every[images[elements]]] = True
        raise RowsRefused(f"{where}: {column} gives {REASONS[column]}", remedy(column), rows, column)


def _refuse_broken_texts(given: _Given, survivor: _Survivor, where: str) -> None:
    """RowsRefused for the changes for which the rule made text of bytes that are none: they are no JSON either."""
    values = survivor.values
    texts = values.view(pa.string()) if values.type.equals(pa.binary()) else values
    if _is_whole(texts):
        return
    elements = np.array([not _is_whole(texts[at : at + 1]) for at in range(len(texts))], np.bool_)
    raise RowsRefused(
        f"{where}: the column {survivor.column.name} would hold bytes that are not UTF-8",
        'use hex() or base64() for bytes, or put such rows aside: onError = "dead-letter"',
        given.rows_of(elements),
        survivor.column.name,
    )


def _is_whole(texts: pa.Array) -> bool:
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _refuse_lost_keys(given: _Given, field: Field, survivor: _Survivor, where: str) -> None:
    """RowsRefused for the changes whose key is null because Spark could not hold the value of which it is computed:
    all of them would have the same key."""
    sent, source = given.sent, _source(given.sent, field)
    if source is None or not survivor.values.null_count:
        return
    images = pa.array(given.images)
    lost = pc.and_(survivor.values.is_null(), sent.typed[source].take(images).is_null())
    elements = pc.and_(lost, sent.seen[source].take(images).is_valid()).to_numpy(zero_copy_only=False)
    if survivor.absent is not None:
        elements &= ~survivor.absent
    if elements.any():
        raise RowsRefused(
            f"{where}: the key column {field.name} would be null, because Spark cannot hold its value (infinity, BC)",
            'pass the key on as it is, or put such rows aside: onError = "dead-letter"',
            given.rows_of(elements),
            field.name,
        )


def _kept(
    given: _Given, came: _Came, survivors: Sequence[_Survivor], said: Directed, splitting: Callable[[], Splitting]
) -> Kept:
    """Which rows stay, and which parts they are."""
    changes = given.sent.changes
    if came.numbers is None:
        return Kept.of(changes, given.images, lambda: splitting().splits)
    numbers = np.zeros(len(given.images), np.int64)
    numbers[~given.put_back] = came.numbers
    keys = number_keys(_keys_of_parts(survivors, said, len(given.images)))
    return pair(changes, Elements(given.images, numbers, keys), came.by_rule or splitting().splits)


def _keys_of_parts(survivors: Sequence[_Survivor], said: Directed, elements: int) -> pa.Array:
    """The key of each element: its own, or the key columns."""
    columns = [survivor for survivor in survivors if survivor.column.key]
    keys = pa.nulls(elements, pa.binary())
    if columns:
        texts = [_text_of_key(survivor.values) for survivor in columns]
        sizes = [pc.binary_length(text).cast(pa.string()).view(pa.binary()) for text in texts]
        keys = pc.binary_join_element_wise(*chain.from_iterable(zip(sizes, texts, strict=True)), b":")
    return keyed_by(said.addresses, keys)


def _text_of_key(values: pa.Array) -> pa.Array:
    if not pa.types.is_binary(values.type):
        piece = render_of(ArrowType(values.type))(values)
        values = join(piece.open, piece.values, piece.close, nulls=None)
    return pc.fill_null(values, b"")


def _uuids(given: NDArray[np.bytes_], part: NDArray[np.void] | None) -> NDArray[np.bytes_]:
    """Of rows whose changes have UUIDs already: parts have some that follow from these."""
    if part is None:
        return given
    at = np.flatnonzero((part["of"] > 0) & (given != NO_UUID))
    found = given.copy()
    if len(at):
        texts = uuids_of_parts(pa.array(given[at].tolist(), pa.binary()), part["number"][at])
        found[at] = texts.to_pylist()
    return found


def _count_unaddressed(said: Directed, kept: Kept) -> int:
    """The rows that the sink's options address, because values are missing."""
    if said.unknown is None:
        return 0
    deletes = kept.before[kept.op[kept.before_rows] == RowOp.DELETE]
    return int(np.count_nonzero(said.unknown[kept.after]) + np.count_nonzero(said.unknown[deletes]))


# --- columns


@dataclass(frozen=True, slots=True)
class _Survivor:
    """A column of the result: its values by sorted image, and where its images lack it (None: nowhere).

    held: None, or as what the new and the old images hold their values, which need not be made of it.
    """

    column: Column
    make: Callable[[], pa.Array]
    absent: Mask | None
    held: tuple[ChosenCells, ChosenCells] | None = None

    @property
    def values(self) -> pa.Array:
        return self.make()


@dataclass(frozen=True, slots=True)
class _Given:
    """The rows of a result. images: sorted. put_back: which of them the rule dropped. names: of its columns."""

    sent: Sent
    images: Index
    put_back: Mask
    names: set[str]

    def rows_of(self, elements: Mask) -> Mask:
        """The changes that these elements of the result are of."""
        changes = self.sent.changes
        rows = np.zeros(len(changes), np.bool_)
        rows[np.concatenate((changes.after.rows, changes.before.rows))[self.images[elements]]] = True
        return rows

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
        if not casts.arrow_type(self.sent.changes.columns[source].type).equals(values.type):
            return came
        return pc.if_else(pa.array(self.put_back), self.sent.typed[source].take(pa.array(self.images)), came)

    def direction(self, field: Field, values: pa.Array, reads: frozenset[int]) -> tuple[pa.Array, Mask | None]:
        """A column that is not part of events; and where it cannot be known, and is null."""
        passed = field.source is not None and field.source < len(self.sent.changes.columns)
        absent = self._absent_of_passed(field.source) if passed else self._absent_of_computed(reads)
        return _null_absent(self.complete(field, values), absent), absent

    def survivor(self, field: Field, values: pa.Array, reads: frozenset[int]) -> _Survivor:
        """A column of the new changes."""
        columns = self.sent.changes.columns
        passed = field.source is not None and field.source < len(columns)
        absent = self._absent_of_passed(field.source) if passed else self._absent_of_computed(reads)
        source = _source(self.sent, field)
        if source is None:
            return _made(field.name, False, values, absent)
        column = columns[source]
        key = _is_key(column, field, self.names)
        kind = _kept_type(column, casts.arrow_type(column.type), values.type, passed)
        if kind is None:
            return _made(field.name, key, values, absent)
        texts = self._texts(source, values, kind, passed)
        return _survivor(replace(column, name=field.name, key=key), texts, absent)

    def stayed(self, field: Field) -> _Survivor:
        """A column that the rule passes on and that did not travel."""
        source, sent = cast(int, field.source), self.sent
        if source >= sent.own_columns:
            return _made(field.name, False, self._of_images(sent.column(source)), None)
        column, absent = sent.changes.columns[source], self._absent_of_passed(source)
        key = _is_key(column, field, self.names)
        if source in sent.read:
            return _made(field.name, key, self._of_images(sent.read[source]), absent)
        kept = sent.typed if isinstance(column.type, ArrowType) else sent.texts
        return _Survivor(
            replace(column, name=field.name, key=key),
            lambda: _null_absent(self._of_images(kept[source]), absent),
            absent,
            self._held(source),
        )

    def _held(self, source: int) -> tuple[ChosenCells, ChosenCells] | None:
        """None where they are held as arrays."""
        changes = self.sent.changes
        new, old = (held_in(image.columns)[source] for image in (changes.after, changes.before))
        return (new, old) if isinstance(new, ChosenCells) and isinstance(old, ChosenCells) else None

    def _of_images(self, values: pa.Array) -> pa.Array:
        are_all = np.array_equal(self.images, np.arange(len(self.sent.row_ids)))
        return values if are_all else values.take(pa.array(self.images))

    def _absent_of_passed(self, source: int | None) -> Mask | None:
        mask = None if source is None else self.sent.lacking.absent.get(source)
        return None if mask is None else mask[self.images]

    def _absent_of_computed(self, reads: frozenset[int]) -> Mask | None:
        """What is computed from values that are not there is not there either, unless the rule asks for it."""
        lacking = self.sent.lacking
        mask = union((lacking.unseen[at] for at in reads if at in lacking.unseen), lacking.images)
        if self.sent.place(UNCHANGED) in reads:
            mask &= ~lacking.is_new
        if self.sent.place(KEY_ONLY) in reads:
            mask &= lacking.is_new
        mask = mask[self.images] | self.put_back
        return mask if mask.any() else None

    def _texts(self, source: int, values: pa.Array, kind: PostgresType | TextType, passed: bool) -> pa.BinaryArray:
        """The text forms: the original where the value is the one that was sent, else the new value's.

        passed: the rule passed the column on as it is, so that null where null was sent is the value that Spark could
        not hold. A rule that computes the column saw null there, and its null is meant.
        """
        sent = self.sent
        every = np.array_equal(self.images, np.arange(len(sent.row_ids)))
        originals = sent.texts[source] if passed else sent.seen[source]
        before = sent.typed[source] if every else sent.typed[source].take(pa.array(self.images))
        texts = originals if every else originals.take(pa.array(self.images))
        if passed and _same(before, values):
            return texts
        equal = pc.fill_null(_equal(before, values), False)
        if passed:
            equal = pc.or_(equal, pc.and_(pc.is_null(before), pc.is_null(values)))
        return pc.if_else(equal, texts, casts.to_text(values, kind))


def _source(sent: Sent, field: Field) -> int | None:
    """The column of the changes that a column of the result is, or takes the place of."""
    if field.source is not None and field.source < sent.own_columns:
        return field.source
    name = field.stands_for or field.name
    return next((at for at, column in enumerate(sent.changes.columns) if column.name == name), None)


def _is_key(column: Column, field: Field, names: set[str]) -> bool:
    """A renamed key is still the key, unless the column is there under its own name as well."""
    return column.key and (column.name in (field.name, field.stands_for) or column.name not in names)


def _kept_type(
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


def _made(name: str, key: bool, values: pa.Array, absent: Mask | None) -> _Survivor:
    """A column that the rule made: text of the PostgreSQL type that its Arrow type corresponds to, if one does."""
    kind = casts.type_of(values.type)
    if kind is None:
        return _survivor(Column(name, ArrowType(values.type), key), values, absent)
    return _survivor(Column(name, kind, key), casts.to_text(values, kind), absent)


def _survivor(column: Column, values: pa.Array, absent: Mask | None) -> _Survivor:
    found = _null_absent(values, absent)
    return _Survivor(column, lambda: found, absent)


def _null_absent(values: pa.Array, absent: Mask | None) -> pa.Array:
    """Null where an image lacks the column."""
    if absent is None or not absent.any():
        return values
    return pc.if_else(pa.array(absent), pa.scalar(None, values.type), values)


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


def _image(given: _Given, survivors: list[_Survivor], said: Directed, elements: Index, rows: Index) -> Image:
    """elements: of the result, all of new images or all of old ones."""
    changes = given.sent.changes
    images = given.images[elements]
    is_old = bool(len(images)) and int(images[0]) >= len(changes.after)
    places = images - len(changes.after) if is_old else images
    firsts: dict[int, Index] = {}  # the columns of an image share them

    def held(survivor: _Survivor) -> pa.Array | ChosenCells:
        if survivor.held is None:
            return _elements(survivor.values, elements)
        of = survivor.held[is_old]
        if id(of.firsts) not in firsts:
            firsts[id(of.firsts)] = of.firsts[places]
        return ChosenCells(of.values, firsts[id(of.firsts)], of.behind)

    absent = {
        at: survivor.absent[elements]
        for at, survivor in enumerate(survivors)
        if survivor.absent is not None and survivor.absent[elements].any()
    }
    addresses = None if said.addresses is None or not len(elements) else _elements(said.addresses, elements)
    return Image(Columns(map(held, survivors)), rows, absent, addresses)


def _elements(values: pa.Array, elements: Index) -> pa.Array:
    """A slice where they are neighbours, which they mostly are."""
    if len(elements) == 0:
        return values[:0]
    first, last = int(elements[0]), int(elements[-1])
    if last - first + 1 == len(elements) and not np.any(elements[1:] <= elements[:-1]):
        return values[first : last + 1]
    return values.take(pa.array(elements))


def _taken(values: pa.ChunkedArray, order: Index | None) -> pa.Array:
    array = values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()
    return array if order is None else array.take(pa.array(order))
