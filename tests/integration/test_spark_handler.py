"""The Spark handler on a real local Spark: what becomes of rows, images and columns."""

from __future__ import annotations

import traceback
from typing import Any

import pytest

from psql_streamer.errors import HandlerRefused
from psql_streamer.model import LogicalMessage, Truncate
from tests.columns import postgres_column
from tests.spark_changes import (
    COMMIT_LSN,
    DELETE,
    EVERY,
    INSERT,
    ORDERS,
    UPDATE,
    Texts,
    batch,
    changes,
    column,
    names,
    only,
    shop,
    values,
)


def test_identity_keeps_rows_order_and_images(spark: Any) -> None:
    given = shop()
    result = only(spark(**EVERY).handle(batch(given)))
    for name in ("batch_order", "op", "seq", "place", "tx"):
        assert getattr(result, name).tolist() == getattr(given, name).tolist()
    for side in ("after", "before"):
        assert getattr(result, side).rows.tolist() == getattr(given, side).rows.tolist()
        assert [a.to_pylist() for a in getattr(result, side).columns] == [
            a.to_pylist() for a in getattr(given, side).columns
        ]


def test_a_batch_without_events_keeps_its_position(spark: Any) -> None:
    given = batch()
    assert given.idle
    result = spark(**EVERY).handle(given)
    assert result.idle
    assert result.position == given.position


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
    assert result.columns[-1] == postgres_column("twice", 1700, ((13 << 16) | 2) + 4)
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
    assert result.columns == (postgres_column("order_id", 23, -1, True), postgres_column("attributes", 3802))
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


def test_a_masked_column_does_not_leak_through_the_old_image(spark: Any) -> None:
    rule = {"sql": "SELECT id, sha2(customer, 256) AS customer, '***' AS meta FROM changes"}
    result = only(spark(orders=rule).handle(batch(shop())))
    for side in ("after", "before"):
        assert {len(text) for text in values(result, "customer", side)} == {64}
        assert set(values(result, "meta", side)) == {b"***"}
    assert result.columns[1] == ORDERS[2]
    assert result.columns[2] == postgres_column("meta", 25), "text that a rule made is text, not jsonb"


def test_metadata_columns_are_there_and_do_not_reach_the_event(spark: Any) -> None:
    rule = {"sql": "SELECT *, concat_ws('|', _op, _image, _commit_lsn, _seq, _xid, _commit_ts) AS seen FROM changes"}
    result = only(spark(orders=rule).handle(batch(shop())))
    assert names(result) == ["id", "amount", "customer", "meta", "seen"]
    rest = f"{COMMIT_LSN}|%d|742|2023-11-14 22:13:20"
    assert values(result, "seen")[1].decode() == "update|after|" + rest % 1
    assert values(result, "seen", "before")[1].decode() == "delete|before|" + rest % 2


def test_a_metadata_column_under_a_name_of_its_own_is_kept(spark: Any) -> None:
    result = only(spark(orders={"sql": "SELECT id, _commit_lsn AS version FROM changes"}).handle(batch(shop())))
    assert result.columns[1] == postgres_column("version", 20)
    assert values(result, "version") == [str(COMMIT_LSN).encode()] * 3


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("SELEC * FROM changes", "PARSE_SYNTAX_ERROR"),
        ("SELECT nothing FROM changes", "UNRESOLVED_COLUMN"),
        ("SELECT * FROM elsewhere", "TABLE_OR_VIEW_NOT_FOUND"),
        ("SELECT count(*) AS n FROM changes", "add _row to its select list"),
        ("SELECT c.* FROM changes c RIGHT JOIN (VALUES (1), (99)) AS v(x) ON v.x = c.id", "belong to no change"),
        ("SELECT *, 1 AS amount FROM changes", "gives two columns named amount"),
        ("SELECT *, 1 - _row AS _row FROM changes", "column _row is computed"),
        ("SELECT id, _row + 100 AS _row FROM changes", "column _row is computed"),
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
    result = only(spark(**EVERY).handle(batch(given)))
    assert [values(result, name) for name in names(result)] == [[b"1"], [b"mine"], [b"also mine"]]
    with pytest.raises(HandlerRefused, match="has the name of a column that the handler adds"):
        spark(orders={"sql": "SELECT id FROM changes WHERE _op = 'insert'"}).handle(batch(given))


@pytest.mark.parametrize("name", ["_op", "_table", "_unchanged"])
def test_a_table_column_with_a_metadata_name_that_a_rule_makes_anew_stays_part_of_events(spark: Any, name: str) -> None:
    columns = (column("id", 23, key=True), column(name, 25))
    given = changes([INSERT], {0: [b"1", b"mine"]}, {}, columns)
    result = only(spark(orders={"mask": {name: "constant"}}).handle(batch(given)))
    assert [values(result, one) for one in names(result)] == [[b"1"], [b"***"]]


def test_names_that_differ_in_case_only_go_through(spark: Any) -> None:
    columns = (column("id", 23), column("ID", 25), column("Id", 1082))
    given = changes([INSERT], {0: [b"1", b"x", b"infinity"]}, {}, columns)
    result = only(spark(**EVERY).handle(batch(given)))
    assert [array.to_pylist() for array in result.after.columns] == [[b"1"], [b"x"], [b"infinity"]]


def test_a_table_without_columns_goes_through(spark: Any) -> None:
    given = changes([INSERT, INSERT], {0: [], 1: []}, {}, ())
    result = only(spark(**EVERY).handle(batch(given)))
    assert len(result) == 2
    assert len(result.after) == 2


def test_truncates_messages_and_the_position_are_left_alone(spark: Any) -> None:
    relation = shop().relation
    given = batch(
        truncates=(Truncate(relation, 1, 1, 1, 0, False, False),),
        messages=(LogicalMessage("p", b"x", 2, 2, 1, 0),),
    )
    assert spark(**EVERY).handle(given) == given


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
