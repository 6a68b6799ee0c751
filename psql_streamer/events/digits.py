"""Numbers and moments as texts, a column at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_STRING, _BINARY, _MICROSECONDS = pa.string(), pa.binary(), pa.timestamp("us")


def numbers(values: NDArray[np.uint64] | NDArray[np.int64] | NDArray[np.uint32]) -> pa.Array:
    """Decimal digits of each."""
    return pa.array(values).cast(_STRING).view(_BINARY)


def moments(values: NDArray[np.int64]) -> pa.Array:
    """`2026-11-21T14:54:36.835048` of each, from microseconds since 1970."""
    texts = pa.array(values, _MICROSECONDS).cast(_STRING).view(_BINARY)
    return pc.binary_replace_slice(texts, 10, 11, b"T")
