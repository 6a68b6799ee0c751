"""What lies in the buffers of Arrow's binary arrays (`binary` and `large_binary`), slices and empty ones included.

Read from the buffers: Arrow's compute functions cost ten times as much for the few rows of a small transaction.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def offsets(column: pa.BinaryArray) -> NDArray[np.int64 | np.int32]:
    """Where each value begins in the data, and where the last one ends."""
    if not len(column):
        return np.zeros(1, np.int32)
    width = np.dtype(np.int64 if pa.types.is_large_binary(column.type) else np.int32)
    bounds: NDArray[np.int64 | np.int32] = np.frombuffer(column.buffers()[1], width)
    return bounds[column.offset : column.offset + len(column) + 1]


def held_bytes(column: pa.BinaryArray) -> NDArray[np.uint8]:
    """All values, back to back."""
    bounds, data = offsets(column), column.buffers()[2]
    return np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]


def nbytes(column: pa.BinaryArray) -> int:
    """Bytes of all values together."""
    bounds = offsets(column)
    return int(bounds[-1]) - int(bounds[0])
