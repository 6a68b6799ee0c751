"""Rules are planned once, over the columns that they read, and give for every batch what a plan of its own would."""

from __future__ import annotations

import gc
import os
import random
import re
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql.types import LongType, StructField, StructType

from psql_streamer.cells import convert_to_cells
from psql_streamer.errors import HandlerRefused, HandlerUnavailable
from psql_streamer.events.routing import Router
from psql_streamer.few_rows import FewRows
from psql_streamer.model import Batch, Changes, ReplicaIdentity
from psql_streamer.spark import prepared
from psql_streamer.spark.arrow_rows import ArrowRows, find_field, name_taken, remove_rows
from psql_streamer.spark.by_job import JobInlets
from psql_streamer.spark.by_thread import ThreadPlan
from psql_streamer.spark.exchange import Sent
from psql_streamer.spark.failures import EngineLost, explain_failure
from psql_streamer.spark.handler import SparkHandler
from psql_streamer.spark.prepared import make_prepared_rules
from psql_streamer.testing.few_sample import make_few_rows_batch
from tests.encoding import encoder_of
from tests.few import nothing_counts_as_few
from tests.kafka_sinks import wait_until
from tests.spark_changes import DELETE, INSERT, ORDERS, UPDATE, Texts, batch, changes, column, only, shop, values

RULES = {
    "derived": "SELECT *, amount * 2 AS twice FROM changes",
    "none of the columns": "SELECT *, 'x' AS constant FROM changes",
    "passes, renames and leaves out": "SELECT id, customer AS who, meta FROM changes",
    "masks": "SELECT * EXCEPT (customer), sha2(customer, 256) AS customer FROM changes",
    "filter": "SELECT * FROM changes WHERE amount > 5 OR _op = 'delete'",
    "filter on what may be missing": "SELECT *, length(meta) AS long FROM changes WHERE length(meta) > 2 AND id > 1",
    "metadata": "SELECT *, _commit_lsn AS version, concat(_op, _image) AS what, _unchanged AS kept FROM changes",
    "its own _row": "SELECT upper(customer) AS customer, _row, id FROM changes",
    "nested query": "SELECT c.id, c.n FROM (SELECT id, amount + 1 AS n, _row FROM changes WHERE id <> 2) c",
    "masked key": "SELECT sha2(CAST(id AS STRING), 256) AS id, customer FROM changes WHERE amount > 0",
}

_IN_CI = ("passes, renames and leaves out", "filter on what may be missing", "metadata", "nested query", "masked key")
"""Rules of each kind; the others follow in the long run."""


def told(made: Batch) -> list[Any]:
    """Keys and values of all events, in their order."""
    found = encoder_of("event", Router({}, "t", ""), {}).encode(made)
    return list(zip(found.keys.to_pylist(), found.values.to_pylist(), strict=True))


def random_changes(source: random.Random) -> Changes:
    """Some inserts, updates (of which some leave meta alone) and deletes (which have the key alone)."""
    ops = [source.choice((INSERT, UPDATE, DELETE)) for _ in range(source.randrange(1, 12))]
    after: dict[int, Texts] = {}
    before: dict[int, Texts] = {}
    unchanged = []
    for at, op in enumerate(ops):
        row: Texts = [b"%d" % source.randrange(4), b"%d.50" % source.randrange(-9, 20), b"ann", b'{"a": 1}']
        if op != DELETE:
            after[at] = row
            unchanged.append(op == UPDATE and source.random() < 0.5)
            row[3] = None if unchanged[-1] else row[3]
        if op == DELETE or (op == UPDATE and source.random() < 0.5):
            before[at] = [row[0], None, None, None]
    absent = {3: unchanged} if any(unchanged) else None
    return changes(ops, after, before, ORDERS, absent, identity=ReplicaIdentity.DEFAULT)


def planned_anew(handler: Any) -> Any:
    """The same, with a plan for every batch."""
    handler._runner.planner.prepared = None
    return handler


def run_by_jobs(handler: Any) -> None:
    """The same, with a job for every batch."""
    spark = handler._pool.spark
    handler._runner.planner.prepared = prepared.PreparedRules([JobInlets(spark, ArrowRows(spark))])


def jobs_of(handler: Any) -> int:
    """How many jobs the engine has run."""
    return int(handler._pool.spark._jsc.sc().dagScheduler().numTotalJobs())


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in _IN_CI else pytest.mark.soak) for name in RULES]
)
def test_every_batch_gives_what_a_plan_of_its_own_gives(spark: Any, name: str) -> None:
    source = random.Random(name)
    in_thread, by_jobs, anew = (spark({}, orders={"sql": RULES[name]}) for _ in range(3))
    run_by_jobs(by_jobs)
    planned_anew(anew)
    for given in (shop(), *(random_changes(source) for _ in range(4))):
        expected = told(anew.handle(batch(given)))
        assert told(in_thread.handle(batch(given))) == expected
        assert told(by_jobs.handle(batch(given))) == expected


def test_a_plan_that_is_kept_runs_without_a_job(spark: Any) -> None:
    handler = spark({}, orders={"sql": RULES["filter"]})
    handler.handle(batch(shop()))
    before = jobs_of(handler)
    assert values(only(handler.handle(batch(shop()))), "id") == [b"1", b"2"]
    assert jobs_of(handler) == before


def test_a_plan_with_python_code_runs_by_a_job(spark: Any) -> None:
    handler = spark({}, orders={"sql": "SELECT *, shout(customer) AS loud FROM changes"})
    handler._pool.spark.udf.register("shout", lambda text: None if text is None else text.upper() + "!")
    before = jobs_of(handler)
    for count in (1, 2):
        assert values(only(handler.handle(batch(shop()))), "loud") == [b"ANN!", b"BOB!", b"DAN!"]
        assert jobs_of(handler) == before + count


@pytest.mark.parametrize(
    "of_id",
    [
        "id",
        "to_number(CAST(id AS STRING), '999999')",
        "to_xml(named_struct('n', id))",
        "from_csv(id || ',x', 'a INT').a",
    ],
    ids=["column", "to_number", "to_xml", "from_csv"],
)
def test_one_plan_runs_in_several_threads_at_once(spark: Any, of_id: str) -> None:
    handler = spark({}, orders={"sql": f"SELECT id, CAST({of_id} AS STRING) AS made FROM changes WHERE id % 3 > 0"})

    def run(start: int) -> list[Any]:
        rows = range(start, start + 1000)
        given = changes([INSERT] * 1000, {at: [b"%d" % row, b"1.00", b"a", None] for at, row in enumerate(rows)}, {})
        return [values(only(handler.handle(batch(given))), "made") for _ in range(5)]

    starts = range(0, 4000, 1000)
    expected = list(map(run, starts))
    with ThreadPoolExecutor(len(starts)) as threads:
        assert list(threads.map(run, starts)) == expected


def test_nothing_of_a_batch_that_failed_is_in_the_next(spark: Any) -> None:
    to_xml = "to_xml(named_struct('n', customer, 'm', map(customer, id)))"
    handler = spark({}, orders={"sql": f"SELECT *, {to_xml} AS v FROM changes"})
    good = batch(shop().take(np.array([0])))
    expected = values(only(handler.handle(good)), "v")
    assert b"<ann>1</ann>" in expected[0]
    bad = changes([INSERT], {0: [b"1", b"1.00", b"no name of XML <", None]}, {})
    with pytest.raises(HandlerRefused, match=r"Spark ended with javax\.xml\.stream\.XMLStreamException"):
        handler.handle(batch(bad))
    for _ in range(2):
        assert values(only(handler.handle(good)), "v") == expected


@pytest.mark.parametrize(
    "sql", ["SELECT *, upper(note) AS loud FROM changes", "SELECT id, note FROM changes WHERE note NOT LIKE 'another'"]
)
@pytest.mark.parametrize("tables", ["orders", "*"])
def test_few_rows_come_back_as_few_rows_that_give_the_records_of_cells(spark: Any, sql: str, tables: str) -> None:
    handler = spark({}, **{tables: {"sql": sql}})
    given = make_few_rows_batch()
    few = handler.handle(given)
    assert isinstance(few.changes, FewRows)
    by_cells = handler.handle(replace(given, changes=convert_to_cells(given.changes)))
    assert not isinstance(by_cells.changes, FewRows)
    one_by_one = told(few)
    with nothing_counts_as_few():
        assert one_by_one == told(by_cells) == told(few)


def test_nothing_of_a_row_whose_failure_was_hidden_is_in_the_next_batch(spark: Any) -> None:
    to_xml = "to_xml(named_struct('m', map(customer, id)))"
    made = f"CAST(try_to_binary({to_xml}, 'utf-8') AS STRING)"
    handler = spark({}, orders={"sql": f"SELECT *, {made} AS v FROM changes"})
    good = batch(shop().take(np.array([0])))
    expected = values(only(handler.handle(good)), "v")
    assert b"<ann>1</ann>" in expected[0]
    bad = changes([INSERT], {0: [b"1", b"1.00", b"no name of XML <", None]}, {})
    assert values(only(handler.handle(batch(bad))), "v") == [None]
    assert values(only(handler.handle(good)), "v") == expected


def through_rdd(frame: Any) -> Any:
    return frame.sparkSession.createDataFrame(frame.rdd.repartition(2), frame.schema)


def test_rows_that_a_function_sends_through_a_shuffle_of_its_own_come_back(spark: Any) -> None:
    handler = spark({}, orders={"function": f"{__name__}:through_rdd"})
    for _ in range(2):
        assert sorted(values(only(handler.handle(batch(shop()))), "id")) == [b"1", b"2", b"4"]


def _is_writing(jvm: Any) -> bool:
    """Whether a thread of the JVM writes what a plan makes."""
    stacks = jvm.java.lang.Thread.getAllStackTraces().values()
    return any(frame.getMethodName() == "writeIteratorToStream" for stack in stacks for frame in stack)


def _plan_pause(handler: Any) -> Any:
    """A kept plan that waits for as many nanoseconds as a row says."""
    session, kept = handler._pool.spark, handler._runner.planner.prepared
    arrow = pa.schema([("c0", pa.int64())])
    slow = "java_method('java.util.concurrent.locks.LockSupport', 'parkNanos', c0) AS slept"
    return kept.plan(session, StructType([StructField("c0", LongType())]), arrow, lambda frame: frame.selectExpr(slow))


@pytest.mark.parametrize("runs", [False, True], ids=["it is about to run", "it runs"])
def test_nobody_waits_for_a_plan_that_runs_when_the_service_stops(spark: Any, runs: bool) -> None:
    handler = spark({}, orders={"sql": RULES["derived"]})
    session, kept = handler._pool.spark, handler._runner.planner.prepared
    plan = _plan_pause(handler)
    plan.run(pa.table({"c0": [1]}))
    with ThreadPoolExecutor(1) as threads:
        began = time.monotonic()
        run = threads.submit(plan.run, pa.table({"c0": [20_000_000_000]}))
        wait_until(lambda: bool(kept._ways[0]._waiting))
        if runs:
            wait_until(lambda: _is_writing(session._jvm))
        handler.interrupt()
        with pytest.raises(HandlerUnavailable, match="nobody waited"):
            run.result()
        assert time.monotonic() - began < 10
    assert plan.run(pa.table({"c0": [1]})).num_rows == 1


def _plan_following(handler: Any) -> Any:
    """A kept plan of a number and the one that follows it."""
    return _plan_numbers(handler, lambda frame: frame.selectExpr("c0 + 1 AS following"))


def _plan_numbers(handler: Any, apply: Any) -> Any:
    """A kept plan of what is made of a column of numbers."""
    session, kept = handler._pool.spark, handler._runner.planner.prepared
    schema = StructType([StructField("c0", LongType())])
    return kept.plan(session, schema, pa.schema([("c0", pa.int64())]), apply)


def test_a_result_that_is_shorter_or_longer_than_its_rows_is_read_to_its_end_and_no_further(spark: Any) -> None:
    handler = spark({}, orders={"sql": RULES["derived"]})
    texts = "repeat('x', CAST(5000 * c0 AS INT)) AS text"
    plan = _plan_numbers(handler, lambda frame: frame.where("c0 < 2").selectExpr(texts))
    assert isinstance(plan, ThreadPlan)
    for rows, lengths in [(range(50_000), [0, 5000]), ([0] * 3 + [1] * 20, [0] * 3 + [5000] * 20), ([2], [])]:
        assert [len(text) for text in plan.run(pa.table({"c0": rows})).column(0).to_pylist()] == lengths


def _stop_as_it_ends(plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop comes in the moment in which a run has ended."""
    kept = plan._kept

    class EndsAsTheStopComes:
        def run(self, *paths: str) -> None:
            kept.run(*paths)
            plan._inlets.cancel()

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(plan, "_kept", EndsAsTheStopComes())
        with pytest.raises(HandlerUnavailable, match="nobody waited"):
            plan.run(pa.table({"c0": [1]}))


def test_a_stop_that_comes_as_a_plan_ends_leaves_nothing_to_the_next_run(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = _plan_following(spark({}, orders={"sql": RULES["derived"]}))
    _stop_as_it_ends(plan, monkeypatch)
    assert plan.run(pa.table({"c0": [1]})).column(0).to_pylist() == [2]


def test_settings_of_queries_hold_for_jobs_after_a_stop(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    day = "CAST(to_date(shout(customer), meta) AS STRING)"
    handler = spark({}, orders={"sql": f"SELECT *, {day} AS day FROM changes"})
    handler._pool.spark.udf.register("shout", lambda text: text)
    handler._pool.spark.conf.set("spark.sql.legacy.timeParserPolicy", "LEGACY")
    given = batch(changes([INSERT], {0: [b"1", b"1.00", b"2024-01-05 and more", b"yyyy-MM-dd"]}, {}))
    assert values(only(handler.handle(given)), "day") == [b"2024-01-05"]
    _stop_as_it_ends(_plan_following(handler), monkeypatch)
    assert values(only(handler.handle(given)), "day") == [b"2024-01-05"]


def test_a_plan_that_nobody_waits_for_leaves_no_file_behind(spark: Any, tmp_path: Path) -> None:
    plan = _plan_following(spark({}, orders={"sql": RULES["derived"]}))
    path = tmp_path / "rows"
    os.mkfifo(path)  # the plan waits for its rows until the test writes them
    with ThreadPoolExecutor(1) as threads:
        run = threads.submit(plan._kept.run, str(path), name_taken(str(path)))
        wait_until(lambda: not path.exists())
        with Path(name_taken(str(path))).open("wb") as file, pa.ipc.new_stream(file, plan._schema) as stream:
            stream.write_table(pa.table({"c0": [1]}))
            remove_rows(str(path))
        with pytest.raises(Py4JJavaError, match="NoSuchFileException"):
            run.result()
    assert list(tmp_path.iterdir()) == []


NO_SPACE = (
    r"cannot be written in (\S+): No space left on device: make room there, or start the service again with another "
    r"folder for temporary files \(TMPDIR\)$"
)


def test_a_full_disk_is_told_with_its_folder_and_the_batch_goes_through_when_there_is_room(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = spark({}, orders={"sql": RULES["derived"]})
    expected = told(handler.handle(batch(shop())))
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(tempfile, "mkstemp", lambda **_: (os.open("/dev/full", os.O_WRONLY), "/tmp/not-there"))
        with pytest.raises(HandlerUnavailable, match=NO_SPACE):
            handler.handle(batch(shop()))
    assert told(handler.handle(batch(shop()))) == expected


@pytest.mark.parametrize("rule", [RULES["derived"], "SELECT *, rand() AS chance FROM changes"], ids=["kept", "anew"])
def test_a_folder_for_files_that_has_gone_is_told(spark: Any, tmp_path: Path, rule: str) -> None:
    handler = spark({}, orders={"sql": rule})
    handler.handle(batch(shop()))
    gone = str(tmp_path / "gone")
    with pytest.MonkeyPatch.context() as meanwhile:
        meanwhile.setattr(handler._runner.planner.prepared._ways[0].rows, "folder", gone)
        meanwhile.setattr(handler._pool.spark._sc, "_temp_dir", gone)
        with pytest.raises(HandlerUnavailable, match=f"cannot be written in {gone}: No such file or directory: Spark"):
            handler.handle(batch(shop()))


def test_a_disk_that_a_plan_fills_is_told_as_well(spark: Any, tmp_path: Path) -> None:
    plan = _plan_following(spark({}, orders={"sql": RULES["derived"]}))
    path, taken = tmp_path / "rows", Path(name_taken(str(tmp_path / "rows")))
    os.mkfifo(path)
    with ThreadPoolExecutor(1) as threads:
        run = threads.submit(plan._kept.run, str(path), str(taken))
        wait_until(lambda: not path.exists())
        with taken.open("wb") as file, pa.ipc.new_stream(file, plan._schema) as stream:
            stream.write_table(pa.table({"c0": [1]}))
            taken.unlink()
            taken.symlink_to("/dev/full")
        with pytest.raises(Py4JJavaError) as raised:
            run.result()
    assert re.search(NO_SPACE, str(explain_failure(raised.value, "orders", lambda _: None)))


def test_rules_of_tables_that_are_published_are_planned_before_their_first_batch(spark: Any) -> None:
    handler = spark({}, orders={"sql": RULES["derived"]}, items={"function": f"{__name__}:through_rdd"})
    tables = [shop().relation, replace(shop().relation, id="9", table="items")]
    assert not list(handler.review({"db1": tables}))
    planned = list(handler._runner.planner.prepared._kept)
    assert len(planned) == 1
    handler.handle(batch(shop()))
    assert list(handler._runner.planner.prepared._kept) == planned


def test_no_more_shapes_than_may_be_are_planned_before_the_first_batch(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("psql_streamer.spark.reviewing._MOST_AHEAD", 1)
    handler = spark({}, **{"*": {"sql": "SELECT *, id + 1 AS following FROM changes"}})
    others = replace(shop().relation, id="9", table="items", columns=ORDERS[:2])
    assert not list(handler.review({"db1": [shop().relation, others]}))
    assert len(handler._runner.planner.prepared._kept) == 1


def test_a_check_plans_nothing(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkHandler, "_warms_up", False)
    handler = spark({}, orders={"sql": RULES["derived"]})
    assert not list(handler.review({"db1": [shop().relation]}))
    assert not handler._runner.planner.prepared._kept


def test_a_plan_that_fails_lets_go_of_the_memory_of_its_rows(spark: Any) -> None:
    handler = spark({}, orders={"sql": "SELECT *, 10 / CAST(amount AS INT) AS share FROM changes"})
    allocator = handler._pool.spark._jvm.org.apache.spark.sql.util.ArrowUtils.rootAllocator()
    handler.handle(batch(shop()))
    before = allocator.getAllocatedMemory()
    bad = changes([INSERT], {0: [b"1", b"0.00", b"a", None]}, {})
    with pytest.raises(HandlerRefused, match="DIVIDE_BY_ZERO"):
        handler.handle(batch(bad))
    assert allocator.getAllocatedMemory() == before


def test_a_rule_that_computes_and_drops_nothing_runs_no_job(spark: Any) -> None:
    handler = spark({}, orders={"sql": RULES["passes, renames and leaves out"]})
    before = jobs_of(handler)
    for _ in range(2):
        assert values(only(handler.handle(batch(shop()))), "who") == [b"ann", b"bob", b"dan"]
    assert jobs_of(handler) == before


def test_only_what_a_rule_reads_travels(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    handlers = [spark({}, orders={"sql": RULES[name]}) for name in ("derived", "none of the columns")]
    travelled: list[list[str]] = []
    write = ArrowRows.write

    def noting(self: ArrowRows, table: Any, schema: Any) -> Any:
        travelled.append(table.column_names)
        return write(self, table, schema)

    monkeypatch.setattr(ArrowRows, "write", noting)
    for handler in handlers:
        handler.handle(batch(shop()))
    assert travelled == [["amount", "_row"], ["_row"]]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT *, unix_micros(current_timestamp()) AS at FROM changes",
        "SELECT *, unix_micros(now()) AS at FROM changes",
        "SELECT *, unix_micros(TIMESTAMP 'now') AS at FROM changes",
        "SELECT *, unix_micros(CAST('now' AS TIMESTAMP)) AS at FROM changes",
        "SELECT *, uuid() AS at FROM changes",
        "SELECT *, rand() AS at FROM changes",
    ],
)
def test_the_clock_and_chance_are_asked_for_every_batch(spark: Any, sql: str) -> None:
    handler = spark({}, orders={"sql": sql})
    first, second = (values(only(handler.handle(batch(shop()))), "at") for _ in range(2))
    assert first != second


@pytest.mark.parametrize(
    ("sql", "column", "counts"),
    [
        ("SELECT *, count(*) OVER () AS n FROM changes", "n", ([b"3"], [b"1"])),
        ("SELECT *, (SELECT count(*) FROM changes) AS n FROM changes", "n", ([b"3"], [b"1"])),
        ("SELECT c.*, n FROM changes c JOIN (SELECT count(*) AS n FROM changes) t ON true", "n", ([b"3"], [b"1"])),
    ],
    ids=["window", "subquery", "join"],
)
def test_what_looks_at_other_rows_looks_at_those_of_its_batch(
    spark: Any, sql: str, column: str, counts: tuple[list[bytes], list[bytes]]
) -> None:
    handler = spark({}, orders={"sql": sql})
    inserts = changes([INSERT] * 3, {at: [b"%d" % at, b"1.00", b"a", None] for at in range(3)}, {})
    for given, expected in ((inserts, counts[0]), (inserts.take([0]), counts[1])):  # type: ignore[arg-type]
        assert set(values(only(handler.handle(batch(given))), column)) == set(expected)


@pytest.mark.parametrize(
    "join",
    [
        "CROSS JOIN (VALUES (1), (2)) t(n)",
        "JOIN (VALUES (1)) t(n) ON false",
        "LEFT JOIN (VALUES (1), (1)) t(n) ON t.n = c.id",
        "LEFT JOIN (VALUES (1), (1)) t(n) ON t.n = c.id WHERE c.amount > 5",
    ],
)
def test_a_join_counts_also_where_nothing_of_it_is_selected(spark: Any, join: str) -> None:
    rule = {"sql": f"SELECT c.* FROM changes c {join}"}
    given = batch(shop())
    assert told(spark({}, orders=rule).handle(given)) == told(planned_anew(spark({}, orders=rule)).handle(given))


def test_files_that_a_query_names_are_read_for_every_batch(spark: Any, tmp_path: Path) -> None:
    file = tmp_path / "rates.json"
    handler = spark({}, orders={"sql": f"SELECT c.*, rate FROM changes c JOIN json.`{file}` r ON r.id = c.id"})
    for rate in (b"1", b"2"):
        file.write_bytes(b'{"id": 1, "rate": %s}' % rate)
        assert values(only(handler.handle(batch(shop()))), "rate") == [rate]


def test_settings_of_queries_hold_for_prepared_rules(spark: Any) -> None:
    handler = spark({}, orders={"sql": "SELECT *, CAST(to_date(customer, meta) AS STRING) AS day FROM changes"})
    handler._pool.spark.conf.set("spark.sql.legacy.timeParserPolicy", "LEGACY")
    given = changes([INSERT], {0: [b"1", b"1.00", b"2024-01-05 and more", b"yyyy-MM-dd"]}, {})
    assert values(only(handler.handle(batch(given))), "day") == [b"2024-01-05"]


def test_nothing_is_prepared_where_arrow_has_large_types(spark: Any) -> None:
    session = spark({}, orders={"sql": RULES["derived"]})._pool.spark
    session.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
    assert make_prepared_rules(session) is None


DAYS = (column("day", 1082, key=True), column("note", 25))
ODD_DAYS: dict[int, Texts] = {0: [b"infinity", b"a"], 1: [b"0044-03-15 BC", b"b"], 2: [b"2024-01-05", b"c"]}


@pytest.mark.parametrize(("on_error", "refusal"), [("stop", "column day"), ("dead-letter", ""), ("null", "key")])
def test_a_key_that_spark_cannot_hold_does_not_become_null(spark: Any, on_error: str, refusal: str) -> None:
    given = batch(changes([INSERT] * 3, ODD_DAYS, {}, DAYS))
    handler = spark({"onError": on_error}, orders={"coerce": {"day": "timestamp"}})
    if not refusal:
        assert values(only(handler.handle(given)), "note") == [b"c"]
        return
    with pytest.raises(HandlerRefused, match=refusal):
        handler.handle(given)


def test_a_key_that_spark_cannot_hold_keeps_its_text_as_a_string(spark: Any) -> None:
    handler = spark({}, orders={"coerce": {"day": "string"}})
    made = only(handler.handle(batch(changes([INSERT] * 3, ODD_DAYS, {}, DAYS))))
    assert values(made, "day") == [b"infinity", b"0044-03-15 BC", b"2024-01-05"]


def test_a_batch_that_fails_leaves_nothing_to_the_next(spark: Any) -> None:
    handler = spark({}, orders={"sql": "SELECT *, 10 / CAST(amount AS INT) AS share FROM changes"})
    bad = changes([INSERT], {0: [b"1", b"0.00", b"a", None]}, {})
    expected = values(only(handler.handle(batch(shop()))), "share")
    with pytest.raises(HandlerRefused, match="DIVIDE_BY_ZERO"):
        handler.handle(batch(bad))
    assert values(only(handler.handle(batch(shop()))), "share") == expected


def test_a_lookup_is_broadcast_once_and_not_for_every_batch(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "segments.csv"
    path.write_text("name,segment\nann,gold\ndan,iron\n")
    lookups = {"segments": {"kind": "csv", "path": str(path), "options": {"header": True}, "refresh": "change"}}
    sql = "SELECT c.*, s.segment FROM changes c LEFT JOIN segments s ON s.name = c.customer"
    handler = spark({"lookups": lookups}, orders={"sql": sql})
    expected = [b"gold", None, b"iron"]
    assert values(only(handler.handle(batch(shop()))), "segment") == expected
    before = jobs_of(handler)
    assert values(only(handler.handle(batch(shop()))), "segment") == expected
    assert jobs_of(handler) == before, "the plan that is there runs without a job"


def test_a_file_that_a_query_names_is_read_for_every_batch(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "segments.csv"
    path.write_text("ann,gold\n")
    sql = f"SELECT c.*, s._c1 AS segment FROM changes c LEFT JOIN csv.`{path}` s ON s._c0 = c.customer"
    handler = spark({}, orders={"sql": sql})
    assert values(only(handler.handle(batch(shop()))), "segment") == [b"gold", None, None]
    path.write_text("ann,silver\n")
    assert values(only(handler.handle(batch(shop()))), "segment") == [b"silver", None, None]


def test_another_shape_of_the_table_has_a_plan_of_its_own(spark: Any) -> None:
    handler = spark({}, orders={"sql": RULES["derived"]})
    given = shop()
    narrow = replace(
        given,
        columns=given.columns[:2],
        after=replace(given.after, columns=given.after.columns[:2]),
        before=replace(given.before, columns=given.before.columns[:2]),
    )
    for _ in range(2):
        assert [one.name for one in only(handler.handle(batch(given))).columns][-1] == "twice"
        assert [one.name for one in only(handler.handle(batch(narrow))).columns] == ["id", "amount", "twice"]


def test_too_many_rules_in_turn_are_not_prepared_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared, "_MOST_PREPARED_PLANS", 2)
    rules, made = prepared.PreparedRules(cast(Any, None)), list[str]()

    def ask(key: str) -> None:
        rules.find(key, lambda: cast(Any, made.append(key)))

    for _ in range(2):
        for key in "abc":
            ask(key)
    assert made == ["a", "b"]
    for _ in range(10):
        ask("a")
    ask("c")
    assert made == ["a", "b", "c"], "b is of little use"


def _let_spark_clean_up(spark: Any) -> None:
    """Until Spark has removed what nobody refers to: a broadcast of our own is gone, several times."""
    cleaned = find_field(spark._jvm, "org.apache.spark.SparkEnv", "blockManager").get(spark._jsc.sc().env())
    for _ in range(3):
        block = spark._jvm.org.apache.spark.storage.BroadcastBlockId(spark._jsc.broadcast("nothing").id(), "")
        wait_until(lambda block=block: gc.collect() >= 0 and _collect_garbage(spark) and not _has(cleaned, block))


def _collect_garbage(spark: Any) -> bool:
    spark._jvm.java.lang.System.gc()
    return True


def _has(blocks: Any, block: Any) -> bool:
    return bool(blocks.getStatus(block).isDefined())


@pytest.mark.soak
def test_a_lookup_that_was_broadcast_stays_as_long_as_the_plan_that_joins_it(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "segments.csv"
    path.write_text("name,segment\nann,gold\ndan,iron\n")
    lookups = {"segments": {"kind": "csv", "path": str(path), "options": {"header": True}, "refresh": "change"}}
    joined = "changes c LEFT JOIN segments s ON s.name = c.customer"
    handler = spark(
        {"lookups": lookups}, orders={"sql": f"SELECT c.*, s.segment, 10 / c.amount AS share FROM {joined}"}
    )
    expected = values(only(handler.handle(batch(shop()))), "segment")
    _let_spark_clean_up(handler._pool.spark)
    bad = changes([INSERT], {0: [b"1", b"0.00", b"a", None]}, {})
    with pytest.raises(HandlerRefused, match="DIVIDE_BY_ZERO"):
        handler.handle(batch(bad))
    assert values(only(handler.handle(batch(shop()))), "segment") == expected == [b"gold", None, b"iron"]


@pytest.mark.soak
def test_what_plans_keep_of_large_rows_does_not_fill_the_memory(spark: Any) -> None:
    texts = [f"length(to_json(named_struct('n', {at}, 'a', repeat(customer, id)))) AS n" for at in range(10)]
    handler = spark({}, **{f"t{at}": {"sql": f"SELECT *, {text} FROM changes"} for at, text in enumerate(texts)})
    rows: dict[int, Texts] = {0: [b"40000000", b"1.00", b"a", None]}
    for at in range(len(texts)):
        made = handler.handle(batch(changes([INSERT], rows, {}, table=f"t{at}")))
        assert values(only(made), "n") == [b"40000014"]


BYTES = (column("id", 23, key=True), column("data", 17))


@pytest.mark.parametrize(
    "rule", [{"coerce": {"data": "string"}}, {"sql": "SELECT id, CAST(data AS STRING) AS data FROM changes"}]
)
def test_bytes_that_are_no_text_are_no_part_of_an_event(spark: Any, rule: dict[str, Any]) -> None:
    given = changes([INSERT] * 2, {0: [b"1", b"\\x6f6b"], 1: [b"2", b"\\xff00"]}, {}, BYTES)
    handler = spark({"on_error": "dead-letter"}, orders=rule)
    made = handler.handle(batch(given))
    assert values(only(made), "data") == [b"ok"]
    (rejection,) = made.rejections
    assert rejection.changes.seq.tolist() == [1]
    assert rejection.column == "data"
    with pytest.raises(HandlerRefused, match=r"the column data would hold bytes that are not UTF-8"):
        spark({}, orders=rule).handle(batch(given))


LET_GO = {
    "kept": {"sql": RULES["filter"]},
    "passes": {"sql": RULES["passes, renames and leaves out"]},
    "planned anew": {"sql": "SELECT *, unix_micros(current_timestamp()) AS at FROM changes"},
    "by a job": {"sql": "SELECT *, count(*) OVER () AS n FROM changes"},
    "several rows": {"sql": "SELECT *, explode(array(1, 2)) AS part FROM changes"},
    "coerced": {"coerce": {"amount": "double"}},
}


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param(rule, id=name, marks=[] if name in ("kept", "by a job") else [pytest.mark.soak])
        for name, rule in LET_GO.items()
    ],
)
def test_a_batch_is_let_go_of_when_it_has_gone_through(spark: Any, rule: Any) -> None:
    handler = spark({}, orders=rule)
    handler.handle(batch(shop()))
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        assert handler.handle(batch(shop())).changes
        gc.collect()
        kept = [type(one) for one in gc.garbage if isinstance(one, Batch | Changes | Sent | pa.Array | pa.Table)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert kept == [], "the cyclic collector of Python comes late, and tens of megabytes would wait for it"


def test_a_variant_is_no_part_of_an_event(spark: Any) -> None:
    handler = spark({}, orders={"sql": "SELECT *, parse_json(meta) AS doc FROM changes"})
    for _ in range(2):
        with pytest.raises(HandlerRefused, match="no VARIANT"):
            handler.handle(batch(shop()))


@pytest.mark.soak
def test_a_jvm_that_ends_while_a_plan_runs_is_told_as_such(spark: Any, engine: SparkHandler) -> None:
    handler = spark({}, orders={"sql": RULES["derived"]})
    expected = told(handler.handle(batch(shop())))
    plan, session = _plan_pause(handler), handler._session
    with ThreadPoolExecutor(1) as threads:
        run = threads.submit(plan.run, pa.table({"c0": [60_000_000_000]}))
        wait_until(lambda: _is_writing(handler._pool.spark._jvm))
        session._jvm._gateway.proc.kill()
        error = run.exception()
    assert isinstance(error, Exception)
    assert isinstance(explain_failure(error, "orders", session.describe_end), EngineLost), "its row is looked for"
    handler.start()
    engine.start()  # tests share it
    assert told(handler.handle(batch(shop()))) == expected
