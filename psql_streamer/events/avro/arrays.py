"""Arrays of plain values in Avro, a column at a time: all their items together, and then each array's in one block."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from psql_streamer.binary_columns import keep_nulls, read_offsets
from psql_streamer.events.avro.columns import (
    END,
    NULL,
    VALUE,
    encode_booleans,
    encode_doubles,
    encode_longs,
    encode_texts,
)
from psql_streamer.events.debezium.connect_type import Schema
from psql_streamer.events.json.json_text import join


class _Item(NamedTuple):
    """make: an Arrow array of items, as they are in JSON. encode: of those that are there, with a lead."""

    make: Callable[[Iterable[Any]], pa.Array]
    encode: Callable[[pa.Array, bytes], pa.BinaryArray]


class NotPlainError(Exception):
    """What was taken for arrays of plain values is something else."""


def encode_arrays(texts: pa.BinaryArray, lead: bytes, item: Schema) -> pa.BinaryArray:
    """Arrays of JSON. item: the schema of their items, of a type in ITEMS. Raises NotPlainError."""
    how = ITEMS[item["type"]]
    try:
        arrays = msgspec.json.decode(b"[%s]" % b",".join(texts.to_pylist()), type=list[list[Any]])
        items = how.make(chain.from_iterable(arrays))
    except (msgspec.DecodeError, pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError, ValueError):
        raise NotPlainError from None
    if items.null_count and not item.get("optional"):
        raise NotPlainError
    written = keep_nulls(items, lambda there: how.encode(there, VALUE if item.get("optional") else b""))
    counts = np.fromiter(map(len, arrays), np.int64, len(arrays))
    blocks = _join_items(written.fill_null(NULL), counts)
    heads = np.where(counts > 0, np.arange(1, len(counts) + 1), 0)
    sizes = pa.concat_arrays([pa.array([lead], pa.binary()), encode_longs(counts, lead)]).take(pa.array(heads))
    return join(sizes, blocks, END, nulls=b"")


def _join_items(written: pa.BinaryArray, counts: np.ndarray[Any, np.dtype[np.int64]]) -> pa.BinaryArray:
    """The items of each array, one behind the other: they lie so already."""
    if not len(written):
        return pa.repeat(pa.scalar(b"", pa.binary()), len(counts))
    bounds = np.ascontiguousarray(read_offsets(written)[np.append(0, np.cumsum(counts))])
    return pa.Array.from_buffers(written.type, len(counts), [None, pa.py_buffer(bounds), written.buffers()[2]])


def _make_floats(kind: pa.DataType) -> Callable[[Iterable[Any]], pa.Array]:
    """NaN and the infinities are strings in JSON."""
    return lambda items: pa.array([None if one is None else float(one) for one in items], kind)


def _make_binary(items: Iterable[Any]) -> pa.Array:
    return pa.array([None if one is None else base64.b64decode(one) for one in items], pa.binary())


_INTEGER = _Item(
    lambda items: pa.array(list(items), pa.int64()), lambda there, lead: encode_longs(there.to_numpy(), lead)
)
_FLOATING = {
    name: _Item(_make_floats(kind), lambda there, lead: encode_doubles(there.to_numpy(), lead))
    for name, kind in (("float", pa.float32()), ("double", pa.float64()))
}

ITEMS: Mapping[str, _Item] = {
    **dict.fromkeys(("int8", "int16", "int32", "int64"), _INTEGER),
    **_FLOATING,
    "boolean": _Item(
        lambda items: pa.array(list(items), pa.bool_()),
        lambda there, lead: encode_booleans(there.to_numpy(zero_copy_only=False), lead),
    ),
    "string": _Item(lambda items: pa.array(list(items), pa.string()).view(pa.binary()), encode_texts),
    "bytes": _Item(_make_binary, encode_texts),
}
"""Plain types of Connect's."""
