"""Rules that are planned once, and run for every batch over the columns that they read.

What a rule passes on does not travel: it is put back by `_row`. So a rule over a table of 200 columns costs what the
columns cost that it reads and computes, and a rule that computes nothing and drops nothing runs no job at all.

Only rules whose plan is repeatable (row_by_row.py): a plan that is run again gives again what it has kept of the run
before, a shuffle or the result of a subquery.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from psql_streamer.spark.arrow_rows import ArrowRows
from psql_streamer.spark.by_job import JobInlets
from psql_streamer.spark.by_thread import ThreadInlets
from psql_streamer.spark.catalyst import Turns
from psql_streamer.spark.directions import is_direction
from psql_streamer.spark.exchange import Sent
from psql_streamer.spark.facts import Facts
from psql_streamer.spark.plans import Inlets, Plan
from psql_streamer.spark.result_rows import Result
from psql_streamer.spark.row_tracking import Lineage, find_row_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

log = logging.getLogger("psql_streamer.spark")

_KEEPS_CHANGES = re.compile(r"(?<!Broadcast)(?<!Reused)Exchange\b|\bBuildLeft\b|\bAdaptiveSparkPlan\b")
"""In the text of a physical plan: a shuffle, a broadcast of the side that has the changes, or a plan that is not final.
The next run would see them again."""

_MOST_PREPARED_PLANS = 300
"""How many plans are kept; those that have not run for the longest time go first."""

_LITTLE_USE = 4
"""A plan that was not asked for while so many times the number of plans were is let go for another one."""

_LARGE_TYPES = "spark.sql.execution.arrow.useLargeVarTypes"

Masks: TypeAlias = Mapping[tuple[int, Turns], int]
Apply: TypeAlias = "Callable[[DataFrame], DataFrame]"
"""What a rule makes of a frame of changes, with `_row`."""


@dataclass(frozen=True, slots=True)
class Needs:
    """travels: the sent columns that a rule reads, and `_row`, by index. returns: the columns of the result that it
    computes, and `_row`. has_work: whether there is anything for Spark to do.
    """

    travels: tuple[int, ...]
    returns: tuple[int, ...]
    has_work: bool

    @classmethod
    def from_facts(cls, lineage: Lineage, facts: Facts, sent: Sent) -> Needs:
        """What a rule with these facts needs."""
        row, columns = sent.row_column, sent.changes.columns
        computed = [
            at for at, field in enumerate(lineage.fields) if field.source is None or is_direction(field, columns)
        ]
        read = {row}.union(facts.drops, *facts.joins, *(condition.reads for condition in facts.conditions))
        read = read.union(*(facts.reads[at] for at in computed if at < len(facts.reads)))
        has_work = bool(computed or facts.conditions or facts.drops or facts.joins)
        return cls(tuple(sorted(read)), (*computed, find_row_column(lineage.fields, row)), has_work)


class PreparedRule:
    """A rule that is planned for tables in one shape. From several threads.

    is_repeatable: whether its joins keep the other side alone. One that is not must not be run.
    """

    def __init__(self, plan: Plan, needs: Needs) -> None:
        self._plan = plan
        self._needs = needs
        self.is_repeatable = not _KEEPS_CHANGES.search(plan.text)

    def run(self, sent: Sent) -> Result:
        """What the rule makes of the changes. Raises what Spark raises."""
        place = {at: number for number, at in enumerate(self._needs.returns)}
        return Result(self._plan.run(sent.select_columns(self._needs.travels)), place)


@dataclass(slots=True)
class _Kept:
    """asked: when it was asked for last, as a count of all questions."""

    versions: tuple[int, ...]
    rule: PreparedRule
    asked: int


class PreparedRules:
    """Of one engine. The key of a plan is whatever makes it another one."""

    def __init__(self, ways: Sequence[Inlets]) -> None:
        """ways: the first one that a plan can be run in is taken."""
        self._ways = ways
        self._kept: OrderedDict[object, _Kept] = OrderedDict()
        self._asked = 0
        self._in_use = threading.Lock()

    def find(
        self, key: object, prepare: Callable[[], PreparedRule], versions: tuple[int, ...] = ()
    ) -> PreparedRule | None:
        """What was prepared under this key before, or is now; None where there is no room for it.

        versions: of what the plan keeps besides. A plan of others is let go, with what it has broadcast.
        """
        with self._in_use:
            self._asked += 1
            kept = self._kept.get(key)
            if kept is not None and kept.versions == versions:
                kept.asked = self._asked
                self._kept.move_to_end(key)
                return kept.rule
            if kept is None and not self._has_room():
                return None
        made = prepare()
        with self._in_use:
            self._kept[key] = _Kept(versions, made, self._asked)
            while len(self._kept) > _MOST_PREPARED_PLANS:
                self._kept.popitem(last=False)
        return made

    def cancel(self) -> None:
        """Plans that run fail, but for those of jobs."""
        for inlets in self._ways:
            inlets.cancel()

    def _has_room(self) -> bool:
        """Or a plan that is of little use: to prepare all of too many rules in turn costs more than to prepare none."""
        if len(self._kept) < _MOST_PREPARED_PLANS:
            return True
        return self._asked - next(iter(self._kept.values())).asked > _LITTLE_USE * _MOST_PREPARED_PLANS

    def prepare(self, spark: SparkSession, schema: StructType, sent: Sent, needs: Needs, apply: Apply) -> PreparedRule:
        """schema: of all sent columns. apply: gives the rule's result, with all its columns in the order of `needs`."""

        def returned(frame: DataFrame) -> DataFrame:
            result = apply(frame.select(*_list_columns(schema, needs.travels)))
            numbered = result.toDF(*(f"c{at}" for at in range(len(result.columns))))
            return numbered.select(*(f"c{at}" for at in needs.returns))

        travels = needs.travels
        return PreparedRule(
            self.plan(
                spark, _select_spark_fields(schema, travels), _select_arrow_fields(sent.schema, travels), returned
            ),
            needs,
        )

    def plan(self, spark: SparkSession, schema: StructType, arrow: pa.Schema, apply: Apply) -> Plan:
        """A plan of what is made of a frame with rows of this schema. arrow: the same as Arrow's."""
        for inlets in self._ways:
            inlet = inlets.make(spark, schema, arrow)
            plan = inlet.plan(apply(inlet.frame))
            if plan is not None:
                return plan
        raise AssertionError("a job runs every plan")


def make_prepared_rules(spark: SparkSession) -> PreparedRules | None:
    """None where this release of Spark plans every batch anew, or its settings want Arrow's large types, which inlets
    do not have."""
    if spark.conf.get(_LARGE_TYPES, "false") == "true":
        return None
    try:
        rows = ArrowRows(spark)
        jobs = JobInlets(spark, rows)
        _make_trial_plan(spark, jobs)  # it is not run: a job may have to wait for an executor
    except Exception as error:
        log.warning("this release of Spark plans every batch anew, which is slower (%s)", type(error).__name__)
        return None
    if not spark._jsc.sc().isLocal():
        return PreparedRules([jobs])
    try:
        threads = ThreadInlets(spark, rows)
        _require_rows(_make_trial_plan(spark, threads))
    except Exception as error:
        log.warning("this release of Spark runs every batch by a job, which is slower (%s)", type(error).__name__)
        return PreparedRules([jobs])
    return PreparedRules([threads, jobs])


def _make_trial_plan(spark: SparkSession, inlets: Inlets) -> Plan | None:
    """A small plan. Raises what a release of Spark raises that has not what is needed."""
    from pyspark.sql.types import LongType, StructField, StructType

    arrow = pa.schema([("c0", pa.int64())])
    inlet = inlets.make(spark, StructType([StructField("c0", LongType())]), arrow)
    return inlet.plan(inlet.frame.selectExpr("c0 + 1"))


def _require_rows(plan: Plan | None) -> None:
    if plan is None or plan.run(pa.table({"c0": [1]})).column(0).to_pylist() != [2]:
        raise RuntimeError("the rows of a kept plan are not those that were given to it")


def _select_spark_fields(schema: StructType, columns: Sequence[int]) -> StructType:
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(f"c{at}", schema.fields[at].dataType, True) for at in columns])


def _select_arrow_fields(schema: pa.Schema, columns: Sequence[int]) -> pa.Schema:
    return pa.schema([(f"c{at}", schema.field(at).type) for at in columns])


def _list_columns(schema: StructType, travels: Sequence[int]) -> Iterator[Any]:
    """All columns that a rule knows, in their order; nulls where nothing travels, because nothing reads them."""
    from pyspark.sql import functions as f

    for at, field in enumerate(schema.fields):
        # lit() imports pyspark.testing, with unittest and, where it is installed, protobuf.
        values = f.col(f"c{at}") if at in travels else f.expr("NULL").cast(field.dataType)
        yield values.alias(field.name, metadata=field.metadata)
