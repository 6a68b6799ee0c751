"""What the log and the counters say of rows that a rule could not judge or compute as usual: a line for each, once; of
rows that are put aside, one now and then."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping

from psql_streamer.model import Index, Rejection, SchemaChange
from psql_streamer.spark.counts import Counts
from psql_streamer.spark.exchange import Sent
from psql_streamer.spark.facts import Facts
from psql_streamer.spark.job import Job
from psql_streamer.spark.lacking import merge_masks
from psql_streamer.spark.left_out import LeftOut, Named
from psql_streamer.spark.metadata import UNCHANGED
from psql_streamer.spark.rules import Rule
from psql_streamer.spark.steps import describe_step

log = logging.getLogger("psql_streamer.spark")


_QUIET_SECONDS = 60.0
"""Between two lines that say the same. A bad column may be in every batch, and there are many batches in a second."""

_MOST_LINES = 1000
"""Of which is known when they were told: some reasons have a size in them."""


class _OnceAWhile:
    """How many of something are to be told."""

    def __init__(self) -> None:
        self._told_at: dict[str, float] = {}
        self._untold: Counter[str] = Counter()

    def add(self, line: str, number: int = 1) -> int:
        """All since it was told the last time; 0 while that is not long ago."""
        now = time.monotonic()
        if now - self._told_at.get(line, -_QUIET_SECONDS) < _QUIET_SECONDS:
            self._untold[line] += number
            return 0
        if len(self._told_at) >= _MOST_LINES:
            self._told_at.clear()
        self._told_at[line] = now
        return number + self._untold.pop(line, 0)


class Telling:
    """Of one handler."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._left_out = LeftOut(counts)
        self._told: set[tuple[str, str]] = set()
        self._repeated = _OnceAWhile()

    def tell_of_search(self, job: Job) -> None:
        """Warn that a job failed on some row, and others follow that look for it."""
        if self._repeated.add(job.where):
            log.warning("%s: a job failed on some row: looking for it", job.where)

    def tell_of_put_aside(self, rejection: Rejection) -> None:
        """Warn of rows that are put aside, with those of which nothing was said since the last line for this reason."""
        rows = self._repeated.add(rejection.reason, len(rejection.changes))
        if rows:
            log.warning("%d rows are put aside: %s", rows, rejection.reason)

    def tell_of_nulls(self, job: Job, column: str | None, values: int) -> None:
        """Count values that are null because the rule could not compute them; warn once for a table, rule and column.

        column: None: conditions, which let their rows pass.
        """
        self._counts.add("nulled", values)
        if not self._is_first(job, f"null {column}"):
            return
        if column is None:
            log.warning("%s: a condition cannot be computed for some rows: they pass", job.where)
        else:
            log.warning("%s: %s cannot be computed for some rows: it is null in them", job.where, column)

    def tell_of_left_out(self, job: Job, sent: Sent, named: Mapping[str, Named]) -> None:
        """Warn of fields of documents that the types do not name. named: column -> what its type has names for."""
        for name, kind in named.items():
            self._left_out.look(job.where, name, sent.typed[sent.names.index(name)], kind)

    def tell_of_unknown(self, job: Job, sent: Sent, facts: Facts | None, images: Index) -> None:
        """Count the changes that passed because a filter reads what their update left alone."""
        if facts is None:
            return
        unchanged = sent.lacking.find_unchanged()
        read = _find_judged_columns(facts, sent, UNCHANGED)
        passed = merge_masks((unchanged[column] for column in read if column in unchanged), sent.lacking.images)[images]
        if not passed.any():
            return
        self._counts.add("passed_unknown", int(passed.sum()))
        if self._is_first(job, "unknown"):
            names = ", ".join(sent.changes.columns[column].name for column in sorted(read & unchanged.keys()))
            log.warning(
                "%s: a filter reads %s, which some updates do not change or send: their rows pass", job.where, names
            )

    def tell_of_unaddressed(self, job: Job, rows: int) -> None:
        """Count the rows that lack the values of which the rule makes their topic, key or headers."""
        if not rows:
            return
        self._counts.add("unaddressed", rows)
        if self._is_first(job, "addresses"):
            log.warning(
                "%s: rows lack values of which it makes _topic, _key or _headers: they go where the sink's options "
                "say; REPLICA IDENTITY FULL gives old rows all values",
                job.where,
            )

    def tell_of_lost_columns(self, change: SchemaChange, rule: Rule) -> None:
        """Warn of an optional step whose column a table has no more: it may be there under another name, as it is."""
        if change.before is None or not rule.steps.lenient:
            return
        had, has = ([column.name for column in one.columns] for one in (change.before, change.relation))
        new = [name for name in has if name not in had]
        where = f"{change.relation}, {rule.shown}"
        for step, name in rule.steps.list_lost(had, has):
            if self._is_first_of(where, f"lost {step} {name} {change.relation.version}"):
                log.warning(
                    "%s: the table has no column %s any more, which the rule is %s: it is left out%s",
                    *(where, name, describe_step(step)),
                    f", and what is new goes out as it is: {', '.join(new)}" if new else "",
                )

    def _is_first(self, job: Job, what: str) -> bool:
        """Whether nothing was said of it yet."""
        return self._is_first_of(job.where, what)

    def _is_first_of(self, where: str, what: str) -> bool:
        told = (where, what)
        is_first = told not in self._told
        self._told.add(told)
        return is_first


def _find_judged_columns(facts: Facts, sent: Sent, unless: str) -> set[int]:
    """The columns that are read by what may drop rows. unless: a metadata column; who reads it as well knows what he
    does."""
    place = sent.place(unless)
    readers = [facts.drops, *(condition.reads for condition in facts.conditions)]
    return set().union(*(columns for columns in readers if place not in columns))
