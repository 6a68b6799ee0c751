"""`numeric` as Connect's Decimal and as Debezium's VariableScaleDecimal, in Avro."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from psql_streamer.binary_columns import keep_nulls, pack_rows
from psql_streamer.events.avro.columns import encode_longs
from psql_streamer.events.debezium.unscaled import (
    NUMBER_BYTES,
    count_bytes,
    read_numbers,
    read_scales,
    select_short,
    select_trimmed,
)
from psql_streamer.events.json.json_text import join


def encode_decimals(texts: pa.BinaryArray, lead: bytes, scale: int) -> pa.BinaryArray:
    """Numbers of a scale; null for what `select_short` leaves out."""
    return keep_nulls(select_short(texts, scale), lambda some: _encode_numbers(read_numbers(some), lead))


def encode_variable_decimals(texts: pa.BinaryArray, lead: bytes) -> pa.BinaryArray:
    """The same with the scale before each."""

    def encode(some: pa.StringArray) -> pa.BinaryArray:
        return join(encode_longs(read_scales(some), lead), _encode_numbers(read_numbers(some), b""), nulls=b"")

    return keep_nulls(select_trimmed(texts), encode)


def _encode_numbers(numbers: NDArray[np.int64], lead: bytes) -> pa.BinaryArray:
    """The length of each, and its bytes."""
    lengths = count_bytes(numbers)
    made = np.empty((len(numbers), len(lead) + 1 + NUMBER_BYTES), np.uint8)
    made[:, : len(lead)] = np.frombuffer(lead, np.uint8)
    made[:, len(lead)] = lengths << 1  # zigzag, of a number below 64
    made[:, len(lead) + 1 :] = numbers.astype(">i8").view(np.uint8).reshape(-1, NUMBER_BYTES)
    kept = np.ones(made.shape, np.bool_)
    kept[:, len(lead) + 1 :] = np.arange(NUMBER_BYTES) >= NUMBER_BYTES - lengths[:, None]
    return pack_rows(made, kept)
