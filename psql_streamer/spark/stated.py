"""What a rule's text says of its result, where no plan is to be had: on a Spark Connect server."""

from __future__ import annotations

from collections.abc import Sequence

from psql_streamer.spark.exchange import Sent
from psql_streamer.spark.facts import Facts, Field, RowOrigin
from psql_streamer.spark.metadata import KEY_ONLY, ROW, UNCHANGED
from psql_streamer.spark.rules import Rule


def stated_facts(rule: Rule, sent: Sent, fields: Sequence[Field]) -> Facts:
    """As facts_of. A column that is computed is taken to be made of every column that the query names, of a function of
    any; and so is whatever may drop rows.

    fields: by Spark's metadata. A computed key is taken to be made of the key alone: else an update that leaves a value
    alone would have none.
    """
    columns = sent.changes.columns
    named = {at for at, column in enumerate(columns) if rule.names(column.name)}
    places = [sent.place(name) for name in (UNCHANGED, KEY_ONLY) if rule.sql is not None and rule.names(name)]
    read = frozenset(named.union(place for place in places if place is not None))
    keys = {column.name: frozenset({at}) for at, column in enumerate(columns) if column.key}
    row = len(sent.names) - 1
    return Facts(
        sources=tuple(field.source for field in fields),
        reads=tuple(
            keys.get(field.name, read) if field.source is None else frozenset({field.source}) for field in fields
        ),
        row=_row_origin(fields, row),
        way=None,
        drops=read,
    )


def _row_origin(fields: Sequence[Field], row: int) -> RowOrigin:
    sources = [field.source for field in fields if field.name == ROW]
    if None in sources:
        return RowOrigin.COMPUTED
    return RowOrigin.OURS if row in sources else RowOrigin.MISSING
