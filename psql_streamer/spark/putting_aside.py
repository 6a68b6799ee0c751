"""What becomes of rows that a rule cannot take: they stop the pipeline, or are put aside as the rule says."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from psql_streamer.cells import CellTable
from psql_streamer.errors import HandlerError, HandlerRefused, HandlerUnavailable
from psql_streamer.model import Changes, Rejection, Transactions
from psql_streamer.spark.chosen_rows import row_sizes, take_rows
from psql_streamer.spark.failures import EngineLost, RowsFailed, RowsRefused, Uncoercible
from psql_streamer.spark.isolation import sort_out
from psql_streamer.spark.running import Job, Runner

log = logging.getLogger("psql_streamer.spark")


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
    """A table through its rule, with the rows put aside that it cannot take if it says so.

    Raises RowsFailed for such rows if it does not.
    """
    if job.rule.on_error == "stop":
        return _run_or_name(runner, job)
    try:
        return _run_without_uncoercible(runner, job)
    except RowsFailed:
        log.warning("%s: a job failed on some row: looking for it", job.where)
    found = sort_out(
        job.changes, lambda some: _run_without_uncoercible(runner, job.narrow(some)), RowsFailed, known=True
    )
    orders: dict[str, list[int]] = defaultdict(list)
    for row, error in found.bad:
        orders[error.what].append(int(row.batch_order[0]))
    bad = ((take_rows(job.changes, np.isin(job.changes.batch_order, rows)), reason) for reason, rows in orders.items())
    return combine([*found.made, *(_rejected(job.narrow(changes), reason) for changes, reason in bad)])


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
    return RuleResult() if made is None else RuleResult(cells=(job.tables.parted(made),))


def dispose_of_fatal(job: Job, error: HandlerError, memory: str | None) -> RuleResult:
    """A single row that ends the engine: put aside, or refused by its name. memory: spark.driver.memory."""
    changes = job.changes
    how = error.how if isinstance(error, EngineLost) else "ends Spark"
    size = int(row_sizes(changes)[0])
    if job.rule.on_error == "dead-letter":
        return _rejected(job, f"{job.where}: the row has {size} bytes and {how}")
    raise HandlerRefused(
        f"{job.where}: the row of change {job.show_change(0)} has {size} bytes and {how}",
        f"raise spark.driver.memory in [spark.conf]{f', which is {memory}' if memory else ''}, or put such rows aside: "
        'onError = "dead-letter"',
    )


Identity = tuple[int, int, bytes]


def identity(changes: Changes, transactions: Transactions) -> list[Identity]:
    """(commit number, seq, given UUID) of every change. Chunks of a snapshot may have one commit number."""
    given = [b""] * len(changes) if changes.uuid is None else changes.uuid.tolist()
    return list(zip(transactions.commit[changes.tx].tolist(), changes.seq.tolist(), given, strict=True))


def _made(changes: Changes | None) -> RuleResult:
    return RuleResult() if changes is None else RuleResult((changes,))


def _run_or_name(runner: Runner, job: Job) -> RuleResult:
    """With the change in the message, if the rule makes of it what cannot be used."""
    try:
        return _made(runner.run(job))
    except RowsRefused as error:
        first = job.show_change(int(np.flatnonzero(error.rows)[0]))
        raise RowsRefused(f"{error.what} for change {first}", error.remedy, error.rows, error.column) from None


def _run_without_uncoercible(runner: Runner, job: Job) -> RuleResult:
    try:
        return _made(runner.run(job))
    except RowsRefused as error:
        refused = _rejected(job.narrow(take_rows(job.changes, error.rows)), error.what, error.column)
        others = job.narrow(take_rows(job.changes, ~error.rows))
        return refused if error.rows.all() else _run_without_uncoercible(runner, others) + refused
    except Uncoercible:
        by_column = runner.uncoercible(job)
        if not by_column:
            raise
    rejected = []
    for column, chosen in by_column.items():
        name = job.changes.columns[column].name
        reason = f"{job.where}: the value of column {name} cannot be coerced to {job.rule.coerce[name]}"
        rejected.append(_rejected(job.narrow(take_rows(job.changes, chosen)), reason, name))
    rest = ~np.logical_or.reduce(list(by_column.values()))
    left = _run_without_uncoercible(runner, job.narrow(take_rows(job.changes, rest))) if rest.any() else RuleResult()
    return left + combine(rejected)


def _rejected(job: Job, reason: str, column: str | None = None) -> RuleResult:
    log.warning("%d rows are put aside: %s", len(job.changes), reason)
    return RuleResult((), (Rejection(job.changes, reason, column, job.rule.name),))
