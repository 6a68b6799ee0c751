"""A driver's values as PostgreSQL's text forms, a column at a time.

A column whose values are all of the type that it should have is made by Arrow, without a call for each value. Any other
column goes value by value. What has no text form of the column's type is a Misfit: it is never changed to fit.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from psql_streamer.event_reader.documents import BrokenJsonError, require_json
from psql_streamer.pgtype import PostgresType
from psql_streamer.pgtypes import casts
from psql_streamer.pgtypes.builtin import OIDS

Values: TypeAlias = Sequence[Any]
Render: TypeAlias = Callable[[Values], pa.Array]
"""A column of a driver's values -> `binary` text forms."""

_NULL = type(None)
_FLOAT8, _FLOAT4 = PostgresType(OIDS["float8"]), PostgresType(OIDS["float4"])
_FRACTION = re.compile(r"\.(\d*?)0*$")
_TRUE, _FALSE = pa.scalar(b"t", pa.binary()), pa.scalar(b"f", pa.binary())
_FIXED_BELOW = 1e10
"""Arrow writes floats in fixed notation from 1e-4 up to here."""

_MOMENT = r"^\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d\.\d+$|^-?\d+:\d\d:\d\d\.\d+$"
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?|NaN|-?Infinity")
_DIGITS = re.compile(r"-?\d+")
_SURROGATES = re.compile(r"[\ud800-\udfff]")
"""What stands for bytes that are no UTF-8."""


NO_UTF8 = "text that is no UTF-8"
"""What a Misfit may be."""


class Misfit(Exception):
    """A value that its column's type does not have. row: its place. kind: what it is, in words."""

    def __init__(self, row: int, kind: str) -> None:
        super().__init__(f"row {row} has {kind}")
        self.row = row
        self.kind = kind


class _NotOfTheType(Exception):
    pass


def render_strings(values: Values) -> pa.Array:
    """Texts as they are."""
    if _collect_kinds(values) <= {str, _NULL}:
        try:
            return pa.array(values, pa.string()).view(pa.binary())
        except UnicodeEncodeError:
            pass  # surrogates: bytes that are no UTF-8
    return make_render(_render_text)(values)


def render_digits(values: Values) -> pa.Array:
    """Integers."""
    if _collect_kinds(values) <= {int, _NULL}:
        try:
            return _cast_numbers(pa.array(values, pa.int64()))
        except OverflowError:
            pass
    return make_render(_render_integer)(values)


def render_unpadded(values: Values) -> pa.Array:
    """Digits, which a server fills up with zeros in front: a number of JSON has none."""
    return pc.replace_substring_regex(as_text(values).view(pa.string()), r"^0+(\d)", r"\1").view(pa.binary())


def make_number_render(scale: int = 0) -> Render:
    """Decimals of any precision. scale: digits behind the point, with zeros where a value has fewer."""

    one_by_one = make_render(lambda value: _render_decimal(value, scale))

    def of_values(values: Values) -> pa.Array:
        if _collect_kinds(values) <= {float, int, _NULL}:
            try:
                return _render_fixed(pa.array(values, pa.float64()), scale)
            except (pa.ArrowInvalid, _NotOfTheType):
                pass  # more digits than a float shows, or than it has
        return one_by_one(values)

    return of_values


def render_floats(values: Values) -> pa.Array:
    """Floats of 8 bytes, from numbers or their digits."""
    return _cast_floats(values, _FLOAT8, pa.float64())


def render_short_floats(values: Values) -> pa.Array:
    """Floats of 4 bytes, from numbers of 8 that hold the same, or their digits."""
    return _cast_floats(values, _FLOAT4, pa.float32())


def render_flags(values: Values) -> pa.Array:
    """true and false, 1 and 0."""
    if _collect_kinds(values) <= {int, _NULL}:
        try:
            array = pa.array(values, pa.int8())
        except pa.ArrowInvalid:  # more than 8 bits
            return make_render(_render_flag)(values)
        if pc.all(pc.is_in(array, pa.array([0, 1, None], pa.int8()))).as_py() is not False:
            return pc.if_else(pc.equal(array, 1), _TRUE, _FALSE)
    return make_render(_render_flag)(values)


def make_moment_render(suffix: str = "") -> Render:
    """Times, and timestamps, from texts: as PostgreSQL writes them, without zeros at the end of a fraction.

    suffix: the zone, where the driver leaves it out. A text of another form stays as it is.
    """

    def of_texts(values: Values) -> pa.Array:
        texts = render_strings(values)
        found = pc.match_substring_regex(texts.view(pa.string()), _MOMENT)
        if pc.any(found).as_py():
            trimmed = pc.replace_substring_regex(texts.view(pa.string()), r"\.?0+$", "")
            texts = pc.if_else(found, trimmed, texts.view(pa.string())).view(pa.binary())
        return texts if not suffix else _append_suffix(texts, suffix.encode())

    return of_texts


def render_hexes(values: Values) -> pa.Array:
    """Bytes, as `\\x` and hexadecimal digits."""
    return make_render(_render_hex)(values)


def make_bit_render(width: int) -> Render:
    """Bits that come as bytes, as 0 and 1. width: how many."""
    return make_render(lambda value: format(int.from_bytes(value, "big"), f"0{width}b"))


def render_documents(values: Values) -> pa.Array:
    """JSON documents, which a driver may have read already."""
    return make_render(_render_document)(values)


def render_any_json(values: Values) -> pa.Array:
    """Values of columns without a type, as JSON: numbers, strings, and bytes as base64."""
    return make_render(_render_any)(values)


def as_text(values: Values) -> pa.Array:
    """Whatever it is, as text; bytes as `\\x` and hexadecimal digits."""
    return render_strings(values) if _collect_kinds(values) <= {str, _NULL} else make_render(render_value)(values)


def render_known(values: Values) -> pa.Array:
    """Text forms that the server made."""
    return pa.array(values, pa.string()).view(pa.binary())


def make_render(render: Callable[[Any], str]) -> Render:
    """Value by value. render: raises _NotOfTheType, or what a conversion raises, for a misfit."""

    def of_values(values: Values) -> pa.Array:
        made: list[bytes | None] = []
        for row, value in enumerate(values):
            try:
                made.append(None if value is None else render(value).encode())
            except RecursionError:
                raise Misfit(row, "a value that is nested too deeply") from None
            except (_NotOfTheType, ValueError, TypeError, ArithmeticError):
                raise Misfit(row, _name_kind(value)) from None
        return pa.array(made, pa.binary())

    return of_values


def render_value(value: Any) -> str:
    """A value of Python's in the text form of the PostgreSQL type that is nearest to it."""
    return next((render for kinds, render in _TEXTS if isinstance(value, kinds)), str)(value)


def _collect_kinds(values: Values) -> set[type]:
    return set(map(type, values))


def _cast_numbers(array: pa.Array) -> pa.Array:
    return array.cast(pa.string()).view(pa.binary())


def _render_fixed(numbers: pa.Array, scale: int) -> pa.Array:
    """Digits of floats, with zeros up to the scale. _NotOfTheType when some are not in fixed notation."""
    size = pc.abs(numbers)
    fixed = pc.or_(pc.and_(pc.greater_equal(size, 1e-4), pc.less(size, _FIXED_BELOW)), pc.equal(size, 0))
    if pc.all(fixed).as_py() is False:
        raise _NotOfTheType
    texts = numbers.cast(pa.string())
    if not scale:
        return texts.view(pa.binary())
    point = pc.find_substring(texts, ".")
    digits = pc.if_else(pc.less(point, 0), -1, pc.subtract(pc.subtract(pc.binary_length(texts), point), 1))
    missing = pc.max_element_wise(pc.subtract(scale, digits), 0)
    zeros = pa.array(["0" * count for count in range(scale + 1)] + ["." + "0" * scale])
    return pc.binary_join_element_wise(texts, zeros.take(missing), "").view(pa.binary())


def _cast_floats(values: Values, form: PostgresType, kind: pa.DataType) -> pa.Array:
    if _collect_kinds(values) <= {float, _NULL}:
        array = pa.array(values, pa.float64())
    else:
        array = pa.array([_convert_float(row, value) for row, value in enumerate(values)], pa.float64())
    return casts.to_text(array.cast(kind, safe=False), form)


def _convert_float(row: int, value: Any) -> float | None:
    if value is None or isinstance(value, float):
        return value
    if isinstance(value, int | str | decimal.Decimal) and not isinstance(value, bool):
        try:
            found = float(value)
        except (ValueError, OverflowError):
            pass
        else:
            if not isinstance(value, int) or int(found) == value:
                return found
    raise Misfit(row, _name_kind(value))


def _render_text(value: Any) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        raise _NotOfTheType
    if not isinstance(value, str):
        return render_value(value)
    value.encode()  # a surrogate stands for a byte that is no UTF-8
    return value


def _render_integer(value: Any) -> str:
    match value:
        case bool():
            raise _NotOfTheType
        case int():
            return str(value)
        case decimal.Decimal() if value == value.to_integral_value():
            return str(int(value))
        case str() if _DIGITS.fullmatch(value):
            return value
        case _:
            raise _NotOfTheType


def _render_decimal(value: Any, scale: int) -> str:
    match value:
        case bool():
            raise _NotOfTheType
        case int():
            text = str(value)
        case float():
            text = _render_plain(decimal.Decimal(repr(value)))
        case decimal.Decimal():
            text = _render_plain(value)
        case str() if _NUMBER.fullmatch(value):
            text = value
        case _:
            raise _NotOfTheType
    whole, _, fraction = text.partition(".")
    if not scale or not whole.lstrip("-").isdigit():
        return text.removesuffix(".0") if isinstance(value, float) else text
    return f"{whole}.{(fraction if fraction != '0' else '').ljust(scale, '0')}"


def _render_plain(value: decimal.Decimal) -> str:
    if value.is_finite():
        return format(value, "f")
    return "NaN" if value.is_nan() else "Infinity" if value > 0 else "-Infinity"


def _render_flag(value: Any) -> str:
    if isinstance(value, bool | int) and value in (0, 1):
        return "t" if value else "f"
    raise _NotOfTheType


def _render_hex(value: Any) -> str:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise _NotOfTheType
    return "\\x" + bytes(value).hex()


def _render_document(value: Any) -> str:
    if isinstance(value, str):
        try:
            require_json(value.encode())
        except BrokenJsonError:
            raise _NotOfTheType from None
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        raise _NotOfTheType
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _render_any(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float() if math.isfinite(value):
            return render_value(value)
        case bytes() | bytearray() | memoryview():
            return json.dumps(base64.b64encode(bytes(value)).decode())
        case decimal.Decimal() if value.is_finite():
            return _render_plain(value)
        case dict() | list():
            return json.dumps(value, ensure_ascii=False, allow_nan=False)
        case _:
            return json.dumps(render_value(value), ensure_ascii=False)


def _render_moment(value: dt.datetime) -> str:
    if value.tzinfo is None:
        return _trim_fraction(value.isoformat(" "))
    return _trim_fraction(value.astimezone(dt.UTC).replace(tzinfo=None).isoformat(" ")) + "+00"


def _trim_fraction(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def _render_duration(value: dt.timedelta) -> str:
    """As MySQL and PostgreSQL write times: hours may be more than 24."""
    micros = abs(value) // dt.timedelta(microseconds=1)
    seconds, rest = divmod(micros, 1_000_000)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}" + (f".{rest:06}" if rest else "")
    return ("-" if value < dt.timedelta(0) else "") + _trim_fraction(text)


def _append_suffix(texts: pa.Array, suffix: bytes) -> pa.Array:
    """Moments with their zone; a text of another form stays as it is."""
    plain = pc.match_substring_regex(texts.view(pa.string()), r"^[1-9]\d{3}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?$|^0[1-9]")
    joined = pc.binary_join_element_wise(texts, pa.scalar(suffix, pa.binary()), pa.scalar(b"", pa.binary()))
    return pc.if_else(plain, joined, texts)


def _name_kind(value: Any) -> str:
    """What a value is, in words; never the value."""
    match value:
        case str():
            return NO_UTF8 if _SURROGATES.search(value) else "text"
        case bytes() | bytearray() | memoryview():
            return "a blob"
        case bool():
            return "a boolean"
        case int():
            return "an integer"
        case float():
            return "a float"
        case _:
            return f"a value of type {type(value).__name__}"


_TEXTS: tuple[tuple[type | tuple[type, ...], Callable[[Any], str]], ...] = (
    (str, lambda value: value),
    (bool, lambda value: "t" if value else "f"),
    (int, str),
    (float, lambda value: casts.to_text(pa.array([value], pa.float64()), _FLOAT8)[0].as_py().decode()),
    (decimal.Decimal, _render_plain),
    (dt.datetime, _render_moment),
    (dt.date, dt.date.isoformat),
    (dt.time, lambda value: _trim_fraction(value.isoformat())),
    (dt.timedelta, _render_duration),
    ((bytes, bytearray, memoryview), _render_hex),
    ((dict, list), lambda value: json.dumps(value, ensure_ascii=False)),
)
"""The first row whose type a value has: a bool is an int, and a datetime a date."""
