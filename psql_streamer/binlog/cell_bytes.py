"""The bytes of a block, with integers to be read at any place; and texts that were made of some of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from psql_streamer.binlog.cell_types import CellType
from psql_streamer.model import Index

Bytes = NDArray[np.uint8]

PADDING = b"\0" * 8
"""Stands behind a block, so that eight bytes can be read wherever it has one."""


class Block:
    """Bytes of rows, with the padding behind them."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.u8 = np.frombuffer(data, np.uint8)
        self._little = self._view("<u8")
        self._big = self._view(">u8")

    @cached_property
    def beyond_ascii(self) -> Index:
        """How many bytes from 128 on stand before each byte, and in all."""
        return np.append(0, np.cumsum(self.u8 >= 0x80))

    def read_unsigned(self, at: Index, width: int) -> NDArray[np.uint64]:
        """Little-endian integers of `width` bytes."""
        found = self._little[at].astype(np.uint64)
        return found if width == 8 else found & np.uint64((1 << 8 * width) - 1)

    def read_lengths(self, at: Index, width: int) -> Index:
        """As `unsigned`; where `at` lies behind the block, what stands at its end."""
        if width == 1:
            return self.u8.take(at, mode="clip").astype(np.int64)
        # Not `take`, which would copy the whole view before it looks at some places of it.
        return self.read_unsigned(np.minimum(at, len(self._little) - 1), width).view(np.int64)

    def read_big_endian(self, at: Index, width: int) -> NDArray[np.uint64]:
        """Big-endian integers of `width` bytes."""
        return self._big[at].astype(np.uint64) >> np.uint64(8 * (8 - width))

    def _view(self, kind: str) -> NDArray[np.uint64]:
        """Every run of eight bytes as an integer: an array over the same memory whose elements overlap."""
        return np.ndarray((max(0, len(self.data) - 7),), np.dtype(kind), self.data, strides=(1,))


@dataclass(frozen=True, slots=True)
class CellBytes:
    """Cells of one type, none of them NULL. start, end: in the block."""

    block: Block
    type: CellType
    start: Index
    end: Index

    def __len__(self) -> int:
        return len(self.start)

    def read_unsigned(self) -> NDArray[np.uint64]:
        """Each as a little-endian integer."""
        return self.block.read_unsigned(self.start, self.type.width)

    def read_big_endian(self, skip: int = 0, width: int = 0) -> NDArray[np.uint64]:
        """Each as a big-endian integer, or `width` bytes of each."""
        return self.block.read_big_endian(self.start + skip, width or self.type.width)

    def list_values(self) -> list[bytes]:
        """One by one."""
        data = self.block.data
        return [data[start:end] for start, end in zip(self.start.tolist(), self.end.tolist(), strict=True)]


_LONG_BYTES, _LEAST_TOTAL_BYTES = 64, 4096


def are_long(cells: CellBytes) -> bool:
    """Whether cells are better read one by one than with numbers for each of their bytes, which take eight times as
    much memory or more.
    """
    total = int((cells.end - cells.start).sum())
    return total > _LEAST_TOTAL_BYTES and total > _LONG_BYTES * len(cells)


class Texts(NamedTuple):
    """A text for each cell: where it begins and ends in `data`, which may have more."""

    data: Bytes
    start: Index
    end: Index


def join_texts(values: list[bytes]) -> Texts:
    """Texts that were made one by one."""
    ends = np.cumsum([len(value) for value in values], dtype=np.int64)
    return Texts(np.frombuffer(b"".join(values), np.uint8), np.append(0, ends[:-1])[: len(ends)], ends)


def look_up_texts(table: list[bytes], which: Index) -> Texts:
    """For each cell one of the table's texts."""
    found = join_texts(table)
    return Texts(found.data, found.start[which], found.end[which])


def slice_grid(grid: Bytes, first: Index | int, last: Index | int) -> Texts:
    """A line of the grid for each cell, from its column `first` up to before `last`."""
    lines, width = grid.shape
    begins = np.arange(lines, dtype=np.int64) * width
    return Texts(grid.reshape(-1), begins + first, begins + last)


def take_spans(data: Bytes, start: Index, end: Index, null: NDArray[np.bool_]) -> pa.Array:
    """Runs of the bytes as `binary`, wherever each lies.

    0, start0, end0, start1, end1, ... are the offsets of an Arrow array over the bytes as they lie: every odd element
    is a value and every even one the gap before it. Taking the odd ones copies just the values.
    """
    if not len(start):
        return pa.array([], pa.binary())
    wide = len(data) > _MAX_INT32
    bounds = np.empty(2 * len(start) + 2, np.int64 if wide else np.int32)
    bounds[0], bounds[-1] = 0, len(data)
    bounds[1:-1:2], bounds[2:-1:2] = start, end
    kind = pa.large_binary() if wide else pa.binary()
    spans = pa.Array.from_buffers(kind, len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
    values = spans.take(pa.array(np.arange(1, len(bounds) - 1, 2), mask=null if null.any() else None))
    return values.cast(pa.binary()) if wide else values


_MAX_INT32 = 2**31 - 1
