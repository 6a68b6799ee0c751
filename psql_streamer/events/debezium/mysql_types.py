"""MySQL's and MariaDB's types in Debezium's default modes, where they are others than those of the PostgreSQL type that
holds their values.

bigint.unsigned.handling.mode long, time.precision.mode adaptive_time_microseconds, decimal.handling.mode precise.
Source: Debezium documentation, "MySQL connector", data type mappings.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, partial

import pyarrow as pa

from psql_streamer.events.debezium import value
from psql_streamer.events.debezium.connect_type import (
    POINT_SCHEMA,
    ConnectType,
    Schema,
    make_named_schema,
    make_value_render,
)
from psql_streamer.events.json.json_text import Piece, render_quoted
from psql_streamer.geometries import GEOMETRIES
from psql_streamer.model import TextType
from psql_streamer.pgtype import Logical
from psql_streamer.pgtypes.builtin import BY_OID
from psql_streamer.pgtypes.modifiers import VARHDRSZ


@cache
def find_mysql_type(kind: TextType) -> ConnectType | None:
    """None where Debezium has the type as it has the PostgreSQL type that its values are like."""
    like = BY_OID.get(kind.like.oid)
    make = _BY_NAME.get((_remove_arguments(kind.native), like.logical)) if like else None
    return make(kind) if make else None


def _remove_arguments(native: str) -> str:
    """`bigint(20) unsigned zerofill` is `bigint unsigned`."""
    return re.sub(r"\(.*\)", "", native, flags=re.DOTALL).removesuffix(" zerofill").lower()


def _make_unsigned_type(kind: TextType) -> ConnectType | None:
    """SQLite lets such a column hold anything, and says so by another modifier."""
    return _UNSIGNED if kind.like.typmod == _TWENTY_DIGITS else None


_TWENTY_DIGITS = (20 << 16) + VARHDRSZ


def _render_as_signed(values: pa.Array) -> Piece:
    """The same 64 bits with a sign: Debezium's mode `long` has no other number from 2^63 on."""
    numbers = values.cast(pa.string()).cast(pa.uint64())
    return Piece(numbers.view(pa.int64()).cast(pa.string()).view(pa.binary()))


def _make_label_type(name: str, kind: TextType) -> ConnectType:
    """Commas in labels have a backslash, since commas stand between labels."""
    labels = [label.replace("''", "'").replace(",", "\\,") for label in _LABEL.findall(kind.native)]
    return ConnectType(make_named_schema("string", name, parameters={"allowed": ",".join(labels)}), render_quoted)


_LABEL = re.compile(r"'((?:[^']|'')*)'")


def _make_bit_type(kind: TextType) -> ConnectType | None:
    """BIT(1) is a boolean, as PostgreSQL's."""
    length = kind.native.strip("bit()")
    if length in ("", "1"):
        return None
    schema = make_named_schema("bytes", "io.debezium.data.Bits", parameters={"length": length})
    return ConnectType(schema, make_value_render(value.render_all_bits))


_GEOMETRY_SCHEMA: Schema = {
    "type": "struct",
    "fields": [
        {"type": "bytes", "optional": False, "field": "wkb"},
        {"type": "int32", "optional": True, "field": "srid"},
    ],
    "name": "io.debezium.data.geometry.Geometry",
    "version": 1,
    "doc": "Geometry",
}
_VECTOR_SCHEMA: Schema = {
    "type": "array",
    "items": {"type": "float", "optional": False},
    "name": "io.debezium.data.FloatVector",
    "version": 1,
}
_INT64: Schema = {"type": "int64"}

_UNSIGNED = ConnectType(_INT64, _render_as_signed)
_YEAR = ConnectType(make_named_schema("int32", "io.debezium.time.Year"), Piece)
_TIME = ConnectType(make_named_schema("int64", "io.debezium.time.MicroTime"), make_value_render(value.render_interval))
_POINT = ConnectType(POINT_SCHEMA, make_value_render(value.render_geometry_point))
_GEOMETRY = ConnectType(_GEOMETRY_SCHEMA, make_value_render(value.render_geometry))
_VECTOR = ConnectType(_VECTOR_SCHEMA, make_value_render(value.render_floats))

_BY_NAME: dict[tuple[str, Logical], Callable[[TextType], ConnectType | None]] = {
    ("bigint unsigned", Logical.NUMERIC): _make_unsigned_type,
    ("bit", Logical.BIT): _make_bit_type,
    ("enum", Logical.TEXT): partial(_make_label_type, "io.debezium.data.Enum"),
    ("set", Logical.TEXT): partial(_make_label_type, "io.debezium.data.EnumSet"),
    ("time", Logical.INTERVAL): lambda _: _TIME,
    ("vector", Logical.JSON): lambda _: _VECTOR,
    ("year", Logical.INT2): lambda _: _YEAR,
    **{(name, Logical.JSON): lambda _: _GEOMETRY for name in GEOMETRIES},
    ("point", Logical.JSON): lambda _: _POINT,
}
"""By the name that the server has for the type, and by what its values are held as: other databases have types of these
names, too."""
