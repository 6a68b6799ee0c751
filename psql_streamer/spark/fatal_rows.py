"""A batch that ended the engine twice: which of its rows it is."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from psql_streamer.errors import HandlerError
from psql_streamer.model import Batch, Changes
from psql_streamer.spark.chosen_rows import take_rows
from psql_streamer.spark.failures import EngineLost
from psql_streamer.spark.isolation import SortedRows, sort_out_large
from psql_streamer.spark.job import Job
from psql_streamer.spark.putting_aside import Identity, RuleResult, combine, dispose_of_fatal, list_identities, run
from psql_streamer.spark.running import Runner

log = logging.getLogger("psql_streamer.spark")


@dataclass(slots=True)
class Trouble:
    """A batch that ended the engine. deaths: how often. culprits: rows of which that is known."""

    batch: tuple[object, ...]
    deaths: int = 0
    culprits: dict[Identity, HandlerError] = field(default_factory=dict)


def make_batch_key(batch: Batch) -> tuple[object, ...]:
    """The same batch has the same key when it is tried again."""
    return batch.source, batch.position, len(batch)


@dataclass(frozen=True, slots=True)
class Search:
    """Runs a batch, some rows at a time, on an engine that nobody else uses.

    renewed: the same job on a living engine, a new one if need be. memory: spark.driver.memory.
    """

    runner: Runner
    renewed: Callable[[Job], Job]
    memory: Callable[[], str | None]
    trouble: Trouble

    def run(self, jobs: list[Job]) -> list[RuleResult]:
        """The tables of a batch, one by one; HandlerRefused by the name of a row that ends the engine."""
        if not self.trouble.culprits:
            log.warning("a batch ended Spark %d times: looking for the row", self.trouble.deaths)
        return [self._search_table(job, known=len(jobs) == 1) for job in jobs]

    def _search_table(self, job: Job, known: bool) -> RuleResult:
        """known: that this table has such a row."""
        culprits = self.trouble.culprits
        rows = list_identities(job.changes, job.transactions)
        guilty = np.array([one in culprits for one in rows], np.bool_)
        found = SortedRows[RuleResult]()
        for at in np.flatnonzero(guilty):
            found.bad.append((take_rows(job.changes, np.arange(len(rows)) == at), culprits[rows[at]]))
        if not guilty.all():
            found.add(self._search_rest(job.narrow(take_rows(job.changes, ~guilty)), known and not guilty.any()))
        refused = (dispose_of_fatal(job.narrow(row), error, self.memory()) for row, error in found.bad)
        return combine([*found.made, *refused])

    def _search_rest(self, job: Job, known: bool) -> SortedRows[RuleResult]:
        def attempt(changes: Changes) -> RuleResult:
            try:
                return run(self.runner, replace(self.renewed(job), changes=changes))
            except EngineLost as error:
                if len(changes) == 1:
                    self._note(job.narrow(changes), error)
                raise

        if not known:
            try:
                return SortedRows([attempt(job.changes)])
            except EngineLost as error:
                if len(job.changes) == 1:
                    return SortedRows([], [(job.changes, error)])
        return sort_out_large(job.changes, attempt, EngineLost)

    def _note(self, row: Job, error: EngineLost) -> None:
        """Remember it, also when the engine does not start again; the first is enough if the rule puts none aside."""
        self.trouble.culprits[list_identities(row.changes, row.transactions)[0]] = error
        if row.rule.on_error != "dead-letter":
            dispose_of_fatal(row, error, self.memory())
