"""The `coerce` of a rule."""

from __future__ import annotations

from typing import Any

import pytest

from psql_streamer.errors import HandlerRefused
from psql_streamer.model import Changes
from tests.columns import postgres_column
from tests.spark_changes import INSERT, NUMERIC_12_2, Texts, batch, changes, column, only, values


def test_coerce_gives_a_column_another_type(spark: Any) -> None:
    columns = (column("id", 23, key=True), column("amount", 1700), column("meta", 3802))
    given = changes([INSERT], {0: [b"1", b"12.5", b'{"a": 7, "b": ["x"]}']}, {}, columns)
    rule = {"coerce": {"amount": "decimal(12,2)", "meta": "struct<a: int, b: array<string>>"}}
    result = only(spark(orders=rule).handle(batch(given)))
    assert result.columns[1] == postgres_column("amount", 1700, NUMERIC_12_2)
    assert values(result, "amount") == [b"12.50"]
    assert values(result, "meta") == [{"a": 7, "b": ["x"]}]


@pytest.mark.parametrize(("kind", "name"), [("int", "customer"), ("struct<a: int>", "meta")])
def test_a_value_that_cannot_be_coerced_is_refused_by_its_identity_not_its_value(
    spark: Any, kind: str, name: str
) -> None:
    given = changes(
        [INSERT, INSERT], {0: [b"1", None, b"7", b"{}"], 1: [b"2", None, b"secret", b'{"a": "secret"}']}, {}
    )
    with pytest.raises(HandlerRefused) as refused:
        spark(orders={"coerce": {name: kind}}).handle(batch(given))
    assert f"column {name} in change (16/B374D848, 1) cannot be coerced" in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("kind", ["struct<a: int>", "array<int>", "map<string, int>", "struct<x: double>"])
def test_a_text_that_is_more_than_one_document_cannot_be_coerced(spark: Any, kind: str) -> None:
    document = b"[1]" if kind.startswith("array") else b'{"a": 1}'
    behind = (b"}", b"} more", b"]", b"]}", b"," + document, b',"value":' + document, b',"psql_streamer_end":true}')
    texts = [document, *(document + more for more in behind), b"", b"null", b" " + document + b"\n"]
    rows: dict[int, Texts] = {at: [b"%d" % at, b"1", text, None] for at, text in enumerate(texts)}
    rule = {"coerce": {"customer": kind}, "on_error": "dead-letter"}
    result = spark(orders=rule).handle(batch(changes([INSERT] * len(rows), rows, {})))
    assert only(result).seq.tolist() == [0, len(texts) - 2, len(texts) - 1]
    assert [one.column for one in result.rejections] == ["customer"]


DOCUMENTS = (column("id", 23, key=True), column("meta", 3802))


def documents(*texts: bytes) -> Changes:
    rows: dict[int, Texts] = {row: [b"%d" % row, text] for row, text in enumerate(texts)}
    return changes([INSERT] * len(rows), rows, {}, DOCUMENTS)


def test_numbers_of_a_document_that_become_strings_keep_their_digits(spark: Any) -> None:
    kind = "struct<price: string, of: map<string,string>, list: array<string>, d: decimal(24,2), x: double, n: int>"
    given = documents(
        b'{"price": 19.90, "of": {"a": 12345678901234567890.10, "b": {"c\xc3\xa9": 1.50, "d": [1e2]}},'
        b' "list": [1.10, "2.50"], "d": 1234567890123456789012.30, "x": 1.50, "n": 7}',
        b'{"price": 12345678901234567890, "of": null, "list": [true, 0.10], "x": 2.0}',
        b'{"price": "at 12:00:00.50"}',
    )
    first, second, third = values(only(spark(orders={"coerce": {"meta": kind}}).handle(batch(given))), "meta")
    assert first["price"] == "19.90"
    assert dict(first["of"]) == {"a": "12345678901234567890.10", "b": '{"c\u00e9":1.50,"d":[1e2]}'}
    assert first["list"] == ["1.10", "2.50"]
    assert (str(first["d"]), first["x"], first["n"]) == ("1234567890123456789012.30", 1.5, 7)
    assert (second["price"], second["list"], second["x"]) == ("12345678901234567890", ["true", "0.10"], 2.0)
    assert third["price"] == "at 12:00:00.50"


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message.partition(": documents have a field ")[2].partition(",")[0] for record in caplog.records]


def test_fields_that_the_type_does_not_name_are_told_once_and_counted(
    spark: Any, caplog: pytest.LogCaptureFixture
) -> None:
    handler = spark(
        orders={"coerce": {"meta": "struct<a: int, deep: struct<b: string>, items: array<struct<sku: int>>>"}}
    )
    given = documents(
        b'{"a": 1, "A": 2, "deep": {"b": "x", "secret": "hunter2"}}',
        b'{"a": 1, "items": [{"sku": 1, "qty": 2}, {"sku": 2, "qty": 3}, {"sku": 3}]}',
    )
    for times in (1, 2):
        result = only(handler.handle(batch(given)))
        assert handler.stats()["fields_left_out"] == 4 * times
    assert warnings_of(caplog) == ["meta.A", "meta.deep.secret", "meta.items[].qty"]
    assert all(record.message.startswith("public.orders, rule 'orders': ") for record in caplog.records)
    assert "hunter2" not in caplog.text
    assert values(result, "meta")[0] == {"a": 1, "deep": {"b": "x"}, "items": None}, "what is missing is null"


@pytest.mark.parametrize(
    ("kind", "text", "left_out"),
    [
        ("struct<a: string>", b'{"a": {"whatever": [1]}}', []),
        ("map<string, int>", b'{"a": 1, "b": 2}', []),
        ("map<string, struct<a: int>>", b'{"k1": {"a": 1, "b": 2}}', ["meta{}.b"]),
        ("array<struct<a: int>>", b'[{"a": 1}, {"b": 2}]', ["meta[].b"]),
        ("struct<m: map<string, array<struct<a: int>>>>", b'{"m": {"k": [{"x": 1}]}}', ["meta.m{}[].x"]),
        ("struct<a: int>", b'{"a": 1, "ann@example.com": 2}', ["meta.?"]),
        ("struct<a: int>", b'{"a": 1, "b": 1, "b": 2}', ["meta.b"]),
        ("struct<a: int>", b'{"a": 1,\n "b": "\xe2\x80\xa8\\n}"}', ["meta.b"]),
        ("struct<a: int>", b'{"big": "' + b"x" * 100_000 + b'"}', ["meta.big"]),
    ],
)  # fmt: skip
def test_a_path_says_where_a_field_is(
    spark: Any, caplog: pytest.LogCaptureFixture, kind: str, text: bytes, left_out: list[str]
) -> None:
    spark(orders={"coerce": {"meta": kind}}).handle(batch(documents(text)))
    assert warnings_of(caplog) == left_out


def test_documents_of_which_each_looks_different_are_looked_at_all_the_same(
    spark: Any, caplog: pytest.LogCaptureFixture
) -> None:
    handler = spark(orders={"coerce": {"meta": "struct<a: string>"}})
    given = [b'{"a": %s, "f%d": 1}' % (b"1" if row % 2 else b'"x"', row) for row in range(500)]
    handler.handle(batch(documents(*given)))
    assert handler.stats()["fields_left_out"] == 500
    assert len(caplog.records) == 20
    assert caplog.records[-1].message.endswith("fields that are found after this one are counted only")


LOST = [
    (1082, -1, b"2024-02-29", [b"infinity", b"-infinity", b"0044-03-15 BC", b"10000-01-01"]),
    (1114, -1, b"2024-02-29 10:00:00.5", [b"infinity", b"0044-03-15 00:00:00 BC", b"294276-12-31 23:59:59.999999"]),
    (1184, -1, b"2024-02-29 10:00:00.123456", [b"-infinity", b"0044-03-15 00:00:00+00 BC"]),
    (1700, NUMERIC_12_2, b"-0.05", [b"NaN"]),
    (1700, ((12 << 16) | 10) + 4, b"0.0000000001", [b"NaN"]),
]
"""Types by oid and modifier, a value as Spark casts it to a string, and values that Spark's type does not hold."""


def values_of_type(oid: int, modifier: int, *texts: bytes) -> Changes:
    columns = (column("id", 23, key=True), column("value", oid, modifier))
    rows: dict[int, Texts] = {row: [b"%d" % row, text] for row, text in enumerate(texts)}
    return changes([INSERT] * len(rows), rows, {}, columns)


@pytest.mark.parametrize(("oid", "modifier", "held", "lost"), LOST)
def test_a_value_that_sparks_type_does_not_hold_is_coerced_to_a_string_as_postgresql_writes_it(
    spark: Any, oid: int, modifier: int, held: bytes, lost: list[bytes]
) -> None:
    sent = held + b"+00" if oid == 1184 else held
    rule = {"coerce": {"value": " String"}, "sql": "SELECT *, CAST(length(value) AS int) AS n FROM changes"}
    handler = spark(orders=rule)
    result = only(handler.handle(batch(values_of_type(oid, modifier, sent, *lost))))
    assert values(result, "value") == [held, *lost]
    assert values(result, "n") == [b"%d" % len(text) for text in (held, *lost)]
    result = only(handler.handle(batch(values_of_type(oid, modifier, sent))))
    assert values(result, "value") == [held]


def test_a_value_that_sparks_type_does_not_hold_is_refused_where_it_is_coerced_to_another_type(spark: Any) -> None:
    for oid, modifier, to in [(1082, -1, "timestamp"), (1114, -1, "date"), (1700, NUMERIC_12_2, "double")]:
        _, _, held, lost = next(one for one in LOST if one[:2] == (oid, modifier))
        with pytest.raises(HandlerRefused, match=r"column value in change \(16/B374D848, 1\) cannot be coerced"):
            spark(orders={"coerce": {"value": to}}).handle(batch(values_of_type(oid, modifier, held, lost[0])))


def test_a_value_that_sparks_type_does_not_hold_follows_on_error_where_it_is_coerced_to_another_type(
    spark: Any,
) -> None:
    handler = spark(orders={"coerce": {"value": "timestamp"}, "onError": "null"})
    result = only(handler.handle(batch(values_of_type(1082, -1, b"2024-02-29", b"infinity"))))
    assert values(result, "value") == [b"2024-02-29 00:00:00+00", None]
    assert handler.stats()["nulled"] == 1
    handler = spark(orders={"coerce": {"value": "timestamp"}, "onError": "dead-letter"})
    given = values_of_type(1082, -1, b"2024-02-29", b"infinity", b"0044-03-15 BC")
    result = handler.handle(batch(given))
    assert values(only(result), "id") == [b"0"]
    assert handler.stats()["dead_lettered"] == 2


def test_a_time_without_a_date_is_no_timestamp_as_the_day_of_a_repeat_would_be_another(spark: Any) -> None:
    handler = spark(orders={"coerce": {"value": " TIMESTAMP "}, "onError": "null"})
    texts = [b"2026-01-02 10:00", b"10:00:00", b"T12", b"\n 1:02", b"2026"]
    result = only(handler.handle(batch(values_of_type(25, -1, *texts))))
    assert values(result, "value") == [b"2026-01-02 10:00:00+00", None, None, None, b"2026-01-01 00:00:00+00"]
    assert handler.stats()["nulled"] == 3


TOO_LARGE = [
    (3802, "struct<a: double>", b'{"a": 1' + b"0" * 400 + b"}"),
    (114, "struct<a: struct<b: array<double>>>", b'{"a": {"b": [1, -1e400]}}'),
    (3802, "map<string, float>", b'{"a": 1e39}'),
    (3802, "array<struct<s: string, n: double>>", b'[{"s": "Infinity", "n": 1e400}]'),
    (3802, "double", b"1e400"),
    (1700, "double", b"-1" + b"0" * 400),
    (701, "float", b"1e+300"),
    (1231, "array<double>", b"{1,1e400}"),
    (1231, "array<float>", b"{1,1e39}"),
]
"""Types by oid, what they are coerced to, and a number that this does not hold."""


@pytest.mark.parametrize(("oid", "kind", "text"), TOO_LARGE)
def test_a_number_that_is_too_large_for_its_type_cannot_be_coerced(
    spark: Any, oid: int, kind: str, text: bytes
) -> None:
    with pytest.raises(HandlerRefused, match=r"column value in change \(16/B374D848, 0\) cannot be coerced"):
        spark(orders={"coerce": {"value": kind}}).handle(batch(values_of_type(oid, -1, text)))
    handler = spark(orders={"coerce": {"value": kind}, "onError": "null"})
    assert values(only(handler.handle(batch(values_of_type(oid, -1, text)))), "value") == [None]


@pytest.mark.parametrize(
    ("oid", "kind", "text"),
    [
        (3802, "struct<a: double>", b'{"a": 1e308, "more": "Infinity"}'),
        (3802, "struct<a: double, s: string>", b'{"a": "Infinity", "s": "\\"Infinity\\" -Infinity"}'),
        (3802, "struct<a: double, s: string>", b'{"a": "-INF", "s": "-Infinity"}'),
        (3802, "map<string, double>", b'{"Infinity": 1}'),
        (701, "float", b"Infinity"),
        (701, "double", b"-Infinity"),
        (1700, "double", b"-Infinity"),
        (1022, "array<double>", b"{1,Infinity,-Infinity,NaN}"),
        (1022, "array<float>", b"{1e38,Infinity,NaN}"),
    ],
)
def test_an_infinity_that_is_in_the_value_is_coerced(spark: Any, oid: int, kind: str, text: bytes) -> None:
    handler = spark(orders={"coerce": {"value": kind}})
    [value] = values(only(handler.handle(batch(values_of_type(oid, -1, text)))), "value")
    assert value is not None
