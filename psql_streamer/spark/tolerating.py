"""A rule's plan made so that no value fails the job: what cannot be computed is null, and each row says what that was.

Spark's TryEval gives null in place of an exception. Around a struct it tells an exception, which makes the struct null,
from a null that was computed. Only plans of the local engine can be rebuilt. Of Python code, functions that are called
row by row are made to tolerate; exceptions of others fail the job all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from psql_streamer.spark.catalyst import list_items
from psql_streamer.spark.tolerant_python import PythonFunctions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FAILED = "psql_streamer_failed"
"""The column behind those of the result: a bit for each of Tolerated.places that failed."""

_MOST_PLACES = 62
"""The last bit is of all places from there on."""

_SHARING = "spark.sql.subexpressionElimination.enabled"


@dataclass(frozen=True, slots=True)
class Tolerated:
    """result: with FAILED behind its columns. places: what may fail, by bit: the name of a column that is computed;
    None: a condition, which lets a row pass that it cannot judge. writers: the bits of those of which no other row can
    be trusted where one has failed."""

    result: DataFrame
    places: list[str | None]
    writers: int

    def run(self) -> pa.Table:
        """The rows. An expression that occurs twice is computed twice: Spark would move it out of what tolerates it."""
        conf = self.result.sparkSession.conf
        before = conf.get(_SHARING)
        conf.set(_SHARING, "false")
        try:
            return self.result.toArrow()
        finally:
            conf.set(_SHARING, before or "true")


def tolerate(result: DataFrame, turns: Sequence[int]) -> Tolerated | None:
    """The result with everything on the way from its plan's root to the table that was sent made to tolerate; None when
    nothing on it can fail.

    turns: the child to go to, at each node of the way.
    """
    from pyspark.sql import DataFrame

    spark = result.sparkSession
    at = _Tolerance(spark)
    frame: Any = result
    plan = frame._jdf.queryExecution().analyzed()
    rebuilt, flags = at.rebuild_plan(plan, list(turns), _collect_ids(plan.output()))
    if flags is None:
        return None
    project = at.logical.Project(plan.output().appended(flags), rebuilt)
    return Tolerated(DataFrame(at.dataset.ofRows(spark._jsparkSession, project), spark), at.places, at.writers)


class _Tolerance:
    """Rebuilds a plan. places, writers: see Tolerated."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        catalyst = jvm.org.apache.spark.sql.catalyst
        self.logical = catalyst.plans.logical
        self.dataset = jvm.org.apache.spark.sql.classic.Dataset
        self.places: list[str | None] = []
        self.writers = 0
        self._expressions = catalyst.expressions
        self._seq = jvm.PythonUtils.toSeq
        self._nothing = jvm.scala.Option.empty()
        self._parse = spark._jsparkSession.sessionState().sqlParser().parseExpression
        self._python = PythonFunctions(spark, self._make_alias)

    def rebuild_plan(self, plan: Any, turns: list[int], needed: frozenset[int]) -> tuple[Any, Any]:
        """The plan, and the attribute with the bits of what failed below; None where nothing can.

        turns: the child to go to, at each node. needed: the ids of what is read of the plan's output; nothing computes
        what nobody reads.
        """
        kind = plan.nodeName()
        children = list_items(plan.children())
        if not children:
            return plan, None
        if kind == "Project":
            return self._project(plan, turns, needed)
        if kind == "Filter":
            return self._filter(plan, turns, needed)
        chosen = turns[0] if turns else 0
        child, flags = self.rebuild_plan(children[chosen], turns[1:], needed | _collect_ids(plan.references().toSeq()))
        children[chosen] = child
        return plan.withNewChildren(self._seq(children)), flags

    def _project(self, plan: Any, turns: list[int], needed: frozenset[int]) -> tuple[Any, Any]:
        listed = list_items(plan.projectList())
        wanted = [one for one in listed if one.exprId().id() in needed]
        below = frozenset().union(*(_collect_ids(one.references().toSeq()) for one in wanted))
        child, flags = self.rebuild_plan(plan.child(), turns[1:], below)
        attempts, lifted = dict[int, Any](), child
        for one in wanted:
            if one.nodeName() == "Alias" and not _cannot_fail(one.child()):
                attempts[one.exprId().id()], lifted = self._make_attempt(one.child(), lifted)
        names = {one.exprId().id(): one.name() for one in listed}
        given = [
            one.withNewChildren(self._seq([self._unpack_value(attempts[one.exprId().id()])]))
            if one.exprId().id() in attempts
            else one
            for one in listed
        ]
        noted = self._note_failures(flags, [(names[one], attempt) for one, attempt in attempts.items()])
        inner = self.logical.Project(self._seq([*list_items(child.output()), *attempts.values()]), lifted)
        behind = [] if noted is None else [noted]
        return self.logical.Project(self._seq([*given, *behind]), inner), _make_attribute(noted)

    def _filter(self, plan: Any, turns: list[int], needed: frozenset[int]) -> tuple[Any, Any]:
        """Each condition by itself: a row that one of them can judge, and does not let pass, is dropped."""
        condition = plan.condition()
        child, flags = self.rebuild_plan(plan.child(), turns[1:], needed | _collect_ids(condition.references().toSeq()))
        attempts, lifted = list[Any](), child
        for one in _list_conjuncts(condition):
            attempt, lifted = self._make_attempt(one, lifted)
            attempts.append(attempt)
        inner = self.logical.Project(self._seq([*list_items(child.output()), *attempts]), lifted)
        noted = self._note_failures(flags, [(None, attempt) for attempt in attempts])
        middle = self.logical.Project(self._seq([*list_items(inner.output()), noted]), inner)
        admitted = middle
        for attempt in attempts:
            either = self._expressions.Or(self._expressions.IsNull(attempt.toAttribute()), self._unpack_value(attempt))
            admitted = self.logical.Filter(either, admitted)
        kept = [*list_items(plan.output()), noted.toAttribute()]
        return self.logical.Project(self._seq(kept), admitted), noted.toAttribute()

    def _make_attempt(self, expression: Any, below: Any) -> tuple[Any, Any]:
        """A struct of the value, under a name of its own; null when there is an exception. And what it is computed on:
        the plan `below`, and on top of it Python functions."""
        lifted, plan, failures = self._python.lift(expression, below)
        attempt = self._expressions.TryEval(
            self._expressions.CreateNamedStruct(self._seq([self._parse("'value'"), lifted]))
        )
        for failed in failures:
            # With its type: what is not resolved yet has no attribute.
            nothing = self._expressions.Literal.create(None, attempt.dataType())
            attempt = self._expressions.If(failed, nothing, attempt)
        return self._make_alias(attempt, "attempt"), plan

    def _unpack_value(self, attempt: Any) -> Any:
        return self._expressions.GetStructField(attempt.toAttribute(), 0, self._nothing)

    def _note_failures(self, flags: Any, attempts: list[tuple[str | None, Any]]) -> Any:
        """The bits of what failed below and in these attempts, under a name; None where nothing can."""
        found = flags
        for name, attempt in attempts:
            if len(self.places) <= _MOST_PLACES:
                self.places.append(name)
            place = 1 << (len(self.places) - 1)
            self.writers |= place if _may_leave_half_written(attempt) else 0
            bit = self._parse(f"{place}L")
            failed = self._expressions.IsNull(attempt.toAttribute())
            mine = self._expressions.If(failed, bit, self._parse("0L"))
            found = mine if found is None else self._expressions.BitwiseOr(found, mine)
        return None if found is None else self._make_alias(found, FAILED)

    def _make_alias(self, expression: Any, name: str) -> Any:
        make = self._expressions.Alias
        number = self._expressions.NamedExpression.newExprId()
        return make(expression, name, number, self._seq([]), self._nothing, self._seq([]))


def _make_attribute(alias: Any) -> Any:
    return None if alias is None else alias.toAttribute()


def _cannot_fail(expression: Any) -> bool:
    """Attributes and literals."""
    return bool(expression.children().isEmpty())


def _may_leave_half_written(expression: Any) -> bool:
    """Whether a row that fails may leave its text in a writer, so that the next ones have a part of it. to_json and
    to_csv fail while they write only for a format that they were given."""
    kind = expression.nodeName()
    if kind == "StructsToXml" or (kind in ("StructsToJson", "StructsToCsv") and not expression.options().isEmpty()):
        return True
    return any(_may_leave_half_written(child) for child in list_items(expression.children()))


def _list_conjuncts(condition: Any) -> list[Any]:
    if condition.nodeName() != "And":
        return [condition]
    return [*_list_conjuncts(condition.left()), *_list_conjuncts(condition.right())]


def _collect_ids(attributes: Any) -> frozenset[int]:
    return frozenset(one.exprId().id() for one in list_items(attributes))
