"""What of a rule's analysed plan takes several rows of a batch together.

A batch begins and ends anywhere: what comes of that depends on which changes came together, and a repeat may give
something else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from psql_streamer.spark.origins import Origins
from psql_streamer.spark.plan_tree import Node
from psql_streamer.spark.row_by_row import has_sent

_CUTS = {"GlobalLimit": "LIMIT", "LocalLimit": "LIMIT", "Tail": "tail", "Offset": "OFFSET"}
"""Nodes that drop rows by how many there are."""

_SUBQUERIES = frozenset({"ScalarSubquery", "Exists", "ListQuery", "LateralSubquery"})

_BOTH_SIDES = frozenset({"Join", "LateralJoin", "Except", "Intersect"})


def find_cut(plan: Node, sent: Sequence[str]) -> str | None:
    """What drops changes by how many come together, as SQL has it; None where nothing does."""
    return next((_CUTS[node.kind] for node in plan.walk() if node.kind in _CUTS and has_sent(node, sent)), None)


def find_mixing(plan: Node, sent: Sequence[str], origins: Origins) -> str | None:
    """What of a plan makes something of several changes; None where nothing does. What takes together the rows of one
    change alone, by `_row`, does not."""
    return next((what for node in plan.walk() if (what := _describe_mixing(node, sent, origins)) is not None), None)


def _describe_mixing(node: Node, sent: Sequence[str], origins: Origins) -> str | None:
    if node.kind in _SUBQUERIES:
        return "a subquery over changes" if any(has_sent(one, sent) for one in node.list_trees("plan")) else None
    what, together = _list_keys(node)
    if what is not None:
        row = len(sent) - 1
        ours = any(origins.find_sent_column(one) == row for one in together)
        return what if not ours and has_sent(node, sent) else None
    if node.kind in _BOTH_SIDES and len(node.children) > 1 and all(has_sent(one, sent) for one in node.children):
        return None if _is_by_row(node, len(sent) - 1, origins) else "a join of changes with changes"
    return None


def _list_keys(node: Node) -> tuple[str | None, Iterator[int]]:
    """What a node is that takes rows together, and the attributes that these have alike."""
    if node.kind == "Aggregate":
        return "an aggregate", _list_ids(node.list_trees("groupingExpressions"))
    if node.kind == "Window":
        return "a window function", _list_ids(node.list_trees("partitionSpec"))
    if node.kind == "Deduplicate":
        return "dropDuplicates", _list_ids(node.list_trees("keys"))
    if node.kind == "Distinct":
        child = node.children[0]
        return "DISTINCT", _list_ids((*child.list_trees("projectList"), *child.list_trees("output")))
    return ("a sample", iter(())) if node.kind == "Sample" else (None, iter(()))


def _list_ids(nodes: Sequence[Node]) -> Iterator[int]:
    return (node.expression_id for node in nodes if node.expression_id is not None)


def _is_by_row(join: Node, row: int, origins: Origins) -> bool:
    """Whether a join finds rows by `_row`, so that each finds those of its own change."""
    equal = (node for tree in join.list_trees("condition") for node in tree.walk() if node.kind == "EqualTo")
    return any(
        all(origins.find_sent_column(one) == row for one in ids)
        for node in equal
        if len(ids := list(_list_ids(node.children))) == len(node.children)
    )
