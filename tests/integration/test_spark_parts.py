"""Rows that a rule makes several of: their numbers, what becomes of those that are gone, and their order."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomli

from psql_streamer.batching import SPARK_FIRST_ROWS, SPARK_MADE_BYTES
from psql_streamer.errors import HandlerRefused
from psql_streamer.model import Changes, ReplicaIdentity, RowOp
from tests.spark_changes import DELETE, INSERT, UPDATE, Texts, batch, changes, column, only, values

LISTS = (column("id", 23, key=True), column("items", 25))
SPLIT = "SELECT id, item FROM changes LATERAL VIEW explode(split(items, ',')) AS item"


def lists(*ops: tuple[int, str | None, str | None], identity: ReplicaIdentity = ReplicaIdentity.FULL) -> Changes:
    """Changes with an id of its own each. (op, new items, old items)."""
    after: dict[int, Texts] = {}
    before: dict[int, Texts] = {}
    for row, (_, new, old) in enumerate(ops):
        for images, items in ((after, new), (before, old)):
            if items is not None:
                known = images is after or identity is ReplicaIdentity.FULL
                images[row] = [b"%d" % row, items.encode() if known else None]
    return changes([op for op, *_ in ops], after, before, LISTS, table="lists", identity=identity)


Row = tuple[int, str, int, int, Any, Any]


def parts(made: Changes, name: str = "item") -> list[Row]:
    """(seq, op, part, of, new item, old item) of every row, in their order."""
    new = dict(zip(made.after.rows.tolist(), values(made, name), strict=True))
    old = dict(zip(made.before.rows.tolist(), values(made, name, "before"), strict=True))
    numbers = [(0, 0)] * len(made) if made.part is None else made.part.tolist()
    return [
        (int(made.seq[row]), RowOp(made.op[row]).action, *numbers[row], new.get(row), old.get(row))
        for row in range(len(made))
    ]


def test_a_row_becomes_several_and_others_stay_as_they_are(spark: Any) -> None:
    given = lists((INSERT, "b,a,c", None), (INSERT, "d", None), (DELETE, None, "x,y"), (UPDATE, "f", "e"))
    made = only(spark(lists={"sql": SPLIT}).handle(batch(given)))
    assert parts(made) == [
        (0, "insert", 0, 3, b"b", None),
        (0, "insert", 1, 3, b"a", None),
        (0, "insert", 2, 3, b"c", None),
        (1, "insert", 0, 0, b"d", None),
        (2, "delete", 0, 2, None, b"x"),
        (2, "delete", 1, 2, None, b"y"),
        (3, "update", 0, 0, b"f", b"e"),
    ]
    for name in ("batch_order", "place", "tx", "table_seq"):
        of_changes, of_rows = getattr(given, name), getattr(made, name)
        assert of_rows.tolist() == of_changes[[0, 0, 0, 1, 2, 2, 3]].tolist()


def test_the_branches_of_a_union_are_parts_in_their_order(spark: Any) -> None:
    rule = "SELECT *, 'z' AS item FROM changes UNION ALL SELECT *, 'a' AS item FROM changes WHERE id <> 1"
    made = only(spark(lists={"sql": rule}).handle(batch(lists((INSERT, "x", None), (INSERT, "x", None)))))
    assert parts(made) == [
        (0, "insert", 0, 2, b"z", None),
        (0, "insert", 1, 2, b"a", None),
        (1, "insert", 0, 0, b"z", None),
    ]


def test_parts_that_an_update_leaves_out_are_deleted_by_their_number(spark: Any) -> None:
    given = lists((UPDATE, "a,c", "a,b,c"), (UPDATE, "a,b", "a"))
    made = only(spark(lists={"sql": SPLIT}).handle(batch(given)))
    assert parts(made) == [
        (0, "update", 0, 3, b"a", b"a"),
        (0, "update", 1, 3, b"c", b"b"),
        (0, "delete", 2, 3, None, b"c"),
        (1, "update", 0, 2, b"a", b"a"),
        (1, "insert", 1, 2, b"b", None),
    ]


def test_parts_that_have_keys_are_followed_by_them(spark: Any) -> None:
    given = lists((UPDATE, "a,c,d", "c,b,a"), (UPDATE, "b,a", "a,b"))
    made = only(spark(lists={"sql": SPLIT.replace("SELECT", "SELECT id || item AS _key,")}).handle(batch(given)))
    assert parts(made) == [
        (0, "update", 0, 4, b"a", b"a"),
        (0, "update", 1, 4, b"c", b"c"),
        (0, "insert", 2, 4, b"d", None),
        (0, "delete", 3, 4, None, b"b"),
        (1, "update", 0, 2, b"b", b"b"),
        (1, "update", 1, 2, b"a", b"a"),
    ]


def test_an_update_that_leaves_no_part_deletes_all_of_them(spark: Any) -> None:
    """Of one part, too: a filter that drops an update's new row would leave the old one."""
    given = lists((UPDATE, "", "a,b"), (UPDATE, "", "a"), (UPDATE, "a", ""))
    rule = {"sql": SPLIT + " WHERE item <> ''"}
    assert parts(only(spark(lists=rule).handle(batch(given)))) == [
        (0, "delete", 0, 2, None, b"a"),
        (0, "delete", 1, 2, None, b"b"),
        (1, "delete", 0, 0, None, b"a"),
        (2, "insert", 0, 0, b"a", None),
    ]
    alone = only(spark(lists=rule).handle(batch(lists((UPDATE, "", "a")))))
    assert parts(alone) == [(0, "delete", 0, 0, None, b"a")]


def test_a_rule_numbers_its_parts_itself(spark: Any) -> None:
    rule = "SELECT id, item, 10 - at AS _part FROM changes LATERAL VIEW posexplode(split(items, ',')) AS at, item"
    given = lists((INSERT, "a,b", None), (INSERT, "c", None), (UPDATE, "a", "a,b"))
    made = only(spark(lists={"sql": rule}).handle(batch(given)))
    assert "_part" not in [one.name for one in made.columns]
    assert parts(made) == [
        (0, "insert", 9, 2, b"b", None),
        (0, "insert", 10, 2, b"a", None),
        (1, "insert", 10, 1, b"c", None),
        (2, "delete", 9, 2, None, b"b"),
        (2, "update", 10, 2, b"a", b"a"),
    ]


def test_a_number_that_a_part_had_which_is_gone_is_not_given_twice(spark: Any) -> None:
    rule = (
        SPLIT.replace("SELECT", "SELECT item AS _key,")
        .replace("explode(", "posexplode(")
        .replace("AS item", "AS _part, item")
    )
    made = only(
        spark(lists={"sql": rule.replace("id, item", "id, item, _part")}).handle(batch(lists((UPDATE, "c", "a,c"))))
    )
    assert parts(made) == [(0, "update", 0, 2, b"c", b"c"), (0, "delete", 1, 2, None, b"a")]


def test_the_order_of_parts_is_that_of_their_values_where_a_plan_keeps_none(spark: Any) -> None:
    joined = (
        "SELECT id, v.item FROM changes JOIN (VALUES ('c', 1), ('a', 1), ('b', 1)) AS v(item, of) "
        "ON v.of = length(items)"
    )
    for rule in (joined, f"{joined} DISTRIBUTE BY v.item"):
        made = only(spark(lists={"sql": rule}).handle(batch(lists((INSERT, "x", None), (INSERT, "y", None)))))
        assert [item for *_, item, _ in parts(made)] == [b"a", b"b", b"c"] * 2


@pytest.mark.behaviour("K8")
def test_parts_have_the_same_numbers_whatever_else_is_in_the_batch(spark: Any) -> None:
    handler = spark(lists={"sql": SPLIT + " DISTRIBUTE BY item"})
    ops = [(UPDATE, f"{at},b,a", "a,b") if at % 2 else (INSERT, f"c,{at}", None) for at in range(8)]
    together = parts(only(handler.handle(batch(lists(*ops)))))  # type: ignore[arg-type]
    for at, one in enumerate(ops):
        alone = parts(only(handler.handle(batch(lists(*[(INSERT, "x", None)] * at, one)))))  # type: ignore[arg-type]
        assert [row for row in alone if row[0] == at] == [row for row in together if row[0] == at]


def test_a_function_may_give_several_rows(spark: Any) -> None:
    handler = spark(lists={"function": "tests.integration.test_spark_parts:split_items"})
    made = only(handler.handle(batch(lists((INSERT, "b,a", None), (UPDATE, "a", "a,b")))))
    assert parts(made) == [
        (0, "insert", 0, 2, b"a", None),
        (0, "insert", 1, 2, b"b", None),
        (1, "update", 0, 2, b"a", b"a"),
        (1, "delete", 1, 2, None, b"b"),
    ]


def split_items(frame: Any) -> Any:
    from pyspark.sql import functions as f

    return frame.withColumn("item", f.explode(f.split("items", ","))).repartition(3, "item").drop("items")


def test_an_old_row_that_is_its_key_alone_deletes_the_key_and_no_part(spark: Any) -> None:
    """Under the default replica identity nobody knows the parts that were there."""
    given = lists((DELETE, None, "a,b"), (UPDATE, "a,b", None), identity=ReplicaIdentity.DEFAULT)
    made = only(spark(lists={"sql": SPLIT}).handle(batch(given)))
    assert parts(made) == [
        (0, "delete", 0, 0, None, None),
        (1, "update", 0, 2, b"a", None),
        (1, "update", 1, 2, b"b", None),
    ]


def test_the_same_number_twice_is_a_row_that_the_rule_cannot_take(spark: Any) -> None:
    rule = SPLIT.replace("SELECT", "SELECT 5 AS _part,")
    given = lists((INSERT, "secret,b", None), (INSERT, "c", None))
    with pytest.raises(
        HandlerRefused,
        match=r"lists, rule 'lists': _part gives the same part twice for change \(16/B374D848, 0\): .*integers",
    ) as refused:
        spark(lists={"sql": rule}).handle(batch(given))
    assert "secret" not in str(refused.value)
    result = spark(lists={"sql": rule, "on_error": "dead-letter"}).handle(batch(given))
    assert parts(only(result)) == [(1, "insert", 5, 1, b"c", None)]
    (aside,) = result.rejections
    assert (aside.column, aside.changes.seq.tolist()) == ("_part", [0])


def test_an_array_that_is_not_there_gives_the_row_that_an_outer_explode_makes_of_it(spark: Any) -> None:
    rule = "SELECT id, item, at AS _part FROM changes LATERAL VIEW OUTER posexplode(split(items, ',')) AS at, item"
    texts: Texts = [b"0", None]
    made = only(spark(lists={"sql": rule}).handle(batch(changes([INSERT], {0: texts}, {}, LISTS, table="lists"))))
    assert parts(made) == [(0, "insert", 0, 0, None, None)]


def test_columns_that_a_rule_passes_on_leave_with_every_part_as_they_came(spark: Any) -> None:
    columns = (column("id", 23, key=True), column("items", 25), column("at", 1184))
    moment = b"2026-01-31 12:00:00.123456+01"
    given = changes(
        [INSERT, INSERT], {0: [b"1", b"a,b", moment], 1: [b"2", b"c", b"infinity"]}, {}, columns, table="lists"
    )
    joined = (
        "SELECT id, at, item FROM changes JOIN (VALUES ('b', 3), ('a', 3), ('c', 1)) AS v(item, n) ON n = length(items)"
    )
    for rule in (SPLIT.replace("id,", "id, at,"), joined):
        made = only(spark(lists={"sql": rule}).handle(batch(given)))
        assert values(made, "at") == [moment, moment, b"infinity"]
        assert values(made, "item") == [b"a", b"b", b"c"]


def test_rules_that_make_much_of_a_row_ask_for_fewer_rows(spark: Any) -> None:
    assert spark(lists={"sql": "SELECT *, length(items) AS n FROM changes"}).most_rows is None
    handler = spark(lists={"sql": "SELECT *, explode(sequence(1, 500)) AS n FROM changes"})
    assert handler.most_rows == SPARK_FIRST_ROWS
    given = lists(*[(INSERT, "x" * 1000, None)] * 20)
    result = handler.handle(replace(batch(given), nbytes=20_000))
    assert result.nbytes > 20 * 500 * 1000
    assert handler.most_rows == SPARK_MADE_BYTES * 20 // (result.nbytes - 20_000)
    assert handler.most_rows < 100


def test_the_example_of_the_documentation_works(spark: Any) -> None:
    text = (Path(__file__).parents[2] / "docs" / "spark-events.md").read_text()
    (toml,) = re.findall(r"```toml\n(\[spark\.tables[^`]*posexplode[^`]*)```", text)
    columns = (column("id", 23, key=True), column("customer", 25), column("items", 3802))
    items = b'[{"sku": "a", "quantity": 2}, {"sku": "b", "quantity": 1}]'
    handler = spark(orders=tomli.loads(toml)["spark"]["tables"]["public.orders"])
    made = only(handler.handle(batch(changes([INSERT], {0: [b"7", b"ann", items]}, {}, columns))))
    assert parts(made, "sku") == [(0, "insert", 0, 2, b"a", None), (0, "insert", 1, 2, b"b", None)]
    assert made.after.addresses is not None
    assert made.after.addresses.field("key").to_pylist() == [b"7/a", b"7/b"]
