"""A few batches through Spark before the first real one.

The first job of a JVM takes seconds (classes are loaded, code is compiled), and the next ones take several times what
they take later. At start-up nobody waits for an event yet.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TABLE_ROWS = 5_000
_WARM_UP_SECONDS = 4.0
_MOST_JOBS = 40


def warm_up(spark: SparkSession) -> None:
    """Send a table with a column of every common type there and back, again and again for a few seconds."""
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
    deadline = time.monotonic() + _WARM_UP_SECONDS
    for _ in range(_MOST_JOBS):
        spark.createDataFrame(table).selectExpr("*", "integer + 1 AS following").toArrow()
        if time.monotonic() > deadline:
            return
