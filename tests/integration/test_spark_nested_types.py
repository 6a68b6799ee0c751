"""The text forms of nested values as PostgreSQL itself writes them, read as Arrow's types."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from psql_streamer.pgtype import Attribute, JsonForm, Logical, PgType
from psql_streamer.pgtypes.builtin import BY_OID
from psql_streamer.spark.nested_texts import read_texts
from tests.database import Database

HSTORE = PgType("hstore", 90001, 0, JsonForm.TEXT, logical=Logical.HSTORE)
PAIR = PgType(
    "pair", 90002, 90003, JsonForm.OBJECT, attributes=(Attribute("n", BY_OID[23]), Attribute("t", BY_OID[1009]))
)
PAIRS = PgType("pair[]", 90003, 0, JsonForm.ARRAY, element=PAIR)
PAIR_TYPE = pa.struct([("n", pa.int32()), ("t", pa.list_(pa.string()))])

HARD = ["", "NULL", "null", "a,b", 'q"q', "b\\s", "{x}", " blank ", "é\n", "(1)", "'", None]


def span(kind: pa.DataType) -> pa.DataType:
    return pa.struct([("lower", kind), ("upper", kind), ("lower_inc", pa.bool_()), ("upper_inc", pa.bool_())])


def read(database: Database, value: str, kind: PgType, wanted: pa.DataType, *parameters: Any) -> Any:
    text = database.value(f"SELECT ({value})::text", *parameters)
    found = read_texts(pa.array([text.encode(), None], pa.binary()), kind, wanted)
    assert found.failed.tolist() == [False, False]
    assert found.values[1].as_py() is None
    return found.values[0].as_py()


def test_what_postgresql_writes_is_read(database: Database) -> None:
    database.execute("CREATE TYPE pair AS (n int, t text[])")
    texts, pairs = pa.list_(pa.string()), pa.list_(PAIR_TYPE)
    assert read(database, "%s::text[]", BY_OID[1009], texts, HARD) == HARD
    assert read(database, "ARRAY[%s, %s]::text[][]", BY_OID[1009], pa.list_(texts), HARD, HARD[::-1]) == [
        HARD,
        HARD[::-1],
    ]
    assert read(database, "'[5:6]={1,2}'::int[]", BY_OID[1007], pa.list_(pa.int32())) == [1, 2]
    assert read(database, "ROW(7, %s::text[])::pair", PAIR, PAIR_TYPE, HARD) == {"n": 7, "t": HARD}
    assert read(database, "ROW(NULL, '{}')::pair", PAIR, PAIR_TYPE) == {"n": None, "t": []}
    assert read(database, "ARRAY[ROW(7, %s::text[])::pair, NULL]", PAIRS, pairs, HARD) == [{"n": 7, "t": HARD}, None]
    decimals = span(pa.decimal128(10, 2))
    assert read(database, "numrange(1.5, 2, '(]')", BY_OID[3906], decimals) == dict(
        zip(("lower", "upper", "lower_inc", "upper_inc"), (Decimal("1.50"), Decimal("2.00"), False, True), strict=True)
    )
    stamps = span(pa.timestamp("us"))
    assert list(read(database, "tsrange(NULL, '2024-01-02')", BY_OID[3908], stamps).values())[2:] == [False, False]
    assert set(read(database, "'empty'::int4range", BY_OID[3904], span(pa.int32())).values()) == {None}
    database.execute('CREATE TYPE words AS RANGE (subtype = text, collation = "C")')
    words = PgType("words", 90004, 0, JsonForm.TEXT)
    for lower, upper in (('a"b,', "c)\\"), ("", "x")):
        found = read(database, "words(%s, %s)", words, span(pa.string()), lower, upper)
        assert (found["lower"], found["upper"]) == (lower, upper)


def test_what_hstore_writes_is_read(database: Database) -> None:
    if not database.value("SELECT count(*) FROM pg_available_extensions WHERE name = 'hstore'"):
        pytest.skip("the server has no hstore")
    database.execute("CREATE EXTENSION hstore")
    keys = [one for one in HARD if one is not None]
    found = read(database, "hstore(%s, %s)", HSTORE, pa.map_(pa.string(), pa.string()), [*keys, "n"], [*keys, None])
    assert dict(found) == {**{key: key for key in keys}, "n": None}
