"""What Debezium's types cannot hold: counted where it is null, and never one key of two. PostgreSQL is the oracle."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import count, product
from typing import Any

import psycopg2.errors
import pytest

from psql_streamer.events.debezium.types import choose_connect_type
from psql_streamer.events.routing import Route, Router
from psql_streamer.model import Batch
from tests.connect_schema import misfits
from tests.database import Database
from tests.debezium_reading import read
from tests.encoding import encoder_of
from tests.shared_stream import SharedStream
from tests.type_values import columns

UNHOLDABLE: tuple[tuple[str, str, str], ...] = (
    ("numeric", "1", "'NaN'"),
    ("numeric", "1", "'Infinity'"),
    ("numeric(12,2)", "1", "'NaN'"),
    ("price", "1", "'NaN'"),
    ("interval", "'1 day'", "'-178000000 years'"),
    ("timestamp", "'2024-01-01'", "'294276-12-31 23:59:59.999999'"),
    # These are the numbers that stand for infinity.
    ("timestamp", "'infinity'", "'294247-01-10 04:00:25.2'"),
    ("timestamp(3)", "'infinity'", "'294247-01-10 04:00:25.2'"),
    ("varbit(1)", "B'1'", "B''"),
)
"""(type, a value that Debezium's type for it holds, one that it does not hold)"""

PARTS = """
CREATE DOMAIN price AS numeric(12,2); CREATE DOMAIN prices AS numeric(12,2)[];
CREATE DOMAIN hstore AS text; CREATE TYPE pair AS (a int, b numeric);
"""

MORE_KEYS: dict[str, tuple[str, ...]] = {
    "interval": ("'1 mon'", "'30 days 10:30:00'", "'30 days'", "'1 year'", "'-177999999 years'"),
    "timetz": ("'13:00+01'", "'12:00+00'", "'00:30+01'", "'23:30+00'", "'24:00:00+00:30'", "'24:00:00+00'"),
    "varbit": ("B'1'", "B'01'", "B'001'", "B'0'", "B'00'", "B'0000'", "B'1101000100110100110100'", "B'0101'"),
    "timestamp": ("'294247-01-10 04:00:25.2'", "'294275-01-01'"),
    "timestamp(3)": ("'294247-01-10 04:00:25.2'", "'-infinity'", "'2024-01-01 00:00:00.001'"),
    "bit(5)": ("B'00001'", "B'00010'"),
    "price": ("'NaN'", "1", "1.00", "-1"),
    "hstore": ("''", "'a'", '\'"a"=>"1"\''),
    "pair": ("'(1,NaN)'", "'(1,)'", "'(1,Infinity)'"),
}
"""Type -> values that a type of Debezium's, or JSON, might not tell apart."""

APPROXIMATE = ("interval", "timetz", "varbit", "varbit(9)")
"""Types of which Debezium's say less: the length of a month, the zone, how many zeros a value begins with."""

_NO_KEY = (
    psycopg2.errors.UndefinedObject,
    psycopg2.errors.UndefinedFunction,
    psycopg2.errors.FeatureNotSupported,
)
"""What a server says of types, and of elements of arrays, that have no order or that it was built without."""

ARRAYS = (
    "ARRAY[{0}]::{1}[]",
    "ARRAY[{0}, NULL]::{1}[]",
    "ARRAY[NULL, {0}]::{1}[]",
    "ARRAY[ARRAY[{0}]]::{1}[]",
    "array_fill(({0})::{1}, ARRAY[1], ARRAY[0])",
)


@pytest.mark.behaviour("T2", "T5", "T7")
@pytest.mark.parametrize("schemas", [False, True])
def test_what_a_type_cannot_hold_is_null_and_counted_alone_in_arrays_and_in_several_dimensions(
    stream: SharedStream, schemas: bool
) -> None:
    names, values = _unholdable()
    listed = ", ".join(f"{name} {sql}" for name, (sql, _, _) in zip(names, values, strict=True))
    stream.run(PARTS, f"CREATE TABLE t (id int PRIMARY KEY, {listed})")
    for row, at in ((0, 1), (1, 2), (2, 2)):
        stream.run(f"INSERT INTO t VALUES ({row}, {', '.join(one[at] for one in values)})")
    stream.run("INSERT INTO t VALUES (3)")
    events, nulled = _encoded(stream.batches(), schemas)
    assert nulled == {f"public.t.{name}": 2 for name in names}
    rows = [event["after"] for _, event in events]
    for name, (sql, _, _) in zip(names, values, strict=True):
        assert not _has_null(rows[0][name]), sql
        assert _has_null(rows[1][name]), sql
        assert rows[3][name] is None


def test_nulls_that_are_postgresqls_own_are_no_loss(stream: SharedStream) -> None:
    stream.run(
        "CREATE TABLE t (id int PRIMARY KEY, n numeric[], i interval[])",
        "INSERT INTO t VALUES (1, '{1,NULL}', '{NULL}'), (2, NULL, '{}'), (3, '{NULL,NULL}', '{NULL,1 day}')",
    )
    events, nulled = _encoded(stream.batches(), schemas=True)
    assert [event["after"]["n"] and len(event["after"]["n"]) for _, event in events] == [2, None, 2]
    assert nulled == {}


@pytest.mark.behaviour("T2", "T7")
@pytest.mark.parametrize("schemas", [False, True])
def test_arrays_in_keys_are_texts_where_an_element_would_be_lost(stream: SharedStream, schemas: bool) -> None:
    stream.run(
        "CREATE TABLE t (id numeric[] PRIMARY KEY)",
        "INSERT INTO t VALUES ('{NaN}'), ('{Infinity}'), ('{NaN,NULL}'), ('{NULL}'), ('{1}'), ('[0:0]={1}')",
    )
    events, nulled = _encoded(stream.batches(), schemas, fits=False)
    one = {"scale": 0, "value": "AQ=="}
    expected: list[Any] = ["{NaN}", "{Infinity}", "{NaN,NULL}", [None], [one], "[0:0]={1}"]
    assert [key["id"] for key, _ in events] == [event["after"]["id"] for _, event in events] == expected
    assert nulled == {}


@pytest.mark.behaviour("T7")
def test_with_schemas_several_dimensions_are_null_and_counted_at_any_depth(stream: SharedStream) -> None:
    stream.run(
        "CREATE DOMAIN ints AS int[]",
        "CREATE TABLE t (id int PRIMARY KEY, a int[], v int2vector[], d ints[])",
        "INSERT INTO t VALUES (1, '{{1,2}}', ARRAY[['1 2'], ['3']]::int2vector[], ARRAY['{{1},{2}}', '{3}']::ints[])",
        "INSERT INTO t VALUES (2, '{1,2}', ARRAY['1 2', '3']::int2vector[], ARRAY['{1,2}', '{3}']::ints[])",
    )
    batches = stream.batches()
    events, nulled = _encoded(batches, schemas=True)
    assert [event["after"] for _, event in events] == [
        {"id": 1, "a": None, "v": None, "d": [None, [3]]},
        {"id": 2, "a": [1, 2], "v": [[1, 2], [3]], "d": [[1, 2], [3]]},
    ]
    assert nulled == {"public.t.a": 1, "public.t.v": 1, "public.t.d": 1}
    bare, none = _encoded(batches, schemas=False)
    assert bare[0][1]["after"] == {"id": 1, "a": [[1, 2]], "v": [[[1, 2]], [[3]]], "d": [[[1], [2]], [3]]}
    assert none == {}


def test_a_type_that_only_has_the_name_of_hstore_keeps_its_values(stream: SharedStream) -> None:
    stream.run(PARTS, "CREATE TABLE t (id int PRIMARY KEY, h hstore)", "INSERT INTO t VALUES (1, 'text'), (2, '')")
    events, nulled = _encoded(stream.batches(), schemas=False)
    assert [event["after"]["h"] for _, event in events] == ["text", ""]
    assert nulled == {}


def test_a_time_past_midnight_with_a_zone_of_minutes_is_moved_to_utc(stream: SharedStream) -> None:
    stream.run("CREATE TABLE t (id int PRIMARY KEY, z timetz)", "INSERT INTO t VALUES (1, '24:00:00+00:30')")
    events, _ = _encoded(stream.batches(), schemas=False)
    assert [event["after"]["z"] for _, event in events] == ["23:30:00Z"]


@pytest.mark.behaviour("T2", "T5", "T7")
def test_values_that_a_primary_key_tells_apart_have_keys_of_their_own(stream: SharedStream) -> None:
    """A primary key keeps out what is equal to PostgreSQL: as many rows as it lets in, so many keys there must be."""
    stream.run(PARTS)
    tables = _made_of_every_key(stream.database)
    batches = stream.batches()
    assert {"numeric", "numeric[]", "interval[]", "varbit", "date[]", "money[]", "price[]"} <= set(tables.values())
    counts = " UNION ALL ".join(f"SELECT '{table}', count(*) FROM {table}" for table in tables)
    expected = {tables[table]: rows for table, rows in stream.database.query(counts)}
    for schemas in (False, True):
        found: dict[str, set[str]] = {sql: set() for sql in expected}
        events, nulled = _encoded(batches, schemas, fits=False)
        for key, event in events:
            if event["source"]["table"] in tables:
                found[tables[event["source"]["table"]]].add(json.dumps(key))
        collapsed = {sql: (len(found[sql]), rows) for sql, rows in expected.items() if len(found[sql]) < rows}
        assert collapsed == {}, "type: (keys, rows)"
        assert nulled == {}


@pytest.mark.behaviour("T2", "T5", "T7")
def test_values_that_a_primary_key_tells_apart_have_keys_of_their_own_in_the_other_formats(
    stream: SharedStream,
) -> None:
    stream.run(PARTS)
    tables = _made_of_every_key(stream.database)
    batches = stream.batches()
    found: dict[str, set[bytes]] = {table: set() for table in tables}
    encoder = encoder_of("flat", Router({"*.*": [Route("{table}")]}, "", ""), {})
    for records in map(encoder.encode, batches):
        topics = (records.topic_names[topic] for topic in records.topics.tolist())
        for topic, key in zip(topics, records.keys.to_pylist(), strict=True):
            if topic in tables:
                found[topic].add(key)
    expected = {table: stream.database.value(f"SELECT count(*) FROM {table}") for table in tables}
    collapsed = {tables[table]: (len(keys), expected[table]) for table, keys in found.items()}
    assert {sql: counts for sql, counts in collapsed.items() if counts[0] < counts[1]} == {}, "type: (keys, rows)"


@pytest.mark.behaviour("T1", "T2", "T3", "T4", "T5", "T6", "T7")
def test_every_value_alone_and_in_arrays_is_what_postgresql_has_or_null_and_counted(stream: SharedStream) -> None:
    made = _made_of_everything(stream.database)
    events, nulled = _encoded(stream.batches(), schemas=True)
    schemas = _column_schemas(stream)
    lost = 0
    with stream.database.session() as session, session.cursor() as cursor:
        cursor.execute("SET timezone = 'UTC'; SET intervalstyle = 'iso_8601'")
        for at, (name, sql) in product(range(len(events)), made.items()):
            value = events[at][1]["after"][name]
            if value is None:
                cursor.execute(f"SELECT {name} IS NULL FROM every WHERE id = %s", (at,))
                lost += cursor.fetchone() == (False,)
                continue
            read_back, cast = _read_back(schemas[name], value, sql)
            if isinstance(value, list) and None in value:
                cursor.execute(f"SELECT array_position({name}, NULL) IS NULL FROM every WHERE id = %s", (at,))
                lost += cursor.fetchone() == (True,)
            else:
                same = f"{_compared(sql).format(name)} IS NOT DISTINCT FROM {_compared(sql).format(cast)}"
                cursor.execute(f"SELECT {same} FROM every WHERE id = %s", (read_back, at))
                assert cursor.fetchone() == (True,), (sql, value)
    assert lost == sum(nulled.values()) > 0


def _unholdable() -> tuple[list[str], list[tuple[str, str, str]]]:
    """Names and (SQL type, a row's value that is held, one that is not) of each type alone and in its arrays."""
    scalars = [(sql, f"({held})::{sql}", f"({lost})::{sql}") for sql, held, lost in UNHOLDABLE]
    arrays = [(f"{sql}[]", f"ARRAY[{held}, {held}]", f"ARRAY[{lost}, {held}, {lost}]") for sql, held, lost in scalars]
    domain = ("prices", "'{1,2}'", "'{NaN,NaN}'")
    values = [*scalars, *arrays, domain]
    return [f"c{at}" for at in range(len(values))], values


def _made_of_every_key(database: Database) -> dict[str, str]:
    """Table -> SQL type of its primary key, of every type that may be one, and its arrays; all with rows."""
    values = {sql: literals for sql, _, literals in columns()}
    values |= {sql: (*values.get(sql, ()), *more) for sql, more in MORE_KEYS.items()}
    tables: dict[str, str] = {}
    names = (f"t{number}" for number in count())
    with database.session(autocommit=True) as session, session.cursor() as cursor:
        for sql, literals in values.items():
            arrays = [form.format(f"({one})::{sql}", sql) for one in literals for form in ARRAYS] + ["'{}'"]
            for kind, expressions in ((sql, literals), (f"{sql}[]", arrays)):
                table = next(names)
                try:
                    cursor.execute(f"CREATE TABLE {table} (id {kind} PRIMARY KEY)")
                    for one in expressions:
                        cursor.execute(f"INSERT INTO {table} VALUES ({one}) ON CONFLICT DO NOTHING")
                except _NO_KEY:
                    continue
                tables[table] = kind
    return tables


def _made_of_everything(database: Database) -> dict[str, str]:
    """Column of the table `every` -> its type: each alone and in an array, with a row for each of its values."""
    found, values = dict[str, str](), list[tuple[str, ...]]()
    for sql, _, literals in columns():
        if sql in APPROXIMATE or (sql == "xml" and not _reads_xml(database)):
            continue
        arrays = tuple(f"ARRAY[{one}, {one}]::{sql}[]" for one in literals)
        for kind, of in ((sql, literals), (f"{sql}[]", arrays)):
            found[f"c{len(found)}"] = kind
            values.append(of)
    listed = ", ".join(f"{name} {sql}" for name, sql in found.items())
    database.execute(f"CREATE TABLE every (id int PRIMARY KEY, {listed})")
    for at in range(max(map(len, values))):
        row = ", ".join(of[at] if at < len(of) else "NULL" for of in values)
        database.execute(f"INSERT INTO every VALUES ({at}, {row})")
    return found


def _reads_xml(database: Database) -> bool:
    try:
        database.query("SELECT '<a/>'::xml")
    except psycopg2.errors.FeatureNotSupported:
        return False
    return True


def _column_schemas(stream: SharedStream) -> dict[str, Any]:
    relation = next(one for one in stream.source.list_published() or () if one.table == "every")
    return {column.name: choose_connect_type(column.type).schema for column in relation.columns}


def _read_back(schema: Any, value: Any, sql: str) -> tuple[Any, str]:
    """The value as PostgreSQL takes it, and SQL with a place for it."""
    if not sql.endswith("[]"):
        return read(schema, value), _CASTS.get(sql, "(%s)::{0}").format(sql)
    items = [None if one is None else read(schema["items"], one) for one in value]
    return items, _CASTS.get(sql, "(%s)::text[]::{0}").format(sql)


_CASTS = {"money": "(%s)::numeric::money", "money[]": "(%s)::numeric[]::money[]"}


def _compared(sql: str) -> str:
    """Numbers are the same with other zeros at their end; of what has no equality, the text is compared."""
    return "{0}" if sql.startswith("numeric") else "({0})::text"


def _encoded(
    batches: Sequence[Batch], schemas: bool, fits: bool = True
) -> tuple[list[tuple[Any, Any]], dict[str, int]]:
    """(key, value) of every record, and what was counted. fits: whether values must be what their schemas say."""
    encoder = encoder_of("debezium", Router({}, "", "t"), {}, schemas=schemas)
    found: list[tuple[Any, Any]] = []
    nulled: dict[str, int] = {}
    for batch in batches:
        records = encoder.encode(batch)
        nulled |= {column: nulled.get(column, 0) + values for column, values in records.nulled.items()}
        for key, value in zip(records.keys.to_pylist(), records.values.to_pylist(), strict=True):
            parsed = json.loads(key), json.loads(value)
            if schemas:
                assert not fits or misfits(parsed[1]["schema"], parsed[1]["payload"]) == []
                parsed = parsed[0]["payload"], parsed[1]["payload"]
            found.append(parsed)
    return found, nulled


def _has_null(value: Any) -> bool:
    return value is None or (isinstance(value, list) and None in value)
