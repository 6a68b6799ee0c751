"""Tables that a rule sees alike go through Spark as one, and come out as if each had gone by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from psql_streamer.events.routing import Router
from psql_streamer.model import Batch, Changes
from psql_streamer.spark.job import Job
from psql_streamer.spark.running import Runner
from tests.encoding import encoder_of
from tests.spark_changes import DELETE, INSERT, UPDATE, batch, changes

TABLES = ("north", "south", "west")


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables that went through Spark, one for each job."""
    seen: list[str] = []
    run = Runner.run

    def noting(self: Runner, job: Job) -> Changes | None:
        seen.append(job.changes.relation.table)
        return run(self, job)

    monkeypatch.setattr(Runner, "run", noting)
    return seen


def test_tables_of_one_shape_under_a_glob_are_one_job_and_come_out_as_alone(spark: Any, jobs: list[str]) -> None:
    handler = spark({}, **{"*": {"sql": "SELECT *, amount * 2 AS twice, _table AS of FROM changes WHERE amount > 1"}})
    together = handler.handle(regions())
    assert len(jobs) == 1
    alone = [part for table in TABLES for part in handler.handle(only(table)).changes]
    assert told(together) == sorted(row for part in alone for row in rows(part))
    assert {row[3]["of"] for row in told(together) if row[3]} == {b"north", b"south", b"west"}


def test_a_schema_is_told_to_rules_as_well(spark: Any) -> None:
    handler = spark({}, **{"*": {"sql": "SELECT id, concat(_schema, '.', _table) AS of FROM changes"}})
    found = {row[3]["of"] for row in told(handler.handle(regions())) if row[3]}
    assert found == {b"public.north", b"public.south", b"public.west"}


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT *, count(*) OVER () AS n FROM changes",
        "SELECT *, (SELECT count(*) FROM changes) AS n FROM changes",
        "SELECT c.*, n FROM changes c CROSS JOIN (SELECT count(*) AS n FROM changes) t",
    ],
    ids=["window", "subquery", "join"],
)
def test_a_rule_that_looks_at_other_rows_sees_those_of_one_table(spark: Any, jobs: list[str], sql: str) -> None:
    handler = spark({}, **{"*": {"sql": sql}})
    found = [(part.relation.table, part.after.columns[-1].to_pylist()) for part in handler.handle(regions()).changes]
    assert sorted(found) == [("north", [b"3", b"3"]), ("south", [b"4", b"4"]), ("west", [b"2", b"2"])]
    assert sorted(jobs) == sorted(TABLES)


@pytest.mark.parametrize(
    "sql", ["SELECT *, rand(42) AS r FROM changes", "SELECT *, _row AS r FROM changes"], ids=["rand", "row"]
)
def test_a_rule_that_counts_rows_gets_each_table_by_itself(spark: Any, jobs: list[str], sql: str) -> None:
    spark({}, **{"*": {"sql": sql}}).handle(regions())
    assert sorted(jobs) == sorted(TABLES)


def test_functions_get_each_table_by_itself(spark: Any, jobs: list[str]) -> None:
    handler = spark({}, **{"*": {"function": "tests.integration.test_spark_alike:passed_on"}})
    handler.handle(regions())
    assert sorted(jobs) == sorted(TABLES)


def test_a_row_that_cannot_be_coerced_is_put_aside_under_its_own_table(spark: Any) -> None:
    rule = {"coerce": {"customer": "int"}, "onError": "dead-letter"}
    result = spark({}, **{"*": rule}).handle(regions())
    assert sorted({rejection.changes.relation.table for rejection in result.rejections}) == ["north", "south", "west"]
    kept = len(result) + sum(len(rejection.changes) for rejection in result.rejections)
    assert kept == len(regions())


def passed_on(frame: Any) -> Any:
    return frame


def regions() -> Batch:
    """Changes of three tables of one shape, row by row in turn."""
    return batch(*(replace(of(table), batch_order=of(table).batch_order + place) for place, table in enumerate(TABLES)))


def only(table: str) -> Batch:
    return batch(replace(of(table), batch_order=of(table).batch_order + TABLES.index(table)))


def of(table: str) -> Changes:
    number = TABLES.index(table)
    texts = [[b"%d" % (10 * number + row), b"%d.50" % row, b"%s %d" % (table.encode(), row), None] for row in range(3)]
    if table == "west":
        return changes([INSERT, INSERT], {0: texts[1], 1: texts[2]}, {}, table=table)
    old = [texts[0][0], None, None, None]
    if table == "north":
        return changes([INSERT, DELETE, INSERT], {0: texts[1], 2: texts[2]}, {1: texts[0]}, table=table)
    return changes([UPDATE, INSERT, DELETE], {0: texts[1], 1: texts[2]}, {0: texts[1], 2: old}, table=table)


def told(result: Batch) -> list[tuple[Any, ...]]:
    return sorted(row for part in result.changes for row in rows(part))


def rows(part: Changes) -> list[tuple[Any, ...]]:
    """(batch_order, table, op, new values by name, old ones) of each row."""
    names = [column.name for column in part.columns]
    images = []
    for image in (part.after, part.before):
        values = zip(*(column.to_pylist() for column in image.columns), strict=True)
        images.append(
            dict(zip(image.rows.tolist(), (dict(zip(names, row, strict=True)) for row in values), strict=True))
        )
    return [
        (batch_order, part.relation.table, op, *(image.get(at) for image in images))
        for at, (batch_order, op) in enumerate(zip(part.batch_order.tolist(), part.op.tolist(), strict=True))
    ]


def test_tables_of_one_shape_say_where_their_rows_go(spark: Any, jobs: list[str]) -> None:
    handler = spark({}, **{"*": {"sql": "SELECT *, concat('t.', _table) AS _topic, customer AS _key FROM changes"}})
    records = encoder_of("event", Router({}, "", ""), {}).encode(handler.handle(regions()))
    assert len(jobs) == 1
    assert set(records.topic_names) == {f"t.{table}" for table in TABLES}
    for at in range(len(records)):
        assert records.look_up_topic(at) == f"t.{records.look_up_table(at).removeprefix('public.')}"
