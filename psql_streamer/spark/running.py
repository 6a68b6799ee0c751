"""One table of a micro-batch through its rule."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from psql_streamer.errors import HandlerError, HandlerRefused
from psql_streamer.events.source_fields import fields_of
from psql_streamer.model import Changes, Column, Index, SourceInfo, Transactions
from psql_streamer.spark.alike import Tables
from psql_streamer.spark.catalyst import Catalyst, Turns
from psql_streamer.spark.coercion import uncoercible, uncoercible_values
from psql_streamer.spark.counts import Counts
from psql_streamer.spark.directions import refuse_wrong_types
from psql_streamer.spark.exchange import Sent, row_of_image, send
from psql_streamer.spark.facts import Facts, Field, RowOrigin
from psql_streamer.spark.failures import RowsFailed, Uncoercible, failure
from psql_streamer.spark.lacking import KEY_ONLY_BIT, Mask, bit_of, union
from psql_streamer.spark.left_out import LeftOut, Named, named_by
from psql_streamer.spark.metadata import IMAGE_SHIFT, KEY_ONLY, ROW, UNCHANGED
from psql_streamer.spark.nested_columns import nested_types, read_nested
from psql_streamer.spark.plan_tree import Node, read_plan
from psql_streamer.spark.prepared import Needs, PreparedRule, PreparedRules
from psql_streamer.spark.results import Result, computed_key, receive
from psql_streamer.spark.row_by_row import is_row_by_row
from psql_streamer.spark.row_tracking import Lineage, Lineages, refuse_without_row, row_column, schema_of
from psql_streamer.spark.rules import Rule
from psql_streamer.spark.splitting import UNKNOWN, Splitting
from psql_streamer.spark.steps import StepPlan, plan_steps
from psql_streamer.spark.tolerating import FAILED, tolerate

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
    show_lookups: Callable[[SparkSession], None] | None = None
    """Makes the lookups that the rule uses views of its session."""
    lookup_versions: tuple[int, ...] | None = None
    """Numbers of what these views show; None where a plan over them is of no use for other batches."""

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

    def prepare_session(self) -> None:
        """Before the rule is applied."""
        if self.show_lookups is not None:
            self.show_lookups(self.spark)

    def narrow(self, changes: Changes) -> Job:
        """The same with some of the changes."""
        return replace(self, changes=changes)


@dataclass(frozen=True, slots=True)
class Tolerated:
    """What a rule makes of changes when nothing that it computes fails.

    changes: None when it leaves nothing. failed: name of a computed column (None: a condition) -> changes in which it
    could not be computed. values: the same -> how many values.
    """

    changes: Changes | None
    failed: Mapping[str | None, NDArray[np.bool_]]
    values: Mapping[str | None, int]


class Runner:
    """Runs rules. From several threads at once, each with a session of its own.

    catalyst, prepared: of the engine that runs; None on a Spark Connect server. cluster, describe_end: see `failure`.
    """

    def __init__(self, describe_end: Callable[[float], str | None], counts: Counts) -> None:
        self.catalyst: Catalyst | None = None
        self.prepared: PreparedRules | None = None
        self.cluster = ""
        self._describe_end = describe_end
        self._counts = counts
        self._lineages = Lineages()
        self._schemas: dict[pa.Schema, StructType] = {}
        self._bits: dict[tuple[str, tuple[Column, ...]], tuple[int, ...]] = {}
        self._named: dict[tuple[str, pa.Schema], Mapping[str, Named]] = {}
        self._step_plans: dict[tuple[str, pa.Schema], StepPlan] = {}
        self._nested: dict[tuple[str, tuple[Column, ...]], Mapping[int, pa.DataType]] = {}
        self._left_out = LeftOut(counts)
        self._one_by_one: dict[tuple[str, tuple[Column, ...]], bool] = {}
        self._told: set[str] = set()
        self._told_of_nulls: set[tuple[str, str | None]] = set()

    def run(self, job: Job) -> Changes | None:
        """What the rule makes of the changes; None when it leaves nothing.

        Raises Uncoercible and RowsFailed for what some of the rows are to blame for, EngineLost when the engine ended.
        """
        sent, failed = self._sent(job)
        if failed:
            column, mask = next(iter(failed.items()))
            raise self._uncoercible(job, sent, column, int(np.flatnonzero(mask)[0]))
        try:
            return self._through(job, sent)
        except Exception as error:
            # Not `from error`: Spark's messages quote values, and a traceback would show them.
            raise self._failure(error, job, sent) from None

    def run_tolerantly(self, job: Job) -> Tolerated | None:
        """The same with null for what cannot be computed, and conditions that let pass what they cannot judge.

        None where that cannot be had in one job: on a Spark Connect server, and of code of a function.
        """
        if self.catalyst is None:
            return None
        sent, _ = self._sent(job)
        try:
            return self._tolerated(job, sent)
        except Exception as error:
            found = self._failure(error, job, sent)
            if isinstance(found, RowsFailed):
                return None
            raise found from None

    def passed_on(self, job: Job) -> tuple[Changes | None, list[str]]:
        """What the rule passes on of the changes, none of which it drops, with null for all that it computes; and the
        names of that. No job runs."""
        sent, _ = self._sent(job)
        try:
            result, lineage = self._planned(job, sent)
            fields = result.schema
        except Exception as error:
            raise self._failure(error, job, sent) from None
        from pyspark.sql.pandas.types import to_arrow_schema

        rows = len(sent.row_ids)
        arrays = [
            pa.nulls(rows, kind) if field.source is None else sent.table.column(field.source)
            for field, kind in zip(lineage.fields, to_arrow_schema(fields, timezone="UTC").types, strict=True)
        ]
        at = row_column(lineage.fields, len(sent.names) - 1)
        arrays[at] = pa.array(sent.row_ids)
        computed = [field.name for place, field in enumerate(lineage.fields) if field.source is None and place != at]
        _refuse_null_key(job, sent, lineage, computed)
        received = receive(sent, lineage, Result(pa.Table.from_arrays(arrays, names=lineage.names)), job.where)
        return received.changes, computed

    def analysed(self, job: Job) -> tuple[Sent, Lineage, Splitting]:
        """What Spark's analysis says of the rule over a table, facts included; no job runs."""
        sent, _ = self._sent(job)
        try:
            result, lineage = self._planned(job, sent, thorough=True)
            splitting = self._lineages.splitting(self.catalyst, job.rule, sent, result)
        except Exception as error:
            raise self._failure(error, job, sent) from None
        return sent, lineage, splitting

    def takes_rows_one_by_one(self, job: Job) -> bool:
        """Whether the rule gives each row by itself, so that tables which it sees alike may be one to it."""
        rule = job.rule
        if rule.names(ROW):
            return False
        key = (rule.name, job.changes.columns)
        if key not in self._one_by_one:
            plan = self.plan_of(job)
            self._one_by_one[key] = plan is not None and is_row_by_row(*plan)
        return self._one_by_one[key]

    def plan_of(self, job: Job) -> tuple[Node, list[str]] | None:
        """The rule's analysed plan, and the names of the columns that are sent; None where nobody knows it beforehand:
        of a function, and on a Spark Connect server.
        """
        if job.rule.function is not None or self.catalyst is None:
            return None
        sent, _ = self._sent(job)
        try:
            frame = job.spark.createDataFrame(sent.schema.empty_table(), self._schema(sent))
            return read_plan(self.catalyst.plan_json(self._applied(job, sent, frame))), sent.names
        except Exception as error:
            raise self._failure(error, job, sent) from None

    def forget_plans(self) -> None:
        """A lookup may have other columns from now on."""
        self._lineages = Lineages()
        self._one_by_one.clear()

    def uncoercible(self, job: Job) -> dict[int, Mask]:
        """Column -> images whose value cannot be coerced. One job finds them all."""
        sent, failed = self._sent(job)
        types = {
            name: kind
            for name, kind in job.rule.coerce.items()
            if name in sent.names[: sent.own_columns] and sent.names.index(name) not in self._nested_types(job)
        }
        if not types:
            return failed
        frame = job.spark.createDataFrame(sent.table, self._schema(sent))
        try:
            found = uncoercible_values(frame, types).toArrow()
        except Exception as error:
            raise self._failure(error, job, sent) from None
        images = found.column(0).to_numpy() >> IMAGE_SHIFT
        for name in found.column_names[1:]:
            mask = np.zeros(sent.lacking.images, np.bool_)
            mask[images] = found.column(name).to_numpy()
            if mask.any():
                failed[int(name)] = mask
        return failed

    def tell_of_nulls(self, job: Job, column: str | None, values: int) -> None:
        """Count values that are null because the rule could not compute them; warn once for a table, rule and column.

        column: None: conditions, which let their rows pass.
        """
        self._counts.add("nulled", values)
        if (job.where, column) in self._told_of_nulls:
            return
        self._told_of_nulls.add((job.where, column))
        if column is None:
            log.warning("%s: a condition cannot be computed for some rows: they pass", job.where)
        else:
            log.warning("%s: %s cannot be computed for some rows: it is null in them", job.where, column)

    def _sent(self, job: Job) -> tuple[Sent, dict[int, Mask]]:
        """What goes to Spark, and the values that could not be read for it: column -> images."""
        bits = self._bits.get((job.rule.name, job.changes.columns), ())
        sent = send(job.changes, job.transactions, job.rule.names, bits, job.tables)
        return read_nested(sent, self._nested_types(job), job.where)

    def _nested_types(self, job: Job) -> Mapping[int, pa.DataType]:
        """The columns whose text forms are read before Spark sees them, and as what."""
        key = (job.rule.name, job.changes.columns)
        if key not in self._nested:
            try:
                self._nested[key] = nested_types(job.spark, job.rule.coerce, job.changes.columns)
            except Exception as error:
                raise failure(error, job.where, self._describe_end, self.cluster) from None
        return self._nested[key]

    def _steps(self, job: Job, sent: Sent, frame: DataFrame) -> StepPlan:
        rule = job.rule
        key = (rule.name, sent.schema)
        if key not in self._step_plans:
            own = sent.names[: sent.own_columns]
            read = {own[at] for at in self._nested_types(job)}
            self._step_plans[key] = plan_steps(rule.steps, frame, own, read, job.where, admitting=self.catalyst is None)
        return self._step_plans[key]

    def _through(self, job: Job, sent: Sent) -> Changes | None:
        ready = self._ready(job, sent)
        if ready is not None:
            return self._received(job, *ready)
        result, lineage = self._planned(job, sent)
        unknown = _unchanged_in_filters(lineage.facts, sent)
        if unknown - set(sent.bits):
            return self._through(job, self._add_bits(job, sent, unknown))
        table = result.toArrow()
        if table.column_names != lineage.names:
            self._lineages.forget(job.rule, sent)
            return self._through(job, sent)
        return self._received(
            job,
            sent,
            lineage,
            Result(table),
            lambda: self._lineages.splitting(self.catalyst, job.rule, sent, result),
        )

    def _received(
        self,
        job: Job,
        sent: Sent,
        lineage: Lineage,
        result: Result,
        splitting: Callable[[], Splitting] = lambda: UNKNOWN,
    ) -> Changes | None:
        received = receive(sent, lineage, result, job.where, splitting)
        self._tell_of_unaddressed(job, received.unaddressed)
        self._tell_of_left_out(job, sent)
        self._tell_of_unknown(job, sent, lineage.facts, received.images)
        return received.changes

    def _ready(self, job: Job, sent: Sent) -> tuple[Sent, Lineage, Result] | None:
        """What the rule makes of the changes, by a plan that is there already, or is kept for the batches that follow.

        None where the rule must be planned for every batch.
        """
        if self.prepared is None or job.rule.function is not None or job.rule.names_a_moment:
            return None
        if job.show_lookups is not None and job.lookup_versions is None:
            return None
        lineage = self._lineages.known(job.rule, sent)
        if lineage is None or lineage.facts is None:
            self._planned(job, sent, thorough=True, empty=True)
            lineage = self._lineages.known(job.rule, sent)
        facts = None if lineage is None else lineage.facts
        if lineage is None or facts is None or not facts.is_repeatable or facts.way is None:
            return None
        unknown = _unchanged_in_filters(facts, sent)
        if unknown - set(sent.bits):
            sent = self._add_bits(job, sent, unknown)
        lineage = _with_row(lineage, sent)
        needs = Needs.of(lineage, facts, sent)
        if not needs.has_work:
            return sent, lineage, Result(sent.chosen([len(sent.names) - 1]), {needs.returns[0]: 0})
        rule = self._find_prepared(self.prepared, job, sent, lineage, needs)
        return (sent, lineage, rule.run(sent)) if rule.is_repeatable else None

    def _find_prepared(
        self, prepared: PreparedRules, job: Job, sent: Sent, lineage: Lineage, needs: Needs
    ) -> PreparedRule:
        facts = cast(Facts, lineage.facts)
        masks = _masks(facts, sent)

        def prepare() -> PreparedRule:
            return prepared.prepare(
                job.spark,
                self._schema(sent),
                sent,
                needs,
                lambda frame: self._led(self._applied(job, sent, frame), facts, masks),
            )

        key = (job.rule.name, sent.schema, tuple(sorted(masks.items())))
        return prepared.find(key, prepare, job.lookup_versions or ())

    def _led(self, result: DataFrame, facts: Facts, masks: Mapping[tuple[int, Turns], int]) -> DataFrame:
        """A rule's result with `_row`, and with filters that let pass what they cannot judge."""
        if self.catalyst is not None and (masks or facts.row is RowOrigin.MISSING):
            return self.catalyst.add_row_column(result, facts, masks)
        return result

    def _applied(self, job: Job, sent: Sent, frame: DataFrame) -> DataFrame:
        """What the rule makes of a frame with the columns that are sent."""
        job.prepare_session()
        steps = self._steps(job, sent, frame)
        coerced = steps.coerce(frame)
        if job.rule.coerce:
            self._note_types(job, sent, coerced)
        return job.rule.apply(steps.follow(coerced))

    def _planned(self, job: Job, sent: Sent, thorough: bool = False, empty: bool = False) -> tuple[DataFrame, Lineage]:
        """The rule's result over what was sent, with `_row`, and with filters that let pass what they cannot judge.

        No job runs.
        """
        rows = sent.schema.empty_table() if empty else sent.table
        result = self._applied(job, sent, job.spark.createDataFrame(rows, self._schema(sent)))
        lineage = self._lineages.find(self.catalyst, job.rule, sent, result, thorough)
        try:
            refuse_wrong_types(lineage.fields, job.changes.columns, job.where)
        except HandlerRefused:
            self._lineages.forget(job.rule, sent)  # or it would be taken for one that was looked at
            raise
        facts = lineage.facts
        if facts is None:
            return result, lineage
        refuse_without_row(facts, job.where)
        return self._led(result, facts, _masks(facts, sent)), _with_row(lineage, sent)

    def _add_bits(self, job: Job, sent: Sent, columns: set[int]) -> Sent:
        """The same with bits for more columns. They stay: the plan is the same for the batches that follow."""
        bits = (*sent.bits, *sorted(columns.difference(sent.bits)))
        self._bits[job.rule.name, job.changes.columns] = bits
        return self._sent(job)[0]

    def _schema(self, sent: Sent) -> StructType:
        """One schema object per shape of a table, so that Spark meets its generated code again."""
        shape = sent.schema
        if shape not in self._schemas:
            self._schemas[shape] = schema_of(shape)
        return self._schemas[shape]

    def _note_types(self, job: Job, sent: Sent, frame: DataFrame) -> None:
        """What the types have names for that columns of JSON are coerced to."""
        rule = job.rule
        key = (rule.name, sent.schema)
        if key not in self._named:
            read = {sent.names[at] for at in self._nested_types(job)}
            asked = rule.coerce.keys() - read
            kinds = {field.name: named_by(field.dataType) for field in frame.schema.fields if field.name in asked}
            self._named[key] = {name: named for name, named in kinds.items() if named is not None}

    def _tell_of_left_out(self, job: Job, sent: Sent) -> None:
        """Warn of fields of documents that the types do not name."""
        for name, kind in self._named.get((job.rule.name, sent.schema), {}).items():
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

    def _tolerated(self, job: Job, sent: Sent) -> Tolerated | None:
        result, lineage = self._planned(job, sent, thorough=True)
        facts = lineage.facts
        if facts is None or facts.way is None:
            return None
        turns = [child for _, child, _ in facts.way]
        tolerated = tolerate(result, [0, *turns] if facts.row is RowOrigin.MISSING else turns)
        if tolerated is None:
            return None
        table = tolerated.run()
        bits = table.column(FAILED).to_numpy()
        images = table.column(row_column(lineage.fields, len(sent.names) - 1)).to_numpy() >> IMAGE_SHIFT
        rows = np.concatenate((job.changes.after.rows, job.changes.before.rows))
        failed: dict[str | None, NDArray[np.bool_]] = {}
        values: Counter[str | None] = Counter()
        for at, place in enumerate(tolerated.places):
            mine = rows[images[bits & (1 << at) != 0]]
            if len(mine):
                values[place] += len(mine)
                failed.setdefault(place, np.zeros(len(job.changes), np.bool_))[mine] = True
        if job.rule.on_error == "null":
            _refuse_null_key(job, sent, lineage, failed)
        received = receive(sent, lineage, Result(table.drop_columns([FAILED])), job.where)
        return Tolerated(received.changes, failed, values)

    def _tell_of_unaddressed(self, job: Job, rows: int) -> None:
        """Count the rows that lack the values of which the rule makes their topic, key or headers."""
        if not rows:
            return
        self._counts.add("unaddressed", rows)
        told = f"{job.where}, addresses"
        if told not in self._told:
            self._told.add(told)
            log.warning(
                "%s: rows lack values of which it makes _topic, _key or _headers: they go where the sink's options "
                "say; REPLICA IDENTITY FULL gives old rows all values",
                job.where,
            )

    def _failure(self, error: Exception, job: Job, sent: Sent) -> HandlerError:
        found = uncoercible(error)
        if found is None:
            return failure(error, job.where, self._describe_end, self.cluster)
        return self._uncoercible(job, sent, *found)

    def _uncoercible(self, job: Job, sent: Sent, column: int, image: int) -> Uncoercible:
        return Uncoercible(
            f"{job.where}: the value of column {sent.changes.columns[column].name} in change "
            f"{job.show_change(row_of_image(sent, image))} cannot be coerced",
            "choose a type that holds every value, convert it in the rule's sql, or put such rows aside: "
            'onError = "dead-letter"',
        )


def _with_row(lineage: Lineage, sent: Sent) -> Lineage:
    """The lineage of a result to which `_row` is added, if it has none."""
    if lineage.facts is None or lineage.facts.row is not RowOrigin.MISSING:
        return lineage
    return replace(lineage, fields=(*lineage.fields, Field(ROW, len(sent.names) - 1)))


def _refuse_null_key(job: Job, sent: Sent, lineage: Lineage, failed: Collection[str | None]) -> None:
    """HandlerRefused when the key of events could not be computed: null would be the key of another row."""
    key = computed_key(sent, lineage.fields)
    if key is not None and key in failed:
        raise HandlerRefused(
            f"{job.where}: the key column {key} of some change cannot be computed, and a key cannot be null",
            'put such rows aside: onError = "dead-letter"',
        )


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
