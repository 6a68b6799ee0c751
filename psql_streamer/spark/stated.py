"""What a rule's text says of its result, where no plan is to be had: on a Spark Connect server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from psql_streamer.spark.exchange import Sent
from psql_streamer.spark.facts import Facts, Field, RowOrigin
from psql_streamer.spark.metadata import KEY_ONLY, ROW, UNCHANGED
from psql_streamer.spark.rules import Rule


def collect_stated_facts(rule: Rule, sent: Sent, fields: Sequence[Field]) -> Facts:
    """As facts_of. A column that a query computes is taken to be made of every column that it names, of a function of
    any; and so is whatever may drop rows. What the steps of a rule read is known.

    fields: by Spark's metadata. A computed key is taken to be made of the key alone: else an update that leaves a value
    alone would have none.
    """
    names = [column.name for column in sent.changes.columns]
    steps = {column.name: names.index(column.of) for column in rule.steps.list_columns(names)}
    read = _read(rule, sent, steps)
    keys = {name: frozenset({at}) for name, at in steps.items() if sent.changes.columns[at].key}
    of_step = {name: frozenset({at}) for name, at in steps.items()}
    of_rule = read if rule.computes else frozenset[int]()
    row = sent.row_column
    return Facts(
        sources=tuple(field.source for field in fields),
        reads=tuple(
            keys.get(field.name, of_step.get(field.name, frozenset()) | of_rule)
            if field.source is None
            else frozenset({field.source})
            for field in fields
        ),
        row=_find_row_origin(fields, row),
        way=None,
        drops=_read_by_filter(rule, sent, steps) | of_rule,
    )


def _read(rule: Rule, sent: Sent, steps: Mapping[str, int]) -> frozenset[int]:
    """What the query and the function may read. steps: name behind the steps -> column."""
    named = {at for name, at in steps.items() if rule.function is not None or rule.query_names(name)}
    return frozenset(named).union(_find_asked_for(sent, rule.query_names))


def _read_by_filter(rule: Rule, sent: Sent, steps: Mapping[str, int]) -> frozenset[int]:
    named = {at for name, at in steps.items() if rule.steps.filter_names(name)}
    return frozenset(named).union(_find_asked_for(sent, rule.steps.filter_names))


def _find_asked_for(sent: Sent, names: Callable[[str], bool]) -> set[int]:
    """The columns that say what an image lacks, where a text names them."""
    places = (sent.place(name) for name in (UNCHANGED, KEY_ONLY) if names(name))
    return {place for place in places if place is not None}


def _find_row_origin(fields: Sequence[Field], row: int) -> RowOrigin:
    sources = [field.source for field in fields if field.name == ROW]
    if None in sources:
        return RowOrigin.COMPUTED
    return RowOrigin.OURS if row in sources else RowOrigin.MISSING
