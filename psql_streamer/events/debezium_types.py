"""PostgreSQL's types in Debezium's default modes: the Kafka Connect schema of each, and its values in JSON.

decimal.handling.mode precise, time.precision.mode adaptive, interval.handling.mode numeric, binary.handling.mode bytes,
hstore.handling.mode json. Types that Debezium leaves out unless it is told otherwise are strings: their text form.
Source: Debezium documentation, "PostgreSQL connector", data type mappings.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from psql_streamer.events import debezium_values as value
from psql_streamer.events.json_text import Piece, join, quoted
from psql_streamer.events.nested import array_json
from psql_streamer.events.values import json_values
from psql_streamer.model import Column
from psql_streamer.pgoutput import casts
from psql_streamer.pgoutput.types import BY_OID
from psql_streamer.pgtype import PgType

Schema: TypeAlias = dict[str, Any]

UNAVAILABLE = "__debezium_unavailable_value"
"""What stands for a TOASTed value that an update left alone."""

_UNAVAILABLE_TEXT = json.dumps(UNAVAILABLE).encode()
_UNAVAILABLE_BYTES = json.dumps(base64.b64encode(UNAVAILABLE.encode()).decode()).encode()
_UNAVAILABLE_NUMBERS = json.dumps(list(UNAVAILABLE.encode()), separators=(",", ":")).encode()
_VHDRSZ = 4


@dataclass(frozen=True, slots=True)
class ConnectType:
    """schema: Kafka Connect's, as its JSON converter writes it, without `optional` and `field`.

    render: the JSON of a column of text forms. unavailable: the JSON of a value that is not to be had.
    """

    schema: Schema
    render: Callable[[pa.Array], Piece]
    unavailable: bytes = _UNAVAILABLE_TEXT


def connect_type(column: Column) -> ConnectType:
    """What a column is in Debezium's events."""
    if column.type_oid == 0:
        return ConnectType(_TEXT, partial(json_values, column=column))
    kind = column.type or BY_OID.get(column.type_oid)
    return _of(kind, column.typmod) if kind else _STRING


@cache
def _of(kind: PgType, typmod: int) -> ConnectType:
    if kind.element is not None:
        return _array_of(kind.element, _of(kind.element, typmod))
    oid, modifier = (kind.base_oid, kind.base_typmod) if kind.base_oid else (kind.oid, typmod)
    if oid in _BY_TYPMOD:
        return _BY_TYPMOD[oid](modifier)
    return _BY_OID.get(oid) or _BY_NAME.get(kind.name) or _STRING


def _array_of(kind: PgType, element: ConnectType) -> ConnectType:
    return ConnectType(
        {"type": "array", "items": {**element.schema, "optional": True}},
        lambda values: array_json(values, kind.delimiter, element.render),
        _UNAVAILABLE_NUMBERS if element.schema["type"].startswith("int") else b"[%s]" % element.unavailable,
    )


# --- how columns are rendered


def _each(function: Callable[[str], str]) -> Callable[[pa.Array], Piece]:
    """Distinct values one by one."""

    def render(values: pa.Array) -> Piece:
        distinct = pc.dictionary_encode(values)
        rendered = [function(text.decode("utf-8", "replace")).encode() for text in distinct.dictionary.to_pylist()]
        return Piece(pa.array(rendered, pa.binary()).take(distinct.indices))

    return render


def _as_json_of(oid: int) -> Callable[[pa.Array], Piece]:
    """As the other formats write the type."""
    column = Column("", oid)
    return lambda values: json_values(values, column)


def _by_cast(oid: int, number: pa.DataType, function: Callable[[str], str]) -> Callable[[pa.Array], Piece]:
    """Through Arrow's type, as the number that is behind it; values that it cannot hold go one by one."""
    column = Column("", oid)

    def render(values: pa.Array) -> Piece:
        cast = casts.cast(values, column)
        digits = cast.cast(number).cast(pa.string()).view(pa.binary())
        if cast.null_count == values.null_count:
            return Piece(digits)
        left = pc.and_(cast.is_null(), values.is_valid())
        return Piece(pc.replace_with_mask(digits, left, _each(function)(values.filter(left)).values))

    return render


def _zoned_timestamps(digits: int) -> Callable[[pa.Array], Piece]:
    one_by_one = _each(partial(value.zoned_timestamp, digits=digits))

    def render(values: pa.Array) -> Piece:
        plain = pc.match_substring_regex(values, r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?\+00$")
        if not digits or pc.all(plain).as_py() is False:
            return one_by_one(values)
        moments = pc.replace_substring(values, b" ", b"T", max_replacements=1).cast(pa.string())
        seconds = pc.utf8_slice_codeunits(moments, 0, 19)
        fraction = pc.utf8_slice_codeunits(moments, 20, 20 + digits)
        # A value without a fraction has the offset there.
        fraction = pc.if_else(pc.equal(pc.utf8_slice_codeunits(moments, 19, 20), "."), fraction, "")
        fraction = pc.replace_substring_regex(fraction, r"\+.*", "")
        padded = pc.utf8_rpad(fraction, width=digits, padding="0")
        return Piece(join(b'"', seconds.view(pa.binary()), b".", padded.view(pa.binary()), b'Z"', nulls=None))

    return render


# --- the table


def _named(kind: str, name: str, **more: Any) -> Schema:
    return {"type": kind, "name": name, "version": 1, **more}


def _string(name: str) -> ConnectType:
    return ConnectType(_named("string", name), quoted)


def _numeric(typmod: int) -> ConnectType:
    if typmod < _VHDRSZ:
        fields = [
            {"type": "int32", "optional": False, "field": "scale"},
            {"type": "bytes", "optional": False, "field": "value"},
        ]
        schema = {
            "type": "struct",
            "fields": fields,
            "name": "io.debezium.data.VariableScaleDecimal",
            "version": 1,
            "doc": "Variable scaled decimal",
        }
        return ConnectType(schema, _each(value.variable_decimal), b'{"scale":0,"value":%s}' % _UNAVAILABLE_BYTES)
    precision = ((typmod - _VHDRSZ) >> 16) & 0xFFFF
    scale = (((typmod - _VHDRSZ) & 0x7FF) ^ 1024) - 1024
    schema = _decimal(scale, {"connect.decimal.precision": str(precision)})
    return ConnectType(schema, _each(partial(value.decimal, scale=scale)), _UNAVAILABLE_BYTES)


def _decimal(scale: int, parameters: dict[str, str]) -> Schema:
    return _named("bytes", "org.apache.kafka.connect.data.Decimal", parameters={"scale": str(scale), **parameters})


def _time(typmod: int) -> ConnectType:
    if 0 <= typmod <= 3:
        return ConnectType(_named("int32", "io.debezium.time.Time"), _each(value.time_millis))
    return ConnectType(_named("int64", "io.debezium.time.MicroTime"), _each(value.time))


def _timestamp(typmod: int) -> ConnectType:
    if 0 <= typmod <= 3:
        return ConnectType(_named("int64", "io.debezium.time.Timestamp"), _each(value.timestamp_millis))
    return ConnectType(_named("int64", "io.debezium.time.MicroTimestamp"), _by_cast(1114, pa.int64(), value.timestamp))


def _timestamptz(typmod: int) -> ConnectType:
    digits = 6 if typmod < 0 else typmod
    return ConnectType(_named("string", "io.debezium.time.ZonedTimestamp"), _zoned_timestamps(digits))


def _bits(typmod: int) -> ConnectType:
    if typmod == 1:
        return ConnectType({"type": "boolean"}, _each(value.bit))
    length = str(typmod if typmod > 0 else 2**31 - 1)
    schema = _named("bytes", "io.debezium.data.Bits", parameters={"length": length})
    return ConnectType(schema, _each(value.bits), _UNAVAILABLE_BYTES)


_POINT_SCHEMA: Schema = {
    "type": "struct",
    "fields": [
        {"type": "double", "optional": False, "field": "x"},
        {"type": "double", "optional": False, "field": "y"},
        {"type": "bytes", "optional": True, "field": "wkb"},
        {"type": "int32", "optional": True, "field": "srid"},
    ],
    "name": "io.debezium.data.geometry.Point",
    "version": 1,
    "doc": "Geometry (POINT)",
}

_TEXT: Schema = {"type": "string"}
_STRING = ConnectType(_TEXT, quoted)
_JSON = _string("io.debezium.data.Json")

_BY_OID: dict[int, ConnectType] = {
    16: ConnectType({"type": "boolean"}, _as_json_of(16)),
    17: ConnectType({"type": "bytes"}, _as_json_of(17), _UNAVAILABLE_BYTES),
    20: ConnectType({"type": "int64"}, _as_json_of(20)),
    21: ConnectType({"type": "int16"}, _as_json_of(21)),
    23: ConnectType({"type": "int32"}, _as_json_of(23)),
    26: ConnectType({"type": "int64"}, _as_json_of(26)),
    114: _JSON,
    142: _string("io.debezium.data.Xml"),
    600: ConnectType(_POINT_SCHEMA, _each(value.point)),
    700: ConnectType({"type": "float"}, _as_json_of(700)),
    701: ConnectType({"type": "double"}, _as_json_of(701)),
    790: ConnectType(_decimal(2, {}), _each(value.money)),
    1082: ConnectType(_named("int32", "io.debezium.time.Date"), _by_cast(1082, pa.int32(), value.date)),
    1186: ConnectType(_named("int64", "io.debezium.time.MicroDuration"), _each(value.interval)),
    1266: ConnectType(_named("string", "io.debezium.time.ZonedTime"), _each(value.zoned_time)),
    2950: _string("io.debezium.data.Uuid"),
    3614: _string("io.debezium.data.TsVector"),
    3802: _JSON,
}
"""Built-in types. Everything that is in none of these tables is a string."""

_BY_TYPMOD: dict[int, Callable[[int], ConnectType]] = {
    1083: _time,
    1114: _timestamp,
    1184: _timestamptz,
    1560: _bits,
    1562: _bits,
    1700: _numeric,
}
"""Built-in types whose modifiers make a difference."""

_BY_NAME: dict[str, ConnectType] = {
    "hstore": ConnectType(_named("string", "io.debezium.data.Json"), _each(value.hstore)),
    "ltree": _string("io.debezium.data.Ltree"),
}
"""Types of extensions, whose OIDs differ from database to database."""
