"""`numeric` as the number without its point, a column at a time, where 64 bits are enough.

Connect's Decimal is its two's complement, big endian, in as few bytes as hold it: java.math.BigInteger.toByteArray.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from psql_streamer.binary_columns import keep_nulls, pack_rows
from psql_streamer.events.digits import to_digits
from psql_streamer.events.json.json_text import join

NUMBER_BYTES = 8
"""The most that one takes here."""

_SHORT = r"^-?(?:\d{1,18}|\d{1,9}\.\d{1,9}|\d{1,15}\.\d{1,3})$"
"""Numbers that 64 bits hold, by their digits."""

_BASE64 = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
_PADDING = ord("=")
_GROUPS = 3
"""Of three bytes, or four digits of base64, for a number."""


def select_short(texts: pa.BinaryArray, scale: int) -> pa.StringArray:
    """Numbers with so many digits behind the point; null for those that 64 bits may not hold, and for NaN."""
    strings = _select(texts, pc.match_substring_regex(texts, _SHORT)).view(pa.string())
    return _select(strings, pc.equal(_count_digits_behind(strings), scale))


def select_trimmed(texts: pa.BinaryArray) -> pa.StringArray:
    """Numbers of any scale, without zeros at the end; null for others."""
    strings = _select(texts, pc.match_substring_regex(texts, _SHORT)).view(pa.string())
    return pc.if_else(pc.match_substring(strings, "."), pc.utf8_rtrim(strings, "0"), strings)


def read_numbers(strings: pa.StringArray) -> NDArray[np.int64]:
    """The numbers of such texts, without the point."""
    numbers: NDArray[np.int64] = pc.replace_substring(strings, ".", "").cast(pa.int64()).to_numpy()
    return numbers


def read_scales(strings: pa.StringArray) -> NDArray[np.int64]:
    """How many digits each has behind the point."""
    scales: NDArray[np.int64] = _count_digits_behind(strings).to_numpy().astype(np.int64)
    return scales


def count_bytes(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many bytes hold each, and its sign."""
    magnitudes = np.where(numbers < 0, ~numbers, numbers)
    lengths = np.ones(len(numbers), np.int64)
    for count in range(1, NUMBER_BYTES):
        lengths += magnitudes >= np.int64(1) << np.int64(8 * count - 1)
    return lengths


def render_decimals(texts: pa.BinaryArray, scale: int) -> pa.BinaryArray:
    """JSON strings; null for what `select_short` leaves out."""
    return keep_nulls(select_short(texts, scale), lambda some: join(b'"', _render_base64(read_numbers(some)), b'"'))


def render_variable_decimals(texts: pa.BinaryArray) -> pa.BinaryArray:
    """JSON objects of Debezium's VariableScaleDecimal; null likewise."""

    def render(some: pa.StringArray) -> pa.BinaryArray:
        scales = to_digits(read_scales(some))
        return join(b'{"scale":', scales, b',"value":"', _render_base64(read_numbers(some)), b'"}')

    return keep_nulls(select_trimmed(texts), render)


def _render_base64(numbers: NDArray[np.int64]) -> pa.BinaryArray:
    lengths = count_bytes(numbers)
    shifted = numbers.view(np.uint64) << (np.uint64(8) * (NUMBER_BYTES - lengths).astype(np.uint64))
    held = np.zeros((len(numbers), 3 * _GROUPS), np.uint8)
    held[:, :NUMBER_BYTES] = shifted.astype(">u8").view(np.uint8).reshape(-1, NUMBER_BYTES)
    first, second, third = (held[:, at::3] for at in range(3))
    digits = np.empty((len(numbers), _GROUPS, 4), np.uint8)
    digits[:, :, 0] = first >> 2
    digits[:, :, 1] = (first & 3) << 4 | second >> 4
    digits[:, :, 2] = (second & 15) << 2 | third >> 6
    digits[:, :, 3] = third & 63
    texts = _BASE64[digits].reshape(-1, 4 * _GROUPS)
    groups = -(-lengths // 3)
    place = np.arange(4 * _GROUPS)
    texts[place >= (4 * groups - (3 * groups - lengths))[:, None]] = _PADDING
    return pack_rows(texts, place < 4 * groups[:, None])


def _count_digits_behind(strings: pa.StringArray) -> pa.Int32Array:
    at = pc.find_substring(strings, ".")
    return pc.if_else(pc.less(at, 0), 0, pc.subtract(pc.subtract(pc.binary_length(strings), at), 1))


def _select(texts: pa.Array, fits: pa.BooleanArray) -> pa.Array:
    """With null in place of the others."""
    if not texts.null_count and fits.true_count == len(fits):
        return texts
    return pc.if_else(fits, texts, pa.scalar(None, texts.type))
