"""Whether Spark was stopped in an engine that runs."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from psql_streamer.spark.connect import is_of_a_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_stopped(spark: SparkSession) -> bool:
    """By whoever called its `stop`, or by itself, as after an error of its scheduler. False where nobody can tell."""
    if is_of_a_server(spark):
        return bool(getattr(spark, "is_stopped", False))
    context: Any = spark.sparkContext._jsc
    if context is None:
        return True
    with suppress(Exception):
        return bool(context.sc().isStopped())
    return False
