"""The Spark handler on a real local Spark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import traceback
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from psql_streamer.errors import HandlerRefused, HandlerUnavailable, StreamerError
from psql_streamer.model import (
    Batch,
    Changes,
    Column,
    Image,
    LogicalMessage,
    Lsn,
    Op,
    Origin,
    Position,
    Relation,
    ReplicaIdentity,
    Transactions,
    Truncate,
)
from psql_streamer.spark.handler import SparkHandler
from psql_streamer.spark.options import SparkOptions

MASTER = "local[2]"
COMMIT_LSN = 0x16_B374D848
INSERT, UPDATE, DELETE = int(Op.INSERT), int(Op.UPDATE), int(Op.DELETE)
NUMERIC_12_2 = ((12 << 16) | 2) + 4
NUMERIC_38_10 = ((38 << 16) | 10) + 4
NUMERIC_5_MINUS_2 = ((5 << 16) | (-2 & 0x7FF)) + 4

Texts = list[bytes | None]


@pytest.fixture
def spark(engine: SparkHandler) -> Iterator[Any]:
    """Makes handlers with the rules given; stops them afterwards."""
    made: list[SparkHandler] = []

    def make(**tables: Any) -> SparkHandler:
        handler = SparkHandler("spark", SparkOptions(master=MASTER, tables=tables))
        made.append(handler)
        handler.start()
        return handler

    yield make
    for handler in made:
        handler.stop()


def column(name: str, oid: int, typmod: int = -1, key: bool = False) -> Column:
    return Column(name, oid, typmod, key)


ORDERS = (
    column("id", 23, key=True),
    column("amount", 1700, NUMERIC_12_2),
    column("customer", 25),
    column("meta", 3802),
)


def image(columns: tuple[Column, ...], rows: dict[int, Texts], absent: dict[int, list[bool]] | None = None) -> Image:
    """rows: row of the changes -> the texts of its columns."""
    arrays = tuple(pa.array([texts[at] for texts in rows.values()], pa.binary()) for at in range(len(columns)))
    masks = {at: np.array(mask) for at, mask in (absent or {}).items()}
    return Image(arrays, np.array(list(rows), np.int64), masks)


def changes(
    ops: list[int],
    after: dict[int, Texts],
    before: dict[int, Texts],
    columns: tuple[Column, ...] = ORDERS,
    absent: dict[int, list[bool]] | None = None,
    table: str = "orders",
) -> Changes:
    n = len(ops)
    return Changes(
        relation=Relation(16384, "public", table, ReplicaIdentity.FULL, columns),
        columns=columns,
        ordinal=np.arange(n, dtype=np.int64) * 10,
        op=np.array(ops, np.uint8),
        seq=np.arange(n, dtype=np.int64),
        lsn=np.full(n, 77, np.uint64),
        tx=np.zeros(n, np.int32),
        tally=np.arange(n, dtype=np.int64),
        after=image(columns, after, absent),
        before=image(columns, before),
    )


def batch(*parts: Changes, **others: Any) -> Batch:
    transactions = Transactions(
        np.array([COMMIT_LSN], np.uint64), np.array([742], np.uint32), np.array([1_700_000_000_000_000], np.int64)
    )
    return Batch(Origin("db1", "h", "d"), Position(Lsn(9)), transactions, changes=parts, **others)


def shop() -> Changes:
    """Insert 1, update 2 (with its old image), delete 3 (with its old image), insert 4."""
    return changes(
        [INSERT, UPDATE, DELETE, INSERT],
        after={
            0: [b"1", b"10.00", b"ann", b'{"a": 1}'],
            1: [b"2", b"20.50", b"bob", b'{"a": 2}'],
            3: [b"4", b"-1.00", b"dan", None],
        },
        before={1: [b"2", b"5.00", b"old bob", b"{}"], 2: [b"3", b"7.00", b"carl", b"[]"]},
    )


def only(result: Batch) -> Changes:
    assert len(result.changes) == 1
    return result.changes[0]


def values(part: Changes, name: str, side: str = "after") -> list[Any]:
    at = [one.name for one in part.columns].index(name)
    listed: list[Any] = getattr(part, side).columns[at].to_pylist()
    return listed


def names(part: Changes) -> list[str]:
    return [one.name for one in part.columns]


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

    result = only(spark().handle(batch(given)))

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


def test_identity_keeps_rows_order_and_images(spark: Any) -> None:
    given = shop()
    result = only(spark().handle(batch(given)))
    for name in ("ordinal", "op", "seq", "lsn", "tx"):
        assert getattr(result, name).tolist() == getattr(given, name).tolist()
    for side in ("after", "before"):
        assert getattr(result, side).rows.tolist() == getattr(given, side).rows.tolist()
        assert [a.to_pylist() for a in getattr(result, side).columns] == [
            a.to_pylist() for a in getattr(given, side).columns
        ]


def test_ten_thousand_rows_keep_their_order(spark: Any) -> None:
    n = 10_000
    given = changes([INSERT] * n, {i: [b"%d" % i, b"1.00", b"c", None] for i in range(n)}, {})
    rule = {"sql": "SELECT * FROM changes DISTRIBUTE BY customer SORT BY id DESC"}
    result = only(spark(orders=rule).handle(batch(given)))
    assert values(result, "id") == [b"%d" % i for i in range(n)]


def test_a_query_adds_a_column_to_both_images(spark: Any) -> None:
    rule = {"sql": "SELECT *, CAST(amount * 2 AS DECIMAL(13,2)) AS twice FROM changes"}
    result = only(spark(orders=rule).handle(batch(shop())))
    assert names(result) == ["id", "amount", "customer", "meta", "twice"]
    assert result.columns[-1] == Column("twice", 1700, ((13 << 16) | 2) + 4)
    assert values(result, "twice") == [b"20.00", b"41.00", b"-2.00"]
    assert values(result, "twice", "before") == [b"10.00", b"14.00"]
    assert values(result, "amount") == [b"10.00", b"20.50", b"-1.00"]


def test_a_projection_without_row_just_works(spark: Any) -> None:
    rule = {"sql": "SELECT id, total + 1 AS total FROM (SELECT id, amount AS total FROM changes WHERE amount > 0) t"}
    result = only(spark(orders=rule).handle(batch(shop())))
    assert names(result) == ["id", "total"]
    assert values(result, "id") == [b"1", b"2"]
    assert values(result, "total") == [b"11.00", b"21.50"]
    assert result.op.tolist() == [INSERT, UPDATE, DELETE]
    assert result.seq.tolist() == [0, 1, 2]
    assert result.before.rows.tolist() == [1, 2]
    assert result.columns[0].key


def test_a_renamed_column_keeps_its_type_and_text(spark: Any) -> None:
    result = only(spark(orders={"sql": "SELECT id AS order_id, meta AS attributes FROM changes"}).handle(batch(shop())))
    assert result.columns == (Column("order_id", 23, -1, True), Column("attributes", 3802))
    assert values(result, "attributes") == [b'{"a": 1}', b'{"a": 2}', None]


def test_a_join_with_a_lookup_enriches(spark: Any) -> None:
    rule = {
        "sql": """
            SELECT c.id, l.segment FROM changes c
            LEFT JOIN (VALUES ('ann', 'gold'), ('carl', 'tin')) AS l(name, segment) ON l.name = c.customer"""
    }
    result = only(spark(orders=rule).handle(batch(shop())))
    assert values(result, "segment") == [b"gold", None, None]
    assert values(result, "segment", "before") == [None, b"tin"]


def test_a_filter_drops_the_row_and_its_old_image(spark: Any) -> None:
    rule = {"sql": "SELECT * FROM changes WHERE NOT (_op = 'update' AND _image = 'after')"}
    result = only(spark(orders=rule).handle(batch(shop())))
    assert result.op.tolist() == [INSERT, DELETE, INSERT]
    assert result.ordinal.tolist() == [0, 20, 30]
    assert result.after.rows.tolist() == [0, 2]
    assert result.before.rows.tolist() == [1]
    assert values(result, "customer", "before") == [b"carl"]


def test_a_filter_may_drop_only_the_old_image_of_an_update(spark: Any) -> None:
    rule = {"sql": "SELECT * FROM changes WHERE customer <> 'old bob'"}
    result = only(spark(orders=rule).handle(batch(shop())))
    assert result.op.tolist() == [INSERT, UPDATE, DELETE, INSERT]
    assert result.before.rows.tolist() == [2]


def test_a_filter_that_drops_all_rows_leaves_no_changes(spark: Any) -> None:
    assert spark(orders={"sql": "SELECT * FROM changes WHERE false"}).handle(batch(shop())).changes == ()


def test_a_masked_column_does_not_leak_through_the_old_image(spark: Any) -> None:
    rule = {"sql": "SELECT id, sha2(customer, 256) AS customer, '***' AS meta FROM changes"}
    result = only(spark(orders=rule).handle(batch(shop())))
    for side in ("after", "before"):
        assert {len(text) for text in values(result, "customer", side)} == {64}
        assert set(values(result, "meta", side)) == {b"***"}
    assert result.columns[1] == ORDERS[2]
    assert result.columns[2] == Column("meta", 25), "text that a rule made is text, not jsonb"


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


def test_metadata_columns_are_there_and_do_not_reach_the_event(spark: Any) -> None:
    rule = {"sql": "SELECT *, concat_ws('|', _op, _image, _commit_lsn, _seq, _xid, _commit_ts) AS seen FROM changes"}
    result = only(spark(orders=rule).handle(batch(shop())))
    assert names(result) == ["id", "amount", "customer", "meta", "seen"]
    rest = f"{COMMIT_LSN}|%d|742|2023-11-14 22:13:20"
    assert values(result, "seen")[1].decode() == "update|after|" + rest % 1
    assert values(result, "seen", "before")[1].decode() == "delete|before|" + rest % 2


def test_a_metadata_column_under_a_name_of_its_own_is_kept(spark: Any) -> None:
    result = only(spark(orders={"sql": "SELECT id, _commit_lsn AS version FROM changes"}).handle(batch(shop())))
    assert result.columns[1] == Column("version", 20)
    assert values(result, "version") == [str(COMMIT_LSN).encode()] * 3


@pytest.mark.behaviour("D6")
def test_unchanged_toast_stays_unchanged(spark: Any) -> None:
    given = changes([UPDATE], {0: [b"1", b"1.00", b"ann", None]}, {}, absent={3: [True]})
    for rule in ({}, {"orders": {"sql": "SELECT meta, id FROM changes"}}):
        result = only(spark(**rule).handle(batch(given)))
        at = names(result).index("meta")
        assert result.after.absent[at].tolist() == [True]
        assert list(result.after.absent) == [at]


def test_a_nested_column_leaves_typed(spark: Any) -> None:
    result = only(spark(orders={"sql": "SELECT id, struct(id, customer) AS s FROM changes"}).handle(batch(shop())))
    kind = result.after.columns[1].type
    assert result.columns[1] == Column("s", 0, arrow=kind)
    assert [field.name for field in kind] == ["id", "customer"]
    assert values(result, "s")[0] == {"id": 1, "customer": "ann"}


def enrich(df: Any) -> Any:
    """A rule by function."""
    from pyspark.sql import functions as f

    return df.where("amount > 0").select("id", f.upper("customer").alias("customer"))


def exclaim(df: Any) -> Any:
    """A rule by function, with Python code that runs on every value."""
    from pyspark.sql.functions import udf

    return df.withColumn("customer", udf(lambda name: 1 // len(name.replace("carl", "")) or name + "!")("customer"))


def broken(df: Any) -> Any:
    raise KeyError("a value that must not be shown")


def test_a_function_rule_works(spark: Any) -> None:
    result = only(spark(orders={"function": f"{__name__}:enrich"}).handle(batch(shop())))
    assert names(result) == ["id", "customer"]
    assert values(result, "customer") == [b"ANN", b"BOB"]
    assert values(result, "customer", "before") == [b"OLD BOB", b"CARL"]


def test_python_code_that_fails_on_a_value_is_refused_without_the_value(
    spark: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(HandlerRefused, match="PYTHON_EXCEPTION") as refused:
        spark(orders={"function": f"{__name__}:exclaim"}).handle(batch(shop()))
    assert "carl" not in "".join(traceback.format_exception(refused.value)) + "".join(capfd.readouterr())


def test_a_function_that_raises_is_refused_without_its_message(spark: Any) -> None:
    with pytest.raises(HandlerRefused, match="raised KeyError") as refused:
        spark(orders={"function": f"{__name__}:broken"}).handle(batch(shop()))
    assert "must not be shown" not in str(refused.value)


def test_a_function_that_does_not_exist_is_a_finding_and_refused_at_start() -> None:
    options = SparkOptions(tables={"orders": {"function": f"{__name__}:missing"}})  # type: ignore[dict-item] # as from TOML
    handler = SparkHandler("spark", options)
    assert [str(finding) for finding in handler.check()] == [
        f"error: [spark.tables] 'orders': function '{__name__}:missing' does not exist in {__name__}: correct the name"
    ]
    with pytest.raises(HandlerRefused, match="does not exist"):
        handler.start()


def test_coerce_gives_a_column_another_type(spark: Any) -> None:
    columns = (column("id", 23, key=True), column("amount", 1700), column("meta", 3802))
    given = changes([INSERT], {0: [b"1", b"12.5", b'{"a": 7, "b": ["x"]}']}, {}, columns)
    rule = {"coerce": {"amount": "decimal(12,2)", "meta": "struct<a: int, b: array<string>>"}}
    result = only(spark(orders=rule).handle(batch(given)))
    assert result.columns[1] == Column("amount", 1700, NUMERIC_12_2)
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


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("SELEC * FROM changes", "PARSE_SYNTAX_ERROR"),
        ("SELECT nothing FROM changes", "UNRESOLVED_COLUMN"),
        ("SELECT * FROM elsewhere", "TABLE_OR_VIEW_NOT_FOUND"),
        ("SELECT count(*) AS n FROM changes", "add _row to its select list"),
        ("SELECT c.* FROM changes c CROSS JOIN (VALUES (1), (2)) AS v(x)", "several rows for one change"),
        ("SELECT c.* FROM changes c RIGHT JOIN (VALUES (1), (99)) AS v(x) ON v.x = c.id", "belong to no change"),
        ("SELECT *, 1 AS amount FROM changes", "gives two columns named amount"),
        ("SELECT id, _row + 100 AS _row FROM changes", "was not given"),
        ("SELECT *, CAST(customer AS INT) AS x FROM changes", "CAST_INVALID_INPUT"),
    ],
)
def test_a_query_that_cannot_work_is_refused_with_the_reason_and_no_value(
    spark: Any, sql: str, says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(HandlerRefused) as refused:
        spark(orders={"sql": sql}).handle(batch(shop()))
    assert says in str(refused.value)
    assert "public.orders" in str(refused.value)
    shown = "".join([*traceback.format_exception(refused.value), *capfd.readouterr()])
    assert "bob" not in shown
    assert "carl" not in shown


def test_the_rule_of_the_full_name_wins_over_the_table_and_that_over_a_glob(spark: Any) -> None:
    rules = {
        "public.*": {"sql": "SELECT id, 'glob' AS by FROM changes"},
        "orders": {"sql": "SELECT id, 'table' AS by FROM changes"},
        "public.special": {"sql": "SELECT id, 'full' AS by FROM changes"},
    }
    one: dict[int, Texts] = {0: [b"1", None, None, None]}
    tables = [changes([INSERT], one, {}, table=table) for table in ("orders", "special", "other")]
    result = spark(**rules).handle(batch(*tables))
    assert [values(part, "by") for part in result.changes] == [[b"table"], [b"full"], [b"glob"]]


def test_a_table_column_with_a_metadata_name_is_refused_only_where_a_rule_uses_that_name(spark: Any) -> None:
    columns = (column("id", 23, key=True), column("_op", 25), column("_row", 25))
    given = changes([INSERT], {0: [b"1", b"mine", b"also mine"]}, {}, columns)
    result = only(spark().handle(batch(given)))
    assert [values(result, name) for name in names(result)] == [[b"1"], [b"mine"], [b"also mine"]]
    with pytest.raises(HandlerRefused, match="has the name of a column that the handler adds"):
        spark(orders={"sql": "SELECT id FROM changes WHERE _op = 'insert'"}).handle(batch(given))


def test_names_that_differ_in_case_only_go_through(spark: Any) -> None:
    columns = (column("id", 23), column("ID", 25), column("Id", 1082))
    given = changes([INSERT], {0: [b"1", b"x", b"infinity"]}, {}, columns)
    result = only(spark().handle(batch(given)))
    assert [array.to_pylist() for array in result.after.columns] == [[b"1"], [b"x"], [b"infinity"]]


def test_a_table_without_columns_goes_through(spark: Any) -> None:
    given = changes([INSERT, INSERT], {0: [], 1: []}, {}, ())
    result = only(spark().handle(batch(given)))
    assert len(result) == 2
    assert len(result.after) == 2


def test_truncates_messages_and_the_position_are_left_alone(spark: Any) -> None:
    relation = shop().relation
    given = batch(
        truncates=(Truncate(relation, 1, 1, 1, 0, False, False),),
        messages=(LogicalMessage("p", b"x", 2, 2, 1, 0),),
    )
    assert spark().handle(given) == given


def test_tables_that_run_side_by_side_do_not_meet(spark: Any) -> None:
    tables = [f"t{at}" for at in range(9)]
    handler = spark(**{table: {"sql": f"SELECT *, '{table}' AS origin FROM changes"} for table in tables})
    columns = (column("id", 23, key=True),)
    parts = [
        changes([INSERT] * 50, {row: [b"%d" % (row + 100 * at)] for row in range(50)}, {}, columns, table=table)
        for at, table in enumerate(tables)
    ]
    for _ in range(3):
        done = handler.handle(batch(*parts)).changes
        assert [part.relation.table for part in done] == tables
        for at, part in enumerate(done):
            assert values(part, "origin") == [tables[at].encode()] * 50
            assert values(part, "id") == [b"%d" % (row + 100 * at) for row in range(50)]


def test_of_several_tables_that_fail_the_first_is_told_and_the_others_have_ended(spark: Any) -> None:
    handler = spark(bad={"coerce": {"id": "date"}}, worse={"coerce": {"id": "date"}})
    columns = (column("id", 25, key=True),)
    parts = [changes([INSERT], {0: [b"no date"]}, {}, columns, table=table) for table in ("good", "bad", "worse")]
    for _ in range(2):
        with pytest.raises(HandlerRefused, match=r"public\.bad, rule 'bad'"):
            handler.handle(batch(*parts))
    assert len(handler.handle(batch(parts[0])).changes) == 1


def test_the_sigint_handler_of_the_service_is_still_its_own(engine: SparkHandler) -> None:
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.skipif(find_spec("grpc") is not None, reason="Spark Connect's packages are installed")
def test_spark_connect_without_its_packages_names_the_install_line() -> None:
    with pytest.raises(HandlerRefused, match=r"pip install 'pyspark\[connect\]'"):
        SparkHandler("spark", SparkOptions(remote="sc://localhost:15002")).start()


def test_two_masters_in_one_process_are_refused(engine: SparkHandler) -> None:
    with pytest.raises(HandlerRefused, match="give them one"):
        SparkHandler("spark", SparkOptions(master="local[1]")).start()


def test_no_java_is_a_finding_with_an_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing() -> Path:
        raise StreamerError("no Java 17 or later found", "install one: apt-get install openjdk-17-jre-headless")

    monkeypatch.setattr("psql_streamer.spark.session.find_java", nothing)
    (finding,) = SparkHandler("spark", SparkOptions()).check()
    assert str(finding) == (
        "error: Spark needs Java: no Java 17 or later found: install one: apt-get install openjdk-17-jre-headless"
    )


SCRIPT = textwrap.dedent("""
    import os, sys
    from psql_streamer.spark.session import Session
    from psql_streamer.spark.options import SparkOptions
    session = Session(SparkOptions(master="local[1]"))
    session.start()
    print(session._jvm._gateway.proc.pid, flush=True)
    sys.stdin.read()
    session.stop()
""")


@pytest.mark.slow
def test_the_jvm_survives_signals_to_our_group_and_dies_with_us(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert process.stdout is not None
    jvm = int(process.stdout.readline())
    assert os.getpgid(jvm) != os.getpgid(process.pid)
    process.kill()
    process.communicate()
    wait_for_end(jvm)


@pytest.mark.slow
def test_a_killed_jvm_is_unavailable_and_the_next_start_makes_a_new_one() -> None:
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"import {__name__} as t; t.kill_and_start_again()"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert result.stdout == "unavailable\nworks again\n"
    assert result.stderr == ""


def kill_and_start_again() -> None:
    """Runs in a process of its own: the JVM of this one is shared by all tests."""
    handler = SparkHandler("spark", SparkOptions(master="local[1]"))
    handler.start()
    handler.handle(batch(shop()))
    jvm: Any = handler._session._jvm
    jvm._gateway.proc.kill()
    jvm._gateway.proc.wait()
    try:
        handler.handle(batch(shop()))
    except HandlerUnavailable:
        print("unavailable")
    handler.start()
    if len(handler.handle(batch(shop()))) == 4:
        print("works again")
    handler.stop()


def wait_for_end(pid: int) -> None:
    """Returns when the process is gone; the test's timeout is the limit."""
    descriptor = os.pidfd_open(pid)
    try:
        import select

        select.select([descriptor], [], [])
    finally:
        os.close(descriptor)
