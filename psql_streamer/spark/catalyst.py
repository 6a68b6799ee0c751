"""Spark's analysed plans through py4j: read as JSON, and rebuilt with more in them. Not on a Spark Connect server,
which keeps its plans to itself.

What is done here is what Spark itself does for the metadata columns of files (org.apache.spark.sql.catalyst.analysis.
AddMetadataColumns): attributes are found by identity, so nothing that a query names can be confused with them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from psql_streamer.spark.facts import Facts, RowOrigin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Turns = tuple[int, ...]
Masks = Mapping[tuple[int, Turns], int]
"""(Condition.filter, Condition.turns) -> bits of `_row` that let a row pass the condition whatever it says."""

_NUMBER = re.compile(r"#\d+")
_MOST_SHOWN_FIELDS = 100_000


class Catalyst:
    """The classes of one JVM that are needed here; to look one up by its name takes a call for each part of it."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        catalyst = jvm.org.apache.spark.sql.catalyst
        self._project = catalyst.plans.logical.Project
        self._filter = catalyst.plans.logical.Filter
        expressions = catalyst.expressions
        self._and, self._or, self._not = expressions.And, expressions.Or, expressions.Not
        self._equal, self._bits = expressions.EqualTo, expressions.BitwiseAnd
        self._dataset = jvm.org.apache.spark.sql.classic.Dataset
        self._to_seq: Callable[[list[Any]], Any] = jvm.PythonUtils.toSeq
        self._parser = spark._jsparkSession.sessionState().sqlParser()
        self._number = cache(self._parse_bigint)

    def plan_json(self, result: DataFrame) -> str:
        """The analysed plan below a Project that lists the result's columns. Of a wide one it takes 50 ms."""
        plan = _read_analysed_plan(result)
        text: str = self._project(plan.output(), plan).toJSON()
        return text

    def compute_fingerprint(self, result: DataFrame) -> str:
        """The analysed plan as a text that is the same for the same plan over another batch."""
        text = _render_plan(_read_analysed_plan(result))
        seen: dict[str, str] = {}
        return _NUMBER.sub(lambda found: seen.setdefault(found[0], f"#{len(seen)}"), text)

    def add_row_column(self, result: DataFrame, facts: Facts, masks: Masks) -> DataFrame:
        """The result with `_row` behind its columns, if it has none, and its filters made to let rows pass.

        facts: of the result's plan, with a way. masks: by condition of the facts; those that are missing stay.
        """
        from pyspark.sql import DataFrame

        spark = result.sparkSession
        plan = _read_analysed_plan(result)
        way = list(facts.way or ())
        rebuilt, row = self._rebuild_plan(plan, way, 0, masks)
        if facts.row is RowOrigin.MISSING:
            rebuilt = self._project(plan.output().appended(row), rebuilt)
        elif rebuilt.output().length() > plan.output().length():  # the rule has `_row` under a name of its own
            rebuilt = self._project(plan.output(), rebuilt)
        return DataFrame(self._dataset.ofRows(spark._jsparkSession, rebuilt), spark)

    def _rebuild_plan(self, plan: Any, way: list[tuple[str, int, bool]], at: int, masks: Masks) -> tuple[Any, Any]:
        """The plan, and the attribute `_row` that is in its output."""
        if at == len(way):
            return plan, plan.output().last()
        kind, chosen, has_row = way[at]
        children = list_items(plan.children())
        child, row = self._rebuild_plan(children[chosen], way, at + 1, masks)
        if kind == "Filter":
            return self._filter(self._loosen_condition(plan.condition(), row, at, (), masks), child), row
        if kind == "Project" and not has_row:
            return self._project(plan.projectList().appended(row), child), row
        children[chosen] = child
        return plan.withNewChildren(self._to_seq(children)), row

    def _loosen_condition(self, condition: Any, row: Any, at: int, turns: Turns, masks: Masks) -> Any:
        """The condition, with those conjuncts that have a mask made true for the rows that have one of its bits."""
        mask = masks.get((at, turns))
        if mask:
            lacks = self._not(self._equal(self._bits(row, self._number(mask)), self._number(0)))
            return self._or(condition, lacks)
        if not any(step == at and deeper[: len(turns)] == turns for step, deeper in masks):
            return condition
        sides = (condition.left(), condition.right())
        return self._and(
            *(self._loosen_condition(side, row, at, (*turns, turn), masks) for turn, side in enumerate(sides))
        )

    def _parse_bigint(self, number: int) -> Any:
        """A bigint: py4j would make an int of a small one."""
        return self._parser.parseExpression(f"{number}L")


def list_items(seq: Any) -> list[Any]:
    """What a Seq of Scala has."""
    return [seq.apply(at) for at in range(seq.length())]


def _render_plan(plan: Any) -> str:
    from py4j.protocol import Py4JError

    # verbose, addSuffix, maxFields, printOperatorId, and since Spark 4.1 one more.
    try:
        text: str = plan.treeString(True, False, _MOST_SHOWN_FIELDS, False, False)
    except Py4JError:
        text = plan.treeString(True, False, _MOST_SHOWN_FIELDS, False)
    return text


def _read_analysed_plan(result: Any) -> Any:
    return result._jdf.queryExecution().analyzed()
