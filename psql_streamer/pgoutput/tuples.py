"""The vectorised tuple walker: row data of many rows at once, one step a column.

TupleData is int16 column count, then for each column a kind byte: 'n' NULL, 'u' unchanged TOAST, 't' text
(int32 length and the bytes). The walker keeps one cursor a row and moves all of them over one column at a
time, so that the work per row is numpy's and not the interpreter's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from psql_streamer.errors import ProtocolError

_NULL, _UNCHANGED, _TEXT = ord("n"), ord("u"), ord("t")
_MAX_INT32 = 2**31 - 1
_NO_VALUES = pa.array([], pa.binary())

Index = NDArray[np.int64]


class Wire:
    """A buffer of frames, with big-endian integers to be read at any byte, for many places at once."""

    def __init__(self, data: bytes | bytearray) -> None:
        self.data = data
        self.arrow = pa.py_buffer(data)
        self.u8 = np.frombuffer(data, np.uint8)
        self._views = {size: self._view(size) for size in (2, 4, 8)}

    def __len__(self) -> int:
        return len(self.data)

    def u16(self, at: Index) -> Index:
        return self._views[2][at].astype(np.int64)

    def u32(self, at: Index) -> Index:
        return self._views[4][at].astype(np.int64)

    def u64(self, at: Index) -> NDArray[np.uint64]:
        return self._views[8][at].astype(np.uint64)

    def _view(self, size: int) -> NDArray[np.unsignedinteger]:
        """Every run of `size` bytes as an integer: an array over the same memory whose elements overlap."""
        count = max(0, len(self.data) - size + 1)
        return np.ndarray((count,), np.dtype(f">u{size}"), self.data, strides=(1,))


@dataclass(frozen=True, slots=True)
class Walked:
    """Where the walk ended (one byte past each tuple), and for each column its values and what is unchanged."""

    end: Index
    columns: tuple[pa.Array, ...]
    unchanged: dict[int, NDArray[np.bool_]]


def walk(wire: Wire, at: Index, frame_end: Index, columns: int, table: str) -> Walked:
    """Read one tuple of each row.

    at: where each row's TupleData begins, increasing. frame_end: the byte past each row's frame; no cursor
    gets beyond it, so that a broken row cannot take bytes of its neighbour.
    """
    if not len(at):
        return Walked(at, (_NO_VALUES,) * columns, {})
    _inside(at + 2, frame_end, table)
    counts = wire.u16(at)
    if np.count_nonzero(counts != columns):
        wrong = int(counts[counts != columns][0])
        raise ProtocolError(f"a row of {table} has {wrong} columns where its Relation message has {columns}")
    cursor = at + 2
    places = np.arange(0, 2 * len(at), 2)
    every = pa.array(places)
    arrays: list[pa.Array] = []
    unchanged: dict[int, NDArray[np.bool_]] = {}
    for index in range(columns):
        _inside(cursor + 1, frame_end, table)
        kind = wire.u8[cursor]
        text = kind == _TEXT
        if np.count_nonzero(text) == len(text):
            start = cursor + 5
            _inside(start, frame_end, table)
            cursor = start + wire.u32(cursor + 1)
            _inside(cursor, frame_end, table)
            arrays.append(_gather(wire, start, cursor, every))
            continue
        missing = ~text
        _known(kind[missing], table)
        start, end = cursor + 1, cursor + 1
        start[text] += 4
        _inside(start, frame_end, table)
        end[text] = start[text] + wire.u32(cursor[text] + 1)
        _inside(end, frame_end, table)
        cursor = end
        arrays.append(_gather(wire, start, end, pa.array(places, mask=missing)))
        toast = kind == _UNCHANGED
        if np.count_nonzero(toast):
            unchanged[index] = toast
    return Walked(cursor, tuple(arrays), unchanged)


def _inside(cursor: Index, frame_end: Index, table: str) -> None:
    if np.count_nonzero(cursor > frame_end):
        raise ProtocolError(f"a row of {table} is longer than its message")


def _known(kinds: NDArray[np.uint8], table: str) -> None:
    strange = (kinds != _NULL) & (kinds != _UNCHANGED)
    if np.count_nonzero(strange):
        raise ProtocolError(f"a row of {table} has a column of unknown kind {chr(int(kinds[strange][0]))!r}")


def _gather(wire: Wire, start: Index, end: Index, places: pa.Array) -> pa.Array:
    """The bytes [start, end) of each row as an Arrow binary array. places: 0, 2, 4, ..., or null for a null.

    start0, end0, start1, end1, ... are the offsets of an Arrow array over the frames as they lie: every even
    element is a value and every odd one the gap up to the next. Taking the even ones copies just the values.
    """
    rows = len(start)
    wide = len(wire) > _MAX_INT32
    offsets = np.empty(2 * rows, np.int64 if wide else np.int32)
    offsets[0::2] = start
    offsets[1::2] = end
    spans = pa.Array.from_buffers(
        pa.large_binary() if wide else pa.binary(), 2 * rows - 1, [None, pa.py_buffer(offsets), wire.arrow]
    )
    values = spans.take(places)
    return values.cast(pa.binary()) if wide else values
