"""How a rule comes to several rows for one image, by its plan."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from psql_streamer.spark.plan_tree import Node

_SPLITS = {"Generate", "Union", "Expand"}
"""Nodes whose purpose is to give several rows for one."""

_ORDERED = {"Project", "Filter", "SubqueryAlias", "View", "LogicalRDD", "LocalRelation", "Generate", "Union"}
"""Nodes that give the rows of one image in an order that is the same every time: that of an array, or of a query's
branches.
"""


@dataclass(frozen=True, slots=True)
class Splitting:
    """splits: whether the rule is there to make several rows of one, so that those that are not there have gone.
    ordered: whether the order of the rows of one image is the same every time.
    """

    splits: bool
    ordered: bool


UNKNOWN = Splitting(splits=False, ordered=False)
"""Where nobody sees the plan."""


def read_splitting(plan: Node) -> Splitting:
    """What the plan of a query says of it."""
    kinds = {node.kind for node in _list_plans(plan)}
    return Splitting(bool(kinds & _SPLITS), kinds <= _ORDERED)


def _list_plans(plan: Node) -> Iterable[Node]:
    """The nodes of a plan, without the expressions in them: its children are plans."""
    yield plan
    for child in plan.children:
        yield from _list_plans(child)
