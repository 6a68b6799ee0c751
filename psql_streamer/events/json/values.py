"""Columns as JSON: PostgreSQL's text forms and, for what a handler made, Arrow's types."""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from psql_streamer.binary_columns import held_bytes
from psql_streamer.events.json import json_text
from psql_streamer.events.json.json_text import TO_THE_END, Piece, Render, join, quoted, quoted_one
from psql_streamer.events.json.made import made_json
from psql_streamer.events.json.nested import array_json, object_json
from psql_streamer.events.json.plain_arrays import array_json_by_columns
from psql_streamer.model import ColumnType, text_form
from psql_streamer.pgtype import JsonForm, PgType
from psql_streamer.pgtypes import casts
from psql_streamer.pgtypes.builtin import BY_OID

_NOT_FINITE = [b"NaN", b"Infinity", b"-Infinity"]
_T, _TRUE, _FALSE = (pa.scalar(text, pa.binary()) for text in (b"t", b"true", b"false"))


def json_values(values: pa.Array, kind: ColumnType) -> Piece:
    """The JSON of every value of a type; null stays null."""
    return render_of(kind)(values)


def render_of(kind: ColumnType) -> Render:
    """What writes the values of a type as JSON; equal for types whose values are written alike."""
    form = text_form(kind)
    if form is None:
        return _made
    known = form.known or BY_OID.get(form.oid)
    return quoted if known is None else _render_of(known)


def plain_in(values: pa.Array, renders: Collection[Render]) -> Mapping[Render, bool]:
    """Those of the renders that leave all of these values as they are; for each whether it puts them in quotes."""
    plain: dict[Render, bool] = {render: False for render in (_integers, _embedded) if render in renders}
    if _numbers in renders and not json_text.are_long(values) and _is_finite(values):
        plain[_numbers] = False
    if quoted in renders and not json_text.find_escapes(values):
        plain[quoted] = True
    return plain


@lru_cache(maxsize=1 << 12)
def _render_of(kind: PgType) -> Render:
    if kind.element is None and kind.form is not JsonForm.OBJECT:
        return FORMS[kind.form]
    return lambda values: _typed(values, kind)


def _made(values: pa.Array) -> Piece:
    return made_json(values, _render_arrow)


def _typed(values: pa.Array, kind: PgType) -> Piece:
    if kind.element is not None:
        element = kind.element
        # A domain over an array, or an array of these, nests in quotes.
        form = element.form if element.element is None else JsonForm.ARRAY
        return array_json_by_columns(
            values,
            form,
            element.delimiter,
            lambda rest: array_json(rest, element.delimiter, lambda elements: _typed(elements, element)),
        )
    if kind.form is JsonForm.OBJECT:
        return object_json(values, kind.attributes, lambda fields, attribute: _typed(fields, attribute.type))
    return FORMS[kind.form](values)


def _integers(values: pa.Array) -> Piece:
    return Piece(values)


def _numbers(values: pa.Array) -> Piece:
    """Digits as they are; only NaN and the infinities hold letters other than an exponent's e."""
    if _is_finite(values):
        return Piece(values)
    special = pc.is_in(values, pa.array(_NOT_FINITE, pa.binary()))
    return Piece(pc.if_else(special, join(b'"', values, b'"', nulls=None), values))


def _is_finite(values: pa.Array) -> bool:
    held = held_bytes(values).tobytes()
    return b"N" not in held and b"I" not in held


def _booleans(values: pa.Array) -> Piece:
    return Piece(pc.if_else(pc.equal(values, _T), _TRUE, _FALSE))


def _embedded(values: pa.Array) -> Piece:
    return Piece(values)


def _base64(values: pa.Array) -> Piece:
    encoded = [
        None if text is None else base64.b64encode(bytes.fromhex(text[2:].decode())) for text in _objects(values)
    ]
    return quoted(pa.array(encoded, pa.binary()))


def _timestamps(values: pa.Array) -> Piece:
    return quoted(pc.replace_substring(values, b" ", b"T", max_replacements=1))


def _timestamps_utc(values: pa.Array) -> Piece:
    """The connection's time zone is UTC, so every offset reads `+00`; an era stands behind it."""
    plain = pc.ends_with(values, b"+00")
    iso = pc.replace_substring(values, b" ", b"T", max_replacements=1)
    short = pc.binary_replace_slice(iso, -3, TO_THE_END, b"Z")
    if pc.all(plain).as_py() is not False:
        return quoted(short)
    return quoted(pc.if_else(plain, short, pc.replace_substring(iso, b"+00 BC", b"Z BC")))


FORMS: dict[JsonForm, Callable[[pa.Array], Piece]] = {
    JsonForm.NUMBER: _numbers,
    JsonForm.INTEGER: _integers,
    JsonForm.BOOLEAN: _booleans,
    JsonForm.TEXT: quoted,
    JsonForm.EMBEDDED: _embedded,
    JsonForm.BASE64: _base64,
    JsonForm.TIMESTAMP: _timestamps,
    JsonForm.TIMESTAMP_UTC: _timestamps_utc,
}
"""What is neither an array nor an object."""


def _number_of_one(text: bytes) -> bytes:
    return b'"%s"' % text if text in _NOT_FINITE else text


def _boolean_of_one(text: bytes) -> bytes:
    return b"true" if text == b"t" else b"false"


def _copy_text(text: bytes) -> bytes:
    return text


def _timestamp_of_one(text: bytes) -> bytes:
    return quoted_one(text.replace(b" ", b"T", 1))


def _timestamp_utc_of_one(text: bytes) -> bytes:
    iso = text.replace(b" ", b"T", 1)
    return quoted_one(iso[:-3] + b"Z" if text.endswith(b"+00") else iso.replace(b"+00 BC", b"Z BC"))


OF_ONE: Mapping[Render, Callable[[bytes], bytes]] = {
    _integers: _copy_text,
    _embedded: _copy_text,
    _numbers: _number_of_one,
    _booleans: _boolean_of_one,
    quoted: quoted_one,
    _timestamps: _timestamp_of_one,
    _timestamps_utc: _timestamp_utc_of_one,
}
"""What writes a column -> what writes one value in the same way: cheaper for a few. The others go by column always."""


def _render_arrow(values: pa.Array) -> Piece:
    """What no type of PostgreSQL's holds goes one by one: rare types of numbers, durations, times."""
    kind = casts.type_of(values.type)
    if kind is not None:
        return json_values(casts.to_text(values, kind), kind)
    return Piece(pa.array([None if value is None else _text(value) for value in values.to_pylist()], pa.binary()))


def _text(value: Any) -> bytes:
    if isinstance(value, int):
        return b"%d" % value
    if isinstance(value, Decimal) and value.is_finite():
        return format(value, "f").encode()
    return json_text.name(value.isoformat() if hasattr(value, "isoformat") else str(value))


def _objects(values: pa.Array) -> list[bytes | None]:
    """The values as Python objects; numpy makes them faster than Arrow's own to_pylist."""
    objects: list[bytes | None] = values.to_numpy(zero_copy_only=False).tolist()
    return objects
