"""PostgreSQL's text forms of nested values, read as Arrow's nested types."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from psql_streamer.pgtype import Attribute, JsonForm, Logical, PgType
from psql_streamer.pgtypes.builtin import BY_OID
from psql_streamer.spark.nested_texts import Unreadable, is_read_here, read_texts

INTS, TEXTS, BOOLS, NUMERICS, BYTEAS, STAMPS, BOXES = (
    BY_OID[oid] for oid in (1007, 1009, 1000, 1231, 1001, 1185, 1020)
)
INT4RANGE, TSRANGE, INT4MULTIRANGE = (BY_OID[oid] for oid in (3904, 3908, 4451))
HSTORE = PgType("hstore", 90001, 90002, JsonForm.TEXT, logical=Logical.HSTORE)
PLACE = PgType(
    "place", 90003, 90004, JsonForm.OBJECT,
    attributes=(Attribute("town", BY_OID[25]), Attribute("at", BY_OID[1007]), Attribute("since", BY_OID[1082])),
)  # fmt: skip
PLACES = PgType("place[]", 90004, 0, JsonForm.ARRAY, element=PLACE)

LIST_OF_INTS = pa.list_(pa.int32())
PLACE_STRUCT = pa.struct([("t", pa.string()), ("a", LIST_OF_INTS), ("s", pa.date32())])


def span(kind: pa.DataType) -> pa.DataType:
    return pa.struct([("lower", kind), ("upper", kind), ("lower_inc", pa.bool_()), ("upper_inc", pa.bool_())])


def read(kind: PgType | None, wanted: pa.DataType, *texts: bytes | None) -> tuple[list[Any], list[bool]]:
    found = read_texts(pa.array(texts, pa.binary()), kind, wanted)
    found.values.validate(full=True)
    assert found.values.type == wanted
    return found.values.to_pylist(), found.failed.tolist()


@pytest.mark.parametrize(
    ("kind", "wanted", "text", "value"),
    [
        (INTS, LIST_OF_INTS, b"{1,2,NULL}", [1, 2, None]),
        (INTS, LIST_OF_INTS, b"{}", []),
        (INTS, LIST_OF_INTS, b"[0:1]={7,8}", [7, 8]),
        (INTS, pa.list_(pa.int64()), b"{-5}", [-5]),
        (INTS, pa.list_(pa.int8()), b"{-128,127}", [-128, 127]),
        (INTS, pa.list_(pa.list_(pa.int32())), b"{{1,2},{3,NULL}}", [[1, 2], [3, None]]),
        (INTS, pa.list_(pa.list_(pa.int32())), b"[1:1][-1:0]={{1,2}}", [[1, 2]]),
        (INTS, pa.list_(pa.list_(pa.int32())), b"{}", []),
        (TEXTS, pa.list_(pa.string()), b'{a,"b,c","",NULL,"NULL","q\\"\\\\"}', ["a", "b,c", "", None, "NULL", 'q"\\']),
        (TEXTS, pa.list_(pa.string()), "{ä,b}".encode(), ["ä", "b"]),
        (TEXTS, pa.list_(pa.int32()), b'{1,"2"}', [1, 2]),
        (BOOLS, pa.list_(pa.bool_()), b"{t,f,NULL}", [True, False, None]),
        (NUMERICS, pa.list_(pa.decimal128(6, 2)), b"{-2,3.145}", [Decimal("-2.00"), Decimal("3.15")]),
        (BYTEAS, pa.list_(pa.binary()), b'{"\\\\x00ff"}', [b"\x00\xff"]),
        (STAMPS, pa.list_(pa.timestamp("us", "UTC")), b'{"2024-01-02 03:00:00+00"}',
         [datetime(2024, 1, 2, 3, tzinfo=UTC)]),
        (BOXES, pa.list_(pa.string()), b"{(1,1),(0,0);(2,2),(1,1)}", ["(1,1),(0,0)", "(2,2),(1,1)"]),
        (PLACE, PLACE_STRUCT, b'("A ""b"", c","{1,2}",2024-01-02)',
         {"t": 'A "b", c', "a": [1, 2], "s": date(2024, 1, 2)}),
        (PLACE, PLACE_STRUCT, b"(,,)", {"t": None, "a": None, "s": None}),
        (PLACES, pa.list_(PLACE_STRUCT), b'{"(x,{1},)",NULL}', [{"t": "x", "a": [1], "s": None}, None]),
        (INT4RANGE, span(pa.int32()), b"[1,5)", {"lower": 1, "upper": 5, "lower_inc": True, "upper_inc": False}),
        (INT4RANGE, span(pa.int32()), b"(,)", {"lower": None, "upper": None, "lower_inc": False, "upper_inc": False}),
        (INT4RANGE, span(pa.int32()), b"empty", dict.fromkeys(("lower", "upper", "lower_inc", "upper_inc"))),
        (TSRANGE, span(pa.timestamp("us")), b'["2024-01-02 00:00:00",)',
         {"lower": datetime(2024, 1, 2), "upper": None, "lower_inc": True, "upper_inc": False}),
        (INT4MULTIRANGE, pa.list_(span(pa.int32())), b"{[1,3),[7,)}",
         [{"lower": 1, "upper": 3, "lower_inc": True, "upper_inc": False},
          {"lower": 7, "upper": None, "lower_inc": True, "upper_inc": False}]),
        (INT4MULTIRANGE, pa.list_(span(pa.int32())), b"{}", []),
        (HSTORE, pa.map_(pa.string(), pa.string()), b'"a"=>"1, \\"x\\"", "b"=>NULL', [("a", '1, "x"'), ("b", None)]),
        (HSTORE, pa.map_(pa.string(), pa.int32()), b"", []),
    ],
)  # fmt: skip
def test_a_text_form_is_read(kind: PgType, wanted: pa.DataType, text: bytes, value: Any) -> None:
    assert read(kind, wanted, None, text, None, text)[0] == [None, value, None, value]
    assert not any(read(kind, wanted, text, None)[1])


@pytest.mark.parametrize(
    ("kind", "wanted", "good", "bad"),
    [
        (INTS, LIST_OF_INTS, b"{1}", b"{x}"),
        (INTS, LIST_OF_INTS, b"{1}", b"{{1}}"),
        (INTS, LIST_OF_INTS, b"{1}", b"1"),
        (INTS, pa.list_(LIST_OF_INTS), b"{{1}}", b"{1}"),
        (INTS, pa.list_(pa.int8()), b"{1}", b"{128}"),
        (NUMERICS, pa.list_(pa.decimal128(4, 2)), b"{1}", b"{NaN}"),
        (NUMERICS, pa.list_(pa.decimal128(4, 2)), b"{99.99}", b"{99.996}"),
        (PLACE, PLACE_STRUCT, b"(a,,)", b"(a,)"),
        (PLACE, PLACE_STRUCT, b"(a,,)", b"(a,{x},)"),
        (PLACES, pa.list_(PLACE_STRUCT), b'{"(a,,)"}', b'{"(a,,tomorrow)"}'),
        (INT4RANGE, span(pa.int32()), b"[1,2)", b"1,2"),
        (INT4MULTIRANGE, pa.list_(span(pa.int32())), b"{[1,2)}", b"{[1,2)"),
        (HSTORE, pa.map_(pa.string(), pa.int32()), b'"a"=>"1"', b'"a"=>"x"'),
        (HSTORE, pa.map_(pa.string(), pa.string()), b'"a"=>"1"', b"a"),
    ],
)  # fmt: skip
def test_what_is_not_of_the_type_is_null_and_told_from_others(
    kind: PgType, wanted: pa.DataType, good: bytes, bad: bytes
) -> None:
    values, failed = read(kind, wanted, good, bad, None, good)
    assert failed == [False, True, False, False]
    assert [value is None for value in values] == [False, True, True, False]


def test_slices_are_read_as_whole_columns_are() -> None:
    texts = pa.array([b"{9}", b"{1,2}", b'{"3"}', None, b"{4}"], pa.binary())[1:4]
    assert read_texts(texts, INTS, LIST_OF_INTS).values.to_pylist() == [[1, 2], [3], None]
    assert read_texts(texts[:0], INTS, LIST_OF_INTS).values.to_pylist() == []


@pytest.mark.parametrize(
    ("kind", "wanted", "message"),
    [
        (PLACE, pa.struct([("a", pa.string())]), "3 attributes, the struct 1 fields"),
        (INT4RANGE, PLACE_STRUCT, "a range int4range is struct<lower"),
        (BY_OID[3807], pa.list_(PLACE_STRUCT), "use string, and from_json in sql"),
        (TEXTS, pa.list_(pa.duration("us")), "cannot be read inside of another type: use string"),
    ],
)
def test_a_type_that_cannot_be_had_is_refused(kind: PgType, wanted: pa.DataType, message: str) -> None:
    with pytest.raises(Unreadable, match=message):
        read_texts(pa.array([], pa.binary()), kind, wanted)


def test_json_and_what_is_not_nested_is_for_spark() -> None:
    vector = PgType("vector", 90005, 90006, JsonForm.TEXT, logical=Logical.OTHER)
    assert not is_read_here(BY_OID[3802], PLACE_STRUCT)
    assert not is_read_here(vector, pa.list_(pa.float32()))
    assert not is_read_here(INTS, pa.string())
    assert not is_read_here(None, LIST_OF_INTS)
    assert is_read_here(INTS, LIST_OF_INTS)
