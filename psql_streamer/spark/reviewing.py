"""The rules of [spark.tables] against the tables that are there: analysed by Spark, without a job."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from psql_streamer.errors import HandlerError, HandlerRefused, HandlerUnavailable
from psql_streamer.interfaces import Finding, Severity
from psql_streamer.model import NO_TRANSACTIONS, ArrowType, Changes, Relation, SourceInfo
from psql_streamer.nearest import suggest_nearest
from psql_streamer.pgtypes import casts
from psql_streamer.spark.directions import PART, is_direction
from psql_streamer.spark.exchange import Sent
from psql_streamer.spark.job import Job
from psql_streamer.spark.kept import find_judged_columns
from psql_streamer.spark.lookups.lookups import Lookups
from psql_streamer.spark.metadata import KEY_ONLY
from psql_streamer.spark.options import TableRule
from psql_streamer.spark.result_fields import collect_column_names, find_computed_key, find_source_columns
from psql_streamer.spark.results import LET_PASS
from psql_streamer.spark.row_tracking import Lineage
from psql_streamer.spark.rules import Rule, Rules, make_patterns
from psql_streamer.spark.running import Runner
from psql_streamer.spark.splitting import Splitting
from psql_streamer.spark.steps import describe_missing_column

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Shape = tuple[object, ...]


@dataclass(slots=True)
class _Tables:
    """Tables that a rule sees alike."""

    rule: Rule
    first: Relation
    count: int = 1

    @property
    def others(self) -> str:
        """What to say of those that are not named."""
        return f" (and {self.count - 1} more tables)" if self.count > 1 else ""


def review_names(
    rules: Mapping[str, TableRule], tables: Sequence[Relation], everywhere: Sequence[Relation]
) -> Iterator[Finding]:
    """Rules that fit no table: what they should mask or leave out would go out as it is.

    tables: of the sources of the sink that has the rules. everywhere: of those of all sinks; a rule for all of them
    must fit one of these.
    """
    for name, rule in rules.items():
        named, wanted = make_patterns({name: rule}), tables if rule.sinks else everywhere
        if not rule.optional and not any(named.find(table.schema, table.table) for table in wanted):
            known = {str(table) if "." in name else table.table for table in wanted}
            of_sinks = f" for the sinks {', '.join(rule.sinks)}" if rule.sinks else ""
            nothing = f"[spark.tables] {name!r} fits no table that is published{of_sinks}"
            problem = f"{nothing}{suggest_nearest(name, sorted(known))}"
            yield Finding(Severity.ERROR, problem, "correct the name, or set optional = true for a table to come")


def review_rules(
    rules: Rules, tables: Iterable[Relation], runner: Runner, lookups: Lookups, spark: SparkSession, plan_ahead: bool
) -> Iterator[Finding]:
    """What Spark's analysis says of every rule over the columns of the tables that have it.

    Tables that a rule sees alike are looked at once. A rule whose lookups are not there yet is not looked at.
    plan_ahead: whether batches follow, whose plans are made then.
    """
    groups = list(_group_tables(rules, tables))
    yield from _review_lenient(groups)
    planned_until = time.monotonic() + (_AHEAD_SECONDS if plan_ahead else 0.0)
    for number, group in enumerate(groups):
        if not lookups.has_all_of(group.rule):
            continue
        job = Job(
            *(spark, group.rule, _make_empty_changes(group.first), NO_TRANSACTIONS, _NOWHERE),
            show_lookups=lookups.make_shower(group.rule),
            check_lookups=lookups.check_views,
        )
        found = list(_review(job, runner))
        for finding in found:
            meant = lookups.describe_unknown_view(finding.problem)
            yield Finding(finding.severity, f"{finding.problem}{meant}{group.others}", finding.remedy)
        may_plan = number < _MOST_AHEAD and time.monotonic() < planned_until
        if may_plan and not any(one.severity is Severity.ERROR for one in found):
            # A rule that cannot be planned is told of with its first rows, by its onError.
            with suppress(HandlerRefused):
                runner.plan_ahead(job)


_AHEAD_SECONDS = 10.0
"""For so long the start of the service waits for plans."""

_MOST_AHEAD = 100
"""Shapes that are planned at the start: the other plans that may be kept are those of shapes that come first."""


def _review_lenient(groups: Iterable[_Tables]) -> Iterator[Finding]:
    """Columns that none of the tables of an optional rule has: a misspelt one would go out unmasked."""
    columns: dict[str, set[str]] = defaultdict(set)
    rules: dict[str, Rule] = {}
    for group in groups:
        if group.rule.steps.lenient:
            rules[group.rule.name] = group.rule
            columns[group.rule.name].update(column.name for column in group.first.columns)
    for name, rule in rules.items():
        for step, missing in rule.steps.list_missing(columns[name]):
            what = describe_missing_column(step, missing, columns[name]).removeprefix("there is no column ")
            yield Finding(Severity.ERROR, f"no table of rule {name!r} has a column {what}", "correct its name")


def _group_tables(rules: Rules, tables: Iterable[Relation]) -> Iterable[_Tables]:
    groups: dict[tuple[str, Shape], _Tables] = {}
    for table in tables:
        rule = rules.find(table)
        if rule.identity:
            continue
        shape = tuple((column.name, column.key, casts.choose_arrow_type(column.type)) for column in table.columns)
        group = groups.get((rule.name, shape))
        if group is None:
            groups[rule.name, shape] = _Tables(rule, table)
        else:
            group.count += 1
    return groups.values()


def _review(job: Job, runner: Runner) -> Iterator[Finding]:
    names = [column.name for column in job.changes.columns]
    missing = [] if job.rule.steps.lenient else list(job.rule.steps.list_missing(names))
    for step, name in missing:
        yield Finding(Severity.ERROR, f"{job.where}: {describe_missing_column(step, name, names)}", "correct its name")
    if missing:
        return
    try:
        sent, lineage, splitting = runner.analyse_rule(job)
        collect_column_names(sent, lineage.fields, job.where)
    except HandlerUnavailable:
        raise
    except HandlerError as error:
        yield Finding(Severity.ERROR, error.what, error.remedy)
    else:
        yield from _review_key(job, sent, lineage)
        yield from _review_masked_key(job)
        yield from _review_drops(job, sent, lineage)
        yield from _review_directions(job, lineage, splitting)
        yield from _review_mixing(job, lineage)


def _review_key(job: Job, sent: Sent, lineage: Lineage) -> Iterator[Finding]:
    kept = find_source_columns(sent, lineage.fields)
    for column in job.changes.relation.key_columns:
        name = job.changes.columns[column].name
        if column not in kept:
            problem = f"{job.where}: the key column {name} is left out, so the key of events is not complete"
            yield Finding(Severity.WARNING, problem, f"add {name} to the columns of the rule")


def _review_masked_key(job: Job) -> Iterator[Finding]:
    for column in job.changes.relation.key_columns:
        name = job.changes.columns[column].name
        mask = job.rule.steps.mask.get(name)
        if mask is not None and mask.how.method in ("null", "constant"):
            problem = f"{job.where}: the mask of the key column {name} gives all rows the same key"
            yield Finding(Severity.ERROR, problem, "use hash or tokenise, which keep keys apart")


def _review_drops(job: Job, sent: Sent, lineage: Lineage) -> Iterator[Finding]:
    """Whether rows that hold their key alone could be dropped, and then not put back."""
    if job.changes.relation.old_rows_are_whole or lineage.facts is None:
        return
    key = find_computed_key(sent, lineage.fields)
    if key is not None and lineage.facts.drops and sent.place(KEY_ONLY) not in find_judged_columns(lineage.facts):
        problem = f"{job.where}: the rule computes the key column {key}, and may drop deletes, which hold the key alone"
        yield Finding(Severity.WARNING, f"{problem}: a dropped delete stops the service", LET_PASS)


def _review_directions(job: Job, lineage: Lineage, splitting: Splitting) -> Iterator[Finding]:
    """What cannot be known of old rows that hold their key alone."""
    relation, columns = job.changes.relation, job.changes.columns
    if relation.old_rows_are_whole or lineage.facts is None:
        return
    said = [(at, one) for at, one in enumerate(lineage.fields) if is_direction(one, columns)]
    remedy = f"ALTER TABLE {relation} REPLICA IDENTITY FULL"
    if splitting.splits or any(one.name == PART for _, one in said):
        problem = f"{job.where}: the rule makes several rows of one, and old rows hold the key alone"
        yield Finding(
            Severity.WARNING, f"{problem}: rows that an update or a delete removes stay with consumers", remedy
        )
    for at, one in said:
        reads = lineage.facts.reads[at] if at < len(lineage.facts.reads) else frozenset()
        missing = [columns[read].name for read in sorted(reads) if read < len(columns) and not columns[read].key]
        if missing and one.name != PART:
            problem = f"{job.where}: {one.name} is made of {', '.join(missing)}, which old rows lack"
            yield Finding(Severity.WARNING, f"{problem}: deletes go where the sink's options say", remedy)


def _review_mixing(job: Job, lineage: Lineage) -> Iterator[Finding]:
    """What depends on which changes come together."""
    if lineage.facts is not None and lineage.facts.mixes is not None:
        problem = f"{job.where}: {lineage.facts.mixes} sees the changes of one batch, which begins and ends anywhere"
        yield Finding(
            Severity.WARNING,
            f"{problem}: it is not of the table, and a repeat may give something else",
            "join a lookup for rows of the table, go by _row for what is made of one change, or do it in the consumer",
        )


_NOWHERE = SourceInfo("", "", "", "")


def _make_empty_changes(table: Relation) -> Changes:
    """No changes of a table."""
    kinds = (column.type for column in table.columns)
    arrays = [pa.array([], kind.arrow if isinstance(kind, ArrowType) else pa.binary()) for kind in kinds]
    return Changes.from_new_rows(table, arrays, np.empty(0, np.int32))
