"""Whether a rule gives each row by itself, by its analysed plan."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from psql_streamer.spark.plan_tree import Node, join_type

_ROW_BY_ROW = {"Project", "Filter", "SubqueryAlias", "View"}
"""Nodes of plans that give each row by itself."""

_ONE_BY_ONE_JOINS = {"Inner", "Cross", "LeftOuter", "LeftSemi", "LeftAnti"}
"""Joins in which what becomes of a row of the left side does not depend on the others there."""

_READS_OTHERS = {
    *("ScalarSubquery", "Exists", "InSubquery", "ListQuery", "LateralSubquery"),
    *("WindowExpression", "AggregateExpression", "MonotonicallyIncreasingID", "SparkPartitionID"),
    *("Rand", "Randn", "RandStr", "Uniform", "Shuffle", "Uuid", "CallMethodViaReflection", "TryReflect"),
}
"""Expressions whose value depends on other rows, or on how many came before."""

_IN_MEMORY = {"LogicalRDD", "LocalRelation", "OneRowRelation", "Range"}
"""Leaves of plans that have the same rows for ever. Files and tables of a catalog may have others in the next batch."""

_READS_CLOCK = ("Current", "Now", "LocalTime")
"""What the names of expressions begin with that have one value for a query: the moment at which it is planned."""

_WRITERS = {"StructsToJson", "StructsToXml", "StructsToCsv"}
"""Expressions that write each row's text into a writer that they keep. A row that fails leaves it half written."""

_MOMENT = re.compile(r"""['"]\s*(?:now|today|yesterday|tomorrow)\b""", re.IGNORECASE)
"""A text of which Spark makes the moment at which it plans, as in TIMESTAMP 'now' and CAST('today' AS DATE)."""


def is_row_by_row(plan: Node, sent: Sequence[str]) -> bool:
    """Whether a rule's plan gives each row by itself. sent: names of the columns of the table that was sent.

    What a row is joined with may be anything that is not made of the changes.
    """
    if any(node.kind in _READS_OTHERS for node in plan.walk()):
        return False
    node = plan
    while not _is_sent(node, sent):
        if node.kind == "Join" and join_type(node) in _ONE_BY_ONE_JOINS:
            if has_sent(node.children[1], sent):
                return False
        elif node.kind not in _ROW_BY_ROW or len(node.children) != 1:
            return False
        node = node.children[0]
    return True


def is_repeatable(plan: Node, sent: Sequence[str]) -> bool:
    """Whether it also gives the same for a row whenever it runs, so that it may be planned once for many batches."""
    return (
        is_row_by_row(plan, sent)
        and all(node.kind in _IN_MEMORY for node in _list_leaves(plan))
        and not any(
            node.kind.startswith(_READS_CLOCK)
            or node.fields.get("udfDeterministic") is False
            or _hides_half_written(node)
            for node in plan.walk()
        )
    )


def _hides_half_written(node: Node) -> bool:
    """Whether nobody is told that a row failed in a writer, as in try_to_binary(to_xml(...)). The next row has a part
    of it then: of this batch, as Spark has it, but not of another."""
    return node.kind == "TryEval" and any(one.kind in _WRITERS for one in node.walk())


def _list_leaves(plan: Node) -> Iterator[Node]:
    """What a plan reads; its children are plans, expressions are in its fields."""
    if not plan.children:
        yield plan
    for child in plan.children:
        yield from _list_leaves(child)


def names_a_moment(text: str) -> bool:
    """Whether an expression may have a moment in it that is another one in every run. A plan does not show it."""
    return _MOMENT.search(text) is not None


def has_sent(plan: Node, sent: Sequence[str]) -> bool:
    """Whether the table that was sent is in a plan, or in a subquery of it."""
    return any(_is_sent(node, sent) for node in plan.walk())


def _is_sent(node: Node, sent: Sequence[str]) -> bool:
    return not node.children and [one.name for one in node.list_trees("output")] == list(sent)
