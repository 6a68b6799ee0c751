"""A table of 60 columns, one of each type: a usual value and values at the edges of each, as SQL literals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import psycopg2.errors

from psql_streamer.pgtypes.builtin import BUILT_IN
from tests.database import Database
from tests.oracle import array_oracle_of
from tests.type_values import EDGES, SQL_NAMES, WITH_MODIFIERS, oracle_of

_BUILT_IN = {kind.name: kind for kind in BUILT_IN}
_WITH_MODIFIERS = dict(WITH_MODIFIERS)

TOASTED = "text"
"""The column whose usual value stands outside of its row."""

TYPES = r'''
    CREATE TYPE mood AS ENUM ('happy', 'so so', 'a "quoted" \ one', '');
    CREATE DOMAIN price AS numeric(12, 2);
    CREATE TYPE pair AS ("the ""id""" int, felt mood, prices price[])
'''


@dataclass(frozen=True, slots=True)
class Kind:
    """A column. name: also the column's. oracle: SQL of the JSON of what is in it."""

    name: str
    sql: str
    usual: str
    edges: tuple[str, ...]
    oracle: str


def kinds_on(database: Database) -> list[Kind]:
    """The 60; where this server lacks a type, another one stands in for it."""
    return list(_kinds(_lacking(database)))


def create(database: Database, table: str, kinds: list[Kind]) -> None:
    """A table of the kinds, the first its key."""
    listed = ", ".join(f'"{kind.name}" {kind.sql}' for kind in kinds)
    database.execute(f'CREATE TABLE {table} ({listed}, PRIMARY KEY ("{kinds[0].name}"))')
    database.execute(f'ALTER TABLE {table} ALTER "{TOASTED}" SET STORAGE EXTERNAL')


def insert(database: Database, table: str, kinds: list[Kind]) -> int:
    """The usual row, then rows of edges until every one was in a row, then a row of NULLs: how many rows that is."""
    edges = max(len(kind.edges) for kind in kinds)
    rows = [[kind.usual for kind in kinds[1:]]]
    rows += [[kind.edges[number % len(kind.edges)] for kind in kinds[1:]] for number in range(edges)]
    rows += [["NULL"] * (len(kinds) - 1)]
    for number, row in enumerate(rows):
        database.execute(f"INSERT INTO {table} VALUES ({number}, {', '.join(row)})")
    return len(rows)


_USUAL = {
    "int8": "1",
    "int2": "7",
    "int4": "42",
    "oid": "16384",
    "xid8": "'742'",
    "numeric": "3.14159265358979323846",
    "numeric(12,2)": "1299.90",
    "float4": "0.5",
    "float8": "2.718281828459045",
    "money": "12.50",
    "bool": "true",
    "text": "repeat('toast ', 400)",
    "varchar": "'a customer'",
    "bpchar": "'EUR'",
    "char": "'x'",
    "name": "'a_name'",
    "bytea": r"'\xdeadbeef'",
    "bit": "B'10101'",
    "varbit": "B'101'",
    "date": "'2024-02-29'",
    "time": "'13:37:00.5'",
    "timetz": "'13:37:00+02'",
    "timestamp": "'2024-02-29 13:37:00.123456'",
    "timestamptz": "'2024-02-29 13:37:00.123456+02'",
    "interval": "'1 day 02:03:04'",
    "uuid": "'123e4567-e89b-12d3-a456-426614174000'",
    "json": '\'{"b": 1, "a": [true, null]}\'',
    "jsonb": '\'{"amount": 12.50, "tags": ["new"]}\'',
    "jsonpath": "'$.a[*]'",
    "xml": "'<a b=\"c\">d</a>'",
    "inet": "'10.0.0.1/8'",
    "cidr": "'10.0.0.0/8'",
    "macaddr": "'08:00:2b:01:02:03'",
    "macaddr8": "'08:00:2b:01:02:03:04:05'",
    "point": "'(1,2)'",
    "line": "'{1,2,3}'",
    "lseg": "'[(0,0),(1,1)]'",
    "box": "'(2,2),(0,0)'",
    "path": "'[(0,0),(1,1)]'",
    "polygon": "'((0,0),(1,1),(2,0))'",
    "circle": "'<(1,2),3>'",
    "tsvector": "'a:1A fat:2'",
    "tsquery": "'fat & cat'",
    "pg_lsn": "'16/B374D848'",
    "pg_snapshot": "'10:20:10,14,15'",
    "int4range": "'[1,5)'",
    "tstzrange": "'[2024-01-01 00:00+00,2024-02-01 00:00+00)'",
    "int4multirange": "'{[1,3),[5,8)}'",
    "datemultirange": "'{[2024-01-01,2024-02-01)}'",
}
"""The built-in types, the key's first."""

_STANDS_IN = {
    "xml": ("regclass", "'pg_class'"),
    "citext": ("regtype", "'integer'"),
    "hstore": ("regrole", "current_user::regrole"),
}

_USUAL_ARRAYS = {
    "int4": "'{1,NULL,3}'",
    "text": "ARRAY['a', 'b, c', NULL]",
    "timestamptz": "'{2024-02-29 13:37:00+02,NULL}'",
    "jsonb": """ARRAY['{"a": 1.50}', NULL, 'null']::jsonb[]""",
    "numeric": "'{1.10,NaN}'",
}

_MADE = (
    Kind("mood", "mood", "'happy'", ("'so so'", r"""'a "quoted" \ one'""", "''"), 'to_json("mood")'),
    Kind("price", "price", "19.90", ("-9999999999.99", "'NaN'", "0"), 'to_json("price")'),
    Kind(
        "pair",
        "pair",
        "ROW(1, 'happy', ARRAY[1.50, 2])",
        (
            "ROW(NULL, NULL, NULL)",
            r"""ROW(-2147483648, 'a "quoted" \ one', ARRAY[NULL, 'NaN']::price[])""",
            "ROW(0, '', '{}')",
        ),
        'to_json("pair")',
    ),
    Kind(
        "mood_array",
        "mood[]",
        "'{happy,NULL}'",
        ("'{}'", r"""ARRAY['a "quoted" \ one', '', NULL]::mood[]""", "'[3:3]={so so}'"),
        'to_json("mood_array")',
    ),
)

_EXTENSIONS = (
    Kind("citext", "citext", "'Any Case'", ("''", "E'\\\"\\u2028\\n'"), 'to_json("citext"::text)'),
    Kind("hstore", "hstore", "'a=>1, b=>NULL'", ("''", r"""'"a \"b"=>"c\\d", e=>""'"""), 'to_json("hstore"::text)'),
)


def _kinds(lacking: set[str]) -> Iterator[Kind]:
    for name, usual in _USUAL.items():
        yield _stand_in(name) if name in lacking else _built_in(name, usual)
    for name, usual in _USUAL_ARRAYS.items():
        yield _array(name, usual)
    yield from _MADE
    for kind in _EXTENSIONS:
        yield _stand_in(kind.name) if kind.name in lacking else kind


def _built_in(name: str, usual: str) -> Kind:
    kind = _BUILT_IN[name.partition("(")[0]]
    edges = EDGES.get(name) or _WITH_MODIFIERS[name]
    return Kind(name, SQL_NAMES.get(name, name), usual, edges, oracle_of(kind, f'"{name}"'))


def _stand_in(name: str) -> Kind:
    return _built_in(*_STANDS_IN[name])


def _array(name: str, usual: str) -> Kind:
    edges = (f"ARRAY[{', '.join(EDGES[name])}, NULL]::{name}[]", f"'{{}}'::{name}[]")
    return Kind(f"{name}_array", f"{name}[]", usual, edges, array_oracle_of(_BUILT_IN[name], f'"{name}_array"'))


def _lacking(database: Database) -> set[str]:
    """Makes the extensions that there are."""
    lacking = set()
    for kind in _EXTENSIONS:
        if database.query("SELECT 1 FROM pg_available_extensions WHERE name = %s", kind.name):
            database.execute(f"CREATE EXTENSION {kind.name}")
        else:
            lacking.add(kind.name)
    try:
        database.query("SELECT '<a/>'::xml")
    except psycopg2.errors.FeatureNotSupported:
        lacking.add("xml")
    return lacking
