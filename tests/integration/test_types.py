"""PostgreSQL is the oracle: a value that was inserted, streamed and encoded is the one that SELECT gives."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from psql_streamer.errors import SourceRefused
from psql_streamer.events.routing import Router
from psql_streamer.model import Batch, RowOp
from psql_streamer.pgtypes.builtin import BUILT_IN
from psql_streamer.spark.handler import SparkHandler
from sources.postgres.source import PostgresSource
from tests.connect_schema import misfits
from tests.database import Database, fresh_database
from tests.encoding import FORMATS, encoder_of
from tests.oracle import array_oracle_of, object_of, oracle
from tests.source_at_work import read_all, streaming
from tests.type_values import (
    CUSTOM_COLUMNS,
    CUSTOM_TYPES,
    EDGES,
    ODD_SETTINGS,
    columns,
    columns_on,
    inserted,
    oracle_of,
)


@contextmanager
def published(database: Database) -> Iterator[PostgresSource]:
    """The database's tables, from now on; read with `read_all`."""
    database.execute("CREATE PUBLICATION p FOR ALL TABLES")
    with streaming(database) as source:
        yield source


def events(batches: Sequence[Batch], **options: Any) -> list[Any]:
    """The `envelope` events of all row changes, in order."""
    encoder = encoder_of("envelope", Router({}, "t", ""), {}, **options)
    values = [value for batch in batches for value in encoder.encode(batch).values.to_pylist()]
    return [json.loads(value, parse_float=Decimal) for value in values]


def assert_what_debezium_writes_fits_its_schemas(batches: Sequence[Batch]) -> None:
    encoder = encoder_of("debezium", Router({}, "t", ""), {}, schemas=True)
    for batch in batches:
        records = encoder.encode(batch)
        for text in [*records.keys.to_pylist(), *records.values.to_pylist()]:
            if text is not None:
                record = json.loads(text)
                assert misfits(record["schema"], record["payload"]) == []


def rows(batches: Sequence[Batch]) -> list[dict[str, Any]]:
    """The new rows of all events."""
    return [event["after"] for event in events(batches)]


def test_every_type_of_the_table_has_edge_values() -> None:
    assert set(EDGES) == {kind.name for kind in BUILT_IN}


@pytest.mark.behaviour("D3", "T1", "T2", "T3", "T4", "T5", "T6", "T8")
def test_t1_to_t6_every_built_in_type_arrives_as_it_was_stored_whatever_the_settings(every_postgres: Database) -> None:
    database = every_postgres
    every = columns_on(database)
    names = [f"c{at}" for at in range(len(every))]
    listed = ", ".join(f"{name} {of[0]}" for name, of in zip(names, every, strict=True))
    database.execute(f"CREATE TABLE every (id int PRIMARY KEY, {listed})")
    for setting, value in ODD_SETTINGS.items():
        database.execute(f"ALTER DATABASE \"{database.name}\" SET {setting} = '{value}'")
    with published(database) as source:
        inserted(database, "every", [values for _, _, values in every])
        found = rows(read_all(source, database))
    oracles = [(name, oracle_of(kind, name)) for name, (_, kind, _) in zip(names, every, strict=True)]
    expected = oracle(database, f"SELECT {object_of([('id', 'id'), *oracles])} FROM every ORDER BY id")
    assert len(found) == len(expected) > 5
    for got, wanted in zip(found, expected, strict=True):
        assert got.keys() == wanted.keys()
        for name, (sql, _, _) in zip(names, every, strict=True):
            assert got[name] == wanted[name], sql


_ZONES = {"TZ": "Asia/Kathmandu", "PGTZ": "America/New_York", "PGDATESTYLE": "SQL, DMY"}
"""Environment of the service: what the C library, libpq and PostgreSQL would like to know of it."""


@pytest.mark.behaviour("T5")
def test_t5_the_zone_and_date_style_of_machine_and_environment_have_no_influence(
    every_postgres: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = every_postgres
    for name, value in _ZONES.items():
        monkeypatch.setenv(name, value)
    database.execute(f"ALTER DATABASE \"{database.name}\" SET timezone = 'Australia/Lord_Howe'")
    database.execute("CREATE TABLE t (id int PRIMARY KEY, a timestamptz, b timestamp, c timetz, d date, e time)")
    with published(database) as source, database.session() as session, session.cursor() as cursor:
        cursor.execute(
            """
            SET timezone = 'America/St_Johns'; SET datestyle = 'ISO';
            INSERT INTO t VALUES (1, '2024-07-01 12:00:00.000001', '2024-07-01 12:00', '12:00', '2024-03-10', '24:00'),
                (2, '2024-03-10 02:30 America/New_York', '2024-03-10 02:30', '23:59:59.999999-15:59', NULL, NULL)
            """
        )
        session.commit()
        found = rows(read_all(source, database))
    assert [tuple(row.values())[1:] for row in found] == [
        (
            "2024-07-01T14:30:00.000001Z",
            "2024-07-01T12:00:00",
            f"12:00:00{_offset(database)}",
            "2024-03-10",
            "24:00:00",
        ),
        ("2024-03-10T07:30:00Z", "2024-03-10T02:30:00", "23:59:59.999999-15:59", None, None),
    ]


def _offset(database: Database) -> str:
    """Of the session's zone today, as a timetz has it."""
    query = "SELECT to_char(now() AT TIME ZONE 'UTC' - now() AT TIME ZONE 'America/St_Johns', 'HH24:MI')"
    return f"-{database.value(query)}"


@pytest.mark.behaviour("T2")
def test_t2_a_numeric_whose_scale_is_negative_or_above_its_precision_keeps_its_digits(
    every_postgres: Database,
) -> None:
    database = every_postgres
    database.execute("CREATE TABLE t (id int PRIMARY KEY, a numeric(2, -3), b numeric(3, 5), c numeric(1000, 0))")
    with published(database) as source:
        database.execute(
            "INSERT INTO t VALUES (1, 98765, 0.00999, repeat('9', 1000)::numeric), (2, -1499, -0.00001, -1),"
            "(3, 0, 0, 9007199254740993), (4, 'NaN', 'NaN', 'NaN'), (5, NULL, NULL, NULL)"
        )
        batches = read_all(source, database)
    assert rows(batches) == oracle(database, "SELECT to_json(t)::text FROM t ORDER BY id")
    encoder = encoder_of("debezium", Router({}, "t", ""), {}, schemas=True)
    values = [json.loads(value) for batch in batches for value in encoder.encode(batch).values.to_pylist()]
    after = next(field for field in values[0]["schema"]["fields"] if field["field"] == "after")
    scales = {field["field"]: int(field.get("parameters", {}).get("scale", 0)) for field in after["fields"]}
    assert (scales["a"], scales["b"], scales["c"]) == (-3, 5, 0)
    selected = database.query("SELECT a, b, c FROM t WHERE id <= 3 ORDER BY id")
    for value, wanted in zip(values, selected, strict=False):
        row = value["payload"]["after"]
        unscaled = [int.from_bytes(base64.b64decode(row[name]), "big", signed=True) for name in "abc"]
        exact = [Fraction(n) / Fraction(10) ** scales[name] for n, name in zip(unscaled, "abc", strict=True)]
        assert exact == [Fraction(number) for number in wanted]


@pytest.mark.behaviour("T3")
@pytest.mark.parametrize(
    ("encoding", "text"), [("LATIN1", 'é ß "ÿ" \\'), ("WIN1252", "“€” ™"), ("EUC_JP", "日本語 ・")]
)
def test_t3_a_database_in_another_encoding_gives_the_same_characters(postgres: str, encoding: str, text: str) -> None:
    quoted = '"' + text.replace('"', '""') + '"'
    with fresh_database(postgres, f"test_{uuid.uuid4().hex[:12]}", encoding) as database:
        database.execute(f"CREATE TABLE {quoted} (id int PRIMARY KEY, {quoted} text, a text[])")
        with published(database) as source:
            database.execute(f"INSERT INTO {quoted} VALUES (1, %s, ARRAY[%s])", text, text)
            (event,) = events(read_all(source, database))
    assert event["table"] == text
    assert event["after"] == {"id": 1, text: text, "a": [text]}


@pytest.mark.behaviour("T3")
def test_t3_bytes_that_are_no_text_stop_the_source_and_say_so(postgres: str) -> None:
    """A database in SQL_ASCII takes any bytes; the server itself will not send them as text."""
    with fresh_database(postgres, f"test_{uuid.uuid4().hex[:12]}", "SQL_ASCII") as database:
        database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
        with published(database) as source:
            database.execute("INSERT INTO t VALUES (1, 'plain')")
            assert rows(read_all(source, database)) == [{"id": 1, "v": "plain"}]
            database.execute("SET client_encoding = SQL_ASCII; INSERT INTO t VALUES (2, E'\\xff\\xfe')")
            with pytest.raises(SourceRefused, match="invalid byte sequence for encoding"):
                read_all(source, database)


@pytest.mark.behaviour("T7")
def test_t7_arrays_of_every_built_in_type_arrive_as_they_were_stored(every_postgres: Database) -> None:
    database = every_postgres
    every = [(sql, kind, values) for sql, kind, values in columns_on(database) if kind.array_oid]
    names = [f"c{at}" for at in range(len(every))]
    listed = ", ".join(f"{name} {sql}[]" for name, (sql, _, _) in zip(names, every, strict=True))
    database.execute(f"CREATE TABLE every (id int PRIMARY KEY, {listed})")
    arrays = [
        (f"ARRAY[{', '.join(values)}, NULL]::{sql}[]", f"'{{}}'::{sql}[]", f"ARRAY[{values[0]}]::{sql}[]")
        for sql, _, values in every
    ]
    with published(database) as source:
        inserted(database, "every", arrays)
        found = rows(read_all(source, database))
    oracles = [(name, array_oracle_of(kind, name)) for name, (_, kind, _) in zip(names, every, strict=True)]
    expected = oracle(database, f"SELECT {object_of([('id', 'id'), *oracles])} FROM every ORDER BY id")
    for got, wanted in zip(found, expected, strict=True):
        for name, (sql, _, _) in zip(names, every, strict=True):
            assert got[name] == wanted[name], f"{sql}[]"


@pytest.mark.behaviour("T7")
def test_t7_nested_arrays_with_bounds_and_quoting_arrive_as_to_json_gives_them(database: Database) -> None:
    database.execute("CREATE TABLE a (id int PRIMARY KEY, t text[], n numeric[], b box[], j jsonb[])")
    with published(database) as source:
        database.execute(
            r"""INSERT INTO a VALUES
            (1, '[2:3][-1:0]={{a,NULL},{"b,\"c\\","NULL"}}', '{{1.10,NaN},{NULL,12345678901234567890.1}}',
                '{(1,1),(0,0);(2,2),(0,0)}', '{"{\"a\": [1, null]}",NULL,"null"}'),
            (2, ARRAY['', ' ', '{}', ',', E'\n\t', 'żółć 🐘', '"', '\'], '{}', NULL, '[0:0]={1}')"""
        )
        found = rows(read_all(source, database))
    query = "SELECT json_build_object('id', id, 't', t, 'n', n, 'b', b::text[], 'j', j)::text FROM a ORDER BY id"
    assert found == oracle(database, query)


@pytest.mark.behaviour("T6")
def test_t6_a_json_document_is_embedded_byte_for_byte(database: Database) -> None:
    document = '{"b" : 1,  "a":1.0e400, "b":[ ],\n"z":"\\u00e9\\/"}'
    database.execute("CREATE TABLE j (id int PRIMARY KEY, document json)")
    with published(database) as source:
        database.execute("INSERT INTO j VALUES (1, %s), (2, 'null'), (3, NULL)", document)
        (batch,) = (batch for batch in read_all(source, database) if batch.changes)
    first, second, third = encoder_of("event", Router({}, "t", ""), {}).encode(batch).values.to_pylist()[:3]
    assert f'"Columns":{{"id":1,"document":{document}}}'.encode() in first
    assert b'"Columns":{"id":2,"document":null}' in second
    assert b'"Columns":{"id":3,"document":null}' in third


@pytest.mark.behaviour("S3", "T7", "T8")
def test_t8_s3_types_made_in_the_database_arrive_as_to_json_gives_them(every_postgres: Database) -> None:
    database = every_postgres
    database.execute(CUSTOM_TYPES)
    sql = [kind + suffix for suffix in ("", "[]") for kind in CUSTOM_COLUMNS]
    listed = ", ".join(f"c{at} {kind}" for at, kind in enumerate(sql))
    database.execute(f"CREATE TABLE custom (id int PRIMARY KEY, {listed})")
    arrays = [(f"ARRAY[({values[0]})::{kind}, NULL]::{kind}[]", "'{}'") for kind, values in CUSTOM_COLUMNS.items()]
    with published(database) as source:
        inserted(database, "custom", [*CUSTOM_COLUMNS.values(), *arrays])
        batches = read_all(source, database)
    assert_what_debezium_writes_fits_its_schemas(batches)
    found = rows(batches)
    expected = oracle(database, "SELECT to_json(custom)::text FROM custom ORDER BY id")
    assert len(found) == len(expected) == 3
    for got, wanted in zip(found, expected, strict=True):
        assert got.keys() == wanted.keys()
        for at, kind in enumerate(sql):
            assert got[f"c{at}"] == wanted[f"c{at}"], kind


@pytest.mark.behaviour("T3", "T8")
@pytest.mark.parametrize(
    ("extension", "kind", "values"),
    [
        ("citext", "citext", ("'Ünï \"q\"'", "''")),
        ("hstore", "hstore", ("'a=>1, \"b c\"=>NULL'", "''")),
        ("ltree", "ltree", ("'Top.Science'",)),
        ("vector", "vector(3)", ("'[1,2.5,-3]'",)),
        ("postgis", "geometry", ("'POINT(1 2)'",)),
    ],
)
def test_t8_the_types_of_extensions_arrive_as_text(
    every_postgres: Database, extension: str, kind: str, values: tuple[str, ...]
) -> None:
    database = every_postgres
    if not database.query("SELECT 1 FROM pg_available_extensions WHERE name = %s", extension):
        pytest.skip(f"this server has no {extension}")
    database.execute(f"CREATE EXTENSION {extension}")
    database.execute(f"CREATE TABLE t (id int PRIMARY KEY, c {kind}, a {kind}[])")
    with published(database) as source:
        inserted(database, "t", [values, (f"ARRAY[{', '.join(values)}, NULL]::{kind}[]",)])
        found = rows(read_all(source, database))
    query = "SELECT json_build_object('id', id, 'c', c::text, 'a', a::text[])::text FROM t ORDER BY id"
    assert found == oracle(database, query)


@pytest.mark.behaviour("S3")
def test_s3_types_that_are_made_and_changed_while_the_stream_runs(database: Database) -> None:
    database.execute("CREATE TYPE mood AS ENUM ('ok'); CREATE TABLE t (id int PRIMARY KEY, m mood)")
    with published(database) as source:
        database.execute("INSERT INTO t VALUES (1, 'ok')")
        database.execute("ALTER TYPE mood ADD VALUE 'ko'")
        database.execute("INSERT INTO t VALUES (2, 'ko')")
        assert [row["m"] for row in rows(read_all(source, database))] == ["ok", "ko"]

        database.execute("CREATE TYPE pair AS (a int, m mood[]); ALTER TABLE t ADD p pair, ADD q pair[]")
        database.execute("INSERT INTO t VALUES (3, NULL, ROW(1, '{ok}'), ARRAY[ROW(2, NULL)::pair])")
        (row,) = rows(read_all(source, database))
        assert (row["p"], row["q"]) == ({"a": 1, "m": ["ok"]}, [{"a": 2, "m": None}])


@pytest.mark.behaviour("S3")
def test_s3_a_type_that_was_dropped_while_its_rows_were_in_the_wal_goes_out_as_text(database: Database) -> None:
    database.execute("CREATE PUBLICATION p FOR ALL TABLES")
    with streaming(database) as source:
        database.execute("SELECT 1")
    assert source
    database.execute("CREATE TYPE pair AS (a int, b text); CREATE DOMAIN positive AS int")
    database.execute("CREATE TABLE t (id int PRIMARY KEY, p pair, d positive)")
    database.execute("INSERT INTO t VALUES (1, ROW(1, 'x y'), 5)")
    database.execute("DROP TABLE t; DROP TYPE pair; DROP DOMAIN positive")
    with streaming(database) as source:
        assert rows(read_all(source, database)) == [{"id": 1, "p": '(1,"x y")', "d": "5"}]


@pytest.mark.behaviour("S3")
def test_s3_a_composite_that_gained_an_attribute_leaves_older_rows_as_they_were(database: Database) -> None:
    database.execute("CREATE TYPE pair AS (a int, b text); CREATE TABLE t (id int PRIMARY KEY, p pair)")
    with published(database) as source:
        database.execute("INSERT INTO t VALUES (1, ROW(1, 'x'))")
        database.execute("ALTER TYPE pair ADD ATTRIBUTE c int")
        assert rows(read_all(source, database)) == [{"id": 1, "p": {"a": 1, "b": "x"}}]


@pytest.mark.behaviour("T9")
def test_d5_t9_defaults_of_columns_that_a_before_image_lacks_are_not_invented(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, note text NOT NULL DEFAULT 'd', n int NOT NULL DEFAULT 7)")
    with published(database) as source:
        database.execute("INSERT INTO t VALUES (1)")
        database.execute("UPDATE t SET id = 2")
        database.execute("DELETE FROM t")
        found = events(read_all(source, database))
    deletes = [event["before"] for event in found if event["op"] == RowOp.DELETE.name]
    assert deletes == [{"id": 1}, {"id": 2}]


@pytest.mark.behaviour("T1", "T2", "T3", "T4", "T5", "T6", "T7", "T8")
def test_t1_to_t8_both_handlers_give_the_same_bytes_in_every_format(database: Database, engine: SparkHandler) -> None:
    every = columns_on(database)
    names = [f"c{at}" for at in range(len(every))]
    listed = ", ".join(f"{name} {sql}" for name, (sql, _, _) in zip(names, every, strict=True))
    arrays = ", ".join(f"a{at} {sql}[]" for at, (sql, kind, _) in enumerate(every) if kind.array_oid)
    custom = ", ".join(f"x{at} {kind}" for at, kind in enumerate(CUSTOM_COLUMNS))
    database.execute(CUSTOM_TYPES)
    database.execute(
        f"""
        CREATE TABLE every (id int PRIMARY KEY, {listed}, {arrays}, {custom}, big text, bigger bytea);
        ALTER TABLE every ALTER big SET STORAGE EXTERNAL, ALTER bigger SET STORAGE EXTERNAL;
        CREATE TABLE whole (LIKE every INCLUDING ALL);
        ALTER TABLE whole REPLICA IDENTITY FULL
        """
    )
    values = [values for _, _, values in every]
    values += [(f"ARRAY[{', '.join(values)}, NULL]::{sql}[]", "'{}'") for sql, kind, values in every if kind.array_oid]
    values += [*CUSTOM_COLUMNS.values(), ("repeat('x', 5000)",), ("decode(repeat('00ff', 3000), 'hex')",)]
    with published(database) as source:
        for table in ("every", "whole"):
            inserted(database, table, values)
            database.execute(f"UPDATE {table} SET c0 = NOT c0")
            database.execute(f"UPDATE {table} SET id = id + 1000, big = NULL WHERE id = 0")
            database.execute(f"DELETE FROM {table}")
        batches = [batch for batch in read_all(source, database) if batch.changes]
    assert sum(map(len, batches)) > 20
    assert_what_debezium_writes_fits_its_schemas(batches)
    through_spark = [engine.handle(batch) for batch in batches]
    for form in FORMATS:
        encoder = encoder_of(form, Router({}, "t", ""), {}, headers=True)
        for plain, typed in zip(batches, through_spark, strict=True):
            one, other = encoder.encode(plain), encoder.encode(typed)
            assert one.keys.equals(other.keys), form
            assert one.values.to_pylist() == other.values.to_pylist(), form
            assert one.headers == other.headers, form


DEBEZIUM_ORACLES = {
    "date": "(c - date '1970-01-01')::int",
    "timestamp": "(extract(epoch FROM c) * 1000000)",
    "timestamp(3)": "(extract(epoch FROM c) * 1000)",
    "time": "(extract(epoch FROM c) * 1000000)",
    "interval": """((extract(year FROM c) * 12 + extract(month FROM c)) * 2629800000000
        + extract(day FROM c) * 86400000000 + extract(hour FROM c) * 3600000000
        + extract(minute FROM c) * 60000000 + extract(microseconds FROM c))""",
    "timestamptz": 'to_char(c, \'YYYY-MM-DD"T"HH24:MI:SS.US"Z"\')',
}
"""SQL of what Debezium's documentation says of a column c."""


@pytest.mark.behaviour("T5")
@pytest.mark.parametrize("kind", DEBEZIUM_ORACLES)
def test_t5_debezium_counts_as_postgresql_does(database: Database, kind: str) -> None:
    (values,) = (values for sql, _, values in columns() if sql == kind)
    finite = [one for one in values if "infinity" not in one]
    if kind == "timestamptz":  # years that have four digits: Java writes the others in its own way
        finite = [one for one in finite if "BC" not in one and "-12-31" not in one]
    database.execute(f"CREATE TABLE t (id int PRIMARY KEY, c {kind})")
    with published(database) as source:
        inserted(database, "t", [tuple(finite)])
        batches = read_all(source, database)
    encoder = encoder_of("debezium", Router({}, "t", ""), {})
    found = [json.loads(value) for batch in batches for value in encoder.encode(batch).values.to_pylist()]
    value = DEBEZIUM_ORACLES[kind]
    if kind in ("timestamp", "interval"):
        fits = f"{value} BETWEEN -9223372036854775808 AND 9223372036854775807"
        value = f"CASE WHEN {fits} THEN to_json(trunc({value})) ELSE 'null'::json END"
    expected = oracle(database, f"SELECT to_json({value})::text FROM t WHERE c IS NOT NULL ORDER BY id")
    assert [event["after"]["c"] for event in found] == [*expected, None]
