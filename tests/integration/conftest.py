"""Spark for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from psql_streamer.spark.handler import SparkHandler
from psql_streamer.spark.options import SparkOptions


@pytest.fixture(scope="session")
def engine() -> Iterator[SparkHandler]:
    """A handler without rules on a local Spark: its JVM, which takes ten seconds to start, runs for all tests."""
    handler = SparkHandler("spark", SparkOptions(master="local[2]"))
    handler.start()
    yield handler
    handler.stop()
