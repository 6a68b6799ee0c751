"""Stand-ins for values: PostgreSQL itself reads them as values of the type."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import psycopg2
import pytest

from psql_streamer.pgtype import JsonForm, PgType
from psql_streamer.pgtypes.builtin import BUILT_IN, BY_OID, OIDS
from psql_streamer.trial.stand_ins import StandIns
from sources.postgres.catalog import Catalog
from sources.postgres.server_types import ServerTypes
from tests.database import Database, fresh_database
from tests.type_values import CUSTOM_COLUMNS, CUSTOM_TYPES, EDGES, SQL_NAMES, WITH_MODIFIERS

NAMES_OF_OBJECTS = {
    *("regproc", "regprocedure", "regoper", "regoperator", "regclass", "regtype"),
    *("regconfig", "regdictionary", "regnamespace", "regrole", "regcollation"),
}
"""Types whose values are names of what there is: another name is of nothing."""

FORMED_BY_RULES = {"tsvector", "tsquery", "jsonpath", "txid_snapshot", "pg_snapshot", "pg_lsn", "tid", "refcursor"}
"""Types whose text has numbers in an order, words that mean something, or another rule that a digit may break."""

KINDS = [
    kind
    for kind in BUILT_IN
    # Not every server is built with libxml.
    if kind.name in EDGES.keys() - NAMES_OF_OBJECTS - FORMED_BY_RULES - {"xml"}
]

CHECKED = {"positive", "small"}
"""Domains whose checks nobody knows."""

TIMES = 5


def _texts(database: Database, sql_type: str, literals: tuple[str, ...]) -> list[str]:
    with database.session(autocommit=True) as session, session.cursor() as cursor:
        cursor.execute("SET datestyle = ISO; SET timezone = 'UTC'; SET extra_float_digits = 1")
        cursor.execute("SELECT " + ", ".join(f"({one})::{sql_type}::text" for one in literals))
        [row] = cursor.fetchall()
    return [text for text in row if text is not None]


def _require_values(database: Database, sql_type: str, kind: PgType | None, texts: list[str]) -> None:
    with database.session(autocommit=True) as session, session.cursor() as cursor:
        cursor.execute("SET timezone = 'UTC'")
        for text in texts:
            for _ in range(TIMES):
                made = StandIns().replace_text(text, kind)
                try:
                    cursor.execute(f"SELECT %s::{sql_type}", (made,))
                except psycopg2.Error as error:
                    pytest.fail(f"{text!r} became {made!r}: {error}")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_stand_in_is_of_the_type(shared_database: Database, kind: PgType) -> None:
    sql_type = SQL_NAMES.get(kind.name, kind.name)
    _require_values(shared_database, sql_type, kind, _texts(shared_database, sql_type, EDGES[kind.name]))


@pytest.mark.parametrize(
    ("name", "literals"),
    [
        ("inet", ("'::ffff:192.168.0.1'", "'::10.255.0.41/74'", "'::'", "'0.0.0.0/0'")),
        ("cidr", ("'10.128.0.0/9'", "'1.10.0.0/15'", "'172.16.0.0/12'", "'2001:8000::/17'", "'::ffff:10.10.0.0/111'")),
        (
            "daterange",
            ("'[0044-03-15 BC,2024-01-01)'", "'[0099-03-15 BC,0044-03-15 BC)'", "'[2024-01-01,20240-01-01)'"),
        ),
        ("tsrange", ("'[0044-03-15 10:00:00.5 BC,0044-03-15 11:00:00 BC)'", "'(-infinity,0044-03-15 10:00:00 BC]'")),
        ("datemultirange", ("'{[0044-03-15 BC,2024-01-01),[2025-01-01,20240-01-01)}'",)),
        ("numrange", ("('[1' || repeat('0', 120) || ',infinity]')", "'[-infinity,NaN]'", "'[infinity,NaN)'")),
        ("interval", ("'1 mon -2562047787:59:59'", "'2562047788:00:54.775807'")),
    ],
)
def test_a_stand_in_of_a_value_that_is_seldom_is_of_the_type(
    shared_database: Database, name: str, literals: tuple[str, ...]
) -> None:
    [kind] = [one for one in BUILT_IN if one.name == name]
    _require_values(shared_database, name, kind, _texts(shared_database, name, literals))


@pytest.mark.parametrize(
    ("sql_type", "texts"),
    [
        ("timerange", ["[10:00:00,10:00:01.5)", "(,23:59:59]"]),
        ("timetzrange", ["[10:00:00+14,10:00:00-12)", "[10:00:00+05:45,23:59:59.5-03:30)"]),
    ],
)
def test_a_stand_in_of_a_range_of_times_has_its_bounds_in_order(
    shared_database: Database, sql_type: str, texts: list[str]
) -> None:
    _require_values(shared_database, sql_type, PgType(sql_type, 16500, 16501, JsonForm.TEXT), texts * 3)


@pytest.mark.parametrize(
    ("base", "literal"), [("inet", "'192.168.0.17'"), ("daterange", "'[2024-01-01,2024-02-01)'"), ("line", "'{1,2,3}'")]
)
def test_a_stand_in_of_a_domain_is_of_the_type_that_it_is_over(
    shared_database: Database, base: str, literal: str
) -> None:
    kind = PgType("d", 16600, 16601, JsonForm.TEXT, base_oid=OIDS[base])
    _require_values(shared_database, base, kind, _texts(shared_database, base, (literal,)) * 3)


@pytest.mark.parametrize(("sql_type", "literals"), WITH_MODIFIERS)
def test_a_stand_in_keeps_to_the_modifier_of_its_type(
    shared_database: Database, sql_type: str, literals: tuple[str, ...]
) -> None:
    kind = next(one for one in BUILT_IN if one.name == sql_type.partition("(")[0])
    texts = _texts(shared_database, sql_type, literals)
    _require_values(shared_database, sql_type, kind, texts)
    for text in texts:
        assert len(StandIns().replace_text(text, kind)) == len(text)


@pytest.mark.parametrize("sql_type", sorted(CUSTOM_COLUMNS.keys() - CHECKED))
def test_a_stand_in_is_of_a_type_of_ones_own(shared_database: Database, sql_type: str) -> None:
    catalog = Catalog(shared_database.dsn, 5.0)
    types = ServerTypes(catalog)
    with catalog.open_session() as session:
        types.load(session)
    kind = types.resolve(shared_database.value("SELECT %s::regtype::oid::bigint", sql_type))
    _require_values(shared_database, sql_type, kind, _texts(shared_database, sql_type, CUSTOM_COLUMNS[sql_type]))


@pytest.mark.parametrize(
    "literal",
    [
        "ARRAY[1, 22, NULL]",
        "ARRAY['plain', 'with \"quotes\"', 'back\\slash', 'NULL', '', NULL, 'a,b', '{}']",
        "ARRAY[[1.5, 2], [3, 4]]",
        "'[2:3]={7,8}'::int[]",
        "ARRAY['(2,2),(0,0)', NULL, '(1.5,1e30),(-1,-2)']::box[]",
        "ARRAY['2024-02-29 12:00:00'::timestamp]",
        'ARRAY[\'{"a": [1, "x"]}\'::jsonb]',
    ],
)
def test_a_stand_in_of_an_array_has_as_many_elements(shared_database: Database, literal: str) -> None:
    text, oid, dimensions = shared_database.query(
        f"SELECT ({literal})::text, pg_typeof({literal})::oid::bigint, array_dims({literal})"
    )[0]
    sql_type = shared_database.value("SELECT format_type(%s, -1)", oid)
    made = StandIns().replace_text(text, BY_OID[oid])
    assert shared_database.value(f"SELECT array_dims(%s::{sql_type})", made) == dimensions


@pytest.fixture(scope="module")
def shared_database(postgres: str) -> Iterator[Database]:
    with fresh_database(postgres, f"test_{uuid.uuid4().hex[:12]}") as made:
        made.execute(CUSTOM_TYPES)
        made.execute(
            "CREATE TYPE timerange AS RANGE (subtype = time); CREATE TYPE timetzrange AS RANGE (subtype = timetz)"
        )
        yield made
