"""What a rule's analysed plan says of its result: what each column is made of, and what may drop rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from psql_streamer.spark.across_rows import find_cut, find_mixing
from psql_streamer.spark.origins import Origins, Stop
from psql_streamer.spark.plan_tree import Node
from psql_streamer.spark.row_by_row import is_repeatable


class RowOrigin(Enum):
    """Where the column `_row` of a result comes from."""

    OURS = "ours"
    OPAQUE = "opaque"  # from a function's own code, which no plan shows
    COMPUTED = "computed"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Field:
    """A column of a rule's result. source: index of the sent column that it is, unchanged, if it is one.

    kind: its Spark type, as `DataType.simpleString` has it. twice: the name of two fields of one struct in it.
    stands_for: the table's column that a step of the rule gave
    this name.
    """

    name: str
    source: int | None
    kind: str = ""
    twice: str = ""
    stands_for: str | None = None


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that rows must meet, alone or with others (AND). Sent columns go by their indexes.

    filter: index of its filter on the way. turns: the way to it through the filter's ANDs, 0 is left, 1 is right.
    """

    filter: int
    turns: tuple[int, ...]
    reads: frozenset[int]


@dataclass(frozen=True, slots=True)
class Facts:
    """By column of the result, in its order: sources has the sent column that it is, unchanged, if it is one; reads the
    sent columns that it is made of.

    way: from the plan's root to the table that was sent; None where `_row` cannot be led up. Kinds of its nodes, which
    of their children it takes, and whether their output has `_row`.
    conditions: of the filters on the way. drops: what else may drop rows reads these columns. joins: what each join on
    the way finds rows by.
    is_repeatable: see row_by_row. cut, mixes: what drops changes by how many there are, and what makes something of
    several; see across_rows.
    """

    sources: tuple[int | None, ...]
    reads: tuple[frozenset[int], ...]
    row: RowOrigin
    way: tuple[tuple[str, int, bool], ...] | None
    conditions: tuple[Condition, ...] = ()
    drops: frozenset[int] = field(default_factory=frozenset)
    joins: tuple[frozenset[int], ...] = ()
    is_repeatable: bool = False
    cut: str | None = None
    mixes: str | None = None


def collect_facts(plan: Node, sent: Sequence[str], own: int, row: str) -> Facts:
    """The facts of a plan.

    plan: its root is a Project that lists the result's columns. sent: names of the columns of the table that was sent,
    of which the first `own` are the table's own and the last is `row`, which the result may have or not.
    """
    origins = Origins(plan, sent, own)
    listed = plan.list_trees("projectList")
    ids = [-1 if node.expression_id is None else node.expression_id for node in listed]
    rows = [one for node, one in zip(listed, ids, strict=True) if node.name == row]
    came = _find_row_origin(origins, rows, len(sent) - 1)
    ours = [one for one in rows if origins.find_sent_column(one) == len(sent) - 1]
    way = origins.find_way(plan.children[0], ours) if came in (RowOrigin.OURS, RowOrigin.MISSING) else None
    return Facts(
        sources=tuple(map(origins.find_sent_column, ids)),
        reads=tuple(origins.find_reads([one]) for one in ids),
        row=came,
        way=None if way is None else tuple((stop.node.kind, stop.child, stop.has_row) for stop in way),
        conditions=() if way is None else tuple(_list_conditions(origins, way)),
        drops=origins.find_drops(plan.walk()) if way is None else origins.find_drops_on(way),
        joins=() if way is None else tuple(origins.list_joins_on(way)),
        is_repeatable=is_repeatable(plan, sent),
        cut=find_cut(plan, sent),
        mixes=find_mixing(plan, sent, origins),
    )


def _find_row_origin(origins: Origins, rows: Sequence[int], sent_row: int) -> RowOrigin:
    columns = [origins.find_sent_column(one) for one in rows]  # the table may have one of this name, too
    made = [one for one, column in zip(rows, columns, strict=True) if column is None]
    if not all(map(origins.is_opaque, made)):
        return RowOrigin.COMPUTED
    if sent_row in columns:
        return RowOrigin.OURS
    return RowOrigin.OPAQUE if made else RowOrigin.MISSING


def _list_conditions(origins: Origins, way: Sequence[Stop]) -> Iterator[Condition]:
    for at, stop in enumerate(way):
        if stop.node.kind == "Filter":
            for turns, conjunct in _list_conjuncts(stop.node.list_trees("condition")[0], ()):
                yield Condition(at, turns, origins.find_reads(conjunct.collect_references()))


def _list_conjuncts(condition: Node, turns: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], Node]]:
    if condition.kind != "And":
        yield turns, condition
        return
    for turn, child in enumerate(condition.children):
        yield from _list_conjuncts(child, (*turns, turn))
