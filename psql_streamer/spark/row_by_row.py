"""Whether a rule gives each row by itself, by its analysed plan."""

from __future__ import annotations

from collections.abc import Iterable

from psql_streamer.spark.plan_tree import Node

_ROW_BY_ROW = {"Project", "Filter", "SubqueryAlias", "View", "LogicalRDD", "LocalRelation"}
"""Nodes of plans that give each row by itself; the last two are the table that was sent."""

_SENT = {"LogicalRDD", "LocalRelation"}

_READS_OTHERS = {
    *("ScalarSubquery", "Exists", "InSubquery", "ListQuery", "LateralSubquery"),
    *("WindowExpression", "AggregateExpression", "MonotonicallyIncreasingID", "SparkPartitionID"),
    *("Rand", "Randn", "RandStr", "Uniform", "Shuffle", "Uuid", "CallMethodViaReflection", "TryReflect"),
}
"""Expressions whose value depends on other rows, or on how many came before."""

_READS_CLOCK = ("Current", "Now", "LocalTime")
"""What the names of expressions begin with that have one value for a query: the moment at which it is planned."""


def is_row_by_row(plan: Node) -> bool:
    """Whether a rule's plan gives each row by itself, whatever other rows there are."""
    nodes = list(_plans(plan))
    return (
        all(node.kind in _ROW_BY_ROW for node in nodes)
        and sum(node.kind in _SENT for node in nodes) == 1
        and not any(node.kind in _READS_OTHERS for node in plan.walk())
    )


def is_repeatable(plan: Node) -> bool:
    """Whether it also gives the same for a row whenever it runs, so that it may be planned once for many batches."""
    return is_row_by_row(plan) and not any(
        node.kind.startswith(_READS_CLOCK) or node.fields.get("udfDeterministic") is False for node in plan.walk()
    )


def _plans(plan: Node) -> Iterable[Node]:
    """The nodes of a plan, without the expressions in them: its children are plans."""
    yield plan
    for child in plan.children:
        yield from _plans(child)
