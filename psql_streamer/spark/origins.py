"""What every attribute of an analysed plan is made of, and the way on which `_row` comes up from the sent table.

Attributes are told apart by their ids, so nothing that a query names can be confused with anything.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from psql_streamer.spark.plan_tree import Node, join_type

# Plan nodes through which a column can be led: they give their child's rows with its columns, or can be made to.
_KEEPS_COLUMNS = frozenset(
    {
        "Filter",
        "Generate",
        "GlobalLimit",
        "Join",
        "LateralJoin",
        "LocalLimit",
        "PipeOperator",
        "Project",
        "RebalancePartitions",
        "Repartition",
        "RepartitionByExpression",
        "ResolvedHint",
        "Sample",
        "Sort",
        "SubqueryAlias",
        "View",
        "Window",
    }
)
_JOINS = frozenset({"Join", "LateralJoin"})
_ONLY_LEFT = frozenset({"LeftSemi", "LeftAnti"})
_KEEPS_ROWS = {0: frozenset({"LeftOuter", "FullOuter"}), 1: frozenset({"RightOuter", "FullOuter"})}
_DROPPING = ("condition", "generator", "keys")
_NOBODY_KNOWS = -1
"""In place of an attribute that cannot be followed."""


@dataclass(frozen=True, slots=True)
class Stop:
    """A node on the way from a plan's root down to the sent table. has_row: its own output has `_row`."""

    node: Node
    child: int
    has_row: bool


class Origins:
    """sent: names of the columns of the table that was sent, `_row` last. own: how many are the table's own."""

    def __init__(self, plan: Node, sent: Sequence[str], own: int) -> None:
        self._sent = list(sent)
        self._own = own
        self._columns: dict[int, int] = {}  # the table may be there several times, each with ids of its own
        self._same: dict[int, int] = {}  # another name for an attribute
        self._made: dict[int, set[int]] = defaultdict(set)
        self._united: dict[int, list[int]] = {}
        self._opaque: dict[int, str] = {}
        nodes = list(plan.walk())
        self._definitions = {node.fields["id"]: node for node in nodes if node.kind == "CTERelationDef"}
        for note in (self._note_leaf, self._note_made, self._note_union, self._note_join, self._note_opaque):
            for node in nodes:
                note(node)

    @property
    def has_opaque(self) -> bool:
        """Whether some of it is made by code that no plan shows."""
        return bool(self._opaque)

    def find_sent_column(self, attribute: int) -> int | None:
        """The sent column that an attribute is, unchanged, if it is one."""
        found = self._columns.get(self.resolve_attribute(attribute))
        others = self._united.get(self.resolve_attribute(attribute), ())
        return found if all(self.find_sent_column(other) == found for other in others) else None

    def resolve_attribute(self, attribute: int) -> int:
        """The attribute that this one is another name of."""
        while attribute in self._same:
            attribute = self._same[attribute]
        return attribute

    def is_opaque(self, attribute: int) -> bool:
        """Whether it comes, unchanged, from code that no plan shows."""
        return self.resolve_attribute(attribute) in self._opaque

    def find_reads(self, attributes: Iterable[int]) -> frozenset[int]:
        """The sent columns that any of the attributes is made of."""
        found: set[int] = set()
        seen: set[int] = set()
        waiting = list(attributes)
        while waiting:
            one = waiting.pop()
            if one not in seen:
                seen.add(one)
                found |= self._read_directly(one)
                waiting += [self._same[one]] if one in self._same else []
                waiting += [*self._made.get(one, ()), *self._united.get(one, ())]
        return frozenset(found)

    def find_way(self, plan: Node, rows: Iterable[int]) -> list[Stop] | None:
        """From the root to the sent table whose `_row` is one of these attributes; without any, to the first from which
        it can be led up. None where there is no such way."""
        wanted = frozenset(self.resolve_attribute(row) for row in rows)
        found = self._find_way_and_row(plan, wanted)
        return None if found is None else found[0]

    def find_drops(self, nodes: Iterable[Node]) -> frozenset[int]:
        """What is read by whatever of these nodes may drop rows."""
        if self.has_opaque:
            return frozenset(range(self._own))
        return self.find_reads(frozenset().union(*map(_find_dropping_attributes, nodes)))

    def find_drops_on(self, way: Iterable[Stop]) -> frozenset[int]:
        """What is read by the nodes on the way that may drop rows; filters are not among them."""
        return self.find_drops(
            stop.node
            for stop in way
            if (stop.node.kind in _JOINS and join_type(stop.node) not in _KEEPS_ROWS[stop.child])
            or (stop.node.kind == "Generate" and not stop.node.fields.get("outer"))
        )

    def list_joins_on(self, way: Iterable[Stop]) -> Iterator[frozenset[int]]:
        """What each join on the way finds rows by. It may find several for one, or none."""
        return (self.find_reads(_find_dropping_attributes(stop.node)) for stop in way if stop.node.kind in _JOINS)

    # --- reading the plan

    def _note_leaf(self, node: Node) -> None:
        """A table: the one that was sent, one that a function's code made of it, which has its `_row`, or any other."""
        if node.children or "output" not in node.fields or node.kind == "CTERelationRef":
            return
        attributes = node.list_trees("output")
        ours = [attribute.name for attribute in attributes] == self._sent
        for at, one in enumerate(_list_ids(attributes)):
            if ours:
                self._columns[one] = at
            elif self._sent[-1] in (attribute.name for attribute in attributes):
                self._opaque[one] = attributes[at].name
            else:
                self._made[one] |= set()

    def _note_made(self, node: Node) -> None:
        one = node.expression_id
        if node.kind == "Alias" and one is not None:
            child = node.children[0]
            if child.kind == "AttributeReference" and child.expression_id is not None:
                self._same[one] = child.expression_id
            else:
                self._made[one] |= child.collect_references()
        elif "generatorOutput" in node.fields:
            read = frozenset().union(*(tree.collect_references() for tree in node.list_trees("generator")))
            for made in _list_ids(node.list_trees("generatorOutput")):
                self._made[made] |= read
        elif node.kind == "CTERelationRef":
            self._note_reference(node)

    def _note_reference(self, node: Node) -> None:
        """A common table expression that is used again has other ids for the same columns."""
        definition = self._definitions.get(node.fields.get("cteId"))
        defined = None if definition is None else self._list_output_ids(definition)
        ids = _list_ids(node.list_trees("output"))
        for made, one in zip(ids, defined or [_NOBODY_KNOWS] * len(ids), strict=False):
            if made != one:
                self._same[made] = one

    def _note_union(self, node: Node) -> None:
        """Its attributes have the ids of the first part's."""
        if node.kind != "Union":
            return
        first, *others = [self._list_output_ids(child) for child in node.children]
        for at, one in enumerate(first or ()):
            self._united.setdefault(one, []).extend(
                other[at] if other is not None and at < len(other) else _NOBODY_KNOWS for other in others
            )

    def _note_join(self, node: Node) -> None:
        """What the other side gives depends on what it is found by."""
        if node.kind not in _JOINS or len(node.children) + len(node.list_trees("right")) < 2:
            return
        left, right = (*node.children, *node.list_trees("right"))[:2]
        other = left if self._has_sent(right) and not self._has_sent(left) else right
        for one in _list_defined_ids(other):
            self._made[one] |= _find_dropping_attributes(node)

    def _note_opaque(self, node: Node) -> None:
        if node.children and "output" in node.fields:
            for attribute in node.list_trees("output"):
                one = attribute.expression_id
                if one is not None and not self._knows(one):
                    self._opaque[one] = attribute.name

    # --- following it

    def _knows(self, attribute: int) -> bool:
        return any(attribute in known for known in (self._columns, self._same, self._made, self._opaque))

    def _read_directly(self, attribute: int) -> set[int]:
        if attribute in self._columns:
            return {self._columns[attribute]}
        name = self._opaque.get(attribute)
        if name in self._sent[: self._own]:
            return {self._sent.index(name)}
        return set() if name is None and self._knows(attribute) else set(range(self._own))

    def _has_sent(self, node: Node) -> bool:
        return any(one in self._columns for one in _list_defined_ids(node))

    def _find_way_and_row(self, node: Node, wanted: frozenset[int]) -> tuple[list[Stop], int] | None:
        """The way, and the id of `_row` at its end."""
        row = self._find_sent_row(node)
        if row is not None:
            return ([], row) if not wanted or row in wanted else None
        if node.kind not in _KEEPS_COLUMNS:
            return None
        for at, child in enumerate(node.children):
            if at and node.kind == "Join" and join_type(node) in _ONLY_LEFT:
                return None
            found = self._find_way_and_row(child, wanted)
            if found is not None:
                has_row = node.kind != "Project" or found[1] in _list_ids(node.list_trees("projectList"))
                return [Stop(node, at, has_row), *found[0]], found[1]
        return None

    def _find_sent_row(self, node: Node) -> int | None:
        ids = [] if node.children else _list_ids(node.list_trees("output"))
        return ids[-1] if ids and ids[-1] in self._columns else None

    def _list_output_ids(self, node: Node) -> list[int] | None:
        """The ids of a plan node's columns; None where they do not follow from its fields."""
        for name in ("output", "projectList", "aggregateExpressions"):
            if name in node.fields:
                return _list_ids(node.list_trees(name))
        if node.kind in ("Generate", "LateralJoin", "Join") or not node.children:
            return None
        output = self._list_output_ids(node.children[0])
        return None if output is None else [*output, *_list_ids(node.list_trees("windowExpressions"))]


def _list_ids(attributes: Iterable[Node]) -> list[int]:
    return [_NOBODY_KNOWS if one.expression_id is None else one.expression_id for one in attributes]


def _list_defined_ids(node: Node) -> Iterator[int]:
    """The ids that come into being below."""
    for inner in node.walk():
        if inner.kind == "Alias" and inner.expression_id is not None:
            yield inner.expression_id
        elif not inner.children or "generatorOutput" in inner.fields:
            yield from _list_ids([*inner.list_trees("output"), *inner.list_trees("generatorOutput")])


def _find_dropping_attributes(node: Node) -> frozenset[int]:
    """The attributes by which a plan node may drop rows, or a join finds them."""
    read = [tree.collect_references() for name in _DROPPING for tree in node.list_trees(name)]
    if node.kind == "LateralJoin":
        inner = (one for tree in node.list_trees("right") for one in tree.walk())
        read += [one.collect_references() for one in inner if one.kind == "OuterReference"]
    return frozenset().union(*read)
