"""One table of a micro-batch through its rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from psql_streamer.errors import HandlerError, HandlerRefused
from psql_streamer.model import Changes
from psql_streamer.spark.coercion import find_uncoercible_values, parse_uncoercible_error
from psql_streamer.spark.counts import Counts
from psql_streamer.spark.exchange import Sent, find_row_of_image
from psql_streamer.spark.facts import RowOrigin
from psql_streamer.spark.failures import RowsFailed, Uncoercible, explain_failed_broadcast, explain_failure
from psql_streamer.spark.job import Job
from psql_streamer.spark.lacking import Mask
from psql_streamer.spark.metadata import IMAGE_SHIFT
from psql_streamer.spark.plan_tree import Node
from psql_streamer.spark.planning import Planner, find_unchanged_in_filters
from psql_streamer.spark.result_fields import find_computed_key
from psql_streamer.spark.result_rows import Result
from psql_streamer.spark.results import receive
from psql_streamer.spark.row_tracking import Lineage, find_row_column
from psql_streamer.spark.splitting import UNKNOWN, Splitting
from psql_streamer.spark.telling import Telling
from psql_streamer.spark.tolerating import tolerate
from psql_streamer.spark.undoing import undo


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

    planner: to be given each engine. telling: says what was not as usual. cluster, describe_end: see `failure`.
    """

    def __init__(self, describe_end: Callable[[float], str | None], counts: Counts) -> None:
        self.planner = Planner(self._explain)
        self.telling = Telling(counts)
        self.cluster = ""
        self._describe_end = describe_end

    def run(self, job: Job) -> Changes | None:
        """What the rule makes of the changes; None when it leaves nothing.

        Raises Uncoercible and RowsFailed for what some of the rows are to blame for, EngineLost when the engine ended.
        """
        sent, failed = self.planner.make_sent(job)
        if failed:
            column, mask = next(iter(failed.items()))
            raise self._make_uncoercible_error(job, sent, column, int(np.flatnonzero(mask)[0]))
        try:
            with undo(job):
                return self._run_sent(job, sent)
        except Exception as error:
            # Not `from error`: Spark's messages quote values, and a traceback would show them.
            raise self._explain_failure(error, job, sent) from None

    def run_tolerantly(self, job: Job) -> Tolerated | None:
        """The same with null for what cannot be computed, and conditions that let pass what they cannot judge.

        None where that cannot be had in one job: on a Spark Connect server, of Python code that gets many rows at once,
        and where a row that fails spoils others.
        """
        if self.planner.catalyst is None:
            return None
        sent, _ = self.planner.make_sent(job)
        try:
            with undo(job):
                return self._run_sent_tolerantly(job, sent)
        except Exception as error:
            found = self._explain_failure(error, job, sent)
            if isinstance(found, RowsFailed):
                return None
            raise found from None

    def pass_on_with_nulls(self, job: Job) -> tuple[Changes | None, list[str]]:
        """What the rule passes on of the changes, none of which it drops, with null for all that it computes; and the
        names of that. No job runs."""
        sent, _ = self.planner.make_sent(job)
        try:
            with undo(job):
                result, lineage = self.planner.plan(job, sent)
                fields = result.schema
        except Exception as error:
            raise self._explain_failure(error, job, sent) from None
        from pyspark.sql.pandas.types import to_arrow_schema

        rows = len(sent.row_ids)
        arrays = [
            pa.nulls(rows, kind) if field.source is None else sent.table.column(field.source)
            for field, kind in zip(lineage.fields, to_arrow_schema(fields, timezone="UTC").types, strict=True)
        ]
        at = find_row_column(lineage.fields, sent.row_column)
        arrays[at] = pa.array(sent.row_ids)
        computed = [field.name for place, field in enumerate(lineage.fields) if field.source is None and place != at]
        _refuse_null_key(job, sent, lineage, computed)
        received = receive(
            sent, lineage, Result(pa.Table.from_arrays(arrays, names=lineage.names)), job.rule, job.where
        )
        return received.changes, computed

    def analyse_rule(self, job: Job) -> tuple[Sent, Lineage, Splitting]:
        """What Spark's analysis says of the rule over a table, facts included; no job runs."""
        sent, _ = self.planner.make_sent(job)
        try:
            with undo(job):
                result, lineage = self.planner.plan(job, sent, thorough=True)
                splitting = self.planner.lineages.find_splitting(self.planner.catalyst, job.rule, sent, result)
        except Exception as error:
            raise self._explain_failure(error, job, sent) from None
        return sent, lineage, splitting

    def plan_ahead(self, job: Job) -> None:
        """Plan the rule for tables in this shape, if its plan is kept: their first batch does not wait for that.

        job: without rows. Raises as `run`.
        """
        sent, _ = self.planner.make_sent(job)
        try:
            self.planner.run_planned(job, sent)
        except Exception as error:
            raise self._explain_failure(error, job, sent) from None

    def takes_rows_one_by_one(self, job: Job) -> bool:
        """Whether the rule gives each row by itself, so that tables which it sees alike may be one to it."""
        try:
            return self.planner.takes_rows_one_by_one(job)
        except Exception as error:
            raise self._explain_of_job(error, job) from None

    def find_plan(self, job: Job) -> tuple[Node, list[str]] | None:
        """See Planner.find_plan."""
        try:
            with undo(job):
                return self.planner.find_plan(job)
        except Exception as error:
            raise self._explain_of_job(error, job) from None

    def find_uncoercible(self, job: Job) -> dict[int, Mask]:
        """Column -> images whose value cannot be coerced. One job finds them all."""
        sent, failed = self.planner.make_sent(job)
        types = {
            name: kind
            for name, kind in job.rule.coerce.items()
            if name in sent.names[: sent.own_columns]
            and sent.names.index(name) not in self.planner.look_up_nested_types(job)
        }
        if not types:
            return failed
        frame = job.spark.createDataFrame(sent.table, self.planner.look_up_schema(sent))
        try:
            found = find_uncoercible_values(frame, types).toArrow()
        except Exception as error:
            raise self._explain_failure(error, job, sent) from None
        images = found.column(0).to_numpy() >> IMAGE_SHIFT
        for name in found.column_names[1:]:
            mask = np.zeros(sent.lacking.images, np.bool_)
            mask[images] = found.column(name).to_numpy()
            if mask.any():
                failed[int(name)] = mask | failed.get(int(name), False)
        return failed

    def _run_sent(self, job: Job, sent: Sent) -> Changes | None:
        ready = self.planner.run_planned(job, sent)
        if ready is not None:
            return self._receive_result(job, *ready)
        result, lineage = self.planner.plan(job, sent)
        unknown = find_unchanged_in_filters(lineage.facts, sent)
        if unknown - set(sent.bits):
            return self._run_sent(job, self.planner.add_bits(job, sent, unknown))
        table = result.toArrow()
        if table.column_names != lineage.names:
            self.planner.lineages.forget(job.rule, sent)
            return self._run_sent(job, sent)
        return self._receive_result(
            job,
            sent,
            lineage,
            Result(table),
            lambda: self.planner.lineages.find_splitting(self.planner.catalyst, job.rule, sent, result),
        )

    def _receive_result(
        self,
        job: Job,
        sent: Sent,
        lineage: Lineage,
        result: Result,
        splitting: Callable[[], Splitting] = lambda: UNKNOWN,
    ) -> Changes | None:
        received = receive(sent, lineage, result, job.rule, job.where, splitting)
        self.telling.tell_of_unaddressed(job, received.unaddressed)
        self.telling.tell_of_left_out(job, sent, self.planner.named.get((job.rule.name, sent.shape), {}))
        self.telling.tell_of_unknown(job, sent, lineage.facts, received.images)
        return received.changes

    def _run_sent_tolerantly(self, job: Job, sent: Sent) -> Tolerated | None:
        result, lineage = self.planner.plan(job, sent, thorough=True)
        facts = lineage.facts
        if facts is None or facts.way is None:
            return None
        turns = [child for _, child, _ in facts.way]
        tolerated = tolerate(result, [0, *turns] if facts.row is RowOrigin.MISSING else turns)
        if tolerated is None:
            return None
        table = tolerated.run()
        behind = table.num_columns - 1  # not by its name, which a column of the rule may have, too
        bits = table.column(behind).to_numpy()
        if np.any(bits & tolerated.writers):
            return None
        images = table.column(find_row_column(lineage.fields, sent.row_column)).to_numpy() >> IMAGE_SHIFT
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
        received = receive(sent, lineage, Result(table.remove_column(behind)), job.rule, job.where)
        return Tolerated(received.changes, failed, values)

    def _explain_failure(self, error: Exception, job: Job, sent: Sent) -> HandlerError:
        found = parse_uncoercible_error(error)
        return self._explain_of_job(error, job) if found is None else self._make_uncoercible_error(job, sent, *found)

    def _explain_of_job(self, error: Exception, job: Job) -> HandlerError:
        found = self._explain(error, job.where, [column.name for column in job.changes.columns])
        return found if job.show_lookups is None else explain_failed_broadcast(found, job.where)

    def _explain(self, error: Exception, where: str, columns: Sequence[str] = ()) -> HandlerError:
        return explain_failure(error, where, self._describe_end, self.cluster, columns)

    def _make_uncoercible_error(self, job: Job, sent: Sent, column: int, image: int) -> Uncoercible:
        return Uncoercible(
            f"{job.where}: the value of column {sent.changes.columns[column].name} in change "
            f"{job.show_change(find_row_of_image(sent, image))} cannot be coerced",
            "choose a type that holds every value, convert it in the rule's sql, or put such rows aside: "
            'onError = "dead-letter"',
        )


def _refuse_null_key(job: Job, sent: Sent, lineage: Lineage, failed: Collection[str | None]) -> None:
    """HandlerRefused when the key of events could not be computed: null would be the key of another row."""
    key = find_computed_key(sent, lineage.fields)
    if key is not None and key in failed:
        raise HandlerRefused(
            f"{job.where}: the key column {key} of some change cannot be computed, and a key cannot be null",
            'put such rows aside: onError = "dead-letter"',
        )
