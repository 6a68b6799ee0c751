"""Spark for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from psql_streamer.spark.handler import SparkHandler
from psql_streamer.spark.options import SparkOptions
from tests.spark_changes import EVERY

MASTER = "local[2]"


@pytest.fixture(scope="session")
def engine() -> Iterator[SparkHandler]:
    """A handler that sends every table through a local Spark: its JVM, which takes seconds to start, runs for all."""
    handler = SparkHandler("spark", SparkOptions(master=MASTER, tables=EVERY))
    handler.start()
    yield handler
    handler.stop()


@pytest.fixture
def spark(engine: SparkHandler) -> Iterator[Any]:
    """Makes handlers with the rules given, and with these keys of [spark] besides; stops them afterwards."""
    made: list[SparkHandler] = []

    def make(keys: dict[str, Any] | None = None, /, **tables: Any) -> SparkHandler:
        handler = SparkHandler("spark", SparkOptions(master=MASTER, tables=tables, **(keys or {})))
        made.append(handler)
        handler.start()
        return handler

    yield make
    for handler in made:
        handler.stop()
