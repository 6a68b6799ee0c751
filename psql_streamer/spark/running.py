"""One table of a micro-batch through its rule."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from psql_streamer.errors import HandlerError
from psql_streamer.events.source_fields import fields_of
from psql_streamer.model import Changes, Column, Index, SourceInfo, Transactions
from psql_streamer.spark.alike import Tables, is_row_by_row
from psql_streamer.spark.catalyst import Catalyst, Turns
from psql_streamer.spark.coercion import coerced, uncoercible, uncoercible_rows
from psql_streamer.spark.counts import Counts
from psql_streamer.spark.exchange import Sent, row_of_image, send
from psql_streamer.spark.facts import Facts, Field, RowOrigin
from psql_streamer.spark.failures import Uncoercible, failure
from psql_streamer.spark.lacking import KEY_ONLY_BIT, bit_of, union
from psql_streamer.spark.left_out import LeftOut, Named, named_by
from psql_streamer.spark.metadata import IMAGE_SHIFT, KEY_ONLY, ROW, UNCHANGED
from psql_streamer.spark.plan_tree import read_plan
from psql_streamer.spark.results import receive
from psql_streamer.spark.row_tracking import Lineage, Lineages, refuse_without_row, schema_of
from psql_streamer.spark.rules import Rule

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

log = logging.getLogger("psql_streamer.spark")


@dataclass(frozen=True, slots=True)
class Job:
    """A table on its way through its rule."""

    spark: SparkSession
    rule: Rule
    changes: Changes
    transactions: Transactions
    source: SourceInfo
    tables: Tables | None = None
    """Which relation each row is of, where these are the changes of several tables."""

    def show_change(self, row: int) -> str:
        """What messages call a change: `(0/1B13810, 5)`, or `(0/1B13810, 5) of snapshot "ID"`."""
        tx, seq = int(self.changes.tx[row]), self.changes.seq[row]
        commit = fields_of(self.source).show_commit(int(self.transactions.commit[tx]))
        snapshot = self.transactions.snapshots.get(tx)
        return f"({commit}, {seq})" + ("" if snapshot is None else f' of snapshot "{snapshot.id}"')

    @property
    def where(self) -> str:
        """What messages call it."""
        others = len(self.tables.relations) - 1 if self.tables is not None else 0
        more = f" and {others} more tables" if others else ""
        return f"{self.changes.relation}{more}, rule {self.rule.name!r}"

    def narrow(self, changes: Changes) -> Job:
        """The same with some of the changes."""
        return replace(self, changes=changes)


class Runner:
    """Runs rules. From several threads at once, each with a session of its own.

    catalyst: of the engine that runs; None on a Spark Connect server. cluster, describe_end: see `failure`.
    """

    def __init__(self, describe_end: Callable[[float], str | None], counts: Counts) -> None:
        self.catalyst: Catalyst | None = None
        self.cluster = ""
        self._describe_end = describe_end
        self._counts = counts
        self._lineages = Lineages()
        self._schemas: dict[pa.Schema, StructType] = {}
        self._bits: dict[tuple[str, tuple[Column, ...]], tuple[int, ...]] = {}
        self._named: dict[tuple[str, pa.Schema], Mapping[str, Named]] = {}
        self._left_out = LeftOut(counts)
        self._one_by_one: dict[tuple[str, tuple[Column, ...]], bool] = {}
        self._told: set[str] = set()

    def run(self, job: Job) -> Changes | None:
        """What the rule makes of the changes; None when it leaves nothing.

        Raises Uncoercible and RowsFailed for what some of the rows are to blame for, EngineLost when the engine ended.
        """
        sent = self._sent(job)
        try:
            return self._through(job, sent)
        except Exception as error:
            # Not `from error`: Spark's messages quote values, and a traceback would show them.
            raise self._failure(error, job, sent) from None

    def analysed(self, job: Job) -> tuple[Sent, Lineage]:
        """What Spark's analysis says of the rule over a table, facts included; no job runs."""
        sent = self._sent(job)
        try:
            _, lineage = self._planned(job, sent, thorough=True)
        except Exception as error:
            raise self._failure(error, job, sent) from None
        return sent, lineage

    def takes_rows_one_by_one(self, job: Job) -> bool:
        """Whether the rule gives each row by itself, so that tables which it sees alike may be one to it."""
        rule = job.rule
        if rule.function is not None or self.catalyst is None or rule.names(ROW):
            return False
        key = (rule.name, job.changes.columns)
        if key not in self._one_by_one:
            sent = self._sent(job)
            frame = job.spark.createDataFrame(sent.table, self._schema(sent))
            try:
                result = rule.apply(coerced(frame, rule.coerce, job.where) if rule.coerce else frame)
                self._one_by_one[key] = is_row_by_row(read_plan(self.catalyst.plan_json(result)))
            except Exception as error:
                raise self._failure(error, job, sent) from None
        return self._one_by_one[key]

    def uncoercible(self, job: Job) -> dict[int, NDArray[np.bool_]]:
        """The changes with a value that cannot be coerced, by column; each change is with one column only."""
        sent = self._sent(job)
        frame = job.spark.createDataFrame(sent.table, self._schema(sent))
        try:
            found = uncoercible_rows(frame, job.rule.coerce).toArrow()
        except Exception as error:
            raise self._failure(error, job, sent) from None
        changes = job.changes
        rows = np.concatenate((changes.after.rows, changes.before.rows))[found.column(0).to_numpy() >> IMAGE_SHIFT]
        columns = np.full(len(changes), -1)
        columns[rows] = found.column(1).to_numpy()
        return {int(column): columns == column for column in np.unique(columns[columns >= 0])}

    def _sent(self, job: Job) -> Sent:
        bits = self._bits.get((job.rule.name, job.changes.columns), ())
        return send(job.changes, job.transactions, job.rule.names, bits, job.tables)

    def _through(self, job: Job, sent: Sent) -> Changes | None:
        result, lineage = self._planned(job, sent)
        unknown = _unchanged_in_filters(lineage.facts, sent)
        if unknown - set(sent.bits):
            return self._through(job, self._add_bits(job, sent, unknown))
        table = result.toArrow()
        if table.column_names != lineage.names:
            self._lineages.forget(job.rule, sent)
            return self._through(job, sent)
        received = receive(sent, lineage, table, job.where)
        self._tell_of_left_out(job, sent)
        self._tell_of_unknown(job, sent, lineage.facts, received.images)
        return received.changes

    def _planned(self, job: Job, sent: Sent, thorough: bool = False) -> tuple[DataFrame, Lineage]:
        """The rule's result over what was sent, with `_row`, and with filters that let pass what they cannot judge.

        No job runs.
        """
        rule = job.rule
        frame = job.spark.createDataFrame(sent.table, self._schema(sent))
        if rule.coerce:
            frame = coerced(frame, rule.coerce, job.where)
            self._note_types(rule, sent, frame)
        result = rule.apply(frame)
        lineage = self._lineages.find(self.catalyst, rule, sent, result, thorough)
        facts = lineage.facts
        if facts is None:
            return result, lineage
        refuse_without_row(facts, job.where)
        masks = _masks(facts, sent)
        if self.catalyst is not None and (masks or facts.row is RowOrigin.MISSING):
            result = self.catalyst.add_row_column(result, facts, masks)
        if facts.row is RowOrigin.MISSING:
            lineage = replace(lineage, fields=(*lineage.fields, Field(ROW, len(sent.names) - 1)))
        return result, lineage

    def _add_bits(self, job: Job, sent: Sent, columns: set[int]) -> Sent:
        """The same with bits for more columns. They stay: the plan is the same for the batches that follow."""
        bits = (*sent.bits, *sorted(columns.difference(sent.bits)))
        self._bits[job.rule.name, job.changes.columns] = bits
        return send(job.changes, job.transactions, job.rule.names, bits, job.tables)

    def _schema(self, sent: Sent) -> StructType:
        """One schema object per shape of a table, so that Spark meets its generated code again."""
        shape = sent.table.schema
        if shape not in self._schemas:
            self._schemas[shape] = schema_of(shape)
        return self._schemas[shape]

    def _note_types(self, rule: Rule, sent: Sent, frame: DataFrame) -> None:
        """What the types that columns are coerced to have names for."""
        key = (rule.name, sent.table.schema)
        if key not in self._named:
            kinds = {field.name: named_by(field.dataType) for field in frame.schema.fields if field.name in rule.coerce}
            self._named[key] = {name: named for name, named in kinds.items() if named is not None}

    def _tell_of_left_out(self, job: Job, sent: Sent) -> None:
        """Warn of fields of documents that the types do not name."""
        for name, kind in self._named.get((job.rule.name, sent.table.schema), {}).items():
            self._left_out.look(job.where, name, sent.typed[sent.names.index(name)], kind)

    def _tell_of_unknown(self, job: Job, sent: Sent, facts: Facts | None, images: Index) -> None:
        """Count the changes that passed because a filter reads what their update left alone."""
        if facts is None:
            return
        unchanged = sent.lacking.unchanged()
        read = _judged(facts, sent, UNCHANGED)
        passed = union((unchanged[column] for column in read if column in unchanged), sent.lacking.images)[images]
        if not passed.any():
            return
        self._counts.add("passed_unknown", int(passed.sum()))
        if job.where not in self._told:
            self._told.add(job.where)
            names = ", ".join(sent.changes.columns[column].name for column in sorted(read & unchanged.keys()))
            log.warning(
                "%s: a filter reads %s, which some updates do not change or send: their rows pass", job.where, names
            )

    def _failure(self, error: Exception, job: Job, sent: Sent) -> HandlerError:
        found = uncoercible(error)
        if found is not None:
            column, image = found
            return Uncoercible(
                f"{job.where}: the value of column {sent.changes.columns[column].name} in change "
                f"{job.show_change(row_of_image(sent, image))} cannot be coerced",
                "choose a type that holds every value, convert it in the rule's sql, or put such rows aside: "
                'onError = "dead-letter"',
            )
        return failure(error, job.where, self._describe_end, self.cluster)


def _judged(facts: Facts, sent: Sent, unless: str) -> set[int]:
    """The columns that are read by what may drop rows. unless: a metadata column; who reads it as well knows what he
    does."""
    place = sent.place(unless)
    readers = [facts.drops, *(condition.reads for condition in facts.conditions)]
    return set().union(*(columns for columns in readers if place not in columns))


def _unchanged_in_filters(facts: Facts | None, sent: Sent) -> set[int]:
    """The columns that some new image lacks and some condition reads."""
    if facts is None or facts.way is None or not facts.conditions:
        return set()
    place = sent.place(UNCHANGED)
    read = set().union(*(condition.reads for condition in facts.conditions if place not in condition.reads))
    return read & sent.lacking.unchanged().keys()


def _masks(facts: Facts, sent: Sent) -> Mapping[tuple[int, Turns], int]:
    """The bits of `_row` with which a row passes, by condition; only where some row has one of them."""
    if facts.way is None or not sent.lacking.anything:
        return {}
    present = int(np.bitwise_or.reduce(sent.lacking.flags(sent.bits), initial=0))
    masks = {}
    for condition in facts.conditions:
        mask = 0 if sent.place(KEY_ONLY) in condition.reads else KEY_ONLY_BIT
        if sent.place(UNCHANGED) not in condition.reads:
            for column in condition.reads.intersection(sent.bits):
                mask |= bit_of(column, sent.bits)
        if mask & present:
            masks[condition.filter, condition.turns] = mask
    return masks
