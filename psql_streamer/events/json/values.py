"""Columns as JSON: PostgreSQL's text forms and, for what a handler made, Arrow's types."""

from __future__ import annotations

from binascii import b2a_base64, unhexlify
from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from itertools import repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from psql_streamer.binary_columns import list_views, pack_values, read_value_bytes
from psql_streamer.events.json import json_text
from psql_streamer.events.json.json_text import TO_THE_END, Piece, Render, join, put_in_quotes, quote_one, render_quoted
from psql_streamer.events.json.made import render_made_values
from psql_streamer.events.json.nested import render_arrays, render_objects
from psql_streamer.events.json.plain_arrays import render_arrays_by_columns
from psql_streamer.model import ColumnType, find_text_form
from psql_streamer.pgtype import JsonForm, PgType
from psql_streamer.pgtypes import casts
from psql_streamer.pgtypes.builtin import BY_OID

_NOT_FINITE = [b"NaN", b"Infinity", b"-Infinity"]
_T, _TRUE, _FALSE = (pa.scalar(text, pa.binary()) for text in (b"t", b"true", b"false"))


def render_values(values: pa.Array, kind: ColumnType) -> Piece:
    """The JSON of every value of a type; null stays null."""
    return choose_render(kind)(values)


def choose_render(kind: ColumnType) -> Render:
    """What writes the values of a type as JSON; equal for types whose values are written alike."""
    form = find_text_form(kind)
    if form is None:
        return _render_made
    known = form.known or BY_OID.get(form.oid)
    return render_quoted if known is None else _choose_typed_render(known)


def choose_one(kind: ColumnType) -> Callable[[bytes], bytes] | None:
    """What writes one value of a type as its render does; None: they are written by column always."""
    return OF_ONE.get(choose_render(kind))


def select_plain_renders(values: Sequence[pa.Array], renders: Collection[Render]) -> Mapping[Render, bool]:
    """Those of the renders that leave all values of these arrays as they are, and whether each puts them in quotes."""
    plain: dict[Render, bool] = {render: False for render in (_render_integers, _render_embedded) if render in renders}
    if _render_numbers in renders and not any(map(json_text.are_long, values)) and all(map(_is_finite, values)):
        plain[_render_numbers] = False
    if render_quoted in renders and not any(map(json_text.find_escapes, values)):
        plain[render_quoted] = True
    return plain


@lru_cache(maxsize=1 << 12)
def _choose_typed_render(kind: PgType) -> Render:
    if kind.element is None and kind.form is not JsonForm.OBJECT:
        return FORMS[kind.form]
    return lambda values: _render_typed(values, kind)


def _render_made(values: pa.Array) -> Piece:
    return render_made_values(values, _render_arrow)


def _render_typed(values: pa.Array, kind: PgType) -> Piece:
    if kind.element is not None:
        element = kind.element
        # A domain over an array, or an array of these, nests in quotes.
        form = element.form if element.element is None else JsonForm.ARRAY
        return render_arrays_by_columns(
            values,
            form,
            element.delimiter,
            lambda rest: render_arrays(rest, element.delimiter, lambda elements: _render_typed(elements, element)),
        )
    if kind.form is JsonForm.OBJECT:
        return render_objects(values, kind.attributes, lambda fields, attribute: _render_typed(fields, attribute.type))
    return FORMS[kind.form](values)


def _render_integers(values: pa.Array) -> Piece:
    return Piece(values)


def _render_numbers(values: pa.Array) -> Piece:
    """Digits as they are; only NaN and the infinities hold letters other than an exponent's e."""
    if _is_finite(values):
        return Piece(values)
    special = pc.is_in(values, pa.array(_NOT_FINITE, pa.binary()))
    return Piece(pc.if_else(special, join(b'"', values, b'"', nulls=None), values))


def _is_finite(values: pa.Array) -> bool:
    held = read_value_bytes(values).tobytes()
    return b"N" not in held and b"I" not in held


def _render_booleans(values: pa.Array) -> Piece:
    return Piece(pc.if_else(pc.equal(values, _T), _TRUE, _FALSE))


def _render_embedded(values: pa.Array) -> Piece:
    return Piece(values)


def _render_base64(values: pa.Array) -> Piece:
    """Of `\\x` and digits. A value may have 1 GB of them, so they are read where they are."""
    valid = values.is_valid().to_pylist() if values.null_count else repeat(True)
    encoded = [
        b2a_base64(unhexlify(value[2:]), newline=False) if is_there else None
        for value, is_there in zip(list_views(values), valid)  # noqa: B905 - a repetition has no end
    ]
    return put_in_quotes(pack_values(encoded))


def _render_timestamps(values: pa.Array) -> Piece:
    return render_quoted(pc.replace_substring(values, b" ", b"T", max_replacements=1))


def _render_timestamps_utc(values: pa.Array) -> Piece:
    """The connection's time zone is UTC, so every offset reads `+00`; an era stands behind it."""
    plain = pc.ends_with(values, b"+00")
    iso = pc.replace_substring(values, b" ", b"T", max_replacements=1)
    short = pc.binary_replace_slice(iso, -3, TO_THE_END, b"Z")
    if pc.all(plain).as_py() is not False:
        return render_quoted(short)
    return render_quoted(pc.if_else(plain, short, pc.replace_substring(iso, b"+00 BC", b"Z BC")))


FORMS: dict[JsonForm, Callable[[pa.Array], Piece]] = {
    JsonForm.NUMBER: _render_numbers,
    JsonForm.INTEGER: _render_integers,
    JsonForm.BOOLEAN: _render_booleans,
    JsonForm.TEXT: render_quoted,
    JsonForm.EMBEDDED: _render_embedded,
    JsonForm.BASE64: _render_base64,
    JsonForm.TIMESTAMP: _render_timestamps,
    JsonForm.TIMESTAMP_UTC: _render_timestamps_utc,
}
"""What is neither an array nor an object."""


def _render_one_number(text: bytes) -> bytes:
    return b'"%s"' % text if text in _NOT_FINITE else text


def _render_one_boolean(text: bytes) -> bytes:
    return b"true" if text == b"t" else b"false"


def _render_one_base64(text: bytes) -> bytes:
    return b'"%s"' % b2a_base64(unhexlify(text[2:]), newline=False)


def _copy_text(text: bytes) -> bytes:
    return text


def _render_one_timestamp(text: bytes) -> bytes:
    return quote_one(text.replace(b" ", b"T", 1))


def _render_one_timestamp_utc(text: bytes) -> bytes:
    iso = text.replace(b" ", b"T", 1)
    return quote_one(iso[:-3] + b"Z" if text.endswith(b"+00") else iso.replace(b"+00 BC", b"Z BC"))


OF_ONE: Mapping[Render, Callable[[bytes], bytes]] = {
    _render_integers: _copy_text,
    _render_embedded: _copy_text,
    _render_numbers: _render_one_number,
    _render_booleans: _render_one_boolean,
    render_quoted: quote_one,
    _render_base64: _render_one_base64,
    _render_timestamps: _render_one_timestamp,
    _render_timestamps_utc: _render_one_timestamp_utc,
}
"""What writes a column -> what writes one value in the same way: cheaper for a few. The others go by column always."""


def _render_arrow(values: pa.Array) -> Piece:
    """What no type of PostgreSQL's holds goes one by one: rare types of numbers, durations, times."""
    kind = casts.find_postgres_type(values.type)
    if kind is not None:
        return render_values(casts.to_text(values, kind), kind)
    return Piece(
        pa.array([None if value is None else _render_text(value) for value in values.to_pylist()], pa.binary())
    )


def _render_text(value: Any) -> bytes:
    if isinstance(value, int):
        return b"%d" % value
    if isinstance(value, Decimal) and value.is_finite():
        return format(value, "f").encode()
    return quote_one((value.isoformat() if hasattr(value, "isoformat") else str(value)).encode())


def _list_objects(values: pa.Array) -> list[bytes | None]:
    """The values as Python objects; numpy makes them faster than Arrow's own to_pylist."""
    objects: list[bytes | None] = values.to_numpy(zero_copy_only=False).tolist()
    return objects
