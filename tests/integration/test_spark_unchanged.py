"""Values that an update left alone, and what rules compute from them."""

from __future__ import annotations

from typing import Any

import pytest

from psql_streamer.model import Changes, ReplicaIdentity
from tests.spark_changes import (
    DELETE,
    EVERY,
    INSERT,
    UPDATE,
    Texts,
    batch,
    changes,
    column,
    lacking,
    names,
    only,
    values,
)

DOCS = (column("id", 23, key=True), column("title", 25), column("body", 25))
BY_KEY = ReplicaIdentity.DEFAULT


def unchanged_body(identity: ReplicaIdentity = BY_KEY, before: Texts | None = None) -> Changes:
    """An insert, an update that sets the body and one that leaves it alone."""
    return changes(
        [INSERT, UPDATE, UPDATE],
        after={0: [b"1", b"a", b"abc"], 1: [b"2", b"b", b"defgh"], 2: [b"3", b"c", None]},
        before={} if before is None else {2: before},
        columns=DOCS,
        absent={2: [False, False, True]},
        identity=identity,
    )


def keyed_by_text(old: bytes) -> Changes:
    """An update that leaves its key alone, which is TOASTed: PostgreSQL sends it in the old image."""
    return changes(
        [UPDATE],
        after={0: [None, b"new title", b"text"]},
        before={0: [old, None, None]},
        columns=(column("id", 25, key=True), *DOCS[1:]),
        absent={0: [True]},
        identity=BY_KEY,
    )


@pytest.mark.behaviour("D6")
def test_unchanged_toast_stays_unchanged(spark: Any) -> None:
    given = changes([UPDATE], {0: [b"1", b"1.00", b"ann", None]}, {}, absent={3: [True]})
    for rule in (EVERY, {"orders": {"sql": "SELECT meta, id FROM changes"}}):
        result = only(spark(**rule).handle(batch(given)))
        at = names(result).index("meta")
        assert result.after.absent[at].tolist() == [True]
        assert list(result.after.absent) == [at]


@pytest.mark.behaviour("D6")
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id, length(body) AS n FROM changes",
        "SELECT id, n FROM (SELECT *, length(body) + 0 AS n FROM changes)",
        "WITH lengths AS (SELECT id, length(body) AS n, _row FROM changes) SELECT * FROM lengths",
        "SELECT c.id, l.n FROM changes c LEFT JOIN (VALUES ('abc', 3), ('defgh', 5)) AS l(text, n) ON l.text = c.body",
        """SELECT id, _row, length(body) AS n FROM changes WHERE id < 2
           UNION ALL SELECT id, _row, length(body) FROM changes WHERE id >= 2""",
    ],
)
def test_what_is_computed_from_a_value_that_is_not_there_is_not_there_either(spark: Any, sql: str) -> None:
    result = only(spark(orders={"sql": sql}).handle(batch(unchanged_body())))
    assert values(result, "n") == [b"3", b"5", None]
    assert lacking(result) == {"n": [False, False, True]}


def test_what_is_computed_from_other_values_is_there(spark: Any) -> None:
    rule = {"sql": "SELECT id, upper(title) AS title, '***' AS body, _op AS kind FROM changes"}
    result = only(spark(orders=rule).handle(batch(unchanged_body())))
    assert values(result, "title") == [b"A", b"B", b"C"]
    assert values(result, "body") == [b"***"] * 3
    assert lacking(result) == {}


def test_a_default_in_place_of_a_value_that_is_not_there_is_not_taken_for_it(spark: Any) -> None:
    rule = {"sql": "SELECT id, coalesce(body, '') AS body FROM changes"}
    result = only(spark(orders=rule).handle(batch(unchanged_body())))
    assert lacking(result) == {"body": [False, False, True]}
    assert values(result, "body")[2] is None


def test_a_coerced_value_that_is_not_there_is_not_there(spark: Any) -> None:
    given = changes(
        [INSERT, UPDATE], {0: [b"1", b"7"], 1: [b"2", None]}, {}, (DOCS[0], column("body", 25)), {1: [False, True]}
    )
    result = only(spark(orders={"coerce": {"body": "int"}}).handle(batch(given)))
    assert values(result, "body") == [b"7", None]
    assert lacking(result) == {"body": [False, True]}


def test_a_function_is_followed_as_a_query_is(spark: Any) -> None:
    handler = spark(orders={"function": f"{__name__}:measure"})
    for _ in range(2):
        result = only(handler.handle(batch(unchanged_body())))
        assert values(result, "n") == [b"3", b"5", None]
        assert lacking(result) == {"n": [False, False, True]}


def measure(df: Any) -> Any:
    """A rule by function."""
    return df.selectExpr("id", "length(body) AS n", "upper(title) AS title")


@pytest.mark.behaviour("D6")
def test_under_full_a_rule_sees_the_value_of_the_old_row(spark: Any) -> None:
    given = unchanged_body(ReplicaIdentity.FULL, before=[b"3", b"old", b"an old body"])
    rule = {"sql": "SELECT id, length(body) AS n, body FROM changes WHERE length(body) > 4"}
    result = only(spark(orders=rule).handle(batch(given)))
    assert values(result, "n") == [b"5", b"11"]
    assert lacking(result) == {"body": [False, True]}, "what is passed on is the sink's to fill in or to leave out"
    assert values(result, "body") == [b"defgh", None]
    assert values(result, "body", "before") == [b"an old body"]


def test_a_key_that_an_update_left_alone_is_masked_as_it_was(spark: Any) -> None:
    rule = {"sql": "SELECT sha2(id, 256) AS id, title FROM changes"}
    result = only(spark(orders=rule).handle(batch(keyed_by_text(b"a long key"))))
    assert values(result, "id") == values(result, "id", "before")
    assert lacking(result) == {}


def test_what_is_computed_from_more_than_the_key_is_not_in_an_old_image_of_the_key_alone(spark: Any) -> None:
    given = changes([DELETE], {}, {0: [b"1", None, None]}, DOCS, identity=BY_KEY)
    rule = {"sql": "SELECT id, id + 1 AS next, length(body) AS n, body FROM changes"}
    result = only(spark(orders=rule).handle(batch(given)))
    assert values(result, "next", "before") == [b"2"]
    assert lacking(result, "before") == {"n": [True], "body": [True]}


def test_a_rule_may_ask_which_values_an_update_left_alone(spark: Any) -> None:
    rule = {"sql": "SELECT id, concat_ws(',', _unchanged) AS left_alone FROM changes"}
    result = only(spark(orders=rule).handle(batch(unchanged_body())))
    assert values(result, "left_alone") == [b"", b"", b"body"]
    assert names(result) == ["id", "left_alone"]
    assert lacking(result) == {}


def test_who_asks_whether_a_value_is_there_gets_what_he_computes(spark: Any) -> None:
    rule = {"sql": "SELECT id, IF(array_contains(_unchanged, 'body'), -1, length(body)) AS n FROM changes"}
    result = only(spark(orders=rule).handle(batch(unchanged_body())))
    assert values(result, "n") == [b"3", b"5", b"-1"]
    assert lacking(result) == {}


def test_several_columns_are_told_apart(spark: Any) -> None:
    given = changes(
        [UPDATE, UPDATE, UPDATE],
        {0: [b"1", None, b"x"], 1: [b"2", b"y", None], 2: [b"3", None, None]},
        {},
        DOCS,
        {1: [True, False, True], 2: [False, True, True]},
        identity=BY_KEY,
    )
    rule = {
        "sql": "SELECT id, upper(title) AS t, upper(body) AS b, title || body AS both, "
        "concat_ws(',', _unchanged) AS left_alone FROM changes"
    }
    result = only(spark(orders=rule).handle(batch(given)))
    assert lacking(result) == {"t": [True, False, True], "b": [False, True, True], "both": [True, True, True]}
    assert values(result, "left_alone") == [b"title", b"body", b"title,body"]


# --- new images that go out without the old one that has the value

FULL_DOCS = (*DOCS, column("tags", 25))


def retagged(new: bytes, old: bytes) -> Changes:
    """An update of the tags alone: the body is in the old image."""
    return changes(
        [UPDATE],
        {0: [b"1", b"a", None, new]},
        {0: [b"1", b"a", b"long", old]},
        FULL_DOCS,
        {2: [True]},
    )


SPLIT = "SELECT id, {body}, tag, struct(id, tag) AS _key FROM changes LATERAL VIEW explode(split(tags, ',')) AS tag"


@pytest.mark.behaviour("D6")
@pytest.mark.parametrize("order", ["", " ORDER BY tag"], ids=["kept plan", "job"])
@pytest.mark.parametrize("body", ["body", "body AS text", "upper(body) AS text"])
def test_a_part_that_an_update_adds_has_what_the_update_left_alone(spark: Any, body: str, order: str) -> None:
    given = batch(retagged(b"x,y", b"x,z"))
    result = only(spark(orders={"sql": SPLIT.format(body=body) + order}).handle(given))
    name = names(result)[1]
    added = result.op[result.after.rows].tolist().index(INSERT)
    assert values(result, "tag")[added] == b"y"
    assert values(result, name)[added].lower() == b"long"
    assert not lacking(result).get(name, [False, False])[added]


@pytest.mark.behaviour("D6")
@pytest.mark.parametrize(
    "rule",
    [
        {"where": "tags = 'in'"},
        {"where": "tags = 'in'", "rename": {"body": "text"}},
        {"where": "tags = 'in'", "coerce": {"body": "binary"}},
        {"sql": "SELECT *, body AS text FROM changes WHERE tags = 'in'"},
        {"sql": "SELECT DISTINCT * FROM changes WHERE tags = 'in'"},
        {"function": f"{__name__}:keep_in"},
    ],
)
def test_a_row_that_comes_into_a_filter_has_what_its_update_left_alone(spark: Any, rule: dict[str, Any]) -> None:
    result = only(spark(orders=rule).handle(batch(retagged(b"in", b"out"))))
    assert (result.op.tolist(), len(result.before), lacking(result)) == ([UPDATE], 0, {})
    for name in {"body", "text"}.intersection(names(result)):
        assert values(result, name) in ([b"long"], [b"\\x6c6f6e67"])


def test_a_row_that_stays_in_a_filter_keeps_what_its_update_left_alone_in_its_old_image(spark: Any) -> None:
    result = only(spark(orders={"where": "tags LIKE 'in%'"}).handle(batch(retagged(b"in", b"inner"))))
    assert lacking(result) == {"body": [True]}
    assert values(result, "body", "before") == [b"long"]


@pytest.mark.parametrize("name", ["_key", "_topic"])
def test_an_address_that_an_update_left_alone_is_known_from_the_old_image(spark: Any, name: str) -> None:
    handler = spark(orders={"sql": f"SELECT *, body AS {name} FROM changes"})
    result = only(handler.handle(batch(retagged(b"a", b"b"))))
    assert result.after.addresses is not None
    assert result.after.addresses.field(name[1:]).to_pylist() == [b"long"]
    assert handler.stats()["unaddressed"] == 0


def keep_in(df: Any) -> Any:
    """A rule by function."""
    return df.where("tags = 'in'")
