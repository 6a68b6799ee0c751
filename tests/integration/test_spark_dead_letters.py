"""Rows that a rule cannot take: they stop the pipeline, or are put aside and the others go on."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import date
from typing import Any
from unittest.mock import patch

import pytest

from psql_streamer.errors import HandlerError, HandlerRefused
from psql_streamer.model import Changes, Rejection
from psql_streamer.spark import telling
from psql_streamer.spark.handler import SparkHandler
from psql_streamer.spark.options import SparkOptions
from psql_streamer.spark.rules import Rules
from psql_streamer.spark.tolerating import FAILED
from tests.spark_changes import DELETE, INSERT, UPDATE, Texts, batch, changes, column, only, values

DOCUMENTS = (column("id", 23, key=True), column("amount", 25), column("meta", 3802))
ASIDE = {"on_error": "dead-letter"}


def documents(*rows: tuple[bytes, bytes], table: str = "docs") -> Changes:
    texts: dict[int, Texts] = {at: [b"%d" % at, *row] for at, row in enumerate(rows)}
    return changes([INSERT] * len(rows), texts, {}, DOCUMENTS, table=table)


def runs_of(handler: SparkHandler, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each attempt to run a rule has, from now on."""
    runs: list[int] = []
    run = handler._runner.run

    def counting(job: Any) -> Any:
        runs.append(len(job.changes))
        return run(job)

    monkeypatch.setattr(handler._runner, "run", counting)
    return runs


TO_XML = "to_xml(named_struct('m', map(amount, id)))"


@pytest.mark.parametrize(
    "source", [pytest.param("changes", marks=pytest.mark.soak), "(SELECT /*+ REPARTITION(2) */ * FROM changes)"]
)
def test_a_row_whose_value_makes_a_function_of_java_fail_is_put_aside(spark: Any, source: str) -> None:
    handler = spark(docs={"sql": f"SELECT *, {TO_XML} AS v FROM {source}", **ASIDE})
    result = handler.handle(batch(documents((b"name", b"1"), (b"no name of XML <", b"2"), (b"other", b"3"))))
    assert sorted(seq for part in result.changes for seq in part.seq.tolist()) == [0, 2]
    (reason, _, rows), *others = told(result.rejections)
    assert (rows, others) == ([1], [])
    assert reason.endswith("javax.xml.stream.XMLStreamException")
    assert "no name" not in reason


def told(rejections: tuple[Rejection, ...]) -> list[tuple[str, str | None, list[int]]]:
    return [(one.reason, one.column, one.changes.seq.tolist()) for one in rejections]


def test_rows_that_are_put_aside_in_every_batch_are_told_once_in_a_while_and_all_counted(
    spark: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    handler = spark(docs={"sql": "SELECT *, CAST(amount AS INT) AS n FROM changes", **ASIDE})
    for _ in range(3):
        handler.handle(batch(documents((b"no number", b"{}"), (b"1", b"{}"))))
    lines = [record.getMessage().partition(": ")[0] for record in caplog.records]
    assert lines == ["public.docs, rule 'docs'", "1 rows are put aside"]
    monkeypatch.setattr(telling, "_QUIET_SECONDS", 0.0)
    handler.handle(batch(documents((b"no number", b"{}"))))
    assert "3 rows are put aside: public.docs, rule 'docs': Spark ended with CAST_INVALID_INPUT" in caplog.text
    assert handler.stats()["dead_lettered"] == 4


@pytest.mark.behaviour("K5")
def test_values_that_cannot_be_coerced_are_put_aside_in_one_go(
    spark: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rule = {"coerce": {"amount": "int", "meta": "struct<a: int>"}, "sql": "SELECT * FROM changes WHERE id <> 1"}
    handler = spark(docs={**rule, **ASIDE})
    runs = runs_of(handler, monkeypatch)
    good, bad, worse = (b"1", b'{"a": 1}'), (b"secret", b'{"a": 1}'), (b"1", b'{"a": "secret"}')
    given = documents(good, good, bad, worse, *[bad, good] * 200)
    result = handler.handle(batch(given))
    assert runs == [404, 202]
    assert only(result).seq.tolist() == [0, *range(5, 404, 2)]
    of_amount, of_meta = result.rejections
    assert of_amount.changes.seq.tolist() == [2, *range(4, 404, 2)]
    assert told((of_meta,)) == [
        ("public.docs, rule 'docs': the value of column meta cannot be coerced to struct<a: int>", "meta", [3])
    ]
    assert (of_amount.rule, of_amount.column) == ("docs", "amount")
    assert of_amount.changes.columns == DOCUMENTS
    assert values(of_amount.changes, "amount")[0] == b"secret"
    assert of_amount.changes.batch_order.tolist()[:2] == [20, 40]
    assert handler.stats()["dead_lettered"] == 202
    assert handler.status().reason.endswith("202 of them put aside")
    assert "secret" not in caplog.text
    assert not any("202" in record.getMessage() for record in caplog.records)
    assert "201 rows are put aside: public.docs, rule 'docs': the value of column amount" in caplog.text


def test_a_bad_old_image_takes_its_whole_change_aside(spark: Any) -> None:
    given = changes(
        [INSERT, UPDATE, DELETE],
        {0: [b"1", b"1", None], 1: [b"2", b"2", None]},
        {1: [b"2", b"bad", None], 2: [b"3", b"3", None]},
        DOCUMENTS,
        table="docs",
    )
    result = spark(docs={"coerce": {"amount": "int"}, **ASIDE}).handle(batch(given))
    assert only(result).seq.tolist() == [0, 2]
    assert values(result.rejections[0].changes, "amount", "before") == [b"bad"]


@pytest.mark.behaviour("K5")
@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ({"sql": "SELECT id, CAST(amount AS INT) AS n FROM changes"}, "Spark ended with CAST_INVALID_INPUT"),
        ({"function": f"{__name__}:inverse"}, "Spark ended with UDF_ERROR.PAYLOAD"),
    ],
)
def test_rows_on_which_a_job_fails_are_found_and_put_aside(
    spark: Any, monkeypatch: pytest.MonkeyPatch, rule: dict[str, str], reason: str
) -> None:
    handler = spark(docs={**rule, **ASIDE})
    runs = runs_of(handler, monkeypatch)
    texts = [b"5"] * 100
    texts[17] = texts[18] = b"secret"
    result = handler.handle(batch(documents(*((text, b"{}") for text in texts))))
    seqs = [seq for part in result.changes for seq in part.seq.tolist()]
    assert seqs == [seq for seq in range(100) if seq not in (17, 18)]
    assert [one.changes.seq.tolist() for one in result.rejections] == [[17, 18]]
    assert "secret" not in result.rejections[0].reason
    assert result.rejections[0].reason.startswith("public.docs, rule 'docs': Spark ended with")
    assert len(runs) < 25


def inverse(df: Any) -> Any:
    """A rule by function, with Python code that runs on every value."""
    from pyspark.sql.functions import udf

    return df.withColumn("n", udf(lambda amount: str(1 / int(amount)))("amount"))


def python_of_every_kind(df: Any) -> Any:
    """Functions in columns, in one another, in a part of an expression, and in a condition."""
    from pyspark.sql.functions import lit, udf

    number = udf(lambda text: int(text), "int", useArrow=True)
    days = udf(lambda days: {"days": [date(2026, 1, days)]}, "map<string, array<date>>", useArrow=False)
    is_small = udf(lambda text: int(text) < 30, "boolean", useArrow=False)
    return df.filter(is_small("amount")).withColumn("n", number("amount") + lit(1)).withColumn("d", days("n"))


@pytest.mark.soak
@pytest.mark.parametrize(
    ("rule", "column", "bad"),
    [("inverse", "n", 0), pytest.param("python_of_every_kind", None, "x", marks=pytest.mark.soak)],
)
def test_many_rows_on_which_a_python_function_fails_are_found_by_one_job(
    spark: Any, monkeypatch: pytest.MonkeyPatch, rule: str, column: str | None, bad: Any
) -> None:
    handler = spark(docs={"function": f"{__name__}:{rule}", **ASIDE})
    runs = runs_of(handler, monkeypatch)
    texts = [b"5" if row % 3 else str(bad).encode() for row in range(300)]
    result = handler.handle(batch(documents(*((text, b"{}") for text in texts))))
    put_aside = sorted(row for _, where, rows in told(result.rejections) for row in rows if where == column)
    assert put_aside == [row for row in range(300) if not row % 3]
    assert len(only(result)) == 200
    assert len(runs) <= 12, "all rows, ten of those that fail, and the rest"


@pytest.mark.soak
def test_of_several_python_functions_the_one_that_failed_is_named(spark: Any) -> None:
    handler = spark(docs={"function": f"{__name__}:python_of_every_kind", **ASIDE})
    result = handler.handle(batch(documents((b"5", b"{}"), (b"-1", b"{}"), (b"99", b"{}"))))
    [(reason, column, rows)] = told(result.rejections)
    assert (column, rows) == ("d", [1])
    assert "ValueError" in reason
    assert values(only(result), "n") == [b"6"], "99 is none of those that the condition lets pass"


def pandas_inverse(df: Any) -> Any:
    """Code that gets many rows at once."""
    from pyspark.sql.functions import pandas_udf

    return df.withColumn(
        "n", pandas_udf(lambda amounts: amounts.map(lambda one: str(1 / int(one))), "string")("amount")
    )


def test_a_row_on_which_a_pandas_function_fails_is_found_by_halves(spark: Any) -> None:
    pytest.importorskip("pandas", reason="pandas functions need pandas")
    handler = spark(docs={"function": f"{__name__}:pandas_inverse", **ASIDE})
    result = handler.handle(batch(documents((b"5", b"{}"), (b"0", b"{}"), (b"4", b"{}"))))
    assert [one.changes.seq.tolist() for one in result.rejections] == [[1]]
    assert sorted(text for part in result.changes for text in values(part, "n")) == [b"0.2", b"0.25"]


FAILS_IN_TWO_WAYS = "CASE WHEN id % 2 = 1 THEN 1 / (id % 2 - 1) ELSE CAST(amount AS INT) END"


def test_rows_that_fail_in_one_column_for_different_reasons_have_each_its_own(spark: Any) -> None:
    handler = spark(docs={"sql": f"SELECT *, {FAILS_IN_TWO_WAYS} AS v FROM changes", **ASIDE})
    result = handler.handle(batch(documents((b"x", b"1"), (b"1", b"1"), (b"2", b"1"), (b"y", b"1"))))
    assert told(result.rejections) == [
        ("public.docs, rule 'docs': Spark ended with CAST_INVALID_INPUT", "v", [0]),
        ("public.docs, rule 'docs': Spark ended with DIVIDE_BY_ZERO", "v", [1, 3]),
    ]


def test_more_rows_than_are_asked_one_by_one_are_told_all_the_reasons_that_were_found(spark: Any) -> None:
    handler = spark(docs={"sql": f"SELECT *, {FAILS_IN_TWO_WAYS} AS v FROM changes", **ASIDE})
    result = handler.handle(batch(documents(*[(b"x", b"1")] * 100)))
    by_parity = ["CAST_INVALID_INPUT", "DIVIDE_BY_ZERO"]
    put_aside = [
        (row, reason.rpartition(" ended with ")[2]) for reason, _, rows in told(result.rejections) for row in rows
    ]
    assert sorted(row for row, _ in put_aside) == list(range(100))
    exact = [row for row, said in put_aside if said == by_parity[row % 2]]
    assert len(exact) == 10, "others are not told a reason that may be another row's"
    assert {said for row, said in put_aside if row not in exact} == {"CAST_INVALID_INPUT, or DIVIDE_BY_ZERO"}


def test_a_column_with_the_name_of_the_one_that_says_what_failed_is_like_any_other(spark: Any) -> None:
    handler = spark(docs={"sql": f"SELECT *, amount AS {FAILED}, CAST(amount AS INT) AS n FROM changes", **ASIDE})
    result = handler.handle(batch(documents((b"5", b"{}"), (b"bad", b"{}"))))
    assert values(only(result), FAILED) == [b"5"]
    assert told(result.rejections)[0][1:] == ("n", [1])


def test_the_default_of_all_rules_can_be_changed_and_a_rule_says_otherwise(spark: Any) -> None:
    handler = spark(ASIDE, docs={"coerce": {"amount": "int"}}, strict={"coerce": {"amount": "int"}, "on_error": "stop"})
    rows = [(b"1", b"{}"), (b"bad", b"{}")]
    assert [len(one.changes) for one in handler.handle(batch(documents(*rows))).rejections] == [1]
    with pytest.raises(HandlerRefused, match=r"amount in change .* cannot be coerced"):
        handler.handle(batch(documents(*rows, table="strict")))


def test_a_rule_that_can_never_work_stops_all_the_same(spark: Any) -> None:
    handler = spark(docs={"sql": "SELECT nothing FROM changes", **ASIDE})
    with pytest.raises(HandlerRefused, match="UNRESOLVED_COLUMN"):
        handler.handle(batch(documents((b"1", b"{}"))))


def test_what_was_put_aside_by_an_earlier_handler_stays(spark: Any) -> None:
    earlier = Rejection(documents((b"1", b"{}")), "a reason", None, "another rule")
    handler = spark(docs={"coerce": {"amount": "int"}, **ASIDE})
    given = batch(documents((b"bad", b"{}")), rejections=(earlier,))
    assert [one.rule for one in handler.handle(given).rejections] == ["another rule", "docs"]


@pytest.mark.behaviour("K5")
@pytest.mark.soak
def test_a_row_that_ends_the_jvm_whenever_it_is_tried_is_named_or_put_aside() -> None:
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"import {__name__} as t; t.meet_a_huge_row()"],
        capture_output=True, text=True, timeout=250, env={**os.environ, "PYTHONFAULTHANDLER": "1"},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-3000:]
    assert "Traceback" not in result.stderr
    assert "a batch ended Spark 2 times: looking for the row" in result.stderr
    first, second, put_aside, reason, after = result.stdout.splitlines()
    ended = "(exit code 3, out of memory: java.lang.OutOfMemoryError: Java heap space)"
    assert first == (
        f"HandlerUnavailable: public.others, public.docs: the Spark JVM ended {ended}: it is started again"
    )
    assert second == (
        f"HandlerRefused: public.docs, rule 'docs': the row of change (16/B374D848, 2) has {HUGE + 3} bytes and ends "
        f"the Spark JVM {ended}: raise spark.driver.memory in [spark.conf], which is 512m, or put such rows aside: "
        'onError = "dead-letter"'
    )
    assert put_aside == "[[2]] aside, [[0], [0, 1, 3]] made"
    assert reason == f"public.docs, rule 'docs': the row has {HUGE + 3} bytes and ends the Spark JVM {ended}"
    assert after == "goes on: 1 row"


HUGE = 320 << 20


def meet_a_huge_row() -> None:
    """Runs in a process of its own: the JVM of this one is shared by all tests."""
    counted = {"sql": "SELECT *, length(amount) AS n FROM changes"}
    rules: Any = {"*": counted, "docs": counted}
    conf = {"spark.driver.memory": "512m"}
    handler = SparkHandler("spark", SparkOptions(master="local[2]", tables=rules, conf=conf))
    with patch("psql_streamer.spark.handler.warm_up"):
        handler.start()
    rows = [(b"1", b"{}"), (b"2", b"{}"), (b"x" * HUGE, b"{}"), (b"4", b"{}")]
    given = batch(documents((b"1", b"{}"), table="others"), documents(*rows))
    for _ in range(2):
        try:
            handler.handle(given)
        except HandlerError as error:
            kind = "HandlerRefused" if isinstance(error, HandlerRefused) else "HandlerUnavailable"
            print(f"{kind}: {error}", flush=True)
            if kind == "HandlerUnavailable":
                handler.start()
    handler._options = SparkOptions(**{**handler._options.model_dump(), "on_error": "dead-letter"})
    handler._rules = Rules(handler._options.select_rules(None), "dead-letter")
    result = handler.handle(given)
    aside = [one.changes.seq.tolist() for one in result.rejections]
    print(f"{aside} aside, {[part.seq.tolist() for part in result.changes]} made")
    print(result.rejections[0].reason)
    small = batch(documents((b"1", b"{}")))
    print(f"goes on: {len(handler.handle(small))} row", flush=True)
    handler.stop()
