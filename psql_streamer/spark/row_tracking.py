"""Where the columns of a rule's result come from: by Spark's metadata of fields; where more is needed, by its plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from psql_streamer.errors import HandlerRefused
from psql_streamer.hashed import Hashed
from psql_streamer.pgtypes.descriptions import HashedColumns
from psql_streamer.spark.catalyst import Catalyst
from psql_streamer.spark.exchange import Sent
from psql_streamer.spark.facts import Facts, Field, RowOrigin, collect_facts
from psql_streamer.spark.metadata import ROW
from psql_streamer.spark.plan_tree import read_plan
from psql_streamer.spark.result_fields import Layout, make_layout
from psql_streamer.spark.rules import Rule
from psql_streamer.spark.splitting import UNKNOWN, Splitting, read_splitting
from psql_streamer.spark.stated import collect_stated_facts
from psql_streamer.spark.unusable_types import find_repeated_field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

ORIGIN = "psql_streamer.column"
"""Metadata of a field: which column it is. Spark keeps a field's metadata through filters, joins and renames, and
drops it from anything that is computed."""

_MOST_TRACKED_PLANS = 500

Layouts: TypeAlias = dict[tuple[HashedColumns, int], Layout]


def make_schema(shape: pa.Schema) -> StructType:
    """The Spark schema of a table that is sent, with the origin of each field."""
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructField, StructType

    return StructType(
        [
            StructField(
                field.name,
                from_arrow_type(field.type, prefer_timestamp_ntz=True),
                True,
                {ORIGIN: at},
            )
            for at, field in enumerate(shape)
        ]
    )


@dataclass(frozen=True, slots=True)
class Lineage:
    """Where the columns of a rule's result come from. facts: None where nobody needs them: all images
    hold all that they could. layouts: of the result, by the columns of the changes and how many the result has (with
    the `_row` that is added to it, or without), as far as they are known.
    """

    fields: tuple[Field, ...]
    facts: Facts | None = None
    layouts: Layouts = field(default_factory=dict, compare=False, repr=False)

    @property
    def names(self) -> list[str]:
        """The names of the result's columns."""
        return [field.name for field in self.fields]

    def find_layout(self, sent: Sent, where: str) -> Layout:
        """What the columns of the result are. HandlerRefused when two have the same name."""
        key = sent.columns, len(self.fields)
        if key not in self.layouts:
            self.layouts[key] = make_layout(sent, self.fields, where)
        return self.layouts[key]

    def has_row(self, row: int) -> bool:
        """Whether `_row` is among the columns, and nothing else calls itself so. row: its index among the sent ones."""
        sources = [field.source for field in self.fields if field.name == ROW]
        return row in sources and None not in sources


class Lineages:
    """Finds the lineage of results. What is found for a query holds for every batch of tables in the same shape, what
    is found for a function for every batch of which it makes the same plan.
    """

    def __init__(self) -> None:
        self._of_queries: dict[tuple[str, Hashed[pa.Schema]], Lineage] = {}
        self._of_plans: dict[tuple[str, Hashed[pa.Schema], str], Facts] = {}
        self._splitting: dict[tuple[str, Hashed[pa.Schema], str], Splitting] = {}
        self._layouts: dict[tuple[str, Hashed[pa.Schema], tuple[Field, ...]], Layouts] = {}

    def find_known(self, rule: Rule, sent: Sent) -> Lineage | None:
        """What was found for this query before."""
        return self._of_queries.get((rule.name, sent.shape)) if rule.function is None else None

    def find(
        self, catalyst: Catalyst | None, rule: Rule, sent: Sent, result: DataFrame, thorough: bool = False
    ) -> Lineage:
        """The lineage of a result, with facts where something is lacking or `_row` is not there, or if thorough.

        catalyst: None on a Spark Connect server.
        """
        lineage = self.find_known(rule, sent)
        if lineage is None:
            lineage = Lineage(
                tuple(
                    Field(
                        field.name,
                        field.metadata.get(ORIGIN),
                        field.dataType.simpleString(),
                        find_repeated_field(field.dataType),
                        rule.steps.find_original(field.name),
                    )
                    for field in result.schema.fields
                )
            )
        wanted = thorough or sent.lacking.anything or not lineage.has_row(sent.row_column)
        if wanted and lineage.facts is None:
            lineage = self._add_facts(catalyst, lineage, rule, sent, result)
        if rule.function is None:
            self._of_queries[rule.name, sent.shape] = lineage
            return lineage
        return Lineage(lineage.fields, lineage.facts, self._look_up_layouts(rule, sent, lineage.fields))

    def _look_up_layouts(self, rule: Rule, sent: Sent, fields: tuple[Field, ...]) -> Layouts:
        """Those of results of a function that have these columns."""
        key = (rule.name, sent.shape, fields)
        if len(self._layouts) >= _MOST_TRACKED_PLANS and key not in self._layouts:
            self._layouts.clear()
        return self._layouts.setdefault(key, {})

    def forget(self, rule: Rule, sent: Sent) -> None:
        """A query gave other columns than before: a table that it reads has changed."""
        self._of_queries.pop((rule.name, sent.shape), None)
        self._splitting.pop((rule.name, sent.shape, ""), None)

    def find_splitting(self, catalyst: Catalyst | None, rule: Rule, sent: Sent, result: DataFrame) -> Splitting:
        """How a result comes to several rows for one image; asked for when it has some, or when an update loses its new
        image.
        """
        if catalyst is None:
            return UNKNOWN
        key = (rule.name, sent.shape, "" if rule.function is None else catalyst.compute_fingerprint(result))
        if key not in self._splitting:
            if len(self._splitting) >= _MOST_TRACKED_PLANS:
                self._splitting.clear()
            self._splitting[key] = read_splitting(read_plan(catalyst.plan_json(result)))
        return self._splitting[key]

    def _add_facts(
        self, catalyst: Catalyst | None, lineage: Lineage, rule: Rule, sent: Sent, result: DataFrame
    ) -> Lineage:
        if catalyst is None:
            return Lineage(lineage.fields, collect_stated_facts(rule, sent, lineage.fields))
        facts = self._look_up_facts(catalyst, rule, sent, result)
        fields = (replace(field, source=source) for field, source in zip(lineage.fields, facts.sources, strict=True))
        return Lineage(tuple(fields), facts)

    def _look_up_facts(self, catalyst: Catalyst, rule: Rule, sent: Sent, result: DataFrame) -> Facts:
        if rule.function is None:
            return self._read(catalyst, sent, result)
        key = (rule.name, sent.shape, catalyst.compute_fingerprint(result))
        if key not in self._of_plans:
            if len(self._of_plans) >= _MOST_TRACKED_PLANS:
                self._of_plans.clear()
            self._of_plans[key] = self._read(catalyst, sent, result)
        return self._of_plans[key]

    def _read(self, catalyst: Catalyst, sent: Sent, result: DataFrame) -> Facts:
        return collect_facts(read_plan(catalyst.plan_json(result)), sent.names, sent.own_columns, ROW)


def refuse_without_row(facts: Facts, where: str) -> None:
    """HandlerRefused when nothing can say which change a row of the result belongs to."""
    if facts.row is RowOrigin.COMPUTED:
        raise HandlerRefused(
            f"{where}: the result's column {ROW} is computed, so a row may be taken for that of another change",
            f"pass {ROW} on as it is, or leave it out",
        )
    if facts.row is RowOrigin.MISSING and facts.way is None:
        raise HandlerRefused(
            f"{where}: the result does not say which change a row belongs to",
            f"add {ROW} to its select list; the rows of an aggregate belong to no change",
        )


def refuse_cut(facts: Facts, where: str) -> None:
    """HandlerRefused when changes would be dropped by how many come together in a batch."""
    if facts.cut is not None:
        raise HandlerRefused(
            f"{where}: {facts.cut} counts the changes of a batch, which ends anywhere: any change may be lost",
            "drop rows by a condition on their values (where)",
        )


def find_row_column(fields: Sequence[Field], row: int) -> int:
    """Where `_row` is. A table may have a column of that name, too; a function may have made all columns anew."""
    named = [at for at, field in enumerate(fields) if field.name == ROW]
    return next((at for at in named if fields[at].source == row), named[0])
