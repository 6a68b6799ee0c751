"""What writes the values of a column in Avro, from the JSON that Debezium's Connect types have them in.

So a value is the same in both formats: what is null there is null here, and what stands in for a value does so here.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from psql_streamer.binary_columns import keep_nulls, pack_values, read_value_bytes
from psql_streamer.events.avro.arrays import ITEMS, NotPlainError, encode_arrays
from psql_streamer.events.avro.columns import (
    END,
    NULL,
    VALUE,
    encode_booleans,
    encode_doubles,
    encode_long,
    encode_longs,
    encode_text,
    encode_texts,
)
from psql_streamer.events.avro.decimals import encode_decimals, encode_variable_decimals
from psql_streamer.events.debezium.connect_type import ConnectType, Schema
from psql_streamer.events.json.json_text import Piece, join, render_quoted
from psql_streamer.model import ColumnType, find_text_form
from psql_streamer.pgtype import Logical, PostgresType
from psql_streamer.pgtypes import casts
from psql_streamer.pgtypes.builtin import BY_OID

_QUOTE, _BACKSLASH = b'"', ord("\\")

Write: TypeAlias = Callable[[Piece, bytes], pa.BinaryArray]
"""Writes a column of JSON values without nulls. The second argument: the lead of each. Null: it is none of the type."""

Direct: TypeAlias = Callable[[pa.BinaryArray, bytes], pa.BinaryArray]
"""Writes a column of text forms without nulls. Null: not written."""


def choose_write(schema: Schema) -> Write:
    """What writes JSON values of a Connect schema."""
    match schema["type"]:
        case "int8" | "int16" | "int32" | "int64":
            return _write_integers
        case "float":
            return partial(_write_floats, kind=pa.float32())
        case "double":
            return partial(_write_floats, kind=pa.float64())
        case "boolean":
            return _write_booleans
        case "string":
            return _write_strings
        case "bytes":
            return _write_bytes
        case "array" if schema["items"]["type"] in ITEMS:
            return partial(_write_arrays, schema=schema)
        case _:
            return partial(_write_each, schema=schema)


def choose_direct(kind: ColumnType, connect: ConnectType) -> Direct | None:
    """What writes most values of a type from their text form, without JSON; None for types that have no such way."""
    form = find_text_form(kind)
    if form is not None and connect.render is render_quoted:
        return encode_texts
    known = None if form is None else form.known or BY_OID.get(form.oid)
    if form is None or known is None or known.element is not None:
        return None
    match known.logical, connect.schema.get("name"):
        case Logical.NUMERIC, "org.apache.kafka.connect.data.Decimal":
            return partial(encode_decimals, scale=int(connect.schema["parameters"]["scale"]))
        case Logical.NUMERIC, "io.debezium.data.VariableScaleDecimal":
            return encode_variable_decimals
        case Logical.BYTES, _ if connect.schema["type"] == "bytes":
            return partial(_write_binary, form=form)
        case _:
            return None


def choose_one(connect: ConnectType) -> Callable[[bytes], bytes | None] | None:
    """What writes one text form of a type; None for what it cannot hold. None for types that go by column always."""
    one = connect.one
    if one is None:
        return None
    if connect.render is render_quoted:
        return encode_text

    def write(text: bytes) -> bytes | None:
        written = one(text)
        try:
            return None if written is None else _encode_present(connect.schema, _load(written))
        except ValueError:  # it is none of the type
            return None

    return write


def encode_value(schema: Schema, value: Any) -> bytes:
    """One value, as `json.loads` gives it of Debezium's JSON, by its Connect schema. KeyError, TypeError and ValueError
    for what is not of it.
    """
    if not schema.get("optional"):
        return _encode_present(schema, value)
    default = schema.get("default")
    null, there = (NULL, VALUE) if default is None else (VALUE, NULL)  # the branch of the default stands first
    return null if value is None else there + _encode_present(schema, value)


def read_strings(piece: Piece) -> pa.BinaryArray:
    """The texts of JSON strings."""
    in_quotes = piece.open == piece.close == _QUOTE
    texts = piece.values if in_quotes else pc.binary_slice(_join_piece(piece), 1, -1)
    if not _has_escapes(texts):
        return texts
    return pa.array(map(_unescape, texts.to_pylist()), pa.binary())


def _encode_present(schema: Schema, value: Any) -> bytes:
    match schema["type"]:
        case "int8" | "int16" | "int32" | "int64":
            return encode_long(int(value))
        case "float":
            return struct.pack("<f", float(value))
        case "double":
            return struct.pack("<d", float(value))
        case "boolean":
            return b"\x01" if value else b"\x00"
        case "string":
            return encode_text(value.encode("utf-8", "surrogateescape"))
        case "bytes":
            return encode_text(base64.b64decode(value))
        case "array":
            return _encode_blocks(encode_value(schema["items"], item) for item in value)
        case "map":
            return _encode_blocks(_list_entries(schema, value))
        case "struct":
            return b"".join(encode_value(field, value.get(field["field"])) for field in schema["fields"])
        case other:
            raise ValueError(f"Connect has no type {other}")


def _list_entries(schema: Schema, value: Mapping[str, Any] | Sequence[Any]) -> Iterator[bytes]:
    pairs = value.items() if isinstance(value, Mapping) else value
    for key, item in pairs:
        yield encode_value(schema["keys"], key) + encode_value(schema["values"], item)


def _encode_blocks(items: Iterable[bytes]) -> bytes:
    """An array or a map: one block, and the end."""
    each = list(items)
    return encode_long(len(each)) + b"".join(each) + END if each else END


def _write_integers(piece: Piece, lead: bytes) -> pa.BinaryArray:
    numbers = _cast_texts(piece.values.view(pa.string()), pa.int64())
    return keep_nulls(numbers, lambda there: encode_longs(there.to_numpy(), lead))


def _write_floats(piece: Piece, lead: bytes, kind: pa.DataType) -> pa.BinaryArray:
    """NaN and the infinities are strings in JSON."""
    texts = pc.utf8_trim(_join_piece(piece).view(pa.string()), '"')
    return keep_nulls(_cast_texts(texts, kind), lambda there: encode_doubles(there.to_numpy(), lead))


def _cast_texts(texts: pa.StringArray, kind: pa.DataType) -> pa.Array:
    """Numbers; null for a text that is none of the type, which a server does not send."""
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        return pa.concat_arrays([_cast_one(text, kind) for text in texts])


def _cast_one(text: pa.StringScalar, kind: pa.DataType) -> pa.Array:
    try:
        return pa.array([text.cast(kind).as_py()], kind)
    except pa.ArrowInvalid:
        return pa.nulls(1, kind)


def _write_booleans(piece: Piece, lead: bytes) -> pa.BinaryArray:
    return encode_booleans(pc.equal(piece.values, b"true").to_numpy(zero_copy_only=False), lead)


def _write_strings(piece: Piece, lead: bytes) -> pa.BinaryArray:
    return encode_texts(read_strings(piece), lead)


def _write_bytes(piece: Piece, lead: bytes) -> pa.BinaryArray:
    held = [base64.b64decode(text) for text in read_strings(piece).to_pylist()]
    return encode_texts(pack_values(held), lead)


def _write_binary(texts: pa.BinaryArray, lead: bytes, form: PostgresType) -> pa.BinaryArray:
    return keep_nulls(casts.cast(texts, form), lambda there: encode_texts(there, lead))


def _write_arrays(piece: Piece, lead: bytes, schema: Schema) -> pa.BinaryArray:
    try:
        return encode_arrays(_join_piece(piece), lead, schema["items"])
    except NotPlainError:  # bytes that are no UTF-8, or arrays of arrays
        return _write_each(piece, lead, schema)


def _write_each(piece: Piece, lead: bytes, schema: Schema) -> pa.BinaryArray:
    distinct = pc.dictionary_encode(_join_piece(piece))
    written = [lead + _encode_present(schema, _load(text)) for text in distinct.dictionary.to_pylist()]
    return pa.array(written, pa.binary()).take(distinct.indices)


def _has_escapes(texts: pa.BinaryArray) -> bool:
    return bool(np.count_nonzero(read_value_bytes(texts) == _BACKSLASH))


def _unescape(text: bytes) -> bytes:
    if b"\\" not in text:
        return text
    return str(_load(b'"%s"' % text)).encode("utf-8", "surrogateescape")


def _load(text: bytes) -> Any:
    """Bytes that are no UTF-8 stay as they are."""
    return json.loads(text.decode("utf-8", "surrogateescape"))


def _join_piece(piece: Piece) -> pa.BinaryArray:
    if not (piece.open or piece.close):
        return piece.values
    return join(piece.open, piece.values, piece.close)
