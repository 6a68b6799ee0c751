"""What becomes of rows that a rule cannot take: they stop the pipeline, or are put aside as the rule says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from psql_streamer.cells import CellTable
from psql_streamer.errors import HandlerError, HandlerRefused, HandlerUnavailable
from psql_streamer.model import Changes, Rejection, Transactions
from psql_streamer.spark.chosen_rows import Chosen, measure_rows, take_rows
from psql_streamer.spark.failures import EngineLost, RowsFailed, RowsRefused, Uncoercible
from psql_streamer.spark.isolation import sort_out
from psql_streamer.spark.job import Job
from psql_streamer.spark.lacking import Mask
from psql_streamer.spark.nulling import run_with_nulls
from psql_streamer.spark.running import Runner

_MOST_ASKED = 10
"""Rows of those that fail in one place, of which Spark is asked one by one why."""


@dataclass(frozen=True, slots=True)
class RuleResult:
    """What became of a table: the changes that its rule made, which may be several Changes, and what was put aside."""

    made: tuple[Changes, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    cells: tuple[CellTable, ...] = ()  # made of several tables at once

    def __add__(self, other: RuleResult) -> RuleResult:
        return RuleResult(self.made + other.made, self.rejections + other.rejections, self.cells + other.cells)


def combine(results: Iterable[RuleResult]) -> RuleResult:
    """All results as one."""
    return reduce(RuleResult.__add__, results, RuleResult())


def run(runner: Runner, job: Job) -> RuleResult:
    """A table through its rule; with the rows put aside that it cannot take, or with null in them, if it says so.

    Raises RowsFailed for such rows if it does not.
    """
    if job.rule.on_error == "stop":
        return _run_or_name(runner, job)
    if job.rule.on_error == "null":
        return RuleResult(tuple(run_with_nulls(runner, job)))
    try:
        return _run_without_uncoercible(runner, job)
    except RowsFailed:
        runner.telling.tell_of_search(job)
    tolerated = runner.run_tolerantly(job)
    if tolerated is None or not tolerated.failed:
        return _sort_out(runner, job)
    rejected, bad = list[RuleResult](), np.zeros(len(job.changes), np.bool_)
    for column, rows in tolerated.failed.items():
        aside = job.narrow(take_rows(job.changes, rows & ~bad))
        bad |= rows
        rejected += (
            _reject_rows(aside.narrow(take_rows(aside.changes, chosen)), reason, column)
            for reason, chosen in _find_reasons(runner, aside, column).items()
        )
    rest = job.narrow(take_rows(job.changes, ~bad))
    return _run_rest(runner, rest) + combine(rejected)


def _run_or_name(runner: Runner, job: Job) -> RuleResult:
    """Raises RowsFailed with a change on which the job fails, where one job more can tell it."""
    try:
        return _make_result(runner.run(job))
    except RowsRefused as error:
        first = job.show_change(int(np.flatnonzero(error.rows)[0]))
        raise RowsRefused(f"{error.what} for change {first}", error.remedy, error.rows, error.column) from None
    except Uncoercible:
        raise
    except RowsFailed as error:
        tolerated = runner.run_tolerantly(job)
        if tolerated is None or not tolerated.failed:
            raise
        column, rows = next(iter(tolerated.failed.items()))
        which = "a condition" if column is None else f"column {column}"
        where = f"{which} cannot be computed in change {job.show_change(int(np.flatnonzero(rows)[0]))}"
        raise RowsFailed(f"{error.what}: {where}", error.remedy) from None


def _run_rest(runner: Runner, job: Job) -> RuleResult:
    """What is left when the rows are put aside that are known to fail. Some may fail in a way that was not seen."""
    if not len(job.changes):
        return RuleResult()
    try:
        return _run_without_uncoercible(runner, job)
    except RowsFailed:
        return _sort_out(runner, job)


def _find_reasons(runner: Runner, job: Job, column: str | None) -> dict[str, Chosen]:
    """What to say of rows that fail in the same place -> of which of them: what Spark says of each.

    Of many rows some are asked, and the others are told what Spark says of these.
    """
    rows = len(job.changes)
    asked = np.unique(np.linspace(0, rows - 1, min(rows, _MOST_ASKED)).astype(np.int64))
    found: dict[str, Chosen] = {}
    for row in asked.tolist():
        chosen = np.arange(rows) == row
        reason = _find_reason(runner, job.narrow(take_rows(job.changes, chosen)), column)
        found[reason] = found.get(reason, False) | chosen
    if len(asked) < rows:
        common = ", or ".join(dict.fromkeys([next(iter(found)), *map(_name_end, [*found][1:])]))
        others = ~np.isin(np.arange(rows), asked)
        found[common] = found.get(common, False) | others
    return found


def _name_end(reason: str) -> str:
    return reason.rpartition(" ended with ")[2]


def _find_reason(runner: Runner, job: Job, column: str | None) -> str:
    """What Spark says of a row."""
    try:
        runner.run(job)
    except RowsFailed as error:
        return error.what
    return f"{job.where}: {'a condition' if column is None else column} cannot be computed"


def _sort_out(runner: Runner, job: Job) -> RuleResult:
    """By trying halves."""
    found = sort_out(
        job.changes, lambda some: _run_without_uncoercible(runner, job.narrow(some)), RowsFailed, known=True
    )
    orders: dict[str, list[int]] = defaultdict(list)
    for row, error in found.bad:
        orders[error.what].append(int(row.batch_order[0]))
    bad = ((take_rows(job.changes, np.isin(job.changes.batch_order, rows)), reason) for reason, rows in orders.items())
    return combine([*found.made, *(_reject_rows(job.narrow(changes), reason) for changes, reason in bad)])


def run_joined(runner: Runner, job: Job, members: Sequence[Changes]) -> RuleResult:
    """Several tables through their rule as one; if it cannot take some row, each by itself, as `run` does.

    job: of all; members: the changes of each.
    """
    if job.tables is None:
        return run(runner, job)
    try:
        made = runner.run(job)
    except HandlerUnavailable:
        raise
    except HandlerError:
        return combine(run(runner, replace(job, changes=changes, tables=None)) for changes in members)
    return RuleResult() if made is None else RuleResult(cells=(job.tables.restore_relations(made),))


def dispose_of_fatal(job: Job, error: HandlerError, memory: str | None) -> RuleResult:
    """A single row that ends the engine: put aside, or refused by its name. memory: spark.driver.memory."""
    changes = job.changes
    how = error.how if isinstance(error, EngineLost) else "ends Spark"
    size = int(measure_rows(changes)[0])
    if job.rule.on_error == "dead-letter":
        return _reject_rows(job, f"{job.where}: the row has {size} bytes and {how}")
    more_memory = f"raise spark.driver.memory in [spark.conf]{f', which is {memory}' if memory else ''}"
    cure = (error.cure if isinstance(error, EngineLost) else "") or more_memory
    raise HandlerRefused(
        f"{job.where}: the row of change {job.show_change(0)} has {size} bytes and {how}",
        f'{cure}, or put such rows aside: onError = "dead-letter"',
    )


Identity = tuple[int, int, bytes]


def list_identities(changes: Changes, transactions: Transactions) -> list[Identity]:
    """(commit number, seq, given UUID) of every change. Chunks of a snapshot may have one commit number."""
    given = [b""] * len(changes) if changes.uuid is None else changes.uuid.tolist()
    return list(zip(transactions.commit[changes.tx].tolist(), changes.seq.tolist(), given, strict=True))


def _make_result(changes: Changes | None) -> RuleResult:
    return RuleResult() if changes is None else RuleResult((changes,))


def _run_without_uncoercible(runner: Runner, job: Job) -> RuleResult:
    try:
        return _make_result(runner.run(job))
    except RowsRefused as error:
        refused = _reject_rows(job.narrow(take_rows(job.changes, error.rows)), error.what, error.column)
        others = job.narrow(take_rows(job.changes, ~error.rows))
        return refused if error.rows.all() else _run_without_uncoercible(runner, others) + refused
    except Uncoercible:
        by_column = _group_by_column(job.changes, runner.find_uncoercible(job))
        if not by_column:
            raise
    rejected = []
    for column, chosen in by_column.items():
        name = job.changes.columns[column].name
        reason = f"{job.where}: the value of column {name} cannot be coerced to {job.rule.coerce[name]}"
        rejected.append(_reject_rows(job.narrow(take_rows(job.changes, chosen)), reason, name))
    rest = ~np.logical_or.reduce(list(by_column.values()))
    left = _run_without_uncoercible(runner, job.narrow(take_rows(job.changes, rest))) if rest.any() else RuleResult()
    return left + combine(rejected)


def _group_by_column(changes: Changes, images: Mapping[int, Mask]) -> dict[int, Chosen]:
    """The changes with values that cannot be coerced, each with one column. images: see Runner.find_uncoercible."""
    found, known = dict[int, Chosen](), np.zeros(len(changes), np.bool_)
    of_images = np.concatenate((changes.after.rows, changes.before.rows))
    for column in sorted(images):
        rows = np.zeros(len(changes), np.bool_)
        rows[of_images[images[column]]] = True
        if (rows & ~known).any():
            found[column] = rows & ~known
        known |= rows
    return found


def _reject_rows(job: Job, reason: str, column: str | None = None) -> RuleResult:
    return RuleResult((), (Rejection(job.changes, reason, column, job.rule.name),))
