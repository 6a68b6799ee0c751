"""Rules that are Python functions."""

from __future__ import annotations

import os
import re
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Semaphore
from typing import Any

import pytest

from psql_streamer.errors import HandlerRefused, HandlerUnavailable
from psql_streamer.model import ReplicaIdentity
from psql_streamer.spark.handler import SparkHandler
from psql_streamer.spark.options import SparkOptions, TableRule
from psql_streamer.spark.rules import EngineNeeded, Rules
from tests.columns import postgres_table
from tests.integration.conftest import MASTER
from tests.kafka_sinks import wait_until
from tests.spark_changes import INSERT, ORDERS, UPDATE, Texts, batch, changes, lacking, names, only, shop, values


def enrich(df: Any) -> Any:
    """A rule by function."""
    from pyspark.sql import functions as f

    return df.where("amount > 0").select("id", f.upper("customer").alias("customer"))


def exclaim(df: Any) -> Any:
    """A rule by function, with Python code that runs on every value."""
    from pyspark.sql.functions import udf

    return df.withColumn("customer", udf(lambda name: 1 // len(name.replace("carl", "")) or name + "!")("customer"))


ROW: Texts = [b"1", b"10.00", b"ann", None]
_CALLED = Semaphore(0)
_MAY_END = Event()


def waits(df: Any) -> Any:
    _CALLED.release()
    _MAY_END.wait(60)
    return df


def broken(df: Any) -> Any:
    raise KeyError("a value that must not be shown")


def test_tables_that_wait_for_their_turn_are_not_begun_when_the_service_stops(spark: Any) -> None:
    tables = {f"t{number}": {"function": f"{__name__}:waits"} for number in range(20)}
    handler = spark({}, **tables)
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(
            handler.handle, batch(*(changes([INSERT], {0: ROW}, {}, table=name) for name in tables))
        )
        assert _CALLED.acquire(timeout=60)
        handler.interrupt()
        _MAY_END.set()
        with pytest.raises(HandlerUnavailable, match="interrupted"):
            running.result()
    begun = 1
    while _CALLED.acquire(blocking=False):
        begun += 1
    assert begun <= handler._pool._most


def test_a_job_that_is_cancelled_when_the_service_stops_says_that_it_was_interrupted(spark: Any) -> None:
    wait = "java_method('java.util.concurrent.locks.LockSupport', 'parkNanos', 3000000000L + id)"
    handler = spark({}, orders={"sql": f"SELECT *, {wait} AS waited FROM changes"})
    tracker = handler._session.start().sparkContext.statusTracker()
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(handler.handle, batch(shop()))
        wait_until(lambda: bool(tracker.getActiveJobsIds()) or running.done())
        handler.interrupt()
        with pytest.raises(HandlerUnavailable, match="interrupted"):
            running.result()
    assert "interrupted" in handler.status().reason


def test_a_function_rule_works(spark: Any) -> None:
    result = only(spark(orders={"function": f"{__name__}:enrich"}).handle(batch(shop())))
    assert names(result) == ["id", "customer"]
    assert values(result, "customer") == [b"ANN", b"BOB"]
    assert values(result, "customer", "before") == [b"OLD BOB", b"CARL"]


def test_python_code_that_fails_on_a_value_is_refused_without_the_value(
    spark: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    place = (
        rf"PYTHON_EXCEPTION \(ZeroDivisionError at {re.escape(__file__)}:\d+\): column customer cannot be computed "
        r"in change \(16/B374D848, 2\): make the function accept every value"
    )
    with pytest.raises(HandlerRefused, match=place) as refused:
        spark(orders={"function": f"{__name__}:exclaim"}).handle(batch(shop()))
    assert "carl" not in "".join(traceback.format_exception(refused.value)) + "".join(capfd.readouterr())


def casts(df: Any) -> Any:
    """A rule by function, of Spark's own expressions, that fails on a text."""
    from pyspark.sql import functions as f

    return df.withColumn("number", f.col("customer").cast("int"))


def test_what_an_expression_of_a_function_fails_on_is_not_logged(spark: Any, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(HandlerRefused, match="CAST_INVALID_INPUT") as refused:
        spark(orders={"function": f"{__name__}:casts"}).handle(batch(shop()))
    assert "carl" not in "".join(traceback.format_exception(refused.value)) + "".join(capfd.readouterr())


@pytest.mark.parametrize("made", ['@f.udf("string")', "NAME = f.col('customer')\n\n\n@f.udf(t.StringType())"])
def test_python_code_may_call_functions_of_a_module_that_makes_something_of_spark_when_it_is_imported(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: str
) -> None:
    module = f"calls_its_own_{len(made)}"
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / f"{module}.py").write_text(
        f"""
from pyspark.sql import functions as f, types as t

def shout(name):
    return None if name is None else name.upper()

{made}
def shouted(name):
    return shout(name)

def apply(df):
    return df.withColumn("customer", shouted("customer"))
"""
    )
    result = only(spark(orders={"function": f"{module}:apply"}).handle(batch(shop())))
    assert values(result, "customer") == [b"ANN", b"BOB", b"DAN"]


def test_python_code_may_call_functions_of_a_module_that_imports_one_which_makes_something_of_spark(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "words_of_spark.py").write_text(
        """
from pyspark.sql import functions as f

@f.udf("string")
def whisper(name):
    return name

def shout(name):
    return None if name is None else name.upper()
"""
    )
    (tmp_path / "imports_words_of_spark.py").write_text(
        """
from pyspark.sql import functions as f
from words_of_spark import shout

def louder(name):
    return shout(name)

def apply(df):
    return df.withColumn("customer", f.udf(louder)("customer"))
"""
    )
    result = only(spark(orders={"function": "imports_words_of_spark:apply"}).handle(batch(shop())))
    assert values(result, "customer") == [b"ANN", b"BOB", b"DAN"]


def test_a_module_that_makes_a_column_when_it_is_imported_waits_for_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "makes_a_column.py").write_text("from pyspark.sql.functions import col\n\nNAME = col('customer')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
    with pytest.raises(EngineNeeded):
        Rules({"orders": TableRule(function="makes_a_column:NAME")})


def test_a_function_that_raises_is_refused_without_its_message(spark: Any) -> None:
    with pytest.raises(HandlerRefused, match="raised KeyError") as refused:
        spark(orders={"function": f"{__name__}:broken"}).handle(batch(shop()))
    assert "must not be shown" not in str(refused.value)


def ends_its_process(df: Any) -> Any:
    """Code that crashes for a row, as compiled code of others may."""
    from pyspark.sql import functions as f

    return df.withColumn("id", f.udf(lambda number: number if number != 3 else os._exit(1), "int")("id"))


@pytest.mark.soak
def test_a_row_that_ends_the_python_process_of_a_function_is_looked_for_and_put_aside(spark: Any) -> None:
    handler = spark(orders={"function": f"{__name__}:ends_its_process", "onError": "dead-letter"})
    with pytest.raises(HandlerUnavailable, match="the Python process of its function ended"):
        handler.handle(batch(shop()))
    result = handler.handle(batch(shop()))
    [rejection] = result.rejections
    assert rejection.changes.seq.tolist() == [2]
    assert rejection.reason.endswith("and ends the Python process of its function")
    assert sorted(seq for part in result.changes for seq in part.seq.tolist()) == [0, 1, 3]


@pytest.mark.soak
def test_a_row_that_ends_the_python_process_of_a_function_stops_the_service_by_its_name(spark: Any) -> None:
    handler = spark(orders={"function": f"{__name__}:ends_its_process"})
    with pytest.raises(HandlerUnavailable):
        handler.handle(batch(shop()))
    with pytest.raises(
        HandlerRefused, match=r"the row of change \(.*, 2\) has \d+ bytes and ends the Python .*: correct the"
    ):
        handler.handle(batch(shop()))


def exits(df: Any) -> Any:
    """Rows are not for this function to decide about."""
    sys.exit(f"for {df.columns}")


def test_a_function_that_calls_exit_is_refused_by_its_name(spark: Any) -> None:
    handler = spark(orders={"function": f"{__name__}:exits"})
    with pytest.raises(HandlerRefused, match=r"the function of .* raised SystemExit at .*test_spark_functions\.py:\d+"):
        handler.handle(batch(shop()))


def test_a_check_imports_a_module_that_fails_once(
    engine: SparkHandler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported = tmp_path / "imported"
    text = f"with open({str(imported)!r}, 'a') as file:\n    file.write('once ')\nraise KeyError\n"
    (tmp_path / "rules_that_fail.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    rules = {"orders": {"function": "rules_that_fail:f"}}
    handler = SparkHandler("spark", SparkOptions(master=MASTER, tables=rules))
    assert "rules_that_fail raised KeyError" in "".join(str(one) for one in handler.check())
    assert list(handler.review({"db1": [postgres_table(1, "public", "orders", ReplicaIdentity.FULL, ORDERS)]})) == []
    handler.stop()
    assert imported.read_text() == "once "


def test_a_module_that_calls_exit_when_it_is_imported_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rules_that_exit.py").write_text("import sys\nsys.exit(4)\n")
    monkeypatch.syspath_prepend(tmp_path)
    handler = SparkHandler("spark", SparkOptions(tables={"orders": {"function": "rules_that_exit:f"}}))
    assert "importing rules_that_exit raised SystemExit at" in "".join(str(one) for one in handler.check())


def test_a_function_that_takes_something_else_than_one_dataframe_is_told_so(spark: Any) -> None:
    handler = spark(orders={"function": f"{__name__}:takes_two"})
    with pytest.raises(HandlerRefused, match="cannot be called with a DataFrame alone: give it one parameter"):
        handler.handle(batch(shop()))


def takes_two(df: Any, more: Any) -> Any:
    return df


def test_a_module_that_is_no_python_is_told_of_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "no_python.py").write_text("\ndef x(:\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(HandlerRefused, match=rf"raised SyntaxError at {tmp_path}/no_python.py:2: correct it"):
        Rules({"orders": TableRule(function="no_python:x")})


def test_a_function_that_does_not_exist_is_a_finding_and_refused_at_start() -> None:
    options = SparkOptions(tables={"orders": {"function": f"{__name__}:missing"}})  # type: ignore[dict-item] # as from TOML
    handler = SparkHandler("spark", options)
    assert [str(finding) for finding in handler.check()] == [
        f"error: [spark.tables] 'orders': function '{__name__}:missing' does not exist in {__name__}: correct the name"
    ]
    with pytest.raises(HandlerRefused, match="does not exist"):
        handler.start()


def again(df: Any) -> Any:
    """Makes another table of the changes."""
    return df.sparkSession.createDataFrame(df.selectExpr("id", "upper(customer) AS customer", "_row").toArrow())


def swapped(df: Any) -> Any:
    """Gives a change the place of another one."""
    return df.selectExpr("*", "1 - _row AS _row")


def swapped_in_another_table(df: Any) -> Any:
    """As swapped, behind code of its own."""
    return again(df).selectExpr("id", "-_row AS _row")


def in_pandas(df: Any) -> Any:
    """Goes through code of its own."""
    return df.mapInPandas(_shouted, "id int, customer string, _row long")


def _shouted(frames: Any) -> Any:
    for frame in frames:
        yield frame[["id", "customer", "_row"]].assign(customer=frame["customer"].str.upper())


@pytest.mark.parametrize(
    "function",
    ["again", pytest.param("in_pandas", marks=pytest.mark.skipif(find_spec("pandas") is None, reason="no pandas"))],
)
def test_the_row_may_go_through_a_functions_own_code(spark: Any, function: str) -> None:
    result = only(spark(orders={"function": f"{__name__}:{function}"}).handle(batch(shop())))
    assert values(result, "customer") == [b"ANN", b"BOB", b"DAN"]
    assert result.seq.tolist() == [0, 1, 2, 3]
    assert result.columns[0].key


@pytest.mark.parametrize("function", ["swapped", "swapped_in_another_table"])
def test_a_row_that_an_expression_computed_is_refused(spark: Any, function: str) -> None:
    with pytest.raises(HandlerRefused, match=r"column _row is computed.*pass _row on as it is"):
        spark(orders={"function": f"{__name__}:{function}"}).handle(batch(shop()))


def test_what_a_functions_own_code_makes_of_a_missing_value_is_missing(spark: Any) -> None:
    given = changes([UPDATE], {0: [b"1", b"1.00", None, None]}, {}, absent={2: [True]})
    result = only(spark(orders={"function": f"{__name__}:again"}).handle(batch(given)))
    assert lacking(result) == {"customer": [True]}
    assert values(result, "id") == [b"1"]


def sets(df: Any) -> Any:
    """A function that sets what queries go by."""
    from pyspark.sql import functions as f

    df.sparkSession.conf.set("spark.sql.ansi.enabled", "false")
    df.sparkSession.conf.set("spark.sql.caseSensitive", "true")
    return df.withColumn("number", f.col("customer").cast("int"))


def test_what_a_function_sets_in_its_session_does_not_hold_for_other_rules(spark: Any) -> None:
    number = {"sql": "SELECT *, CAST(CUSTOMER AS INT) AS number FROM changes", "on_error": "dead-letter"}
    handler = spark({}, orders={"function": f"{__name__}:sets"}, others=number)
    assert values(only(handler.handle(batch(shop()))), "number") == [None, None, None]
    result = handler.handle(batch(changes([INSERT], {0: ROW}, {}, table="others")))
    assert [rejection.reason for rejection in result.rejections] == [
        "public.others, rule 'others': Spark ended with CAST_INVALID_INPUT"
    ]


@pytest.mark.soak
def test_a_function_that_stops_spark_is_told_of_and_spark_is_started_again(
    spark: Any, engine: SparkHandler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stops_spark.py").write_text("def stops(df):\n    df.sparkSession.stop()\n    return df\n")
    monkeypatch.syspath_prepend(tmp_path)
    rules = {"orders": {"function": "stops_spark:stops"}, "others": {"sql": "SELECT *, id + 1 AS n FROM changes"}}
    handler = spark({}, **rules)
    with pytest.raises(HandlerRefused, match=r"the function of \[spark.tables\] 'orders' stopped Spark"):
        handler.handle(batch(shop()))
    try:
        handler.start()
        result = handler.handle(batch(changes([INSERT], {0: ROW}, {}, table="others")))
        assert values(only(result), "n") == [b"2"]
    finally:
        engine.start()  # tests share it


@pytest.mark.soak
def test_spark_that_stopped_by_itself_is_started_again(spark: Any, engine: SparkHandler) -> None:
    handler = spark({}, others={"sql": "SELECT *, id + 1 AS n FROM changes"})
    given = batch(changes([INSERT], {0: ROW}, {}, table="others"))
    handler._session.start().sparkContext._jsc.sc().stop()
    try:
        with pytest.raises(HandlerUnavailable, match="Spark was stopped in it"):
            handler.handle(given)
        assert values(only(handler.handle(given)), "n") == [b"2"]
    finally:
        engine.start()  # tests share it
