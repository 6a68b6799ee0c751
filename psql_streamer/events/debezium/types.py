"""PostgreSQL's types in Debezium's default modes: the Kafka Connect schema of each, and its values in JSON.

decimal.handling.mode precise, time.precision.mode adaptive, interval.handling.mode numeric, binary.handling.mode bytes,
hstore.handling.mode json. Types that Debezium leaves out unless it is told otherwise are strings: their text form.
Schemas name their fields in the order of Connect's JSON converter.
Source: Debezium documentation, "PostgreSQL connector", data type mappings.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

import pyarrow as pa
import pyarrow.compute as pc

from psql_streamer.events.debezium import value
from psql_streamer.events.debezium.connect_type import (
    POINT_SCHEMA,
    ConnectType,
    Schema,
    make_named_schema,
    make_one,
    make_value_render,
    make_value_type,
)
from psql_streamer.events.debezium.mysql_types import find_mysql_type
from psql_streamer.events.debezium.unscaled import render_decimals, render_variable_decimals
from psql_streamer.events.json.json_text import Piece, join, quote_one, render_quoted
from psql_streamer.events.json.made import is_list, render_made_values
from psql_streamer.events.json.nested import render_arrays
from psql_streamer.events.json.values import choose_one, render_values
from psql_streamer.model import ArrowType, ColumnType, TextType
from psql_streamer.pgtype import Logical, PgType, PostgresType
from psql_streamer.pgtypes import casts
from psql_streamer.pgtypes.builtin import BY_OID, OIDS
from psql_streamer.pgtypes.modifiers import VARHDRSZ, decode_numeric_modifier

UNAVAILABLE = "__debezium_unavailable_value"
"""What stands for a TOASTed value that an update left alone."""


def choose_connect_type(kind: ColumnType, *, flat: bool = False, distinct: bool = False) -> ConnectType:
    """What a column of this type is in Debezium's events.

    flat: arrays of several dimensions are null, which the schema of an array does not allow for. distinct: null, too,
    is what has the JSON of another value, so that something else can stand for it in a key.
    """
    if isinstance(kind, ArrowType):
        return _build_arrow_type(kind.arrow)
    if isinstance(kind, TextType) and (found := find_mysql_type(kind)) is not None:
        return found
    form = kind.like if isinstance(kind, TextType) else kind
    known = form.known or BY_OID.get(form.oid)
    return _build_type(known, form.typmod, flat, distinct) if known else _STRING


@cache
def _build_arrow_type(kind: pa.DataType) -> ConnectType:
    """What a handler made."""
    return ConnectType(_build_schema(kind), lambda values: render_made_values(values, _render_leaf))


def _build_schema(kind: pa.DataType) -> Schema:
    """Nothing inside of it is required, whatever Arrow's fields say: they do not hold for what is unknown."""
    if pa.types.is_struct(kind):
        return {
            "type": "struct",
            "fields": [{**add_optional(_build_schema(field.type), True), "field": field.name} for field in kind],
        }
    if is_list(kind):
        return {"type": "array", "items": add_optional(_build_schema(kind.value_type), True)}
    if pa.types.is_map(kind):
        keys, items = (
            add_optional(_build_schema(kind.key_type), False),
            add_optional(_build_schema(kind.item_type), True),
        )
        return {"type": "map", "keys": keys, "values": items}
    return _choose_leaf_type(kind).schema


def _render_leaf(values: pa.Array) -> Piece:
    return _choose_leaf_type(values.type).render(values)


@cache
def _choose_leaf_type(kind: pa.DataType) -> ConnectType:
    """What a column of PostgreSQL's type for it is; a string where there is none."""
    if pa.types.is_dictionary(kind):
        return _choose_leaf_type(kind.value_type)
    held_by = casts.find_postgres_type(kind)
    if held_by is None:
        return _UNKNOWN
    its = choose_connect_type(held_by)
    return ConnectType(its.schema, lambda values: its.render(casts.to_text(values, held_by)))


def _render_strings(values: pa.Array) -> Piece:
    """Strings as they are, and anything else as its JSON in a string."""
    if pa.types.is_string(values.type):
        return render_quoted(values.cast(pa.binary()))
    piece = render_values(values, ArrowType(values.type))
    texts = join(piece.open, piece.values, piece.close, nulls=None)
    return render_quoted(texts)


def add_optional(schema: Schema, is_optional: bool) -> Schema:
    """A schema with this said where Connect's JSON converter says it: before the name."""
    head = ("type", "keys", "values", "fields", "items")
    ordered: Schema = {field: schema[field] for field in head if field in schema}
    ordered["optional"] = is_optional
    return ordered | {field: schema[field] for field in schema if field not in head}


def render_unavailable(schema: Schema, strict: bool) -> bytes:
    """The JSON of a value that is not to be had. strict: null where nothing else fits the schema, as Debezium has it;
    otherwise a string stands there.
    """
    match schema:
        case {"type": "string", "name": "io.debezium.data.Uuid"}:
            return _UNAVAILABLE_UUID
        case {"type": "string"}:
            return _UNAVAILABLE_TEXT
        case {"type": "bytes"}:
            return _UNAVAILABLE_BYTES
        case {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"}:
            return b'{"scale":0,"value":%s}' % _UNAVAILABLE_BYTES
        case {"type": "array", "items": {"type": "int16" | "int32" | "int64"}}:
            return _UNAVAILABLE_NUMBERS
        case {"type": "array", "items": items}:
            item = render_unavailable(items, strict)
            return item if item == b"null" else b"[%s]" % item
        case _:
            return b"null" if strict else _UNAVAILABLE_TEXT


_UNAVAILABLE_TEXT = json.dumps(UNAVAILABLE).encode()
_UNAVAILABLE_BYTES = json.dumps(base64.b64encode(UNAVAILABLE.encode()).decode()).encode()
_UNAVAILABLE_NUMBERS = json.dumps(list(UNAVAILABLE.encode()), separators=(",", ":")).encode()
# What java.util.UUID.nameUUIDFromBytes makes of the placeholder.
_UNAVAILABLE_UUID = b'"b68a35a7-17ad-35b3-af2a-ae46edb4545a"'


@cache
def _build_type(kind: PgType, typmod: int, flat: bool, distinct: bool) -> ConnectType:
    if kind.element is not None:
        array = _build_array_type(kind.element, _build_type(kind.element, typmod, flat, distinct))
        if flat:
            array = _restrict_type(_ONE_DIMENSION, array)
        return _restrict_type(_LOWER_BOUND_OF_1, array) if distinct else array
    one = _build_scalar_type(kind, typmod)
    return _restrict_type(one.distinct, one) if distinct and one.distinct is not None else one


def _build_scalar_type(kind: PgType, typmod: int) -> ConnectType:
    """The type of a value that is no array."""
    if kind.labels:
        return _make_enum_type(kind.labels)
    modifier = kind.base_typmod if kind.base_oid else typmod
    if kind.logical in BY_MODIFIER:
        return BY_MODIFIER[kind.logical](modifier)
    if kind.base_oid and kind.logical in _OF_EXTENSIONS:
        return _STRING  # the connector does not look through a domain whose type it knows by name
    return BY_LOGICAL.get(kind.logical, _STRING)


def _build_array_type(kind: PgType, element: ConnectType) -> ConnectType:
    return ConnectType(
        {"type": "array", "items": add_optional(element.schema, True)},
        lambda values: render_arrays(values, kind.delimiter, element.render),
    )


_ONE_DIMENSION = r"^(\[[^{]*=)?\{([^{]|$)"
"""What the text form of such an array looks like. Connect's arrays have no dimensions: its converter would read an
array in an array as a zero."""

_LOWER_BOUND_OF_1 = r"^\{"
"""What the text form of such an array looks like; JSON has no bounds."""


def _restrict_type(look: str, kind: ConnectType) -> ConnectType:
    """The same, but null for values whose text form looks otherwise."""

    def render(values: pa.Array) -> Piece:
        fits = pc.match_substring_regex(values, look)
        return kind.render(values if pc.all(fits).as_py() is not False else pc.if_else(fits, values, _NULL))

    return replace(kind, render=render, one=None)


_NULL = pa.scalar(None, pa.binary())


# --- how columns are rendered


def _make_json_render(name: str) -> Callable[[pa.Array], Piece]:
    """What renders a type's values as the other formats do."""
    kind = PostgresType(OIDS[name])
    return lambda values: render_values(values, kind)


def _make_float_render(name: str) -> Callable[[pa.Array], Piece]:
    """What renders floats like Java, with a point or an exponent: nobody is to take a whole number for an integer."""
    numbers = _make_json_render(name)

    def render(values: pa.Array) -> Piece:
        piece = numbers(values)
        if pc.min(pc.find_substring(values, b".")).as_py() not in (None, -1):
            return piece
        whole = pc.match_substring_regex(values, r"^-?\d+$")
        return Piece(pc.if_else(whole, join(values, b".0", nulls=None), piece.values))

    return render


def _make_cast_render(
    name: str, number: pa.DataType, function: Callable[[str], str | None]
) -> Callable[[pa.Array], Piece]:
    """What renders values as the number behind Arrow's type; what it cannot hold goes through `function` one by one."""
    kind = PostgresType(OIDS[name])

    def render(values: pa.Array) -> Piece:
        cast = casts.cast(values, kind)
        digits = cast.cast(number).cast(pa.string()).view(pa.binary())
        if cast.null_count == values.null_count:
            return Piece(digits)
        left = pc.and_(cast.is_null(), values.is_valid())
        return Piece(pc.replace_with_mask(digits, left, make_value_render(function)(values.filter(left)).values))

    return render


def _make_decimal_render(
    short: Callable[[pa.Array], pa.Array], function: Callable[[str], str | None]
) -> Callable[[pa.Array], Piece]:
    """What renders decimals by columns where 64 bits hold them, and the others through `function` one by one."""
    one_by_one = make_value_render(function)

    def render(values: pa.Array) -> Piece:
        rendered = short(values)
        if rendered.null_count == values.null_count:
            return Piece(rendered)
        left = pc.and_(rendered.is_null(), values.is_valid())
        return Piece(pc.replace_with_mask(rendered, left, one_by_one(values.filter(left)).values))

    return render


def _make_zoned_render(digits: int) -> Callable[[pa.Array], Piece]:
    one_by_one = make_value_render(partial(value.render_zoned_timestamp, digits=digits))

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


def _make_string_type(name: str) -> ConnectType:
    return ConnectType(make_named_schema("string", name), render_quoted, one=quote_one)


def _make_numeric_type(typmod: int) -> ConnectType:
    if typmod < VARHDRSZ:
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
        function = value.render_variable_decimal
        return ConnectType(schema, _make_decimal_render(render_variable_decimals, function), one=make_one(function))
    precision, scale = decode_numeric_modifier(typmod)
    schema = _make_decimal_schema(scale, {"connect.decimal.precision": str(precision)})
    short, one_by_one = partial(render_decimals, scale=scale), partial(value.render_decimal, scale=scale)
    return ConnectType(schema, _make_decimal_render(short, one_by_one), one=make_one(one_by_one))


def _make_decimal_schema(scale: int, parameters: dict[str, str]) -> Schema:
    return make_named_schema(
        "bytes", "org.apache.kafka.connect.data.Decimal", parameters={"scale": str(scale), **parameters}
    )


def _make_time_type(typmod: int) -> ConnectType:
    if 0 <= typmod <= 3:
        return make_value_type(make_named_schema("int32", "io.debezium.time.Time"), value.render_time_millis)
    return make_value_type(make_named_schema("int64", "io.debezium.time.MicroTime"), value.render_time)


def _make_timestamp_type(typmod: int) -> ConnectType:
    if 0 <= typmod <= 3:
        schema = make_named_schema("int64", "io.debezium.time.Timestamp")
        return make_value_type(schema, value.render_timestamp_millis)
    return ConnectType(
        make_named_schema("int64", "io.debezium.time.MicroTimestamp"),
        _make_cast_render("timestamp", pa.int64(), value.render_timestamp),
        one=make_one(value.render_timestamp),
    )


def _make_timestamptz_type(typmod: int) -> ConnectType:
    digits = 6 if typmod < 0 else typmod
    one = make_one(partial(value.render_zoned_timestamp, digits=digits))
    schema = make_named_schema("string", "io.debezium.time.ZonedTimestamp")
    return ConnectType(schema, _make_zoned_render(digits), one=one)


def _make_bit_type(typmod: int) -> ConnectType:
    """bit(n). Without a length, which `CREATE TABLE ... AS` makes, they are of any."""
    return _make_varbit_type(typmod) if typmod < 1 else replace(_make_varbit_type(typmod), distinct=None)


def _make_varbit_type(typmod: int) -> ConnectType:
    """Bits does not say how many zeros a value begins with."""
    if typmod == 1:
        return make_value_type({"type": "boolean"}, value.render_bit)
    length = str(typmod if typmod > 0 else 2**31 - 1)
    schema = make_named_schema("bytes", "io.debezium.data.Bits", parameters={"length": length})
    return make_value_type(schema, value.render_bits, text=_render_bit_constants, distinct=r"^1")


def _render_bit_constants(values: pa.Array) -> pa.Array:
    """`B'0101'`: without the apostrophes, four digits are the base64 of other bits."""
    return join(b"\"B'", values, b"'\"", nulls=None)


def _make_vector_type(element: str) -> ConnectType:
    """Their elements are never null."""
    return make_value_type({"type": "array", "items": {"type": element, "optional": False}}, value.render_vector)


def _make_enum_type(labels: tuple[str, ...]) -> ConnectType:
    return ConnectType(
        make_named_schema("string", "io.debezium.data.Enum", parameters={"allowed": ",".join(labels)}),
        render_quoted,
        one=quote_one,
    )


_TEXT: Schema = {"type": "string"}
_STRING = ConnectType(_TEXT, render_quoted, one=quote_one)
_UNKNOWN = ConnectType(_TEXT, _render_strings)

_AS_JSON = {
    Logical.BOOLEAN: ("boolean", "bool"),
    Logical.BYTES: ("bytes", "bytea"),
    Logical.INT8: ("int64", "int8"),
    Logical.INT2: ("int16", "int2"),
    Logical.INT4: ("int32", "int4"),
    Logical.OID: ("int64", "oid"),
}
"""Connect's type, and the built-in type by whose JSON the values are written."""

BY_LOGICAL: dict[Logical, ConnectType] = {
    **{
        logical: ConnectType({"type": kind}, _make_json_render(name), one=choose_one(PostgresType(OIDS[name])))
        for logical, (kind, name) in _AS_JSON.items()
    },
    Logical.DATE: ConnectType(
        make_named_schema("int32", "io.debezium.time.Date"),
        _make_cast_render("date", pa.int32(), value.render_date),
        one=make_one(value.render_date),
    ),
    Logical.FLOAT4: ConnectType({"type": "float"}, _make_float_render("float4"), one=make_one(value.render_double)),
    Logical.FLOAT8: ConnectType({"type": "double"}, _make_float_render("float8"), one=make_one(value.render_double)),
    Logical.HSTORE: make_value_type(make_named_schema("string", "io.debezium.data.Json"), value.render_hstore),
    Logical.INT2VECTOR: _make_vector_type("int16"),
    # '1 mon' would be '30 days 10:30:00'.
    Logical.INTERVAL: make_value_type(
        make_named_schema("int64", "io.debezium.time.MicroDuration"),
        value.render_interval,
        distinct=r"^(P[^YMT]*(T.*)?|-?\d+:.*)$",
    ),
    Logical.JSON: _make_string_type("io.debezium.data.Json"),
    Logical.LTREE: _make_string_type("io.debezium.data.Ltree"),
    Logical.MONEY: make_value_type(_make_decimal_schema(2, {}), value.render_money),
    Logical.OIDVECTOR: _make_vector_type("int64"),
    Logical.POINT: make_value_type(POINT_SCHEMA, value.render_point),
    # '13:00:00+01' would be '12:00:00+00', which PostgreSQL tells apart from it.
    Logical.TIMETZ: make_value_type(
        make_named_schema("string", "io.debezium.time.ZonedTime"),
        value.render_zoned_time,
        distinct=r"\+00$",
    ),
    Logical.TSVECTOR: _make_string_type("io.debezium.data.Tsvector"),
    Logical.UUID: _make_string_type("io.debezium.data.Uuid"),
    Logical.XML: _make_string_type("io.debezium.data.Xml"),
    # TEXT, XID and OTHER are strings.
}

BY_MODIFIER: dict[Logical, Callable[[int], ConnectType]] = {
    Logical.BIT: _make_bit_type,
    Logical.NUMERIC: _make_numeric_type,
    Logical.TIME: _make_time_type,
    Logical.TIMESTAMP: _make_timestamp_type,
    Logical.TIMESTAMPTZ: _make_timestamptz_type,
    Logical.VARBIT: _make_varbit_type,
}
"""Types whose modifiers make a difference."""

_OF_EXTENSIONS = {Logical.HSTORE, Logical.LTREE}
