"""What lies in the buffers of Arrow's arrays, of binary ones (`binary` and `large_binary`) above all, slices and empty
ones included.

Read from the buffers: Arrow's compute functions cost ten times as much for the few rows of a small transaction.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_BINARY, _LARGE_BINARY = pa.binary(), pa.large_binary()
_OFFSETS, _LARGE_OFFSETS = np.dtype(np.int32), np.dtype(np.int64)


def read_offsets(column: pa.BinaryArray) -> NDArray[np.int64 | np.int32]:
    """Where each value begins in the data, and where the last one ends."""
    if not len(column):
        return np.zeros(1, np.int32)
    width = _LARGE_OFFSETS if column.type == _LARGE_BINARY else _OFFSETS
    bounds: NDArray[np.int64 | np.int32] = np.frombuffer(column.buffers()[1], width)
    return bounds[column.offset : column.offset + len(column) + 1]


def read_value_bytes(column: pa.BinaryArray) -> NDArray[np.uint8]:
    """All values, back to back."""
    bounds, data = read_offsets(column), column.buffers()[2]
    return np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]


def list_views(column: pa.BinaryArray) -> list[memoryview]:
    """The bytes of each value where they are, which nobody copies; none of a null."""
    bounds, data = read_offsets(column).tolist(), memoryview(column.buffers()[2] or b"")
    return [data[begin:end] for begin, end in pairwise(bounds)]


def pack_values(values: Sequence[bytes | None]) -> pa.BinaryArray:
    """A few values as an array, 2 GB together at most: a third of what pa.array takes for them."""
    if None in values:
        return pa.array(values, _BINARY)
    held = [value for value in values if value is not None]
    bounds = struct.pack(f"={len(held) + 1}i", 0, *accumulate(map(len, held)))
    return pa.Array.from_buffers(_BINARY, len(held), [None, pa.py_buffer(bounds), pa.py_buffer(b"".join(held))])


def keep_nulls(values: pa.Array, encode: Callable[[pa.Array], pa.BinaryArray]) -> pa.BinaryArray:
    """What `encode` makes of the values that are there; the others stay null."""
    if not values.null_count:
        return encode(values)
    there = values.is_valid().to_numpy(zero_copy_only=False)
    place = np.where(there, np.cumsum(there) - 1, 0)
    return encode(values.drop_null()).take(pa.array(place, mask=~there))


def pack_rows(rows: NDArray[np.uint8], kept: NDArray[np.bool_] | None) -> pa.BinaryArray:
    """A value of each row of bytes. kept: which of the bytes; None: all of them."""
    if kept is None or kept.all():
        bounds = np.arange(len(rows) + 1, dtype=np.int32) * rows.shape[1]
        held = rows.reshape(-1)
    else:
        bounds = np.append(0, np.cumsum(kept.sum(axis=1))).astype(np.int32)
        held = rows[kept]
    buffers = [None, pa.py_buffer(np.ascontiguousarray(bounds, np.int32)), pa.py_buffer(np.ascontiguousarray(held))]
    return pa.Array.from_buffers(pa.binary(), len(rows), buffers)


def bound_bytes(column: pa.Array | pa.ChunkedArray) -> int:
    """At least the bytes of its values: its buffers have them, and maybe others. One call, whatever its type."""
    return int(column.get_total_buffer_size())


def measure_bytes(column: pa.Array) -> int:
    """Bytes of all values together, of an array of any type."""
    if not _is_binary(column):
        return int(column.nbytes)
    bounds = read_offsets(column)
    return int(bounds[-1]) - int(bounds[0])


def measure_lengths(column: pa.Array) -> NDArray[np.int64]:
    """Bytes of each value; where they do not stand one by one, each is as large as the average of its column."""
    if _is_binary(column):
        return np.diff(read_offsets(column)).astype(np.int64)
    return np.full(len(column), column.nbytes // max(1, len(column)), np.int64)


def _is_binary(column: pa.Array) -> bool:
    return bool(column.type == _BINARY or column.type == _LARGE_BINARY)
