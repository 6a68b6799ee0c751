"""Columns of MySQL and MariaDB in the format `debezium` are what Debezium's MySQL connector makes of them.

Release 3.6.1.Final was run beside the service over the binary log of the same server, with Connect's JSON converter;
what it wrote stands here. docs/events.md has what differs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from psql_streamer.events.routing import Router
from psql_streamer.model import Batch
from tests.connect_schema import misfits
from tests.encoding import encoder_of
from tests.mariadb import Schema
from tests.mysql_source import read_all, streaming


@dataclass(frozen=True)
class Observed:
    """A column's type, a literal for it, and what Debezium wrote: its value, and its schema but for `optional`."""

    type: str
    literal: str
    value: Any
    schema: dict[str, Any] = field(hash=False)
    only: str = ""


def named(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "name": name, "version": 1, **more}


INT64 = {"type": "int64"}
MICRO_TIME = named("int64", "io.debezium.time.MicroTime")
DATE, ZONED = named("int32", "io.debezium.time.Date"), named("string", "io.debezium.time.ZonedTimestamp")
MICRO_TIMESTAMP = named("int64", "io.debezium.time.MicroTimestamp")
MILLI_TIMESTAMP = named("int64", "io.debezium.time.Timestamp")
GEOMETRY_FIELDS = [
    {"type": "bytes", "optional": False, "field": "wkb"},
    {"type": "int32", "optional": True, "field": "srid"},
]
COORDINATES = [{"type": "double", "optional": False, "field": "x"}, {"type": "double", "optional": False, "field": "y"}]
GEOMETRY = named("struct", "io.debezium.data.geometry.Geometry", fields=GEOMETRY_FIELDS, doc="Geometry")
POINT = named(
    "struct",
    "io.debezium.data.geometry.Point",
    fields=[*COORDINATES, {**GEOMETRY_FIELDS[0], "optional": True}, GEOMETRY_FIELDS[1]],
    doc="Geometry (POINT)",
)
VECTOR = named("array", "io.debezium.data.FloatVector", items={"type": "float", "optional": False})


def bits(length: int) -> dict[str, Any]:
    return named("bytes", "io.debezium.data.Bits", parameters={"length": str(length)})


def labels(name: str, allowed: str) -> dict[str, Any]:
    return named("string", name, parameters={"allowed": allowed})


OBSERVED = (
    Observed("TINYINT(1)", "1", 1, {"type": "int16"}),
    Observed("INT UNSIGNED", "4294967295", 4294967295, INT64),
    Observed("BIGINT UNSIGNED", "42", 42, INT64),
    Observed("BIGINT UNSIGNED", "9223372036854775808", -9223372036854775808, INT64),
    Observed("BIGINT(20) UNSIGNED ZEROFILL", "18446744073709551615", -1, INT64),
    Observed("YEAR", "1901", 1901, named("int32", "io.debezium.time.Year")),
    Observed("BIT(1)", "b'0'", False, {"type": "boolean"}),
    Observed("BIT(9)", "b'0'", "AAA=", bits(9)),
    Observed("BIT(9)", "b'100000001'", "AQE=", bits(9)),
    Observed("BIT(64)", "b'1'", "AQAAAAAAAAA=", bits(64)),
    Observed("DATE", "'1000-01-01'", -354285, DATE),
    Observed("DATE", "'0000-00-00'", None, DATE),
    Observed("DATE", "'2026-00-00'", None, DATE),
    Observed("DATETIME", "'0000-00-00 00:00:00'", None, MILLI_TIMESTAMP),
    Observed("DATETIME(6)", "'2026-00-10 10:00:00'", None, MICRO_TIMESTAMP),
    Observed("DATETIME(6)", "'9999-12-31 23:59:59.999999'", 253402300799999999, MICRO_TIMESTAMP),
    Observed("TIMESTAMP NULL", "'0000-00-00 00:00:00'", None, ZONED),
    Observed("TIMESTAMP(2) NULL", "'2026-01-02 03:04:05'", "2026-01-02T03:04:05.00Z", ZONED),
    Observed("TIME", "'838:59:59'", 3020399000000, MICRO_TIME),
    Observed("TIME(1)", "'-838:59:59'", -3020399000000, MICRO_TIME),
    Observed("TIME(6)", "'00:00:00.000001'", 1, MICRO_TIME),
    Observed("ENUM('a','b c','d,e')", "'d,e'", "d,e", labels("io.debezium.data.Enum", "a,b c,d\\,e")),
    Observed("SET('x','y','z')", "'x,z'", "x,z", labels("io.debezium.data.EnumSet", "x,y,z")),
    Observed(
        "POINT", "POINT(1.5,-2e10)", {"x": 1.5, "y": -2e10, "wkb": "AQEAAAAAAAAAAAD4PwAAACBfoBLC", "srid": None}, POINT
    ),
    Observed("GEOMETRY", "POINT(3,4)", {"wkb": "AQEAAAAAAAAAAAAIQAAAAAAAABBA", "srid": None}, GEOMETRY),
    Observed(
        "LINESTRING",
        "ST_GeomFromText('LINESTRING(0 0,1 1)',3857)",
        {"wkb": "AQIAAAACAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAPA/AAAAAAAA8D8=", "srid": 3857},
        GEOMETRY,
    ),
    Observed(
        "POINT",
        "ST_GeomFromText('POINT(1 2)',4326)",
        {"x": 2.0, "y": 1.0, "wkb": "AQEAAAAAAAAAAAAAQAAAAAAAAPA/", "srid": 4326},
        POINT,
        only="mysql",  # the axes of MariaDB are those of the text
    ),
    Observed("VECTOR(3)", "STRING_TO_VECTOR('[1,2.5,-30000]')", [1.0, 2.5, -30000.0], VECTOR, only="mysql 9"),
)


@pytest.mark.behaviour("B3")
def test_columns_have_the_values_and_schemas_of_debeziums_mysql_connector(every_schema: Schema) -> None:
    kinds = {"", "mysql" if every_schema.on_mysql else "mariadb"}
    kinds |= {"mysql 9"} if every_schema.on_mysql and every_schema.version >= (9, 0) else set()
    columns = [one for one in OBSERVED if one.only in kinds]
    row = encode_row(every_schema, [one.type for one in columns], [one.literal for one in columns])
    [after] = [one for one in row["schema"]["fields"] if one["field"] == "after"]
    fields = {one["field"]: one for one in after["fields"]}
    assert {one.type + one.literal: row["payload"]["after"][f"c{number}"] for number, one in enumerate(columns)} == {
        one.type + one.literal: one.value for one in columns
    }
    for number, one in enumerate(columns):
        assert fields[f"c{number}"] == {**one.schema, "optional": True, "field": f"c{number}"}, one.type
    assert misfits(row["schema"], row["payload"]) == []


@pytest.mark.behaviour("B3")
def test_an_unsigned_key_has_the_bytes_that_debezium_gives_it(schema: Schema) -> None:
    with streaming(schema) as source:
        schema.execute("CREATE TABLE t (id BIGINT UNSIGNED PRIMARY KEY)", "INSERT INTO t VALUES (5)")
        [batch] = [batch for batch in read_all(source, schema) if len(batch)]
    assert encoder_of("debezium", Router({}, "", "t"), {}).encode(batch).keys.to_pylist() == [b'{"id":5}']


@pytest.mark.behaviour("B3")
def test_a_zero_date_is_null_and_counted_and_a_text_in_a_key(schema: Schema) -> None:
    with streaming(schema) as source:
        schema.execute(
            "SET SESSION sql_mode = ''",
            "CREATE TABLE t (day DATE PRIMARY KEY, other DATE)",
            "INSERT INTO t VALUES ('2026-00-00', '2026-00-00')",
        )
        [batch] = [batch for batch in read_all(source, schema) if len(batch)]
    records = encoder_of("debezium", Router({}, "", "t"), {}).encode(batch)
    assert records.keys.to_pylist() == [b'{"day":"2026-00-00"}']
    assert json.loads(records.values[0].as_py())["after"] == {"day": "2026-00-00", "other": None}
    assert records.nulled == {f"{schema.name}.t.other": 1}


def encode_row(schema: Schema, types: list[str], literals: list[str]) -> dict[str, Any]:
    """The record, with its schema, of a row that has these values."""
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(types))
    with streaming(schema) as source:
        schema.execute(
            f"CREATE TABLE t (id INT PRIMARY KEY, {columns})",
            "SET SESSION sql_mode = '', time_zone = '+00:00'",
            f"INSERT INTO t VALUES (1, {', '.join(literals)})",
        )
        [batch] = [batch for batch in read_all(source, schema) if len(batch)]
    return read_record(batch)


def read_record(batch: Batch) -> dict[str, Any]:
    [value] = encoder_of("debezium", Router({}, "", "t"), {}, schemas=True).encode(batch).values.to_pylist()
    record: dict[str, Any] = json.loads(value)
    return record
