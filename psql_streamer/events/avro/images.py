"""Images and keys of rows as Avro's records: their cells, one behind the other.

The cells of all rows whose values are written alike are written together, whatever relation they are of. A record has
nothing between its fields, so those of a row are a record as soon as they lie in their order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Never, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from psql_streamer.binary_columns import keep_nulls, read_offsets
from psql_streamer.cells import Shape
from psql_streamer.errors import SinkRefused
from psql_streamer.events.avro.columns import NULL, VALUE
from psql_streamer.events.avro.values import Direct, Write, choose_direct, choose_one, choose_write, encode_value
from psql_streamer.events.column_numbers import ColumnNumbers
from psql_streamer.events.debezium.connect_type import ConnectType
from psql_streamer.events.debezium.types import add_optional, choose_connect_type, render_unavailable
from psql_streamer.events.json import json_text
from psql_streamer.events.json.json_text import Piece
from psql_streamer.events.json.objects import Lost, WrittenByColumn, collect_columns
from psql_streamer.events.rows import Cells, Mask, Rows
from psql_streamer.few_rows import RowCells
from psql_streamer.growing import GrowingArray
from psql_streamer.model import Column, Index

_NULLS = pa.array([NULL], pa.binary())
_NULL_AT = 0
"""Where it stands in the pool."""

_Written: TypeAlias = tuple[Index, pa.BinaryArray]
"""Cells, and their bytes; null where a value is lost."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """Columns whose values are written alike. required: whether the schema has no null there.

    lossless: whether no value may be lost, because it makes a key. placeholder: what stands for a value that an update
    left alone. one: writes one value; None: they go by column always.
    """

    connect: ConnectType
    write: Write
    direct: Direct | None
    required: bool
    lossless: bool
    placeholder: bytes
    one: Callable[[bytes], bytes | None] | None

    @property
    def lead(self) -> bytes:
        """What stands before each value."""
        return b"" if self.required else VALUE


class Images:
    """Writes cells as records. of_keys: whether these are keys. For one thread.

    Columns keep their numbers from batch to batch.
    """

    def __init__(self, of_keys: bool = False) -> None:
        self._of_keys = of_keys
        self._numbers = ColumnNumbers(self._add, self._forget)
        self._known: dict[tuple[object, str, bool], int] = {}
        self._kinds: list[_Kind] = []
        self._kind_numbers = GrowingArray(np.int32)

    def write(self, cells: Cells, rows: Rows, lost: Lost | None = None) -> pa.BinaryArray:
        """A record of each row. lost: see Objects.write. What an image lacks is null, or the placeholder where it is
        marked. SinkRefused: a value of a key is lost.
        """
        firsts = np.array(self._numbers.number_shapes(rows.shapes), np.int32)
        numbers = np.repeat(firsts[rows.shape], cells.tuples.widths) + cells.list_places().astype(np.int32)
        return _Writing(self._kinds, self._kind_numbers.array[numbers], cells, rows, lost).write()

    def make_singles(self, shapes: Sequence[Shape]) -> OneByOne:
        """What writes one image at a time."""
        firsts = self._numbers.number_shapes(shapes)
        return OneByOne(self._kinds, self._kind_numbers.array, firsts)

    def _add(self, columns: tuple[Column, ...]) -> int:
        first = len(self._kind_numbers.array)
        self._kind_numbers.extend([self._look_up_kind(column) for column in columns])
        return first

    def _look_up_kind(self, column: Column) -> int:
        lossless = column.key or self._of_keys
        connect = choose_connect_type(column.type, flat=True, distinct=lossless)
        known_by = connect.render, json.dumps(connect.schema), column.key
        if known_by not in self._known:
            self._known[known_by] = len(self._kinds)
            self._kinds.append(_make_kind(column, connect, lossless))
        return self._known[known_by]

    def _forget(self) -> None:
        self._known, self._kinds, self._kind_numbers = {}, [], GrowingArray(np.int32)


def _make_kind(column: Column, connect: ConnectType, lossless: bool) -> _Kind:
    placeholder = render_unavailable(connect.schema, strict=True)
    schema = add_optional(connect.schema, True)
    return _Kind(
        connect,
        choose_write(connect.schema),
        choose_direct(column.type, connect),
        column.key,
        lossless,
        encode_value(schema, json.loads(placeholder)),
        choose_one(connect),
    )


@dataclass(frozen=True, slots=True)
class OneByOne:
    """Writes images one at a time, with null for what they lack. kinds: of all columns; firsts: where those of each
    shape begin.
    """

    known: Sequence[_Kind]
    kinds: NDArray[np.int32]
    firsts: Sequence[int]

    def write(self, shape: int, image: RowCells, columns: Iterable[int]) -> bytes:
        """A record of these columns of an image. Raises WrittenByColumn, also for what has no value in a key."""
        first, cells = self.firsts[shape], []
        for column in columns:
            kind, value = self.known[self.kinds[first + column]], image[column]
            if not isinstance(value, bytes):
                if kind.required:
                    raise WrittenByColumn
                cells.append(NULL)
                continue
            written = None if kind.one is None else kind.one(value)
            if written is None:
                raise WrittenByColumn
            cells += (kind.lead, written)
        return b"".join(cells)


class _Writing:
    """One image of rows on its way. kinds: of all cells."""

    def __init__(
        self, known: list[_Kind], kinds: NDArray[np.int32], cells: Cells, rows: Rows, lost: Lost | None
    ) -> None:
        self._known = known
        self._kinds = kinds
        self._cells = cells
        self._rows = rows
        self._lost = lost
        self._tuples = cells.tuples

    def write(self) -> pa.BinaryArray:
        """A record for each row."""
        which = np.full(len(self._kinds), _NULL_AT, np.int32)
        pool = [_NULLS]
        size = len(_NULLS)
        for at, written in self._write_kinds():
            which[at] = np.arange(size, size + len(written), dtype=np.int32)
            if written.null_count:
                which[at[written.is_null().to_numpy(zero_copy_only=False)]] = _NULL_AT
            pool.append(written)
            size += len(written)
        self._require_values(which == _NULL_AT)
        taken = pa.concat_arrays(pool).take(pa.array(which))
        bounds = np.ascontiguousarray(read_offsets(taken)[self._tuples.begins])
        return pa.Array.from_buffers(taken.type, len(self._tuples), [None, pa.py_buffer(bounds), taken.buffers()[2]])

    def _write_kinds(self) -> Iterator[_Written]:
        tuples, usable = self._tuples, self._find_usable()
        typed = np.zeros(len(self._kinds), np.bool_)
        for cells in tuples.typed:
            typed[cells.at] = True
            there = usable[cells.at] & cells.values.is_valid().to_numpy(zero_copy_only=False)
            of_cells = self._kinds[cells.at]
            for kind in np.unique(of_cells[there]).tolist():
                mine = np.flatnonzero(there & (of_cells == kind))
                yield from self._write_values(self._known[kind], cells.at[mine], cells.values.take(pa.array(mine)))
        picked = tuples.picked
        nulls = picked.find_nulls()
        there = usable & ~typed if nulls is None else usable & ~typed & ~nulls
        for kind in np.flatnonzero(np.bincount(self._kinds[there])).tolist():
            at = np.flatnonzero(there & (self._kinds == kind))
            yield from self._write_values(self._known[kind], at, picked.take(at))
        yield from self._write_placeholders()

    def _write_values(self, kind: _Kind, at: Index, values: pa.Array) -> Iterator[_Written]:
        if kind.direct is not None:
            written = kind.direct(values, kind.lead)
            yield at, written
            left = written.is_null()
            at, values = at[left.to_numpy(zero_copy_only=False)], values.filter(left)
        if len(at):
            yield self._write_json(kind, at, values)

    def _write_json(self, kind: _Kind, at: Index, values: pa.Array) -> _Written:
        piece = kind.connect.render(values)
        lost = json_text.find_lost(piece, values)
        if kind.lossless and kind.connect.schema["type"] == "string":
            piece = _put_texts(piece, kind.connect, values, lost)
        else:
            self._note_lost(kind, at, lost)
        written = keep_nulls(piece.values, lambda there: kind.write(replace(piece, values=there), kind.lead))
        if written.null_count > piece.values.null_count:
            self._note_lost(kind, at, pc.and_(written.is_null(), piece.values.is_valid()))
        return at, written

    def _note_lost(self, kind: _Kind, at: Index, lost: pa.BooleanArray | None) -> None:
        if lost is None or not lost.true_count:
            return
        lost_at = at[lost.to_numpy(zero_copy_only=False)]
        if kind.lossless:
            self._refuse(int(lost_at[0]))
        if self._lost is not None:
            self._lost(lost_at)

    def _find_usable(self) -> Mask:
        """Which cells an image has."""
        usable = np.ones(len(self._kinds), np.bool_)
        for without in (self._tuples.absent, self._cells.marked):
            if without is not None:
                usable &= ~without
        return usable

    def _write_placeholders(self) -> Iterator[_Written]:
        if self._cells.marked is None:
            return
        at = np.flatnonzero(self._cells.marked)
        texts = pa.array([kind.placeholder for kind in self._known], pa.binary())
        yield at, texts.take(pa.array(self._kinds[at]))

    def _require_values(self, nulls: Mask) -> None:
        if not nulls.any():
            return
        required = np.array([kind.required for kind in self._known])
        lacking = np.flatnonzero(nulls & required[self._kinds])
        if len(lacking):
            self._refuse(int(lacking[0]))

    def _refuse(self, cell: int) -> Never:
        (column, *_), _, row = collect_columns(np.array([cell]), self._cells, self._rows)
        relation = self._rows.shapes[int(self._rows.shape[int(row[0])])].relation
        raise SinkRefused(
            f'a row of {relation} has a value in its key column "{column.name}" that its type in Avro cannot hold',
            'name other columns under key, set format = "debezium", or leave the table out with excludeTables',
        )


def _put_texts(piece: Piece, connect: ConnectType, values: pa.Array, lost: pa.BooleanArray | None) -> Piece:
    """With the text form in place of what is lost, as the other formats have it in keys."""
    if lost is None or not lost.true_count:
        return piece
    whole = json_text.join(piece.open, piece.values, piece.close, nulls=None)
    return Piece(pc.replace_with_mask(whole, lost, connect.text(values.filter(lost))))
