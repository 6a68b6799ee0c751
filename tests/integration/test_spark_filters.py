"""What rules drop, and what they do not: nothing that they cannot judge."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from psql_streamer.cells import CellTable
from psql_streamer.errors import HandlerRefused
from psql_streamer.events.rows import Keys, split
from psql_streamer.events.unchanged import Unchanged
from psql_streamer.model import Changes, ReplicaIdentity
from tests.spark_changes import (
    DELETE,
    INSERT,
    ORDERS,
    UPDATE,
    Texts,
    batch,
    changes,
    column,
    lacking,
    only,
    shop,
    values,
)

BY_KEY, FULL = ReplicaIdentity.DEFAULT, ReplicaIdentity.FULL
DOCS = (column("id", 23, key=True), column("tenant", 23), column("body", 25))
RICH: Texts = [b"1", b"10.00", b"ann", None]
POOR: Texts = [b"1", b"-1.00", b"ann", None]


def moved(new: Texts, identity: ReplicaIdentity = BY_KEY, old: Texts | None = None) -> Changes:
    """An update that gives the row 9 the key of `new`."""
    return changes([UPDATE], {0: new}, {0: old or [b"9", None, None, None]}, identity=identity)


def deleted(*ids: bytes) -> Changes:
    return changes(
        [DELETE] * len(ids), {}, {row: [one, None, None, None] for row, one in enumerate(ids)}, identity=BY_KEY
    )


def left_alone(*tenants: bytes) -> Changes:
    """Updates of documents that leave their bodies alone."""
    rows: dict[int, Texts] = {row: [b"%d" % row, tenant, None] for row, tenant in enumerate(tenants)}
    return changes([UPDATE] * len(rows), rows, {}, DOCS, {2: [True] * len(rows)}, "docs", BY_KEY)


def told(part: Changes) -> list[tuple[str, list[Any]]]:
    """What consumers are told: (action, values of the key) in the order of the events."""
    key = tuple(at for at, one in enumerate(part.columns) if one.key)
    return [
        (rows.op.action, rows.select_key_cells(rows.image).tuples.values.to_pylist())
        for rows in split(CellTable.from_changes([part]), Keys([key]), Unchanged())
    ]


def test_a_filter_drops_the_row_and_its_old_image(spark: Any) -> None:
    rule = {"sql": "SELECT * FROM changes WHERE NOT (_op = 'update' AND _image = 'after')", "onLeave": "keep"}
    result = only(spark(orders=rule).handle(batch(shop())))
    assert result.op.tolist() == [INSERT, DELETE, INSERT]
    assert result.batch_order.tolist() == [0, 20, 30]
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


# --- old images that hold the key alone


@pytest.mark.behaviour("K6")
@pytest.mark.parametrize("where", ["amount > 0", "amount > 0 OR _op = 'delete'", "_image = 'after'", "id < 5"])
def test_the_old_key_of_an_update_passes_every_filter(spark: Any, where: str) -> None:
    result = only(spark(orders={"sql": f"SELECT * FROM changes WHERE {where}"}).handle(batch(moved(RICH))))
    assert told(result) == [("delete", [b"9"]), ("insert", [b"1"])]


@pytest.mark.behaviour("K6")
@pytest.mark.parametrize("where", ["amount > 0", "amount > 0 AND customer <> 'x'", "id < 5"])
def test_deletes_that_hold_the_key_alone_pass_every_filter(spark: Any, where: str) -> None:
    result = only(spark(orders={"sql": f"SELECT * FROM changes WHERE {where}"}).handle(batch(deleted(b"7", b"9"))))
    assert told(result) == [("delete", [b"7", b"9"])]
    assert lacking(result, "before") == {"amount": [True] * 2, "customer": [True] * 2, "meta": [True] * 2}


def test_a_query_may_give_row_its_own_name_again(spark: Any) -> None:
    rule = {"sql": "SELECT id, _row FROM (SELECT id, amount, _row AS _row FROM changes WHERE amount > 0)"}
    result = only(spark(orders=rule).handle(batch(deleted(b"1", b"2"))))
    assert values(result, "id", "before") == [b"1", b"2"]


def test_the_key_of_such_a_row_is_computed_by_the_rule(spark: Any) -> None:
    rule = {
        "sql": "SELECT sha2(CAST(id AS STRING), 256) AS id, customer FROM "
        "(SELECT * FROM changes WHERE customer <> 'x') WHERE amount > 0"
    }
    first = only(spark(orders=rule).handle(batch(changes([INSERT], {0: RICH}, {}, identity=BY_KEY))))
    gone = only(spark(orders=rule).handle(batch(deleted(b"1"))))
    assert values(first, "id") == values(gone, "id", "before")
    assert len(values(gone, "id", "before")[0]) == 64


@pytest.mark.behaviour("K6")
@pytest.mark.parametrize("identity", [BY_KEY, FULL], ids=lambda one: one.name.lower())
def test_an_update_that_takes_a_row_out_of_a_filter_and_changes_its_key_is_a_delete_of_the_old_key(
    spark: Any, identity: ReplicaIdentity
) -> None:
    old: Texts = [b"9", b"5.00", b"ann", None] if identity is FULL else [b"9", None, None, None]
    given = moved(POOR, identity, old)
    result = only(spark(orders={"sql": "SELECT * FROM changes WHERE amount > 0"}).handle(batch(given)))
    assert told(result) == [("delete", [b"9"])]
    for name in ("batch_order", "seq", "place", "tx"):
        assert getattr(result, name).tolist() == getattr(given, name).tolist()


FILTERS: list[dict[str, Any]] = [{"sql": "SELECT * FROM changes WHERE amount > 0"}, {"where": "amount > 0"}]


@pytest.mark.behaviour("K11")
@pytest.mark.parametrize("rule", FILTERS, ids=["query", "step"])
def test_an_update_that_takes_a_row_out_of_a_filter_is_a_delete(spark: Any, rule: dict[str, Any]) -> None:
    given = changes(
        [UPDATE, UPDATE, UPDATE],
        {0: POOR, 1: RICH, 2: POOR},
        {0: [b"1", b"5.00", b"ann", None], 1: [b"1", b"5.00", b"ann", None], 2: [b"1", b"-5.00", b"ann", None]},
    )
    result = only(spark(orders=rule).handle(batch(given)))
    assert result.op.tolist() == [DELETE, UPDATE]
    assert values(result, "amount", "before") == [b"5.00", b"5.00"]
    assert values(result, "amount", "after") == [b"10.00"]
    assert result.seq.tolist() == given.seq.tolist()[:2]


@pytest.mark.behaviour("K11")
@pytest.mark.parametrize("rule", FILTERS, ids=["query", "step"])
def test_a_rule_may_leave_such_a_row_with_consumers(spark: Any, rule: dict[str, Any]) -> None:
    given = changes([UPDATE], {0: POOR}, {0: [b"1", b"5.00", b"ann", None]})
    assert spark(orders=rule | {"onLeave": "keep"}).handle(batch(given)).changes == ()


def test_a_row_of_which_the_old_values_are_not_known_is_left_with_consumers(spark: Any) -> None:
    given = changes([UPDATE], {0: POOR}, {}, identity=BY_KEY)
    assert spark(orders=FILTERS[0]).handle(batch(given)).changes == ()


def test_a_row_that_is_put_aside_is_not_deleted_where_others_leave_the_filter(spark: Any) -> None:
    rule = {
        "where": "amount > 0",
        "sql": "SELECT *, CAST(customer AS INT) AS n FROM changes",
        "onError": "dead-letter",
    }
    given = changes(
        [UPDATE, UPDATE],
        {0: [b"1", b"7.00", b"ann", None], 1: [b"2", b"-1.00", b"3", None]},
        {0: [b"1", b"5.00", b"4", None], 1: [b"2", b"5.00", b"3", None]},
    )
    result = spark(orders=rule).handle(batch(given))
    assert told(only(result)) == [("delete", [b"2"])]
    assert len(result.rejections) == 1


def test_the_delete_of_a_row_that_has_left_a_filter_is_dropped_where_its_old_row_says_so(spark: Any) -> None:
    handler = spark(orders={"sql": "SELECT * FROM changes WHERE amount > 0"})
    assert handler.handle(batch(changes([DELETE], {}, {0: POOR}))).changes == ()
    assert told(only(handler.handle(batch(deleted(b"1"))))) == [("delete", [b"1"])]


def test_an_old_row_that_a_filter_never_admitted_is_not_deleted(spark: Any) -> None:
    given = moved(POOR, FULL, [b"9", b"-5.00", b"ann", None])
    assert spark(orders={"sql": "SELECT * FROM changes WHERE amount > 0"}).handle(batch(given)).changes == ()


def test_a_row_without_a_key_that_leaves_a_filter_is_deleted_unless_it_is_to_be_kept(spark: Any) -> None:
    columns = tuple(replace(one, key=False) for one in ORDERS)
    given = changes([UPDATE], {0: POOR}, {0: [b"9", b"5.00", b"ann", None]}, columns)
    assert spark(orders=FILTERS[0] | {"onLeave": "keep"}).handle(batch(given)).changes == ()
    assert told(only(spark(orders=FILTERS[0]).handle(batch(given)))) == [("delete", [])]


def test_a_toasted_key_that_an_update_left_alone_has_not_changed_and_its_row_leaves_a_filter(spark: Any) -> None:
    columns = (column("id", 25, key=True), *ORDERS[1:])
    given = changes(
        [UPDATE],
        {0: [None, b"-1.00", b"a", None]},
        {0: [b"key", None, None, None]},
        columns,
        {0: [True]},
        identity=BY_KEY,
    )
    assert spark(orders=FILTERS[0] | {"onLeave": "keep"}).handle(batch(given)).changes == ()
    assert told(only(spark(orders=FILTERS[0]).handle(batch(given)))) == [("delete", [b"key"])]


def test_a_condition_that_names_key_only_is_taken_as_it_stands(spark: Any) -> None:
    rule = {"sql": "SELECT * FROM changes WHERE amount > 0 AND NOT (_key_only AND _op = 'delete')"}
    assert spark(orders=rule).handle(batch(deleted(b"7"))).changes == ()
    assert told(only(spark(orders=rule).handle(batch(moved(RICH))))) == [("delete", [b"9"]), ("insert", [b"1"])]


def test_key_only_says_which_images_hold_the_key_alone(spark: Any) -> None:
    rule = {"sql": "SELECT id, _key_only AS alone FROM changes"}
    keyed = only(spark(orders=rule).handle(batch(moved(RICH))))
    assert (values(keyed, "alone"), values(keyed, "alone", "before")) == ([b"f"], [b"t"])
    whole = only(spark(orders=rule).handle(batch(shop())))
    assert values(whole, "alone", "before") == [b"f", b"f"]


# --- filters that read what an update left alone


@pytest.mark.behaviour("K6")
def test_a_row_passes_a_filter_that_reads_what_its_update_left_alone(
    spark: Any, caplog: pytest.LogCaptureFixture
) -> None:
    handler = spark(docs={"sql": "SELECT id, upper(body) AS body FROM changes WHERE length(body) > 10"})
    given = changes(
        [INSERT, UPDATE, INSERT],
        {0: [b"1", b"5", b"short"], 1: [b"2", b"5", None], 2: [b"3", b"5", b"long enough"]},
        {},
        DOCS,
        {2: [False, True, False]},
        table="docs",
    )
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            result = only(handler.handle(batch(given)))
            assert values(result, "id") == [b"2", b"3"]
            assert lacking(result) == {"body": [True, False]}
    assert handler.stats()["passed_unknown"] == 2
    assert [record.message for record in caplog.records] == [
        "public.docs, rule 'docs': a filter reads body, which some updates do not change or send: their rows pass"
    ]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM changes WHERE tenant = 5 AND length(body) > 10",
        "SELECT * FROM changes WHERE length(body) > 10 AND body <> 'x' AND tenant = 5",
        "SELECT * FROM (SELECT *, length(body) AS n FROM changes WHERE tenant = 5) WHERE n > 10",
    ],
)
def test_what_the_rule_can_judge_is_judged_all_the_same(spark: Any, sql: str) -> None:
    result = only(spark(docs={"sql": sql}).handle(batch(left_alone(b"5", b"6", b"5"))))
    assert values(result, "tenant") == [b"5", b"5"]


def test_a_filter_in_a_function_is_treated_as_one_in_a_query(spark: Any) -> None:
    handler = spark(docs={"function": f"{__name__}:long_ones"})
    for tenants in ([b"5", b"6"], [b"6", b"5", b"5"]):
        result = only(handler.handle(batch(left_alone(*tenants))))
        assert set(values(result, "tenant")) == {b"5"}
        assert len(result) == tenants.count(b"5")


def long_ones(df: Any) -> Any:
    """A rule by function."""
    return df.where("length(body) > 10").where("tenant = 5")


def test_a_condition_that_names_unchanged_is_taken_as_it_stands(spark: Any) -> None:
    rule = {"sql": "SELECT * FROM changes WHERE NOT array_contains(_unchanged, 'body') AND tenant = 5"}
    handler = spark(docs=rule)
    assert handler.handle(batch(left_alone(b"5", b"6"))).changes == ()
    assert handler.stats()["passed_unknown"] == 0


# --- where no filter can be made to let rows pass


LOOKUP = "(VALUES ('a long body', 'x'), ('another', 'y')) AS l(text, mark)"


def test_a_row_that_a_join_drops_because_it_finds_nothing_by_a_missing_value_is_put_back(spark: Any) -> None:
    rule = {"sql": f"SELECT c.id, c.tenant, l.mark FROM changes c JOIN {LOOKUP} ON l.text = c.body"}
    given = changes(
        [INSERT, UPDATE, INSERT],
        {0: [b"1", b"5", b"a long body"], 1: [b"2", b"5", None], 2: [b"3", b"5", b"not there"]},
        {},
        DOCS,
        {2: [False, True, False]},
        table="docs",
    )
    result = only(spark(docs=rule).handle(batch(given)))
    assert values(result, "id") == [b"1", b"2"]
    assert values(result, "tenant") == [b"5", b"5"]
    assert lacking(result) == {"mark": [False, True]}
    assert result.seq.tolist() == [0, 1]


def test_an_old_key_that_a_join_drops_is_put_back(spark: Any) -> None:
    rule = {
        "sql": "SELECT c.*, l.mark FROM changes c JOIN (VALUES ('ann', 'x')) AS l(name, mark) ON l.name = c.customer"
    }
    result = only(spark(orders=rule).handle(batch(moved(RICH))))
    assert told(result) == [("delete", [b"9"]), ("insert", [b"1"])]
    assert values(result, "mark") == [b"x"]
    assert lacking(result, "before")["mark"] == [True]


def test_what_a_join_drops_for_another_reason_stays_dropped(spark: Any) -> None:
    rule = {"sql": "SELECT c.id, c.body FROM changes c JOIN (VALUES (5)) AS l(tenant) ON l.tenant = c.tenant"}
    result = only(spark(docs=rule).handle(batch(left_alone(b"5", b"6"))))
    assert values(result, "id") == [b"0"]


def test_a_row_whose_computed_key_cannot_be_put_back_is_refused_with_what_to_write(spark: Any) -> None:
    rule = {
        "sql": "SELECT sha2(CAST(c.id AS STRING), 256) AS id, l.mark FROM changes c "
        "JOIN (VALUES ('secret', 'x')) AS l(name, mark) ON l.name = c.customer"
    }
    with pytest.raises(HandlerRefused, match=r"computes the key column id.*OR _key_only") as refused:
        spark(orders=rule).handle(batch(moved([b"1", b"10.00", b"secret", None])))
    assert "secret" not in str(refused.value)
