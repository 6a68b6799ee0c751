"""Columns as JSON: PostgreSQL's text forms and, for what a handler made, Arrow's types."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from psql_streamer.binary_columns import held_bytes
from psql_streamer.events.json_text import TO_THE_END, Piece, join, quoted
from psql_streamer.events.nested import array_json, object_json
from psql_streamer.events.plain_arrays import array_json_by_columns
from psql_streamer.model import Column
from psql_streamer.pgoutput.types import BY_OID
from psql_streamer.pgtype import JsonForm, PgType

_NOT_FINITE = ["NaN", "Infinity", "-Infinity"]
_T, _TRUE, _FALSE = (pa.scalar(text, pa.binary()) for text in (b"t", b"true", b"false"))


def json_values(values: pa.Array, column: Column) -> Piece:
    """The JSON of every value of a column; null stays null.

    values: `binary` in PostgreSQL's text form where column.type_oid says so, any Arrow type where it is 0.
    """
    if column.type_oid == 0:
        return _from_arrow(values)
    kind = column.type or BY_OID.get(column.type_oid)
    return quoted(values) if kind is None else _typed(values, kind)


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
    held = held_bytes(values).tobytes()
    if b"N" not in held and b"I" not in held:
        return Piece(values)
    special = pc.is_in(values, pa.array(_NOT_FINITE, pa.binary()))
    return Piece(pc.if_else(special, join(b'"', values, b'"', nulls=None), values))


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


def _from_arrow(values: pa.Array) -> Piece:
    kind = values.type
    if pa.types.is_integer(kind):
        return Piece(_as_binary(values.cast(pa.string())))
    if pa.types.is_boolean(kind):
        return Piece(_as_binary(values.cast(pa.string())))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return quoted(_as_binary(values))
    return Piece(pa.array([_dumps(value) for value in values.to_pylist()], pa.binary()))


def _as_binary(values: pa.Array) -> pa.Array:
    return values.cast(pa.binary())


def _dumps(value: Any) -> bytes | None:
    """JSON of a value of a type that is rare enough to go one by one: decimals, floats, times, nested types."""
    return None if value is None else _text(value).encode()


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return (
            "{"
            + ",".join(f"{json.dumps(str(key), ensure_ascii=False)}:{_text(item)}" for key, item in value.items())
            + "}"
        )
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_text, value)) + "]"
    if isinstance(value, Decimal):
        return format(value, "f") if value.is_finite() else json.dumps(str(value))
    if isinstance(value, float) and not np.isfinite(value):
        return json.dumps("NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity")
    if isinstance(value, bytes):
        return json.dumps(base64.b64encode(value).decode())
    if value is None or isinstance(value, str | int | float):
        return json.dumps(value, ensure_ascii=False)
    iso = value.isoformat() if hasattr(value, "isoformat") else str(value)
    return json.dumps(iso.removesuffix("+00:00") + "Z" if iso.endswith("+00:00") else iso)


def _objects(values: pa.Array) -> list[bytes | None]:
    """The values as Python objects; numpy makes them faster than Arrow's own to_pylist."""
    objects: list[bytes | None] = values.to_numpy(zero_copy_only=False).tolist()
    return objects
