"""A few batches through Spark before the first real one.

The first job of a JVM takes seconds (classes are loaded, code is compiled), and the next ones take several times what
they take later. At start-up nobody waits for an event yet.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from psql_streamer.spark.prepared import PreparedRules

_TABLE_ROWS = 5_000
_JOB_SECONDS = 0.5
"""What is planned for every batch takes some 100 ms: for that some compiled code is worth little."""

_RUN_SECONDS = 2.0
"""A plan that is kept takes 2 ms when the JVM has compiled what it runs, and three times as much before."""

_MOST_JOBS = 40
_MOST_RUNS = 400


def warm_up(spark: SparkSession, prepared: PreparedRules | None) -> None:
    """Send a table with a column of every common type there and back, again and again for a moment: with plans
    of their own, and by one that is kept, if there are such.
    """
    numbers = pa.array(np.arange(_TABLE_ROWS))
    table = pa.table(
        {
            "integer": numbers.cast(pa.int32()),
            "bigint": numbers,
            "number": numbers.cast(pa.float64()),
            "exact": numbers.cast(pa.decimal128(21, 2)),
            "text": numbers.cast(pa.string()),
            "flag": pa.array(np.arange(_TABLE_ROWS) % 2 == 0),
            "moment": numbers.cast(pa.timestamp("us", "UTC")),
            "day": numbers.cast(pa.int32()).cast(pa.date32()),
        }
    )

    def derive(frame: DataFrame) -> DataFrame:
        return frame.selectExpr("*", "integer + 1 AS following")

    _repeat(lambda: derive(spark.createDataFrame(table)).toArrow(), _MOST_JOBS, _JOB_SECONDS)
    if prepared is not None:
        plan = prepared.plan(spark, spark.createDataFrame(table).schema, table.schema, derive)
        _repeat(lambda: plan.run(table), _MOST_RUNS, _RUN_SECONDS)


def _repeat(work: Callable[[], object], times: int, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    for _ in range(times):
        work()
        if time.monotonic() > deadline:
            return
