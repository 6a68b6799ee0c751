"""Rows that a rule cannot take go out with null for what it cannot compute; the others, and what it passes on, stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from psql_streamer.errors import HandlerRefused
from psql_streamer.model import Changes, ReplicaIdentity
from psql_streamer.spark.handler import SparkHandler
from tests.spark_changes import DELETE, INSERT, UPDATE, Texts, batch, changes, column, lacking, names, only, values

NUMBERS = (column("id", 23, key=True), column("a", 25), column("b", 23), column("tenant", 23))
NULL = {"on_error": "null"}
ASIDE = {"on_error": "dead-letter"}


def numbers(*rows: tuple[bytes | None, bytes | None]) -> Changes:
    """Rows of tenant 5, but the last, which is of 6."""
    last = len(rows) - 1
    texts: dict[int, Texts] = {at: [b"%d" % at, a, b, b"6" if at == last else b"5"] for at, (a, b) in enumerate(rows)}
    return changes([INSERT] * len(rows), texts, {}, NUMBERS, table="numbers")


ROWS = numbers((b"1", b"2"), (b"secret", b"2"), (b"3", b"0"), (b"secret", b"0"), (None, None), (b"secret", b"0"))


def jobs_of(handler: SparkHandler, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what runs a job, from now on."""
    jobs: list[str] = []
    for name in ("run", "run_tolerantly", "find_uncoercible"):
        monkeypatch.setattr(handler._runner, name, noted(jobs, name, getattr(handler._runner, name)))
    return jobs


def noted(jobs: list[str], name: str, method: Any) -> Any:
    def call(job: Any) -> Any:
        jobs.append(name)
        return method(job)

    return call


def told(caplog: Any) -> list[str]:
    return [record.getMessage().partition(": ")[2] for record in caplog.records]


def by_name(part: Changes, *columns: str) -> list[list[Any]]:
    return [values(part, name) for name in columns]


def test_a_value_that_cannot_be_coerced_is_null_and_the_rule_goes_on_with_it(
    spark: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    rule = {"coerce": {"a": "int"}, "sql": "SELECT *, coalesce(a, -1) AS n FROM changes"}
    handler = spark(NULL, numbers=rule)
    jobs = jobs_of(handler, monkeypatch)
    for times in (1, 2):
        result = handler.handle(batch(ROWS))
        assert by_name(only(result), "a", "b", "n") == [
            [b"1", None, b"3", None, None, None],
            [b"2", b"2", b"0", b"0", None, b"0"],
            [b"1", b"-1", b"3", b"-1", b"-1", b"-1"],
        ]
        assert result.rejections == ()
        assert handler.stats()["nulled"] == 3 * times
    assert jobs == ["run", "find_uncoercible", "run"] * 2
    assert told(caplog) == ["a cannot be computed for some rows: it is null in them"]
    assert "secret" not in caplog.text


def test_what_an_expression_cannot_compute_is_null_and_the_rest_of_the_row_stays(
    spark: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    sql = "SELECT id, b AS same, CAST(a AS INT) AS n, CAST(a AS INT) + 10 / b AS q, b + 1 AS c FROM changes"
    handler = spark(NULL, numbers={"sql": sql})
    jobs = jobs_of(handler, monkeypatch)
    result = only(handler.handle(batch(ROWS)))
    assert names(result) == ["id", "same", "n", "q", "c"]
    assert by_name(result, "same", "n", "q", "c") == [
        [b"2", b"2", b"0", b"0", None, b"0"],
        [b"1", None, b"3", None, None, None],
        [b"6", None, None, None, None, None],
        [b"3", b"3", b"1", b"1", None, b"1"],
    ]
    assert jobs == ["run", "run_tolerantly"]
    assert handler.stats()["nulled"] == 3 + 4
    assert told(caplog) == [f"{name} cannot be computed for some rows: it is null in them" for name in ("n", "q")]
    assert "secret" not in caplog.text


@pytest.mark.parametrize("setting", ["", "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation"])
def test_it_is_the_same_with_generated_code_and_without(spark: Any, setting: str) -> None:
    sql = "SELECT *, CAST(a AS INT) AS n, CAST(a AS INT) + 1 AS m FROM changes WHERE CAST(a AS INT) + 10 / b > 2"
    handler = spark(NULL, numbers={"sql": sql})
    handler._pool.spark.conf.set("spark.sql.optimizer.excludedRules", setting)
    result = only(handler.handle(batch(ROWS)))
    assert by_name(result, "id", "n", "m") == [
        [b"0", b"1", b"2", b"3", b"5"],
        [b"1", None, b"3", None, None],
        [b"2", None, b"4", None, None],
    ]


def test_a_condition_that_cannot_be_computed_lets_its_row_pass_and_others_judge_it(spark: Any, caplog: Any) -> None:
    handler = spark(NULL, numbers={"where": "10 / b > 1 AND tenant = 5"})
    result = only(handler.handle(batch(ROWS)))
    assert values(result, "id") == [b"0", b"1", b"2", b"3"], "the last one is of another tenant, 4 has no b"
    assert handler.stats()["nulled"] == 2
    assert told(caplog) == ["a condition cannot be computed for some rows: they pass"]


def test_a_row_that_a_condition_keeps_from_failing_does_not_fail(spark: Any) -> None:
    sql = "SELECT *, CASE WHEN b <> 0 THEN 10 / b END AS q, CAST(a AS INT) AS n FROM changes WHERE b IS NOT NULL"
    handler = spark(NULL, numbers={"sql": sql})
    result = only(handler.handle(batch(ROWS)))
    assert values(result, "q") == [b"5", b"5", None, None, None]
    assert handler.stats()["nulled"] == 3


def test_images_that_hold_the_key_alone_and_values_left_alone_stay_missing(spark: Any) -> None:
    given = changes(
        [UPDATE, UPDATE, DELETE],
        {0: [b"1", None, b"0", b"5"], 1: [b"2", b"secret", b"1", b"5"]},
        {2: [b"3", None, None, None]},
        NUMBERS, {1: [True, False]}, "numbers", ReplicaIdentity.DEFAULT,
    )  # fmt: skip
    sql = "SELECT id, CAST(a AS INT) AS n, 10 / b AS q FROM changes WHERE tenant = 5"
    result = only(spark(NULL, numbers={"sql": sql}).handle(batch(given)))
    assert lacking(result) == {"n": [True, False]}
    assert by_name(result, "n", "q") == [[None, None], [None, b"10"]]
    assert values(result, "id", "before") == [b"3"]
    assert lacking(result, "before") == {"n": [True], "q": [True]}


def inverse(df: Any) -> Any:
    """A rule by function, with Python code that runs on every value."""
    from pyspark.sql.functions import col, udf

    return df.where("tenant = 5").withColumn("n", udf(lambda b: str(1 // b))("b")).withColumn("more", col("b") + 2)


def test_a_column_whose_python_function_fails_is_null_and_the_others_are_computed(spark: Any) -> None:
    handler = spark(NULL, numbers={"function": f"{__name__}:inverse"})
    result = handler.handle(batch(numbers(*[(b"1", b"1")] * 5, (b"1", b"0"), (b"1", b"0"))))
    rows = sorted(
        (seq, n) for part in result.changes for seq, n in zip(part.seq.tolist(), values(part, "n"), strict=True)
    )
    assert rows == [*((at, b"1") for at in range(5)), (5, None)]
    assert sorted(more for part in result.changes for more in values(part, "more")) == [b"2", *[b"3"] * 5]
    assert handler.stats()["nulled"] == 1


_TO_XML = "to_xml(named_struct('m', map(a, id)))"
_TO_JSON = "to_json(named_struct('id', id, 'd', IF(a = 'no name <', DATE'2026-01-01', NULL)), map('dateFormat', 'HH'))"


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        pytest.param(_TO_XML, NULL, id="to_xml-null"),
        pytest.param(_TO_XML, ASIDE, id="to_xml-dead-letter", marks=pytest.mark.soak),
        pytest.param(_TO_JSON, NULL, id="to_json-null", marks=pytest.mark.soak),
        pytest.param(_TO_JSON, ASIDE, id="to_json-dead-letter", marks=pytest.mark.soak),
    ],
)
def test_nothing_of_a_row_that_fails_while_it_is_written_is_in_the_next(spark: Any, text: str, mode: Any) -> None:
    given = numbers((b"one", b"1"), (b"no name <", b"2"), (b"two", b"3"), (b"no name <", b"4"), (b"three", b"5"))
    rule = {"sql": f"SELECT *, {text} AS v FROM changes"}
    good = np.array([0, 2, 4])
    expected = values(only(spark(NULL, numbers=rule).handle(batch(given.take(good)))), "v")
    made = spark(mode, numbers=rule).handle(batch(given)).changes
    found = {seq: value for part in made for seq, value in zip(part.seq.tolist(), values(part, "v"), strict=True)}
    assert [found.pop(seq) for seq in good.tolist()] == expected
    assert set(found.values()) <= {None}


@pytest.mark.parametrize(
    "rule",
    [{"coerce": {"id": "tinyint"}}, {"sql": "SELECT CAST(id AS TINYINT) AS id, b FROM changes"}],
)
def test_a_key_that_cannot_be_computed_stops(spark: Any, rule: Any) -> None:
    given = changes([INSERT], {0: [b"1000", b"1", b"1", b"1"]}, {}, NUMBERS, table="numbers")
    with pytest.raises(HandlerRefused, match=r"key column id .* and a key cannot be null"):
        spark(NULL, numbers=rule).handle(batch(given))


def test_dead_letters_of_failed_expressions_are_found_by_one_job_with_their_column_and_condition(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = "SELECT *, CAST(a AS INT) AS n, 10 / b AS q FROM changes WHERE tenant = 5"
    handler = spark(ASIDE, numbers={"sql": sql})
    jobs = jobs_of(handler, monkeypatch)
    result = handler.handle(
        batch(numbers(*[(b"1", b"2")] * 500, *[(b"secret", b"0"), (b"1", b"0")] * 250, (b"x", b"0")))
    )
    assert [(one.column, one.reason, len(one.changes)) for one in result.rejections] == [
        ("n", "public.numbers, rule 'numbers': Spark ended with CAST_INVALID_INPUT", 250),
        ("q", "public.numbers, rule 'numbers': Spark ended with DIVIDE_BY_ZERO", 250),
    ]
    assert values(result.rejections[0].changes, "a")[0] == b"secret"
    assert only(result).seq.tolist() == list(range(500)), "the last row is not of the tenant"
    asked = ["run"] * 20
    assert jobs == ["run", "run_tolerantly", *asked, "run"]


def test_what_nobody_reads_puts_no_row_aside(spark: Any) -> None:
    sql = "SELECT id, CAST(a AS INT) AS n FROM (SELECT *, 10 / b AS q FROM changes)"
    result = spark(ASIDE, numbers={"sql": sql}).handle(batch(ROWS))
    assert [one.changes.seq.tolist() for one in result.rejections] == [[1, 3, 5]]
    assert only(result).seq.tolist() == [0, 2, 4]


def test_a_rule_that_stops_names_a_change_and_the_column(spark: Any) -> None:
    with pytest.raises(HandlerRefused) as refused:
        spark(numbers={"sql": "SELECT *, 10 / b AS q FROM changes"}).handle(batch(ROWS))
    assert str(refused.value).startswith(
        "public.numbers, rule 'numbers': Spark ended with DIVIDE_BY_ZERO: column q cannot be computed in change "
        "(16/B374D848, 2): make the rule accept every value, with try_cast"
    )
