"""JSON values as PostgreSQL's text forms: what kind of column holds them all, and each value in that kind's form.

A record says of a value what JSON says: a number, a string. A column has the kind that fits all values that were seen
in it: a kind is only ever widened. All cells of a batch are looked at together, whatever tables they are of.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from psql_streamer.binary_columns import read_offsets
from psql_streamer.cells import expand_ranges
from psql_streamer.event_reader.documents import BrokenJsonError, require_json
from psql_streamer.model import Index, TextType
from psql_streamer.pgtype import PostgresType
from psql_streamer.pgtypes.builtin import OIDS

BOOLEAN, INTEGER, DECIMAL, STRING, DOCUMENT, NOT_FINITE = (1 << bit for bit in range(6))
"""What a column has held, a bit each. NOT_FINITE: a string that stands for NaN or an infinity. No bit: nulls alone."""

_LONGEST_INTEGER = 18
"""Characters of integers that 8 bytes hold whatever they are."""

_SMALLEST_LONG, _LARGEST_LONG = -(1 << 63), (1 << 63) - 1

_NOT_FINITE_TEXTS = pa.array([b'"NaN"', b'"Infinity"', b'"-Infinity"'], pa.binary())


def map_bytes(groups: Mapping[bytes, int]) -> NDArray[np.uint8]:
    """For each byte the number of the group that it is in, 0 for none."""
    table = np.zeros(256, np.uint8)
    for characters, bit in groups.items():
        table[list(characters)] = bit
    return table


_BY_FIRST_BYTE = map_bytes({b"tf": BOOLEAN, b"-0123456789": INTEGER, b'"': STRING, b"{[": DOCUMENT})


def _make_type(native: str, like: str) -> TextType:
    return TextType(native, PostgresType(OIDS[like]))


_NULLS, _BOOLEANS, _INTEGERS = _make_type("null", "text"), _make_type("boolean", "bool"), _make_type("integer", "int8")
_NUMBERS, _STRINGS, _ANY = _make_type("number", "numeric"), _make_type("string", "text"), _make_type("any", "json")

_BITS = {
    "null": 0,
    "boolean": BOOLEAN,
    "integer": INTEGER,
    "number": INTEGER | DECIMAL,
    "string": STRING,
    "any": DOCUMENT,
}


def choose_type(bits: int) -> TextType:
    """The type of a column that has held these."""
    if not bits:
        return _NULLS
    if not bits & ~(STRING | NOT_FINITE):
        return _STRINGS
    if not bits & ~(INTEGER | DECIMAL | NOT_FINITE):
        return _INTEGERS if bits == INTEGER else _NUMBERS
    return _BOOLEANS if bits == BOOLEAN else _ANY


def look_up_bits(kind: TextType) -> int:
    """The other way round, as far as that can be said: for the types of a shape that was stored."""
    return _BITS.get(kind.native, DOCUMENT)


class Held(NamedTuple):
    """What cells hold. values: their JSON. bits: of each. plain: the texts of strings with escapes, by cell."""

    values: pa.Array
    bits: NDArray[np.uint8]
    at_escaped: Index
    escaped: pa.Array


def look(values: pa.Array) -> Held:
    """What JSON values are. values: `binary` without nulls, each of at least one byte. Raises BrokenJsonError."""
    bounds, data = _read_buffers(values)
    if not is_utf8(values):
        raise BrokenJsonError
    bits = _BY_FIRST_BYTE[data[bounds[:-1]]]
    bits = _tell_numbers_apart(values, bits)
    strings = bits == STRING
    short = strings & (np.diff(bounds) <= len(b'"-Infinity"'))
    if short.any():
        at = np.flatnonzero(short)
        bits[at[pc.is_in(values.take(pa.array(at)), _NOT_FINITE_TEXTS).to_numpy(zero_copy_only=False)]] = NOT_FINITE
    at_escaped, escaped, undecoded = _decode_escaped(values, strings, bounds, data)
    bits[undecoded] = DOCUMENT
    # Documents, and strings with escapes that are not understood, go out as they came.
    for document in values.filter(pa.array(bits == DOCUMENT)).to_numpy(zero_copy_only=False).tolist():
        require_json(document)
    return Held(values, bits, at_escaped, escaped)


def is_utf8(values: pa.Array) -> bool:
    """Whether all of these, `binary`, are text."""
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def to_text_forms(held: Held, of_columns: NDArray[np.uint8]) -> pa.Array:
    """The cells in the text forms of their columns' types. of_columns: for each cell the bits of its column."""
    bounds, data = _read_buffers(held.values)
    keep = np.ones(len(data), np.bool_)
    begins, ends, lengths = bounds[:-1], bounds[1:], np.diff(bounds)
    null = held.bits == 0
    _drop(keep, begins[null], ends[null])
    lengths[null] = 0
    kinds = _KIND_OF_BITS[of_columns]
    quoted = ((held.bits == STRING) & (kinds == _AS_STRING)) | ((held.bits == NOT_FINITE) & (kinds != _AS_ANY))
    keep[begins[quoted]] = False
    keep[ends[quoted] - 1] = False
    lengths[quoted] -= len('""')
    booleans = (held.bits == BOOLEAN) & (kinds == _AS_BOOLEAN)
    _drop(keep, begins[booleans] + 1, ends[booleans])
    lengths[booleans] = 1
    kept = np.cumsum(np.concatenate((bounds[:1], lengths))).astype(np.int32)
    valid = pa.array(~null).buffers()[1] if null.any() else None
    texts = pa.Array.from_buffers(
        pa.binary(), len(null), [valid, pa.py_buffer(kept), pa.py_buffer(np.ascontiguousarray(data[keep]))]
    )
    unescaped = kinds[held.at_escaped] == _AS_STRING
    if not unescaped.any():
        return texts
    where = np.zeros(len(null), np.bool_)
    where[held.at_escaped[unescaped]] = True
    return pc.replace_with_mask(texts, pa.array(where), held.escaped.filter(pa.array(unescaped)))


_AS_IT_IS, _AS_STRING, _AS_BOOLEAN, _AS_ANY = range(4)


def _as_kind(bits: int) -> int:
    kind = choose_type(bits)
    if kind is _ANY:
        return _AS_ANY
    return _AS_STRING if kind is _STRINGS else _AS_BOOLEAN if kind is _BOOLEANS else _AS_IT_IS


_KIND_OF_BITS = np.array([_as_kind(bits) for bits in range(64)], np.uint8)


def _read_buffers(values: pa.Array) -> tuple[Index, NDArray[np.uint8]]:
    """Where each value begins in the bytes of all of them, and where the last ends; and the bytes."""
    bounds = read_offsets(values).astype(np.int64)
    data = values.buffers()[2]
    return bounds, np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)


def _tell_numbers_apart(values: pa.Array, bits: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Numbers with a point or an exponent, or too many digits for 8 bytes, are decimals."""
    numbers = np.flatnonzero(bits == INTEGER)
    if not len(numbers):
        return bits
    texts = values if len(numbers) == len(values) else values.take(pa.array(numbers))
    bounds, data = _read_buffers(texts)
    long = np.diff(bounds) > _LONGEST_INTEGER
    at = np.flatnonzero((data == ord(".")) | ((data | 0x20) == ord("e")))
    at = at[(at >= bounds[0]) & (at < bounds[-1])]
    pointed = np.zeros(len(long), np.bool_)
    pointed[np.searchsorted(bounds, at, side="right") - 1] = True
    short = np.diff(bounds) <= len(str(_SMALLEST_LONG))
    for cell in np.flatnonzero(long & short & ~pointed).tolist():
        long[cell] = not _SMALLEST_LONG <= int(texts[cell].as_py()) <= _LARGEST_LONG
    bits[numbers[long | pointed]] = DECIMAL
    return bits


def _decode_escaped(
    values: pa.Array, strings: NDArray[np.bool_], bounds: Index, data: NDArray[np.uint8]
) -> tuple[Index, pa.Array, Index]:
    """Which strings have escapes; their texts; and those whose text UTF-8 cannot hold (half a surrogate pair)."""
    at = np.flatnonzero(data == ord("\\"))
    cells = np.unique(np.searchsorted(bounds, at, side="right") - 1)
    cells = cells[strings[cells]] if len(cells) else cells
    texts, found, undecoded = [], [], []
    for cell in cells.tolist():
        try:
            texts.append(msgspec.json.decode(values[cell].as_py(), type=str).encode())
            found.append(cell)
        except (msgspec.DecodeError, UnicodeEncodeError):
            undecoded.append(cell)
    return np.array(found, np.int64), pa.array(texts, pa.binary()), np.array(undecoded, np.int64)


def _drop(keep: NDArray[np.bool_], begins: Index, ends: Index) -> None:
    """The bytes of these ranges are not kept."""
    lengths = np.zeros(len(begins) + 1, np.int64)
    np.cumsum(ends - begins, out=lengths[1:])
    keep[expand_ranges(begins, lengths)] = False
