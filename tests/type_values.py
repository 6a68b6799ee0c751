"""Values at the edges of every built-in type, as SQL literals, and what PostgreSQL itself says that each is."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg2.errors

from psql_streamer.pgtype import JsonForm, PgType
from psql_streamer.pgtypes.builtin import BUILT_IN
from tests.database import Database

_DIGITS = "9" * 60
_LONG = "repeat('ż🐘', 2000)"

EDGES: dict[str, tuple[str, ...]] = {
    "bool": ("true", "false"),
    "bytea": (r"'\x'", r"'\x00ff0a5c22'", "decode(repeat('00ff', 100), 'hex')"),
    "char": ("'a'", "''", "'\"'"),
    "name": ("'a name'", "repeat('n', 63)"),
    "int8": ("-9223372036854775808", "9223372036854775807", "9007199254740993"),
    "int2": ("-32768", "32767"),
    "int2vector": ("'1 -2 3'",),
    "int4": ("-2147483648", "2147483647", "0"),
    "regproc": ("'now'",),
    "text": (
        "''",
        "E'\\x01\\t\\n\\r\\b\\f\\x1f \\\\ \" '' / \\x7f'",
        "U&'\\2028\\2029\\FEFF\\+01F418'",
        _LONG,
        "'null'",
    ),
    "oid": ("4294967295", "2147483648", "0"),
    "tid": ("'(4294967295,65535)'",),
    "xid": ("'4294967295'", "'3'"),
    "cid": ("'4294967295'",),
    "oidvector": ("'1 4294967295'",),
    "json": (
        '\'{"b": 1, "a": 1e400, "a":2 ,\n "n":12345678901234567890.123456789}\'',
        "'null'",
        "'[]'",
        "' \"text\" '",
        "(repeat('[', 100) || repeat(']', 100))::json",
        r"""'"\u2028\ud83d\udc18 \" \\"'""",
    ),
    "xml": ("'<a b=\"c\">&amp;</a>'", "'plain'"),
    "point": ("'(1.5,-2)'", "'(NaN,Infinity)'"),
    "lseg": ("'[(0,0),(1e-10,1e20)]'",),
    "path": ("'[(0,0),(1,1)]'", "'((0,0),(1,1))'"),
    "box": ("'(2,2),(0,0)'",),
    "polygon": ("'((0,0),(1,1),(2,0))'",),
    "line": ("'{1,2,3}'",),
    "cidr": ("'10.0.0.0/8'", "'2001:db8::/32'"),
    "float4": ("'-3.4028235e38'", "'1e-45'", "'NaN'", "'Infinity'", "'-Infinity'", "0.1", "1e6"),
    "float8": ("1.7976931348623157e308", "5e-324", "'NaN'", "'Infinity'", "'-Infinity'", "0.1", "1e15", "'-0'"),
    "circle": ("'<(1,2),3>'",),
    "macaddr8": ("'08:00:2b:01:02:03:04:05'",),
    "money": ("'-92233720368547758.08'", "1234.5"),
    "macaddr": ("'08:00:2b:01:02:03'",),
    "inet": ("'10.0.0.1/8'", "'::1'", "'192.168.0.1'"),
    "bpchar": ("'ab'", "'żółć '"),
    "varchar": ("''", "'varying '"),
    "date": ("'2024-02-29'", "'infinity'", "'-infinity'", "'4713-01-01 BC'", "'5874897-12-31'", "'10000-01-01'"),
    "time": ("'24:00:00'", "'00:00:00'", "'23:59:59.999999'", "'12:00:00.1'"),
    "timestamp": (
        "'2024-02-29 23:59:59.999999'",
        "'infinity'",
        "'-infinity'",
        "'0044-03-15 12:00:00.5 BC'",
        "'294276-12-31 23:59:59.999999'",
        "'20240-01-01'",
        "'0001-02-29 BC'",
        "'0001-01-01'",
    ),
    "timestamptz": (
        "'2024-03-31 01:30:00.000001+02'",
        "'infinity'",
        "'-infinity'",
        "'0044-03-15 12:00:00+05:45 BC'",
        "'294276-12-31 00:00:00.5-12'",
        "'9999-12-31 23:59:59.999999-05'",
        "'1883-11-18 12:03:58 America/New_York'",
    ),
    "interval": (
        "'1 year -2 days +03:04:05.000006'",
        "'0'",
        "'-178000000 years'",
        "'1 mon 30 days -00:00:00.000001'",
        "'3 weeks 5 hours'",
    ),
    "timetz": ("'12:00:00.5+05:45'", "'24:00:00-12'", "'00:00:00+00'"),
    "bit": ("B'10101'", "B'00000'"),
    "varbit": ("B''", "B'101010101'"),
    "numeric": (
        "'NaN'",
        "9007199254740993",
        f"'-{_DIGITS}.{_DIGITS}'",
        "'1e-20'",
        "'1e100'",
        "1.50000",
        "0",
        "'Infinity'",
        "'-Infinity'",
    ),
    "refcursor": ("'a cursor'",),
    "regprocedure": ("'abs(integer)'",),
    "regoper": ("'0'",),
    "regoperator": ("'+(integer,integer)'",),
    "regclass": ("'pg_class'",),
    "regtype": ("'integer'",),
    "uuid": ("'123e4567-e89b-12d3-a456-426614174000'",),
    "txid_snapshot": ("'10:20:10,14,15'",),
    "pg_lsn": ("'16/B374D848'",),
    "tsvector": ("'a:1A ''it''''s'':2B'::tsvector",),
    "tsquery": ("'a & (b | !c)'",),
    "regconfig": ("'english'",),
    "regdictionary": ("'simple'",),
    "jsonb": (
        '\'{"b": 1, "a": 1.50, "big": 12345678901234567890.123456789, "n": null}\'',
        "'null'",
        "'\"a\\nb\"'",
        "'1e5'",
        "'[[], {}]'",
    ),
    "int4range": ("'[1,5)'", "'empty'", "'(,)'"),
    "numrange": ("'(1.10,)'", "'[NaN,NaN]'"),
    "tsrange": ("'[2024-01-01 00:00:00.5,infinity)'",),
    "tstzrange": ("'[2024-01-01 00:00+02,)'",),
    "daterange": ("'[2024-01-01,2024-02-01)'", "'empty'"),
    "int8range": ("'[1,9223372036854775807)'",),
    "jsonpath": ("'$.\"a\"[*] ? (@ > 1)'",),
    "regnamespace": ("'pg_catalog'",),
    "regrole": ("current_user::regrole",),
    "regcollation": ("'\"C\"'",),
    "int4multirange": ("'{}'", "'{[1,2),[5,9)}'"),
    "nummultirange": ("'{(,1.5)}'",),
    "tsmultirange": ("'{[2024-01-01,2024-02-01)}'",),
    "tstzmultirange": ("'{[2024-01-01 00:00+02,)}'",),
    "datemultirange": ("'{[2024-01-01,2024-02-01)}'",),
    "int8multirange": ("'{[1,2)}'",),
    "pg_snapshot": ("'10:20:10,14,15'",),
    "xid8": ("'18446744073709551615'",),
}
"""Type name -> SQL literals; a NULL comes on top."""

SQL_NAMES = {"char": '"char"', "bit": "bit(5)", "bpchar": "char(5)"}
"""Where the type's own name means something else in SQL."""

WITH_MODIFIERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("numeric(12,2)", ("'-9999999999.99'", "0.01", "'NaN'")),
    ("numeric(38,10)", (f"'{'9' * 28}.{'9' * 10}'", "'-0.0000000001'")),
    ("numeric(60,30)", (f"'{'9' * 30}.{'9' * 30}'",)),
    ("timestamp(3)", ("'2024-02-29 23:59:59.999'", "'infinity'")),
    ("timestamptz(0)", ("'2024-02-29 23:59:59+00'",)),
    ("time(2)", ("'23:59:59.99'",)),
    ("varchar(5)", ("'żółć🐘'",)),
    ("varbit(9)", ("B'1'", "B'000000001'")),
    ("bit(1)", ("B'1'", "B'0'")),
)

CUSTOM_TYPES = r'''
    CREATE SCHEMA other;
    CREATE TYPE mood AS ENUM ('so so', 'happy', 'a "quoted" \\ one');
    CREATE TYPE other.mood AS ENUM ('other');
    CREATE DOMAIN positive AS int CHECK (VALUE > 0);
    CREATE DOMAIN small AS positive CHECK (VALUE < 100);
    CREATE DOMAIN price AS numeric(12, 2);
    CREATE DOMAIN tags AS text[];
    CREATE DOMAIN document AS jsonb;
    CREATE DOMAIN feeling AS mood;
    CREATE TYPE inner_one AS (at timestamp, felt mood, amounts price[], doc json);
    CREATE TYPE outer_one AS ("the ""id""" bigint, nested inner_one, many inner_one[], ok boolean, ratio float8);
    CREATE DOMAIN wrapped AS outer_one;
    CREATE TABLE leaf (x int, y text);
    ALTER TABLE leaf ADD gone int; ALTER TABLE leaf DROP gone;
    CREATE TYPE textrange AS RANGE (subtype = text, multirange_type_name = textmultirange);
    CREATE TYPE hollow AS ()
'''

CUSTOM_COLUMNS = {
    "mood": ("'happy'", r"""'a "quoted" \\ one'"""),
    "other.mood": ("'other'",),
    "positive": ("5",),
    "small": ("99",),
    "price": ("-1.50", "'NaN'"),
    "tags": ("ARRAY['a,b', NULL, '\"']", "'{}'"),
    "document": ("'{\"a\": [1.50, null]}'", "'null'"),
    "feeling": ("'so so'",),
    "outer_one": (
        r"""ROW(9223372036854775807, ROW('2024-01-01 00:00:00.5', 'a "quoted" \\ one', ARRAY[1.5, NULL], '{"k": "v"}'),
            ARRAY[ROW('infinity', NULL, '{}', '[1, 2]')::inner_one, NULL,
            ROW(NULL, NULL, NULL, NULL)::inner_one], true, 'NaN')""",
        "ROW(NULL, NULL, NULL, NULL, NULL)",
    ),
    "wrapped": ("ROW(1, ROW(NULL, 'happy', NULL, NULL), '{}', false, 0.1)",),
    "leaf": ("ROW(1, '(a, \"b\")')",),
    "hollow": ("ROW()",),
    "textrange": ("'[a,\"b,\")'", "'empty'"),
    "textmultirange": ("'{[a,b),[c,)}'",),
}
"""Type that CUSTOM_TYPES makes -> SQL of values."""

ODD_SETTINGS = {
    "timezone": "America/New_York",
    "datestyle": "SQL, DMY",
    "intervalstyle": "sql_standard",
    "bytea_output": "escape",
    "extra_float_digits": "-3",
}
"""Of the database, so that every session has them that does not say otherwise."""

_ORACLES: dict[JsonForm, str] = {
    JsonForm.INTEGER: "({0})::text::json",
    JsonForm.EMBEDDED: "({0})::json",
    JsonForm.BASE64: "to_json(replace(encode({0}, 'base64'), chr(10), ''))",
    JsonForm.TIMESTAMP_UTC: "replace(to_json({0})::text, '+00:00', 'Z')::json",
}
_VECTORS = ("int2vector", "oidvector")


def oracle_of(kind: PgType, expression: str) -> str:
    """SQL of the JSON of an expression, in a session with time zone UTC, ISO dates and hexadecimal bytea."""
    if kind.name in _VECTORS:
        return f"to_json(({expression})::text)"
    return _ORACLES.get(kind.form, "to_json({0})").format(expression)


def columns() -> list[tuple[str, PgType, tuple[str, ...]]]:
    """(SQL type, type, values) of every built-in type, then of some with modifiers."""
    by_name = {kind.name: kind for kind in BUILT_IN}
    plain = [(SQL_NAMES.get(kind.name, kind.name), kind, EDGES[kind.name]) for kind in BUILT_IN]
    return plain + [(name, by_name[name.partition("(")[0]], values) for name, values in WITH_MODIFIERS]


def columns_on(database: Database) -> list[tuple[str, PgType, tuple[str, ...]]]:
    """`columns` without what this server cannot read."""
    try:
        database.query("SELECT '<a/>'::xml")
    except psycopg2.errors.FeatureNotSupported:
        return [column for column in columns() if column[0] != "xml"]
    return columns()


def inserted(database: Database, table: str, values: Sequence[tuple[str, ...]]) -> None:
    """A row for the first value of every column, one for the second, ...; NULL where a column has no more."""
    for number in range(max(map(len, values)) + 1):
        row = [one[number] if number < len(one) else "NULL" for one in values]
        database.execute(f"INSERT INTO {table} VALUES ({number}, {', '.join(row)})")
