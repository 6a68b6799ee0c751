"""Integers and times as texts, a column at a time."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from psql_streamer import batching
from psql_streamer.binary_columns import pack_values

_EPOCH = datetime(1970, 1, 1)
_YEAR_9999 = 253_370_764_800_000_000

_STRING, _BINARY, _MICROSECONDS = pa.string(), pa.binary(), pa.timestamp("us")


def to_digits(values: NDArray[np.uint64] | NDArray[np.int64] | NDArray[np.uint32]) -> pa.Array:
    """The decimal digits of each value."""
    if len(values) <= batching.FEW_ROWS:
        return pack_values([b"%d" % value for value in values.tolist()])
    return pa.array(values).cast(_STRING).view(_BINARY)


def to_iso(values: NDArray[np.int64]) -> pa.Array:
    """`2026-11-21T14:54:36.835048` for each value, from microseconds since 1970."""
    if len(values) <= batching.FEW_ROWS and (texts := _convert_few_to_iso(values.tolist())) is not None:
        return pack_values(texts)
    texts = pa.array(values, _MICROSECONDS).cast(_STRING).view(_BINARY)
    return pc.binary_replace_slice(texts, 10, 11, b"T")


def convert_one_to_iso(value: int) -> bytes:
    """The text of `to_iso` for one value."""
    if not 0 <= value < _YEAR_9999:
        return bytes(to_iso(np.array([value]))[0].as_py())
    seconds, rest = divmod(value, 1_000_000)
    return b"%s.%06d" % (_show_second(seconds), rest)


@lru_cache(maxsize=64)
def _show_second(seconds: int) -> bytes:
    """Most transactions of a small batch were committed in the same second."""
    return (_EPOCH + timedelta(seconds=seconds)).isoformat().encode()


def _convert_few_to_iso(values: list[int]) -> list[bytes] | None:
    """The same one by one; None when one of them lies beyond Python's calendar."""
    if not all(0 <= value < _YEAR_9999 for value in values):
        return None
    return list(map(convert_one_to_iso, values))
