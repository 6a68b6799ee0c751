"""Values of every type, as events have them, against what SELECT shows and what was written."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from psql_streamer.event_reader.forms import FORMS
from psql_streamer.events.routing import Router
from psql_streamer.model import Batch
from tests.encoding import encoder_of
from tests.mariadb import Schema
from tests.mysql_source import read_all, seen, streaming


@dataclass(frozen=True)
class Value:
    """A column's type, a literal for it, and the text form and the JSON of its value."""

    type: str
    literal: str
    text: str
    json: Any
    only: str = ""


VALUES = (
    Value("TINYINT", "-128", "-128", -128),
    Value("TINYINT UNSIGNED", "255", "255", 255),
    Value("SMALLINT UNSIGNED", "65535", "65535", 65535),
    Value("MEDIUMINT", "-8388608", "-8388608", -8388608),
    Value("MEDIUMINT UNSIGNED", "16777215", "16777215", 16777215),
    Value("INT UNSIGNED", "4294967295", "4294967295", 4294967295),
    Value("BIGINT", "-9223372036854775808", "-9223372036854775808", -9223372036854775808),
    Value("BIGINT UNSIGNED", "18446744073709551615", "18446744073709551615", 18446744073709551615),
    Value(
        "DECIMAL(65,30)",
        "-12345678901234567890123456789012345.123456789012345678901234567890",
        "-12345678901234567890123456789012345.123456789012345678901234567890",
        Decimal("-12345678901234567890123456789012345.123456789012345678901234567890"),
    ),
    Value("DECIMAL(5,2)", "0.05", "0.05", Decimal("0.05")),
    Value("FLOAT", "0.1", "0.1", Decimal("0.1")),
    Value("DOUBLE", "1e300", "1e+300", Decimal("1e300")),
    Value("DATE", "'2026-11-22'", "2026-11-22", "2026-11-22"),
    Value("DATE", "'0000-00-00'", "0000-00-00", "0000-00-00"),
    Value("DATETIME(6)", "'2026-11-22 10:00:00.5'", "2026-11-22 10:00:00.5", "2026-11-22T10:00:00.5"),
    Value("TIMESTAMP(3) NULL", "'2026-11-22 10:00:00.25'", "2026-11-22 10:00:00.25+00", "2026-11-22T10:00:00.25Z"),
    Value("TIME(6)", "'-838:59:58.000001'", "-838:59:58.000001", "-838:59:58.000001"),
    Value("TIME", "'26:00:00'", "26:00:00", "26:00:00"),
    Value("YEAR", "2026", "2026", 2026),
    Value("YEAR", "0", "0", 0),
    Value("CHAR(5)", "'ü '", "ü", "ü"),
    Value("VARCHAR(20) CHARACTER SET latin1", "'naïve €'", "naïve €", "naïve €"),
    Value("VARCHAR(20) CHARACTER SET gbk", "'中文'", "中文", "中文"),
    Value("TEXT", "'a\\nb\\'😀'", "a\nb'😀", "a\nb'😀"),
    Value("BINARY(4)", "X'0100'", "\\x01000000", "AQAAAA=="),
    Value("VARBINARY(10)", "X'00FF'", "\\x00ff", "AP8="),
    Value("BLOB", "X'DEADBEEF'", "\\xdeadbeef", "3q2+7w=="),
    Value(
        "BIT(64)",
        "b'1000000000000000000000000000000000000000000000000000000000000001'",
        "1000000000000000000000000000000000000000000000000000000000000001",
        "1000000000000000000000000000000000000000000000000000000000000001",
    ),
    Value("ENUM('a','b''c')", "'b''c'", "b'c", "b'c"),
    Value("SET('x','y','z')", "'z,x'", "x,z", "x,z"),
    Value(
        "JSON",
        """'{"b": [1, 12345678901234567890, 1.5], "a": null}'""",
        "",
        {"b": [1, 12345678901234567890, Decimal("1.5")], "a": None},
        "mysql",
    ),
    # MariaDB's JSON is a text; its UUID is told apart from BINARY(16) by the catalog alone.
    Value("JSON", """'{"a" : 1}'""", '{"a" : 1}', '{"a" : 1}', "mariadb"),
    Value(
        "UUID",
        "'123e4567-e89b-12d3-a456-426655440000'",
        "\\x123e4567e89b12d3a456426655440000",
        "Ej5FZ+ibEtOkVkJmVUQAAA==",
        "mariadb",
    ),
)


def _events(batches: list[Batch], form: str = "event") -> list[dict[str, Any]]:
    encoder = encoder_of(form, Router({}, "", "t"), {})
    return [
        json.loads(value, parse_float=Decimal)
        for batch in batches
        if len(batch)
        for value in encoder.encode(batch).values.to_pylist()
    ]


def _only(schema: Schema) -> str:
    return "mariadb" if "mariadb" in schema.value("SELECT VERSION()").lower() else "mysql"


@pytest.mark.behaviour("B3")
def test_every_type_arrives_as_it_was_written(every_schema: Schema) -> None:
    schema = every_schema
    values = [value for value in VALUES if value.only in ("", _only(schema))]
    columns = ", ".join(f"c{number} {value.type}" for number, value in enumerate(values))
    literals = ", ".join(value.literal for value in values)
    with streaming(schema) as source:
        schema.execute(
            f"CREATE TABLE t (id INT PRIMARY KEY, {columns})",
            "SET SESSION sql_mode = '', time_zone = '+00:00'",
            f"INSERT INTO t VALUES (1, {literals})",
            f"INSERT INTO t VALUES (2{', NULL' * len(values)})",
        )
        batches = read_all(source, schema)
        published = source.list_published()
    written, nulls = (change.after or {} for change in seen(batches))
    texts = {value.type + value.literal: written[f"c{number}"] for number, value in enumerate(values) if value.text}
    assert texts == {value.type + value.literal: value.text for value in values if value.text}
    assert {written for name, written in nulls.items() if name != "id"} == {None}
    event = _events(batches)[0]["Columns"]
    found = {value.type + value.literal: event[f"c{number}"] for number, value in enumerate(values)}
    assert found == {value.type + value.literal: value.json for value in values}
    assert published == [change.relation for batch in batches for change in batch.schema_changes]


@pytest.mark.parametrize("form", ["event", "envelope", "debezium"])
@pytest.mark.behaviour("B1")
def test_events_say_where_a_change_comes_from(every_schema: Schema, form: str) -> None:
    schema, kind = every_schema, _only(every_schema)
    with streaming(schema) as source:
        began = float(schema.value("SELECT UNIX_TIMESTAMP()"))
        with schema.session() as cursor:
            cursor.execute("SELECT CONNECTION_ID()")
            [thread] = cursor.fetchone()
            cursor.execute("SET SESSION time_zone = '+05:00'")
            for statement in ("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)", "TRUNCATE t"):
                cursor.execute(statement)
        batches = read_all(source, schema)
    gtid, server = str(batches[-1].position.data["executed"]), schema.value("SELECT @@server_id")
    insert = f"{gtid.rpartition('-')[0]}-" if kind == "mariadb" else f"{schema.value('SELECT @@server_uuid')}:"
    first, second, truncate = _events(batches, form)
    file = schema.query("SHOW BINARY LOGS")[-1][0]
    threads = {thread if kind == "mysql" else "left out"}
    if form == "event":
        assert first["GTID"].startswith(insert)
        assert (first["File"], first["Schema"], first["Seq"], second["Seq"]) == (file, schema.name, 0, 1)
        assert truncate["Position"] > first["Position"] > 4
        assert began <= datetime.fromisoformat(first["Timestamp"]).timestamp() < time.time() + 1
        assert first["Commit"] == int(re.split("[-:]", first["GTID"])[-1])
        assert {one["ServerID"] for one in (first, second, truncate)} == {server}
        assert {one.get("Thread", "left out") for one in (first, second, truncate)} == threads
        return
    block = first["source"]
    assert began <= block["ts_ms"] / 1000 < time.time() + 1, "the time of the commit"
    assert block["gtid"].startswith(insert)
    assert (block["file"], block["pos"] > 4) == (file, True)
    assert {one["source"]["server_id"] for one in (first, second, truncate)} == {server}
    if form == "envelope":
        assert {one["source"].get("thread", "left out") for one in (first, second, truncate)} == threads
    if form == "debezium":
        assert (block["connector"], block["db"], block["table"]) == (kind, schema.name, "t")
        assert (block["row"], second["source"]["row"], truncate["op"]) == (0, 1, "t")
        assert {one["source"]["thread"] for one in (first, second, truncate)} == {thread if kind == "mysql" else None}
        assert "schema" not in block


@pytest.mark.behaviour("B3")
def test_a_timestamp_is_utc_whatever_the_sessions_zone(every_schema: Schema) -> None:
    with streaming(every_schema) as source:
        every_schema.execute(
            "CREATE TABLE t (id INT PRIMARY KEY, at TIMESTAMP NULL, local DATETIME)",
            "SET SESSION time_zone = '+05:00'",
            "INSERT INTO t VALUES (1, '2026-01-01 05:00:00', '2026-01-01 05:00:00')",
        )
        [change] = seen(read_all(source, every_schema))
    assert change.after == {"id": "1", "at": "2026-01-01 00:00:00+00", "local": "2026-01-01 05:00:00"}


@pytest.mark.parametrize("form", ["event", "envelope"])
def test_another_instance_reads_the_gtid_and_the_commit_number(schema: Schema, form: str) -> None:
    with streaming(schema) as source:
        schema.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
        [batch] = [batch for batch in read_all(source, schema) if len(batch)]
    [value] = encoder_of(form, Router({}, "", "t"), {}).encode(batch).values.to_pylist()
    parsed = dict(FORMS)[form](value)
    assert (parsed.id, parsed.commit) == (batch.transactions.find_id(-1), int(batch.transactions.commit[-1]))
