"""Spark's analysed plan as a tree: what TreeNode.toJSON gives, read.

A tree is written as a list of its nodes, each before its children (org.apache.spark.sql.catalyst.trees.TreeNode,
`jsonValue`); expressions are trees in the fields of plan nodes, and plans of subqueries in those of expressions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_GIVEN = frozenset({"output", "generatorOutput"})
"""Fields of plan nodes that list what they give, not what they read."""


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """kind: the class's own name. fields: by name; trees in them are Nodes, in lists where there are several."""

    kind: str
    fields: dict[str, Any]
    children: tuple[Node, ...]

    def walk(self, without: frozenset[str] = frozenset()) -> Iterator[Node]:
        """This node and every one below it, also in fields, but for those of these names."""
        yield self
        for child in self.children:
            yield from child.walk(without)
        for name, value in self.fields.items():
            if name not in without:
                for node in _list_nodes(value):
                    yield from node.walk(without)

    @property
    def expression_id(self) -> int | None:
        """The number by which attributes are told apart, whatever their names; None for nodes without one."""
        found = self.fields.get("exprId")
        return int(found["id"]) if isinstance(found, dict) and "id" in found else None

    @property
    def name(self) -> str:
        """The name of an attribute or an alias."""
        return str(self.fields.get("name", ""))

    def collect_references(self) -> frozenset[int]:
        """The ids of all attributes that are read below."""
        return frozenset(
            node.expression_id
            for node in self.walk(_GIVEN)
            if node.kind == "AttributeReference" and node.expression_id is not None
        )

    def list_trees(self, field: str) -> tuple[Node, ...]:
        """The trees in a field."""
        return tuple(_list_nodes(self.fields.get(field)))


def read_plan(text: str) -> Node:
    """The tree in the JSON text of a plan."""
    tree = _read(json.loads(text))
    assert isinstance(tree, Node)  # noqa: S101 - toJSON gives one tree
    return tree


def join_type(node: Node) -> str:
    """The type of a join: `Inner`, `LeftOuter`."""
    found = node.fields.get("joinType") or {}
    return str(found.get("object") or found.get("product-class") or "").rpartition(".")[2].rstrip("$")


def _list_nodes(value: Any) -> Iterator[Node]:
    if isinstance(value, Node):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _list_nodes(item)


def _read(value: Any) -> Any:
    """JSON with its trees made Nodes."""
    if isinstance(value, list):
        if value and all(isinstance(item, dict) and "class" in item and "num-children" in item for item in value):
            return _build_tree(iter(value))
        return [_read(item) for item in value]
    return value


def _build_tree(nodes: Iterator[dict[str, Any]]) -> Node:
    node = next(nodes)
    fields = {name: _read(value) for name, value in node.items() if name not in ("class", "num-children")}
    children = tuple(_build_tree(nodes) for _ in range(node["num-children"]))
    return Node(node["class"].rpartition(".")[2].rstrip("$"), fields, children)
