"""PostgreSQL's text form <-> Arrow's types, a whole column at a time.

`cast` and `to_text` are each other's inverse for every value that the Arrow type holds exactly. Arrow's range
is held to Spark's: dates and timestamps of the years 1 to 9999. The text forms are those of the connection's
settings: DateStyle ISO, TimeZone UTC, bytea_output hex, extra_float_digits 1
(PostgreSQL source, src/backend/utils/adt: date.c, timestamp.c, float.c, numeric.c, varlena.c).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from psql_streamer.binary_columns import read_offsets, read_value_bytes
from psql_streamer.model import ArrowType, ColumnType, TextType
from psql_streamer.pgtype import Logical, PostgresType
from psql_streamer.pgtypes.builtin import BY_OID, OIDS
from psql_streamer.pgtypes.modifiers import VARHDRSZ, decode_numeric_modifier

_MAX_DECIMAL_PRECISION = 38


def choose_arrow_type(kind: ColumnType) -> pa.DataType:
    """The Arrow type of a type: `string`, PostgreSQL's text form, for every type that has no counterpart."""
    return kind.arrow if isinstance(kind, ArrowType) else _choose_form(kind).arrow


def cast(texts: pa.BinaryArray, kind: PostgresType | TextType) -> pa.Array:
    """The typed values of text forms; null where the type cannot hold a value exactly, and for null.

    texts: UTF-8 as it came over the wire. What the type cannot hold: NaN in a decimal, `infinity`, years before
    Christ and past 9999 in dates and timestamps, text that is not of the type at all.
    """
    form = _choose_form(kind)
    return form.parse(_make_dense(texts, pa.binary()), form.arrow)


def to_text(values: pa.Array, kind: PostgresType | TextType) -> pa.BinaryArray:
    """PostgreSQL's text form of typed values; null stays null.

    values: of type `choose_arrow_type(kind)`, or of one that `choose_type` gives this type for.
    """
    form = _choose_form(kind)
    texts = form.render(_make_dense(values, form.arrow))
    return texts if texts.type.equals(pa.binary()) else texts.view(pa.binary())


def find_postgres_type(kind: pa.DataType) -> PostgresType | None:
    """The PostgreSQL type that holds every value of an Arrow type; None for types without one: nested ones, say."""
    if pa.types.is_timestamp(kind) and kind.unit != "ns":
        return PostgresType(OIDS["timestamptz" if kind.tz else "timestamp"])
    if pa.types.is_decimal128(kind) and 0 <= kind.scale <= kind.precision:
        return PostgresType(OIDS["numeric"], _encode_typmod(kind.precision, kind.scale))
    name = _NATURAL.get(kind)
    return None if name is None else PostgresType(OIDS[name])


@dataclass(frozen=True, slots=True)
class _Form:
    arrow: pa.DataType
    parse: Callable[[pa.Array, pa.DataType], pa.Array]
    render: Callable[[pa.Array], pa.Array]


def _choose_form(kind: PostgresType | TextType) -> _Form:
    if isinstance(kind, TextType):
        kind = kind.like
    known = kind.known or BY_OID.get(kind.oid)
    if known is None or known.element is not None:
        return _TEXT_FORM
    if known.logical is Logical.NUMERIC:
        return _choose_numeric_form(known.base_typmod if known.base_oid else kind.typmod)
    return FORMS.get(known.logical, _TEXT_FORM)


def _make_dense(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The array itself, or one array of a chunked one, which slices and sockets like to give."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    return array if array.type.equals(kind) else array.cast(kind)


# --- text


def _parse_text(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:  # a SQL_ASCII database holds any bytes
        return pa.array([_decode_text(text) for text in texts.to_pylist()], kind)


def _decode_text(text: bytes | None) -> str | None:
    try:
        return None if text is None else text.decode()
    except UnicodeDecodeError:
        return None


def _render_text(values: pa.Array) -> pa.Array:
    return values


# --- booleans and numbers


def _parse_bool(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    true = pc.equal(texts, b"t")
    known = pc.or_(true, pc.equal(texts, b"f"))
    return pc.if_else(known, true, pa.scalar(None, kind))


def _render_bool(values: pa.Array) -> pa.Array:
    return pc.if_else(values, pa.scalar(b"t", pa.binary()), pa.scalar(b"f", pa.binary()))


def _make_parser(pattern: str) -> Callable[[pa.Array, pa.DataType], pa.Array]:
    """A parser by Arrow's own cast; where that refuses the column, only what the pattern matches is cast.

    The pattern leaves nothing to Arrow that it refuses but numbers out of range; those go one by one.
    """

    def parse(texts: pa.Array, kind: pa.DataType) -> pa.Array:
        strings = texts.view(pa.string())
        try:
            return strings.cast(kind)
        except pa.ArrowInvalid:
            fits = pc.match_substring_regex(texts, pattern)
        plain = pc.if_else(fits, strings, pa.scalar(None, pa.string()))
        try:
            return plain.cast(kind)
        except pa.ArrowInvalid:
            return _cast_each(plain, kind)

    return parse


def _cast_each(strings: pa.Array, kind: pa.DataType) -> pa.Array:
    """Null for every value that Arrow refuses: halves the column until the culprits stand alone."""
    try:
        return strings.cast(kind)
    except pa.ArrowInvalid:
        if len(strings) == 1:
            return pa.nulls(1, kind)
    middle = len(strings) // 2
    return pa.concat_arrays([_cast_each(strings[:middle], kind), _cast_each(strings[middle:], kind)])


def _render_by_cast(values: pa.Array) -> pa.Array:
    return values.cast(pa.string())


_ARROW_FIXED_BELOW = 1e10
"""Arrow writes floats in fixed notation up to here."""


def _render_float(fixed_below: float) -> Callable[[pa.Array], pa.Array]:
    """PostgreSQL writes fixed notation from 1e-4 to 1e15 (float8) or 1e6 (float4), else an exponent of two digits."""

    def render(values: pa.Array) -> pa.Array:
        size = pc.abs(values)
        plain = pc.and_(pc.greater_equal(size, 1e-4), pc.less(size, min(fixed_below, _ARROW_FIXED_BELOW)))
        simple = pc.or_kleene(plain, pc.equal(size, 0))
        texts = values.cast(pa.string())
        if pc.all(simple).as_py() is not False:
            return texts
        others = values.filter(pc.invert(simple)).to_numpy(zero_copy_only=False)
        written = pa.array([_render_one_float(value, fixed_below) for value in others], pa.string())
        return pc.replace_with_mask(texts, pc.invert(pc.fill_null(simple, True)), written)

    return render


def _render_one_float(value: np.floating, fixed_below: float) -> str:
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if 1e-4 <= abs(value) < fixed_below:
        return np.format_float_positional(value, unique=True, trim="-")
    return np.format_float_scientific(value, unique=True, trim="-", exp_digits=2)


# --- numeric


def _choose_numeric_form(typmod: int) -> _Form:
    """numeric(p, s) is a decimal where it has one; without precision, or a scale outside 0..p, it stays text."""
    if typmod < VARHDRSZ:
        return _TEXT_FORM
    precision, scale = decode_numeric_modifier(typmod)
    if not (0 < precision <= _MAX_DECIMAL_PRECISION and 0 <= scale <= precision):
        return _TEXT_FORM
    return _Form(pa.decimal128(precision, scale), _parse_decimal, _render_decimal)


def _encode_typmod(precision: int, scale: int) -> int:
    return ((precision << 16) | scale) + VARHDRSZ


def _render_decimal(values: pa.Array) -> pa.Array:
    """Digits without an exponent, which Arrow's own cast falls into for small values of a large scale."""
    scale = values.type.scale
    if scale == 0:
        return values.cast(pa.string())
    unscaled = pa.Array.from_buffers(
        pa.decimal128(_MAX_DECIMAL_PRECISION, 0), len(values), values.buffers(), values.null_count, values.offset
    )
    digits = unscaled.cast(pa.string())
    negative = pc.starts_with(digits, "-")
    padded = pc.ascii_lpad(pc.ascii_ltrim(digits, "-"), width=scale + 1, padding="0")
    whole = pc.utf8_slice_codeunits(padded, 0, -scale)
    fraction = pc.utf8_slice_codeunits(padded, -scale)
    return pc.binary_join_element_wise(pc.if_else(negative, "-", ""), whole, ".", fraction, "").cast(pa.string())


# --- dates and times


_BEFORE_CHRIST = re.compile(r"(-?\d+)(-.*)")


_DAY = 86_400_000_000
"""In microseconds."""


def _render_date(values: pa.Array) -> pa.Array:
    return _mark_years_bc(_write_far_years(values, _write_days))


def _render_timestamp(values: pa.Array) -> pa.Array:
    return _mark_years_bc(_trim_second_digits(values))


def _render_timestamptz(values: pa.Array) -> pa.Array:
    naive = values.cast(pa.int64()).cast(pa.timestamp("us"))
    return _mark_years_bc(pc.binary_join_element_wise(_trim_second_digits(naive), "+00", ""))


def _trim_second_digits(values: pa.Array) -> pa.Array:
    """Arrow writes six digits of a second, PostgreSQL only as many as it needs."""
    return pc.replace_substring_regex(_write_far_years(values, _write_moments), r"\.?0+$", "", max_replacements=1)


def _write_far_years(values: pa.Array, write: Callable[[NDArray[np.int64]], pa.Array]) -> pa.Array:
    """The texts of all values. Arrow has none for years past 32767, which a number of milliseconds taken for seconds
    easily gives, nor before -32767: these are written by `write`.
    """
    texts = values.cast(pa.string())
    far = pc.fill_null(pc.starts_with(texts, "<"), False)
    if not pc.any(far).as_py():
        return texts
    width = pa.int32() if pa.types.is_date32(values.type) else pa.int64()
    return pc.replace_with_mask(texts, far, write(values.filter(far).cast(width).to_numpy().astype(np.int64)))


def _write_days(days: NDArray[np.int64]) -> pa.Array:
    return pa.array(np.datetime_as_string(days.astype("datetime64[D]")), pa.string())


def _write_moments(microseconds: NDArray[np.int64]) -> pa.Array:
    days, rest = np.divmod(microseconds, _DAY)
    return pc.binary_join_element_wise(_write_days(days), pa.array(rest, pa.time64("us")).cast(pa.string()), " ")


def _mark_years_bc(texts: pa.Array) -> pa.Array:
    """Arrow counts the years before Christ as 0, -1, ...; PostgreSQL as 1 BC, 2 BC, ..."""
    before = pc.match_substring_regex(texts, "^(?:-|0000)")
    if not pc.any(before).as_py():
        return texts
    years = [_BEFORE_CHRIST.fullmatch(text) for text in texts.filter(before).to_pylist()]
    written = [f"{1 - int(year[1]):04d}{year[2]} BC" for year in years if year]
    return pc.replace_with_mask(texts, pc.fill_null(before, False), pa.array(written, pa.string()))


# --- bytea

_HEX_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
_BAD = 255


def _make_nibbles() -> NDArray[np.uint8]:
    table = np.full(256, _BAD, np.uint8)
    table[_HEX_DIGITS] = np.arange(16)
    table[np.frombuffer(b"ABCDEF", np.uint8)] = np.arange(10, 16)
    return table


_NIBBLES = _make_nibbles()


def _parse_bytea(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """`\\x` and two hex digits a byte. All values are decoded at once, in one buffer."""
    fits = pc.fill_null(pc.match_substring_regex(texts, rb"^\\x(?:[0-9a-fA-F]{2})*$"), False)
    whole = pc.if_else(fits, texts, pa.scalar(b"\\x", pa.binary()))
    offsets, text = _split_binary(whole)
    keep = np.ones(len(text), np.bool_)
    keep[offsets[:-1]] = False
    keep[offsets[:-1] + 1] = False
    digits = _NIBBLES[text[keep]]
    data: NDArray[np.uint8] = digits[0::2] * np.uint8(16) + digits[1::2]
    ends = (offsets - 2 * np.arange(len(offsets))) // 2
    decoded = _make_binary_array(ends, data)
    return pc.if_else(fits, decoded, pa.scalar(None, kind))


def _render_bytea(values: pa.Array) -> pa.Array:
    valid = values.is_valid()
    offsets, data = _split_binary(pc.fill_null(values, b""))
    starts = 2 * (offsets + np.arange(len(offsets)))
    text = np.empty(starts[-1], np.uint8)
    digit = np.ones(len(text), np.bool_)
    digit[starts[:-1]] = False
    digit[starts[:-1] + 1] = False
    text[starts[:-1]] = ord("\\")
    text[starts[:-1] + 1] = ord("x")
    text[digit] = np.stack((_HEX_DIGITS[data >> 4], _HEX_DIGITS[data & 15]), axis=1).ravel()
    return pc.if_else(valid, _make_binary_array(starts, text), pa.scalar(None, pa.binary()))


def _split_binary(array: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Offsets from 0, and the bytes they point into, of a binary array without nulls."""
    bounds = read_offsets(array).astype(np.int64)
    return bounds - bounds[0], read_value_bytes(array)


def _make_binary_array(offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> pa.Array:
    """A binary array; ArrowInvalid when its bytes are more than the 2 GB that its offsets can count."""
    if offsets[-1] > np.iinfo(np.int32).max:
        raise pa.ArrowInvalid("a bytea column of one batch is larger than 2 GB")
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


# --- the table

_CLOCK = r"\d\d:\d\d:\d\d(?:\.\d{1,6})?"
_parse_integer = _make_parser(r"^-?\d+$")
_parse_float = _make_parser(r"^(?:-?\d+(?:\.\d+)?(?:e[+-]\d+)?|NaN|-?Infinity)$")
_parse_decimal = _make_parser(r"^-?\d+(?:\.\d+)?$")
_parse_date = _make_parser(r"^\d{4}-\d\d-\d\d$")
_parse_timestamp = _make_parser(rf"^\d{{4}}-\d\d-\d\d {_CLOCK}$")
_parse_zoned = _make_parser(rf"^\d{{4}}-\d\d-\d\d {_CLOCK}[+-]\d\d(?::?\d\d)?$")

_TEXT_FORM = _Form(pa.string(), _parse_text, _render_text)

FORMS: dict[Logical, _Form] = {
    Logical.BOOLEAN: _Form(pa.bool_(), _parse_bool, _render_bool),
    Logical.BYTES: _Form(pa.binary(), _parse_bytea, _render_bytea),
    Logical.INT8: _Form(pa.int64(), _parse_integer, _render_by_cast),
    Logical.INT2: _Form(pa.int16(), _parse_integer, _render_by_cast),
    Logical.INT4: _Form(pa.int32(), _parse_integer, _render_by_cast),
    Logical.OID: _Form(pa.int64(), _parse_integer, _render_by_cast),
    Logical.XID: _Form(pa.int64(), _parse_integer, _render_by_cast),
    Logical.FLOAT4: _Form(pa.float32(), _parse_float, _render_float(1e6)),
    Logical.FLOAT8: _Form(pa.float64(), _parse_float, _render_float(1e15)),
    Logical.DATE: _Form(pa.date32(), _parse_date, _render_date),
    Logical.TIMESTAMP: _Form(pa.timestamp("us"), _parse_timestamp, _render_timestamp),
    Logical.TIMESTAMPTZ: _Form(pa.timestamp("us", tz="UTC"), _parse_zoned, _render_timestamptz),
}
"""What has an Arrow type beside text; numeric is apart, for its type depends on its typmod."""

_NATURAL: dict[pa.DataType, str] = {
    pa.bool_(): "bool",
    pa.binary(): "bytea",
    pa.large_binary(): "bytea",
    pa.uint32(): "int8",
    pa.int64(): "int8",
    pa.int8(): "int2",
    pa.uint8(): "int2",
    pa.int16(): "int2",
    pa.uint16(): "int4",
    pa.int32(): "int4",
    pa.string(): "text",
    pa.large_string(): "text",
    pa.float32(): "float4",
    pa.float64(): "float8",
    pa.date32(): "date",
}
"""Timestamps and decimals are apart."""
