"""Columns in Avro's binary encoding: every function gives a `binary` array with the bytes of each value.

lead: bytes that stand before each value, such as the branch of a union. No array may hold a null.
Source: Avro specification 1.12, "Binary Encoding".
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from psql_streamer.binary_columns import pack_rows, read_offsets
from psql_streamer.events.json.json_text import join

NULL, VALUE = b"\x00", b"\x02"
"""The branches of the union of null and a type, as they are encoded."""

END = b"\x00"
"""Of an array or a map: a block of no items."""

_BYTES_OF_LONG = 10
"""Bytes of a long."""

_SHORT = 1 << 12
"""Texts that are shorter than this find their length in a table."""

_PAYLOAD_BITS, _MORE = np.uint64(7), 0x80


def encode_longs(values: NDArray[np.int64], lead: bytes = b"") -> pa.BinaryArray:
    """Numbers of `int` or `long`: zigzag, seven bits a byte, the lowest first."""
    folded = (values << 1 ^ values >> 63).view(np.uint64)
    lengths = np.ones(len(values), np.int64)
    for place in range(1, _BYTES_OF_LONG):
        more = folded >= np.uint64(1) << np.uint64(7 * place)
        if not more.any():
            break
        lengths += more
    longest = int(lengths.max(initial=1))
    made = np.empty((len(values), len(lead) + longest), np.uint8)
    made[:, : len(lead)] = np.frombuffer(lead, np.uint8)
    for place in range(longest):
        bits = (folded >> np.uint64(7 * place)).astype(np.uint8) & 0x7F
        made[:, len(lead) + place] = bits | np.where(lengths > place + 1, _MORE, 0).astype(np.uint8)
    kept = np.ones(made.shape, np.bool_)
    kept[:, len(lead) :] = np.arange(longest) < lengths[:, None]
    return pack_rows(made, kept)


def encode_doubles(values: NDArray[np.float64] | NDArray[np.float32], lead: bytes = b"") -> pa.BinaryArray:
    """Numbers of `float` or `double`, as wide as they are: little endian."""
    width = values.itemsize
    made = np.empty((len(values), len(lead) + width), np.uint8)
    made[:, : len(lead)] = np.frombuffer(lead, np.uint8)
    little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    made[:, len(lead) :] = little.view(np.uint8).reshape(-1, width)
    return pack_rows(made, None)


def encode_booleans(values: NDArray[np.bool_], lead: bytes = b"") -> pa.BinaryArray:
    """A byte for each."""
    both = pa.array([lead + b"\x00", lead + b"\x01"], pa.binary())
    return both.take(pa.array(values.astype(np.int8)))


def encode_texts(values: pa.BinaryArray, lead: bytes = b"") -> pa.BinaryArray:
    """Values of `string` or `bytes`: the length, and the bytes."""
    if not len(values):
        return values
    lengths = np.diff(read_offsets(values)).astype(np.int64)
    if int(lengths.max()) < _SHORT:
        sizes = pa.DictionaryArray.from_arrays(pa.array(lengths.astype(np.int32)), _make_lengths(lead))
    else:
        sizes = encode_longs(lengths, lead)
    return join(sizes, values, nulls=b"")


def encode_long(value: int) -> bytes:
    """One number."""
    folded = value << 1 ^ value >> 63
    made = bytearray()
    while folded > 0x7F:
        made.append(folded & 0x7F | _MORE)
        folded >>= 7
    made.append(folded)
    return bytes(made)


def encode_text(value: bytes) -> bytes:
    """One value of `string` or `bytes`."""
    return encode_long(len(value)) + value


@lru_cache(maxsize=4)
def _make_lengths(lead: bytes) -> pa.BinaryArray:
    return encode_longs(np.arange(_SHORT), lead)
