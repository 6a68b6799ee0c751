"""`numeric` as Connect's Decimal and as Debezium's VariableScaleDecimal, a column at a time.

The number without its point, in two's complement, big endian, in as few bytes as hold it: what
java.math.BigInteger.toByteArray gives, which Connect's Decimal is made of.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from psql_streamer.events.avro.columns import encode_longs, keep_nulls, pack_rows
from psql_streamer.events.json.json_text import join

_SHORT = r"^-?(?:\d{1,18}|\d{1,9}\.\d{1,9}|\d{1,15}\.\d{1,3})$"
"""Numbers that 64 bits hold, by their digits."""

_BYTES = 8


def encode_decimals(texts: pa.BinaryArray, lead: bytes, scale: int) -> pa.BinaryArray:
    """Numbers with so many digits behind the point; null for those that 64 bits may not hold, and for NaN."""
    strings = texts.view(pa.string())
    fits = pc.and_(pc.match_substring_regex(strings, _SHORT), pc.equal(_count_digits_behind(strings), scale))
    return keep_nulls(_select(strings, fits), lambda some: _encode_unscaled(some, lead))


def encode_variable_decimals(texts: pa.BinaryArray, lead: bytes) -> pa.BinaryArray:
    """The same with the scale before each, of numbers without zeros at the end."""
    strings = texts.view(pa.string())
    fits = pc.match_substring_regex(strings, _SHORT)
    has_point = pc.match_substring(strings, ".")
    trimmed = pc.if_else(has_point, pc.utf8_rtrim(strings, "0"), strings)
    return keep_nulls(_select(trimmed, fits), lambda some: _encode_with_scales(some, lead))


def _encode_with_scales(strings: pa.StringArray, lead: bytes) -> pa.BinaryArray:
    scales = encode_longs(_count_digits_behind(strings).to_numpy().astype(np.int64), lead)
    return join(scales, _encode_unscaled(strings, b""), nulls=b"")


def _encode_unscaled(strings: pa.StringArray, lead: bytes) -> pa.BinaryArray:
    """The length, and the bytes: with their sign in the highest bit of the first one."""
    numbers = pc.replace_substring(strings, ".", "").cast(pa.int64()).to_numpy()
    magnitudes = np.where(numbers < 0, ~numbers, numbers)
    lengths = np.ones(len(numbers), np.int64)
    for count in range(1, _BYTES):
        lengths += magnitudes >= np.int64(1) << np.int64(8 * count - 1)
    made = np.empty((len(numbers), len(lead) + 1 + _BYTES), np.uint8)
    made[:, : len(lead)] = np.frombuffer(lead, np.uint8)
    made[:, len(lead)] = lengths << 1  # zigzag, of a number below 64
    made[:, len(lead) + 1 :] = numbers.astype(">i8").view(np.uint8).reshape(-1, _BYTES)
    kept = np.ones(made.shape, np.bool_)
    kept[:, len(lead) + 1 :] = np.arange(_BYTES) >= _BYTES - lengths[:, None]
    return pack_rows(made, kept)


def _count_digits_behind(strings: pa.StringArray) -> pa.Int32Array:
    """How many digits stand behind the point."""
    at = pc.find_substring(strings, ".")
    return pc.if_else(pc.less(at, 0), 0, pc.subtract(pc.subtract(pc.binary_length(strings), at), 1))


def _select(strings: pa.StringArray, fits: pa.BooleanArray) -> pa.StringArray:
    """With null in place of the others."""
    return strings if fits.true_count == len(fits) else pc.if_else(fits, strings, pa.scalar(None, pa.string()))
