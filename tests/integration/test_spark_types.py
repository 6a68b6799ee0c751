"""Types through Spark: what a rule passes on leaves as it came, what it computes has the type that it got."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from psql_streamer.model import ArrowType, Column
from tests.spark_changes import DELETE, EVERY, INSERT, NUMERIC_12_2, Texts, batch, changes, column, only, shop, values

NUMERIC_38_10 = ((38 << 16) | 10) + 4
NUMERIC_5_MINUS_2 = ((5 << 16) | (-2 & 0x7FF)) + 4

EVERY_TYPE: list[tuple[Column, Texts]] = [
    (column("b", 16), [b"t", b"f", None]),
    (column("i2", 21), [b"-32768", b"32767", None]),
    (column("i4", 23), [b"-2147483648", b"2147483647", b"0"]),
    (column("i8", 20), [b"-9223372036854775808", b"9223372036854775807", None]),
    (column("oid", 26), [b"4294967295", b"0", None]),
    (column("xid", 28), [b"4294967295", b"0", None]),
    (column("f4", 700), [b"3.4028235e+38", b"NaN", b"-0"]),
    (column("f8", 701), [b"1.7976931348623157e+308", b"-Infinity", b"NaN"]),
    (column("f8_more", 701), [b"5e-324", b"-0", b"123456789012345.6"]),
    (column("decimal", 1700, NUMERIC_12_2), [b"9999999999.99", b"-0.01", b"NaN"]),
    (column("wide", 1700, NUMERIC_38_10), [b"9999999999999999999999999999.9999999999", b"0.0000000001", None]),
    (column("numeric", 1700), [b"1e5".replace(b"1e5", b"9007199254740993.000"), b"NaN", b"Infinity"]),
    (column("rounded", 1700, NUMERIC_5_MINUS_2), [b"12300", b"-100", None]),
    (column("text", 25), ["ünï\u2028 😀 'x' \"y\" \\".encode(), b"", b"\x01\t\n"]),
    (column("char", 1042, 9), [b"ab   ", b"     ", None]),
    (column("bytea", 17), [b"\\x", b"\\x00ff10", None]),
    (column("date", 1082), [b"0044-03-15 BC", b"infinity", b"9999-12-31"]),
    (column("date_more", 1082), [b"20000-01-01", b"0001-01-01", b"1582-10-10"]),
    (column("time", 1083), [b"24:00:00", b"23:59:59.999999", None]),
    (column("timetz", 1266), [b"24:00:00-15:59", b"00:00:00+00", None]),
    (column("timestamp", 1114), [b"2024-02-29 10:00:00.5", b"-infinity", b"0001-01-01 00:00:00"]),
    (column("timestamptz", 1184), [b"2024-02-29 10:00:00.123456+00", b"0044-03-15 00:00:00+00 BC", b"infinity"]),
    (column("year_20000", 1184), [b"20000-01-01 00:00:00+00", b"1883-11-18 00:00:00.000001+00", None]),
    (column("interval", 1186), [b"1 year 2 mons -3 days +04:05:06.7", b"00:00:00", None]),
    (column("json", 114), [b'{"a": 1,  "a": 2}', b"null", None]),
    (column("jsonb", 3802), ['{"k": "😀", "big": 123456789012345678901234567890}'.encode(), b"null", None]),
    (column("uuid", 2950), [b"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", None, None]),
    (column("array", 1007), [b"{1,NULL,3}", b"[2:3]={1,2}", b"{}"]),
    (column("unknown", 999_999), [b'(1,"x y")', b"", None]),
    (column("Upper and 'quoted` . name", 25), [b"a", b"b", b"c"]),
]


def test_every_type_comes_back_byte_for_byte_through_the_identity(spark: Any) -> None:
    columns = tuple(one for one, _ in EVERY_TYPE)
    rows = {row: [texts[row] for _, texts in EVERY_TYPE] for row in range(3)}
    given = changes([INSERT] * 3, rows, {}, columns)

    result = only(spark(**EVERY).handle(batch(given)))

    assert result.columns == columns
    for at, (one, texts) in enumerate(EVERY_TYPE):
        assert result.after.columns[at].to_pylist() == texts, one
        assert result.after.columns[at].type == pa.binary(), one


def test_every_type_comes_back_byte_for_byte_through_a_query_that_passes_it_on(spark: Any) -> None:
    columns = tuple(one for one, _ in EVERY_TYPE)
    rows = {row: [texts[row] for _, texts in EVERY_TYPE] for row in range(3)}
    given = changes([DELETE] * 3, {}, rows, columns)

    result = only(spark(orders={"sql": "SELECT *, i4 + 0L AS more FROM changes"}).handle(batch(given)))

    assert result.columns[:-1] == columns
    assert [array.to_pylist() for array in result.before.columns[:-1]] == [texts for _, texts in EVERY_TYPE]
    assert values(result, "more", "before") == [b"-2147483648", b"2147483647", b"0"]


def test_a_mask_of_a_value_that_spark_cannot_hold_is_not_undone(spark: Any) -> None:
    columns = (column("id", 23, key=True), column("until", 1082))
    given = changes([INSERT, INSERT], {0: [b"1", b"infinity"], 1: [b"2", b"2024-01-01"]}, {}, columns)
    rule = {"sql": "SELECT id, IF(id = 1, NULL, until) AS until FROM changes"}
    assert values(only(spark(orders=rule).handle(batch(given))), "until") == [None, b"2024-01-01"]


def test_a_column_that_keeps_its_name_and_type_keeps_what_the_query_left_alone(spark: Any) -> None:
    columns = (column("id", 23, key=True), column("f", 701), column("at", 1184))
    rows: dict[int, Texts] = {
        0: [b"1", b"NaN", b"2024-01-01 10:00:00.5+00"],
        1: [b"2", b"1e+20", b"2024-01-01 10:00:00+00"],
    }
    rule = {"sql": "SELECT id, IF(id = 1, f, f / 2) AS f, IF(id = 1, at, at + INTERVAL 1 SECOND) AS at FROM changes"}
    result = only(spark(orders=rule).handle(batch(changes([INSERT] * 2, rows, {}, columns))))
    assert result.columns == columns
    assert values(result, "f") == [b"NaN", b"5e+19"]
    assert values(result, "at") == [b"2024-01-01 10:00:00.5+00", b"2024-01-01 10:00:01+00"]


def test_a_nested_column_leaves_typed(spark: Any) -> None:
    result = only(spark(orders={"sql": "SELECT id, struct(id, customer) AS s FROM changes"}).handle(batch(shop())))
    kind = result.after.columns[1].type
    assert result.columns[1] == Column("s", ArrowType(kind))
    assert [field.name for field in kind] == ["id", "customer"]
    assert values(result, "s")[0] == {"id": 1, "customer": "ann"}
