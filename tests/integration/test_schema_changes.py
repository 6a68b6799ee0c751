"""New shapes of tables as events of their own, in a topic of their own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from psql_streamer.model import Batch
from psql_streamer.pgtype import PostgresType
from psql_streamer.pgtypes.names import name_type
from psql_streamer.pipeline.coalescing import cut, merge
from tests.shared_stream import Event, SharedStream, events


def schema_changes(batches: Iterable[Batch]) -> list[Event]:
    return [event for event in events(batches, schema_topic="schemas") if event.topic == "schemas"]


def columns(shape: Any) -> dict[str, str]:
    return {column["name"]: column["type"] for column in shape["columns"]}


def test_a_table_is_told_of_once_when_the_source_meets_it(stream: SharedStream) -> None:
    stream.run("CREATE TABLE t (id bigint PRIMARY KEY, note varchar(20))", "INSERT INTO t VALUES (1), (2)")
    [met] = schema_changes(stream.batches())
    assert met.op == "R"
    assert met.key == {"schema": "public", "table": "t"}
    assert met.value["before"] is None
    assert columns(met.value["after"]) == {"id": "bigint", "note": "character varying(20)"}
    assert [column["key"] for column in met.value["after"]["columns"]] == [True, False]
    assert met.value["after"]["oid"] == stream.database.value("SELECT 't'::regclass::oid")
    stream.run("INSERT INTO t VALUES (3)", "UPDATE t SET note = 'x'")
    assert schema_changes(stream.batches()) == []


@pytest.mark.behaviour("S1", "S2")
def test_every_kind_of_change_gives_the_old_and_the_new_shape(stream: SharedStream) -> None:
    stream.run("CREATE TABLE t (id int PRIMARY KEY, price numeric(8,2))", "INSERT INTO t VALUES (1)")
    stream.batches()
    for statement, before, after in (
        ("ALTER TABLE t ADD note text", {"id": "integer", "price": "numeric(8,2)"}, None),
        ("ALTER TABLE t ALTER price TYPE numeric(12,4)", None, None),
        ("ALTER TABLE t ALTER id TYPE bigint", None, None),
        ("ALTER TABLE t RENAME note TO remark", None, None),
        ("ALTER TABLE t DROP price", None, {"id": "bigint", "remark": "text"}),
    ):
        stream.run(statement, "UPDATE t SET id = id + 1")
        [change] = schema_changes(stream.batches())
        assert change.value["before"] != change.value["after"], statement
        assert before is None or columns(change.value["before"]) == before
        assert after is None or columns(change.value["after"]) == after
    stream.run("ALTER TABLE t RENAME TO renamed", "INSERT INTO renamed VALUES (9)")
    [change] = schema_changes(stream.batches())
    assert (change.value["before"]["table"], change.value["after"]["table"]) == ("t", "renamed")
    assert change.key == {"schema": "public", "table": "renamed"}
    stream.run("ALTER TABLE renamed REPLICA IDENTITY FULL", "DELETE FROM renamed")
    [change] = schema_changes(stream.batches())
    assert change.value["after"]["replica_identity"] == "FULL"


def test_a_shape_that_changes_inside_a_transaction_says_before_which_change(stream: SharedStream) -> None:
    stream.run("CREATE TABLE t (id int PRIMARY KEY)")
    stream.run("INSERT INTO t VALUES (1), (2); ALTER TABLE t ADD note text; INSERT INTO t VALUES (3, 'x'), (4, 'y')")
    told = events(stream.batches(), schema_topic="schemas")
    assert [(event.op, event.identity[1]) for event in told] == [
        ("R", 0), ("I", 0), ("I", 1), ("R", 2), ("I", 2), ("I", 3),
    ]  # fmt: skip
    second = told[3].value
    assert second["source"]["commit_lsn"] == told[4].value["source"]["commit_lsn"]
    assert second["source"]["seq"] == 2
    assert second["source"]["xid"] == told[4].value["source"]["xid"]


def test_a_reconnect_repeats_no_shape_and_finds_what_changed_meanwhile(stream: SharedStream) -> None:
    stream.run(
        "CREATE TYPE mood AS ENUM ('fine')", "CREATE TABLE t (id int PRIMARY KEY, m mood)", "INSERT INTO t VALUES (1)"
    )
    stream.batches()
    with stream.away():
        stream.run("INSERT INTO t VALUES (2)")
    assert schema_changes(stream.batches()) == []
    with stream.away():
        stream.run("ALTER TABLE t ADD note text", "INSERT INTO t VALUES (3)")
    [change] = schema_changes(stream.batches())
    assert columns(change.value["before"]) == {"id": "integer", "m": "mood"}
    assert columns(change.value["after"]) == {"id": "integer", "m": "mood", "note": "text"}


@pytest.mark.behaviour("S4")
def test_a_table_made_again_under_its_name_is_another_one(stream: SharedStream) -> None:
    stream.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    [first] = schema_changes(stream.batches())
    stream.run("DROP TABLE t", "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    [second] = schema_changes(stream.batches())
    assert second.value["before"] is None
    assert second.value["after"]["oid"] != first.value["after"]["oid"]


def test_merged_and_cut_batches_tell_the_same(stream: SharedStream) -> None:
    stream.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)", "ALTER TABLE t ADD a int")
    batches = stream.batches()
    stream.run("INSERT INTO t SELECT generate_series(2, 30)", "ALTER TABLE t DROP a", "INSERT INTO t VALUES (99)")
    batches += stream.batches()
    whole = events(batches, schema_topic="t")
    assert events([merge(batches)], schema_topic="t") == whole
    assert events(cut(merge(batches), 7), schema_topic="t") == whole


_TYPES = (
    "boolean", '"char"', "name", "smallint", "integer", "bigint", "oid", "xid8", "pg_lsn", "real", "double precision",
    "money", "numeric", "numeric(7)", "numeric(7,2)", "numeric(3,-2)", "text", "varchar", "varchar(7)", "char(3)",
    "bpchar", "bytea", "bit(3)", "bit varying", "varbit(9)", "date", "time", "time(2)", "timetz", "timetz(0)",
    "timestamp", "timestamp(3)", "timestamptz", "timestamptz(6)", "interval", "interval(2)", "interval year",
    "interval year to month", "interval day to second(3)", "interval hour to minute", "interval second(1)", "uuid",
    "json", "jsonb", "jsonpath", "xml", "inet", "cidr", "macaddr", "macaddr8", "point", "polygon", "tsvector",
    "tsquery", "int4range", "tstzmultirange", "regclass", "integer[]", "numeric(7,2)[]", "varchar(4)[]",
    "timestamptz(3)[]",
    "mood", "mood[]", "positive", "positive[]", "pair", "pair[]",
)  # fmt: skip


def test_types_are_named_as_postgresql_names_them(stream: SharedStream) -> None:
    stream.run(
        "CREATE TYPE mood AS ENUM ('fine')",
        "CREATE DOMAIN positive AS numeric(5,1) CHECK (VALUE > 0)",
        "CREATE TYPE pair AS (a int, b text)",
        f"CREATE TABLE t ({', '.join(f'c{at} {kind}' for at, kind in enumerate(_TYPES))})",
        "INSERT INTO t DEFAULT VALUES",
    )
    [met] = schema_changes(stream.batches())
    oracle = stream.database.query(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
        " WHERE attrelid = 't'::regclass AND attnum > 0 ORDER BY attnum"
    )
    assert list(columns(met.value["after"]).items()) == oracle


def test_a_type_that_nobody_knows_is_named_by_its_oid() -> None:
    assert name_type(PostgresType(99_999)) == "oid 99999"
