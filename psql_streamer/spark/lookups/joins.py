"""How a rule finds rows of a lookup, by its analysed plan. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from psql_streamer.model import Column, ColumnType, find_text_form
from psql_streamer.pgtype import Logical
from psql_streamer.pgtypes import casts
from psql_streamer.pgtypes.builtin import BY_OID
from psql_streamer.spark.lookups.pieces import Use
from psql_streamer.spark.origins import Origins
from psql_streamer.spark.plan_tree import Node, join_type

_BY_VALUE = {
    0: frozenset({"Inner", "RightOuter"}),
    1: frozenset({"Inner", "LeftOuter", "LeftSemi", "LeftAnti"}),
}
"""Side of a join -> the types in which a row of this side that nothing of the other side meets makes no difference."""

_ROW_BY_ROW = frozenset({"Project", "Filter", "SubqueryAlias", "View", "ResolvedHint"})

_INTEGERS = frozenset({Logical.INT2, Logical.INT4, Logical.INT8})
_INEXACT = frozenset({Logical.FLOAT4, Logical.FLOAT8})
"""Values that are equal may have several text forms."""

Given = tuple[str, int]
"""A lookup and one of its columns."""


def find_uses(
    plan: Node, sent: Sequence[str], columns: Sequence[Column], lookups: Mapping[str, Sequence[Column]]
) -> dict[str, Use | None]:
    """How each lookup is used that the plan reads; None for one that must be there as a whole.

    plan: its root is a Project that lists the result's columns. sent: names of the columns of the table that was sent,
    of which the first are `columns`. lookups: the columns of each.
    """
    nodes = list(plan.walk())
    origins = Origins(plan, sent, len(columns))
    leaves = {id(_find_leaf(node)): name for node in nodes if (name := _find_view(node, lookups)) is not None}
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for join in (node for node in nodes if node.kind == "Join" and len(node.children) == 2):
        for side, kinds in _BY_VALUE.items():
            leaf = _find_leaf(join.children[side])
            if id(leaf) in leaves and join_type(join) in kinds:
                found[id(leaf)] += _find_equalities(join, leaf, origins, columns, lookups[leaves[id(leaf)]])
    return {name: _use([found[leaf] for leaf, of in leaves.items() if of == name]) for name in leaves.values()}


def _use(leaves: Sequence[Sequence[tuple[int, int]]]) -> Use | None:
    """leaves: for each place where a lookup stands, (column, sent column) of equalities that rows are found by."""
    if not all(leaves):
        return None
    for column in {column for column, _ in leaves[0]}:
        chosen = [next((sent for one, sent in pairs if one == column), None) for pairs in leaves]
        if None not in chosen:
            return Use(column, tuple(sorted({sent for sent in chosen if sent is not None})))
    return None


def _find_view(node: Node, lookups: Iterable[str]) -> str | None:
    """The lookup whose view a node is; None for any other."""
    if node.kind != "View" or not node.fields.get("isTempView"):
        return None
    identifier = node.fields["desc"]["identifier"]
    if "database" in identifier:
        return None
    return next((name for name in lookups if name.lower() == str(identifier["table"]).lower()), None)


def _find_leaf(node: Node) -> Node:
    while node.kind in _ROW_BY_ROW and len(node.children) == 1:
        node = node.children[0]
    return node


def _find_equalities(
    join: Node, leaf: Node, origins: Origins, columns: Sequence[Column], of_lookup: Sequence[Column]
) -> Iterator[tuple[int, int]]:
    places = {one.expression_id: at for at, one in enumerate(leaf.list_trees("output"))}
    for conjunct in (one for condition in join.list_trees("condition") for one in _list_conjuncts(condition)):
        if conjunct.kind != "EqualTo":
            continue
        one, other = map(_strip_cast, conjunct.children)
        for (mine, is_cast), (theirs, is_cast_too) in (((one), (other)), ((other), (one))):
            if mine is None or theirs is None:
                continue
            at, sent = places.get(origins.resolve_attribute(mine)), origins.find_sent_column(theirs)
            if at is None or sent is None or sent >= len(columns):
                continue
            if _have_same_texts(of_lookup[at].type, columns[sent].type, is_cast or is_cast_too):
                yield at, sent


def _list_conjuncts(condition: Node) -> Iterator[Node]:
    if condition.kind == "And":
        for child in condition.children:
            yield from _list_conjuncts(child)
    else:
        yield condition


def _strip_cast(node: Node) -> tuple[int | None, bool]:
    """The attribute that an expression is, and whether it is cast; None for any other expression."""
    is_cast = node.kind == "Cast"
    inner = node.children[0] if is_cast else node
    return (inner.expression_id if inner.kind == "AttributeReference" else None), is_cast


def _have_same_texts(one: ColumnType, other: ColumnType, is_cast: bool) -> bool:
    """Whether values of the two types that Spark calls equal have the same text form."""
    logical = [_find_logical_type(one), _find_logical_type(other)]
    if None in logical or _INEXACT.intersection(logical):
        return False
    if is_cast:
        return _INTEGERS.issuperset(logical)
    return bool(casts.choose_arrow_type(one).equals(casts.choose_arrow_type(other)))


def _find_logical_type(kind: ColumnType) -> Logical | None:
    form = find_text_form(kind)
    if form is None:
        return None
    known = form.known or BY_OID.get(form.oid)
    return None if known is None else known.logical
