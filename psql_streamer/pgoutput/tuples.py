"""The vectorised tuple walker: row data of all rows at once, whatever their relations, one step a column number.

TupleData is int16 column count, then for each column a kind byte: 'n' NULL, 'u' unchanged TOAST, 't' text
(int32 length and the bytes). The walker keeps one cursor a row and moves all of them over one column at a
time, so that the work per row is numpy's and not the interpreter's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from psql_streamer import batching
from psql_streamer.errors import ProtocolError

NULL, UNCHANGED, TEXT = ord("n"), ord("u"), ord("t")
_MAX_INT32 = 2**31 - 1
_NO_VALUES = pa.array([], pa.binary())

_EVEN = np.arange(0, 1 << 18, 2, dtype=np.int32)
"""0, 2, 4, ...: made once, because making it takes a twentieth of a block's time."""

Index = NDArray[np.int64]


class Wire:
    """A buffer of frames, with big-endian integers to be read at any byte, for many places at once."""

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self.data = data
        self.arrow = pa.py_buffer(data)
        self.u8 = np.frombuffer(data, np.uint8)
        self._views = {size: self._view(size) for size in (2, 4, 8)}

    def __len__(self) -> int:
        return len(self.data)

    def read_u16(self, at: Index) -> Index:
        return self._views[2][at].astype(np.int64)

    def read_u32(self, at: Index) -> Index:
        return self._views[4][at].astype(np.int64)

    def read_u64(self, at: Index) -> NDArray[np.uint64]:
        return self._views[8][at].astype(np.uint64)

    def _view(self, size: int) -> NDArray[np.unsignedinteger]:
        """Every run of `size` bytes as an integer: an array over the same memory whose elements overlap."""
        count = max(0, len(self.data) - size + 1)
        return np.ndarray((count,), np.dtype(f">u{size}"), self.data, strides=(1,))


@dataclass(frozen=True, slots=True)
class Walked:
    """What was read of tuples. end: one byte past each. begins, values: as Tuples has them.

    unchanged: for each cell whether it is unchanged TOAST; None: none is.
    """

    end: Index
    begins: Index
    values: pa.Array
    unchanged: NDArray[np.bool_] | None


def walk(wire: Wire, at: Index, frame_end: Index, widths: Index, name: Callable[[int], str]) -> Walked:
    """Read one tuple of each row.

    at: where each row's TupleData begins. frame_end: the byte past each row's frame; no cursor gets beyond it, so that
    a broken row cannot take bytes of its neighbour. widths: how many columns each has. name: what the relation of a row
    is called.
    """
    begins = np.zeros(len(at) + 1, np.int64)
    np.cumsum(widths, out=begins[1:])
    if not len(at):
        return Walked(at, begins, _NO_VALUES, None)
    if begins[-1] <= batching.FEW_CELLS and len(wire) <= batching.FEW_BYTES:
        return _FewTuples(wire, frame_end.tolist(), name).read(at.tolist(), widths.tolist(), begins)
    return _Walk(wire, at, frame_end, widths, begins, name).run()


class _FewTuples:
    """One tuple after the other: cheaper than a step a column, where there are few."""

    def __init__(self, wire: Wire, ends: list[int], name: Callable[[int], str]) -> None:
        self._data = wire.data
        self._ends = ends
        self._name = name
        self._values: list[bytes | None] = []
        self._unchanged: list[int] = []

    def read(self, at: list[int], widths: list[int], begins: Index) -> Walked:
        reached = [self._read_tuple(place, *one) for place, one in enumerate(zip(at, widths, strict=True))]
        unchanged = np.zeros(len(self._values), np.bool_)
        unchanged[self._unchanged] = True
        return Walked(
            np.array(reached, np.int64),
            begins,
            pa.array(self._values, pa.binary()),
            unchanged if self._unchanged else None,
        )

    def _read_tuple(self, place: int, cursor: int, width: int) -> int:
        """Where it ends."""
        self._check(place, cursor + 2)
        count = int.from_bytes(self._data[cursor : cursor + 2], "big")
        if count != width:
            raise _make_count_error(self._name(place), count, width)
        cursor += 2
        for _ in range(width):
            cursor = self._read_cell(place, cursor)
        return cursor

    def _read_cell(self, place: int, cursor: int) -> int:
        self._check(place, cursor + 1)
        kind, start = self._data[cursor], cursor + 1
        if kind == TEXT:
            self._check(place, start + 4)
            end = start + 4 + int.from_bytes(self._data[start : start + 4], "big")
            self._check(place, end)
            self._values.append(bytes(self._data[start + 4 : end]))
            return end
        if kind == UNCHANGED:
            self._unchanged.append(len(self._values))
        elif kind != NULL:
            raise _make_kind_error(self._name(place), kind)
        self._values.append(None)
        return start

    def _check(self, place: int, reached: int) -> None:
        if reached > self._ends[place]:
            raise _make_too_long_error(self._name(place))


def _make_count_error(relation: str, found: int, expected: int) -> ProtocolError:
    return ProtocolError(f"a row of {relation} has {found} columns where its Relation message has {expected}")


def _make_kind_error(relation: str, kind: int) -> ProtocolError:
    return ProtocolError(f"a row of {relation} has a column of unknown kind {chr(kind)!r}")


def _make_too_long_error(relation: str) -> ProtocolError:
    return ProtocolError(f"a row of {relation} is longer than its message")


class _Walk:
    """One cursor a tuple. The tuples with most columns come first, so that those which still have one lead."""

    def __init__(
        self, wire: Wire, at: Index, frame_end: Index, widths: Index, begins: Index, name: Callable[[int], str]
    ) -> None:
        self._wire = wire
        self._order = None if not np.count_nonzero(widths != widths[0]) else np.argsort(-widths, kind="stable")
        self._name = name
        self._begins = begins
        self._cursor, self._end, self._widths, self._firsts = map(self._sort, (at, frame_end, widths, begins[:-1]))
        cells = int(begins[-1])
        self._bounds = np.empty(2 * cells, np.int64 if len(wire) > _MAX_INT32 else np.int32)
        self._grid = None if self._order is not None else self._bounds.reshape(len(at), -1, 2)
        self._kinds: NDArray[np.uint8] | None = None  # of the cells; None as long as all are text

    def run(self) -> Walked:
        """Read all columns."""
        self._read_counts()
        active = len(self._cursor)
        for column in range(int(self._widths[0])):
            if self._order is not None:
                active = int(np.searchsorted(-self._widths, -column, side="left"))
            self._read_column(column, active)
        values, unchanged = self._gather()
        return Walked(self._restore_order(self._cursor), self._begins, values, unchanged)

    def _read_counts(self) -> None:
        self._check(self._cursor + 2)
        counts = self._wire.read_u16(self._cursor)
        wrong = np.flatnonzero(counts != self._widths)
        if len(wrong):
            raise _make_count_error(self._name_relation(wrong[0]), int(counts[wrong[0]]), int(self._widths[wrong[0]]))
        self._cursor += 2

    def _read_column(self, column: int, active: int) -> None:
        """The first `active` tuples have this column."""
        cursor = self._cursor[:active]
        try:
            start, end = self._read_cells(column, cursor)
        except IndexError:  # a place behind the block is one behind its frame
            self._check(cursor + 1)
            self._check(cursor + 5)
            raise
        self._check(end)
        if self._grid is None:
            cells = self._firsts[:active] + column
            self._bounds[2 * cells] = start
            self._bounds[2 * cells + 1] = end
        else:
            self._grid[:, column, 0] = start
            self._grid[:, column, 1] = end
        if active == len(self._cursor):
            self._cursor = end
        else:
            self._cursor[:active] = end

    def _read_cells(self, column: int, cursor: Index) -> tuple[Index, Index]:
        """Where the values begin and end. Of text, only the end is to be checked: it lies behind all that was read."""
        wire = self._wire
        kind = wire.u8[cursor]
        text = kind == TEXT
        if np.count_nonzero(text) == len(text):
            start = cursor + 5
            return start, start + wire.read_u32(cursor + 1)
        self._check(cursor + 1)
        self._require_known(kind)
        self._note_kinds(column, kind)
        start, end = cursor + 1, cursor + 1
        start[text] += 4
        self._check(start)
        end[text] = start[text] + wire.read_u32(cursor[text] + 1)
        return start, end

    def _note_kinds(self, column: int, kind: NDArray[np.uint8]) -> None:
        if self._kinds is None:
            self._kinds = np.full(int(self._begins[-1]), TEXT, np.uint8)
        self._kinds[self._firsts[: len(kind)] + column] = kind

    def _gather(self) -> tuple[pa.Array, NDArray[np.bool_] | None]:
        """The values of all cells, and which of them are unchanged TOAST.

        start0, end0, start1, end1, ... are the offsets of an Arrow array over the frames as they lie: every even
        element is a value and every odd one the gap up to the next. Taking the even ones copies just the values.
        """
        cells, kinds = int(self._begins[-1]), self._kinds
        if not cells:
            return _NO_VALUES, None
        wide = self._bounds.dtype == np.int64
        kind = pa.large_binary() if wide else pa.binary()
        spans = pa.Array.from_buffers(kind, 2 * cells - 1, [None, pa.py_buffer(self._bounds), self._wire.arrow])
        even = _EVEN[:cells] if cells <= len(_EVEN) else np.arange(0, 2 * cells, 2)
        values = spans.take(pa.array(even, mask=None if kinds is None else kinds != TEXT))
        if wide:
            values = values.cast(pa.binary())
        unchanged = None if kinds is None else kinds == UNCHANGED
        return values, unchanged if unchanged is not None and unchanged.any() else None

    def _check(self, reached: Index) -> None:
        """The cursors of the leading tuples are within their frames."""
        beyond = reached > self._end[: len(reached)]
        if np.count_nonzero(beyond):
            raise _make_too_long_error(self._name_relation(np.flatnonzero(beyond)[0]))

    def _require_known(self, kinds: NDArray[np.uint8]) -> None:
        strange = np.flatnonzero((kinds != TEXT) & (kinds != NULL) & (kinds != UNCHANGED))
        if len(strange):
            raise _make_kind_error(self._name_relation(strange[0]), int(kinds[strange[0]]))

    def _name_relation(self, place: np.int64) -> str:
        return self._name(int(place if self._order is None else self._order[place]))

    def _sort(self, array: Index) -> Index:
        return array if self._order is None else array[self._order]

    def _restore_order(self, array: Index) -> Index:
        if self._order is None:
            return array
        found = np.empty_like(array)
        found[self._order] = array
        return found
