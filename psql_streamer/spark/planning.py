"""Rules made plans of Spark: one for each batch, or one that is kept for the batches that follow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa

from psql_streamer.errors import HandlerError, HandlerRefused
from psql_streamer.hashed import Hashed
from psql_streamer.pgtypes.descriptions import HashedColumns
from psql_streamer.spark.catalyst import Catalyst, Turns
from psql_streamer.spark.coerced_types import refuse_coerced_types
from psql_streamer.spark.coercion import is_nested
from psql_streamer.spark.directions import refuse_wrong_types
from psql_streamer.spark.exact_numbers import Strings, find_strings, quote_numbers
from psql_streamer.spark.exchange import Sent, send
from psql_streamer.spark.facts import Facts, Field, RowOrigin
from psql_streamer.spark.job import Job
from psql_streamer.spark.lacking import KEY_ONLY_BIT, Mask, compute_bit
from psql_streamer.spark.left_out import Named, collect_names
from psql_streamer.spark.metadata import KEY_ONLY, ROW, UNCHANGED
from psql_streamer.spark.nested_columns import find_lost_values, find_nested_types, is_text, parse_types, read_nested
from psql_streamer.spark.plan_tree import Node, read_plan
from psql_streamer.spark.prepared import Needs, PreparedRule, PreparedRules
from psql_streamer.spark.result_rows import Result
from psql_streamer.spark.row_by_row import is_row_by_row
from psql_streamer.spark.row_tracking import Lineage, Lineages, make_schema, refuse_cut, refuse_without_row
from psql_streamer.spark.steps import StepPlan, plan_steps
from psql_streamer.spark.unusable_types import refuse_unusable_types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


class Planner:
    """Makes plans, and keeps what is found out about them. From several threads at once, each with its own session.

    What Spark raises goes on to the caller. catalyst, prepared: of the engine; None on a Spark Connect server.
    lineages: of results. named: rule and shape -> what the types have names for that columns of JSON are coerced to.
    explain: Spark's error and where -> the error to raise.
    """

    def __init__(self, explain: Callable[[Exception, str], HandlerError]) -> None:
        self.catalyst: Catalyst | None = None
        self.prepared: PreparedRules | None = None
        self.lineages = Lineages()
        self.named: dict[tuple[str, Hashed[pa.Schema]], Mapping[str, Named]] = {}
        self._explain = explain
        self._schemas: dict[Hashed[pa.Schema], StructType] = {}
        self._bits: dict[tuple[str, HashedColumns], tuple[int, ...]] = {}
        self._step_plans: dict[tuple[str, Hashed[pa.Schema]], StepPlan] = {}
        self._nested: dict[tuple[str, HashedColumns], Mapping[int, pa.DataType]] = {}
        self._documents: dict[tuple[str, HashedColumns], Mapping[int, Strings]] = {}
        self._one_by_one: dict[tuple[str, HashedColumns], bool] = {}

    def make_sent(self, job: Job) -> tuple[Sent, dict[int, Mask]]:
        """What goes to Spark, and the values that could not be read for it: column -> images."""
        bits = self._bits.get((job.rule.name, job.columns), ())
        sent = send(job.changes, job.columns, job.transactions, job.rule.names, bits, job.tables)
        read, failed = read_nested(sent, self.look_up_nested_types(job), job.where)
        return self._quote_numbers(job, read), failed | find_lost_values(read, job.rule.coerce)

    def _quote_numbers(self, job: Job, sent: Sent) -> Sent:
        """The same with documents whose numbers keep their digits where the rule reads strings."""
        documents = self._look_up_documents(job)
        quoted = {at: quote_numbers(sent.typed[at], strings) for at, strings in documents.items()}
        changed = {at: array for at, array in quoted.items() if array is not sent.typed[at]}
        return sent.with_read({**sent.read, **changed}) if changed else sent

    def _look_up_documents(self, job: Job) -> Mapping[int, Strings]:
        """The columns that Spark reads as JSON, and where it makes strings of what is in them."""
        key = (job.rule.name, job.columns)
        if key not in self._documents:
            read, coerce = self.look_up_nested_types(job), job.rule.coerce
            wanted = {
                at: coerce[column.name]
                for at, column in enumerate(job.changes.columns)
                if at not in read and is_nested(coerce.get(column.name, "")) and is_text(column)
            }
            try:
                kinds = parse_types(job.spark, wanted)
            except Exception as error:
                raise self._explain(error, job.where) from None
            strings = {at: find_strings(kind) for at, kind in kinds.items()}
            self._documents[key] = {at: places for at, places in strings.items() if places is not None}
        return self._documents[key]

    def look_up_nested_types(self, job: Job) -> Mapping[int, pa.DataType]:
        """The columns whose text forms are read before Spark sees them, and as what."""
        key = (job.rule.name, job.columns)
        if key not in self._nested:
            try:
                refuse_coerced_types(job.spark, job.rule.coerce, job.changes.columns, job.where)
                self._nested[key] = find_nested_types(job.spark, job.rule.coerce, job.changes.columns)
            except Exception as error:
                raise self._explain(error, job.where) from None
        return self._nested[key]

    def run_planned(self, job: Job, sent: Sent) -> tuple[Sent, Lineage, Result] | None:
        """What the rule makes of the changes, by a plan that is there already, or is kept for the batches that follow.

        None where the rule must be planned for every batch.
        """
        if self.prepared is None or job.rule.function is not None or job.rule.names_a_moment:
            return None
        if job.show_lookups is not None and job.lookup_versions is None:
            return None
        lineage = self.lineages.find_known(job.rule, sent)
        if lineage is None or lineage.facts is None:
            self.plan(job, sent, thorough=True, empty=True)
            lineage = self.lineages.find_known(job.rule, sent)
        facts = None if lineage is None else lineage.facts
        if lineage is None or facts is None or not facts.is_repeatable or facts.way is None:
            return None
        unknown = find_unchanged_in_filters(facts, sent)
        if unknown - set(sent.bits):
            sent = self.add_bits(job, sent, unknown)
        lineage = with_row(lineage, sent)
        needs = Needs.from_facts(lineage, facts, sent)
        if not needs.has_work:
            return sent, lineage, Result(sent.select_columns([sent.row_column]), {needs.returns[0]: 0})
        rule = self._find_prepared(self.prepared, job, sent, lineage, needs)
        return (sent, lineage, rule.run(sent)) if rule is not None and rule.is_repeatable else None

    def plan(self, job: Job, sent: Sent, thorough: bool = False, empty: bool = False) -> tuple[DataFrame, Lineage]:
        """The rule's result over what was sent, with `_row`, and with filters that let pass what they cannot judge.

        No job runs.
        """
        rows = sent.schema.empty_table() if empty else sent.table
        result = self._apply_rule(job, sent, job.spark.createDataFrame(rows, self.look_up_schema(sent)))
        lineage = self.lineages.find(self.catalyst, job.rule, sent, result, thorough)
        try:
            refuse_wrong_types(lineage.fields, job.changes.columns, job.where)
            refuse_unusable_types(lineage.fields, job.where)
        except HandlerRefused:
            self.lineages.forget(job.rule, sent)  # or it would be taken for one that was looked at
            raise
        facts = lineage.facts
        if facts is None:
            return result, lineage
        refuse_without_row(facts, job.where)
        refuse_cut(facts, job.where)
        return self._add_row_column(result, facts, _compute_masks(facts, sent)), with_row(lineage, sent)

    def find_plan(self, job: Job) -> tuple[Node, list[str]] | None:
        """The rule's analysed plan, and the names of the columns that are sent; None where nobody knows it beforehand:
        on a Spark Connect server.
        """
        if self.catalyst is None:
            return None
        sent, _ = self.make_sent(job)
        frame = job.spark.createDataFrame(sent.schema.empty_table(), self.look_up_schema(sent))
        return read_plan(self.catalyst.plan_json(self._apply_rule(job, sent, frame))), sent.names

    def takes_rows_one_by_one(self, job: Job) -> bool:
        """Whether the rule gives each row by itself, so that tables which it sees alike may be one to it."""
        rule = job.rule
        if rule.function is not None or rule.names(ROW):
            return False
        key = (rule.name, job.columns)
        if key not in self._one_by_one:
            plan = self.find_plan(job)
            self._one_by_one[key] = plan is not None and is_row_by_row(*plan)
        return self._one_by_one[key]

    def add_bits(self, job: Job, sent: Sent, columns: set[int]) -> Sent:
        """The same with bits for more columns. They stay: the plan is the same for the batches that follow."""
        bits = (*sent.bits, *sorted(columns.difference(sent.bits)))
        self._bits[job.rule.name, job.columns] = bits
        return self.make_sent(job)[0]

    def look_up_schema(self, sent: Sent) -> StructType:
        """One schema object per shape of a table, so that Spark meets its generated code again."""
        shape = sent.shape
        if shape not in self._schemas:
            self._schemas[shape] = make_schema(shape.value)
        return self._schemas[shape]

    def cancel(self) -> None:
        """Plans that run fail, but for those of jobs."""
        if self.prepared is not None:
            self.prepared.cancel()

    def forget(self) -> None:
        """A lookup may have other columns from now on."""
        self.lineages = Lineages()
        self._one_by_one.clear()

    def _find_prepared(
        self, prepared: PreparedRules, job: Job, sent: Sent, lineage: Lineage, needs: Needs
    ) -> PreparedRule | None:
        facts = cast(Facts, lineage.facts)
        masks = _compute_masks(facts, sent)

        def prepare() -> PreparedRule:
            return prepared.prepare(
                job.spark,
                self.look_up_schema(sent),
                sent,
                needs,
                lambda frame: self._add_row_column(self._apply_rule(job, sent, frame), facts, masks),
            )

        key = (job.rule.name, sent.shape, tuple(sorted(masks.items())))
        return prepared.find(key, prepare, job.lookup_versions or ())

    def _apply_rule(self, job: Job, sent: Sent, frame: DataFrame) -> DataFrame:
        """What the rule makes of a frame with the columns that are sent."""
        job.prepare_session()
        steps = self._look_up_steps(job, sent, frame)
        coerced = steps.coerce(frame)
        if job.rule.coerce:
            self._note_types(job, sent, coerced)
        return job.rule.apply(steps.follow(coerced))

    def _add_row_column(self, result: DataFrame, facts: Facts, masks: Mapping[tuple[int, Turns], int]) -> DataFrame:
        """A rule's result with `_row`, and with filters that let pass what they cannot judge."""
        if self.catalyst is not None and (masks or facts.row is RowOrigin.MISSING):
            return self.catalyst.add_row_column(result, facts, masks)
        return result

    def _look_up_steps(self, job: Job, sent: Sent, frame: DataFrame) -> StepPlan:
        rule = job.rule
        key = (rule.name, sent.shape)
        if key not in self._step_plans:
            own = sent.names[: sent.own_columns]
            read = {own[at] for at in self.look_up_nested_types(job)}
            self._step_plans[key] = plan_steps(rule.steps, frame, own, read, job.where, admitting=self.catalyst is None)
        return self._step_plans[key]

    def _note_types(self, job: Job, sent: Sent, frame: DataFrame) -> None:
        """What the types have names for that columns of JSON are coerced to."""
        rule = job.rule
        key = (rule.name, sent.shape)
        if key not in self.named:
            read = {sent.names[at] for at in self.look_up_nested_types(job)}
            asked = rule.coerce.keys() - read
            kinds = {field.name: collect_names(field.dataType) for field in frame.schema.fields if field.name in asked}
            self.named[key] = {name: named for name, named in kinds.items() if named is not None}


def find_unchanged_in_filters(facts: Facts | None, sent: Sent) -> set[int]:
    """The columns that some new image lacks and some condition reads."""
    if facts is None or facts.way is None or not facts.conditions:
        return set()
    place = sent.place(UNCHANGED)
    read = set().union(*(condition.reads for condition in facts.conditions if place not in condition.reads))
    return read & sent.lacking.find_unchanged().keys()


def with_row(lineage: Lineage, sent: Sent) -> Lineage:
    """The lineage of a result to which `_row` is added, if it has none."""
    if lineage.facts is None or lineage.facts.row is not RowOrigin.MISSING:
        return lineage
    return Lineage((*lineage.fields, Field(ROW, sent.row_column)), lineage.facts, lineage.layouts)


def _compute_masks(facts: Facts, sent: Sent) -> Mapping[tuple[int, Turns], int]:
    """The bits of `_row` with which a row passes, by condition; only where some row has one of them."""
    if facts.way is None or not sent.lacking.anything:
        return {}
    present = int(np.bitwise_or.reduce(sent.lacking.compute_flags(sent.bits), initial=0))
    masks = {}
    for condition in facts.conditions:
        mask = 0 if sent.place(KEY_ONLY) in condition.reads else KEY_ONLY_BIT
        if sent.place(UNCHANGED) not in condition.reads:
            for column in condition.reads.intersection(sent.bits):
                mask |= compute_bit(column, sent.bits)
        if mask & present:
            masks[condition.filter, condition.turns] = mask
    return masks
