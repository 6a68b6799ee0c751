"""Rows that a rule cannot take go out with null in the place of what could not be computed: `onError = "null"`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from psql_streamer.errors import HandlerRefused
from psql_streamer.model import Changes, Image
from psql_streamer.spark.chosen_rows import take_rows
from psql_streamer.spark.failures import RowsFailed, Uncoercible
from psql_streamer.spark.isolation import sort_out
from psql_streamer.spark.job import Job
from psql_streamer.spark.lacking import Mask
from psql_streamer.spark.running import Runner


def run_with_nulls(runner: Runner, job: Job) -> Iterator[Changes]:
    """A table through its rule. Raises HandlerRefused when it is the key that cannot be computed."""
    try:
        yield from _list_if_any(runner.run(job))
        return
    except Uncoercible:
        failed = runner.find_uncoercible(job)
        if not failed:
            raise
        job = job.narrow(_without_values(job, failed))
        for column, images in failed.items():
            runner.telling.tell_of_nulls(job, job.changes.columns[column].name, int(images.sum()))
    except RowsFailed:
        yield from _compute_tolerantly(runner, job)
        return
    yield from run_with_nulls(runner, job)


def _compute_tolerantly(runner: Runner, job: Job) -> Iterator[Changes]:
    """Of a table on which a job failed."""
    tolerated = runner.run_tolerantly(job)
    if tolerated is not None:
        for column, values in tolerated.values.items():
            runner.telling.tell_of_nulls(job, column, values)
        yield from _list_if_any(tolerated.changes)
        return
    found = sort_out(job.changes, lambda some: runner.run(job.narrow(some)), RowsFailed, known=True)
    for made in found.made:
        yield from _list_if_any(made)
    bad = [int(row.batch_order[0]) for row, _ in found.bad]
    failed = job.narrow(take_rows(job.changes, np.isin(job.changes.batch_order, bad)))
    passed, computed = runner.pass_on_with_nulls(failed)
    for column in computed:
        runner.telling.tell_of_nulls(job, column, len(failed.changes))
    yield from _list_if_any(passed)


def _list_if_any(changes: Changes | None) -> Iterator[Changes]:
    if changes is not None:
        yield changes


def _without_values(job: Job, failed: Mapping[int, Mask]) -> Changes:
    """The changes with null for the values that cannot be coerced. failed: column -> images."""
    changes = job.changes
    key = next((column for column in failed if changes.columns[column].key), None)
    if key is not None:
        raise HandlerRefused(
            f"{job.where}: the value of the key column {changes.columns[key].name} in some change cannot be coerced, "
            "and a key cannot be null",
            'choose a type that holds every value, or put such rows aside: onError = "dead-letter"',
        )
    new = len(changes.after)
    return replace(
        changes,
        after=_make_failed_null(changes.after, {column: images[:new] for column, images in failed.items()}),
        before=_make_failed_null(changes.before, {column: images[new:] for column, images in failed.items()}),
    )


def _make_failed_null(image: Image, failed: Mapping[int, Mask]) -> Image:
    columns = list(image.columns)
    for column, mask in failed.items():
        if mask.any():
            columns[column] = pc.if_else(pa.array(mask), pa.scalar(None, columns[column].type), columns[column])
    return replace(image, columns=tuple(columns))
