"""Several tables of a micro-batch in Spark at once: a thread and a session each, so that their views do not meet."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST = max(2, min(8, os.cpu_count() or 2))

_Given = TypeVar("_Given")
_Made = TypeVar("_Made")


class SideBySide:
    """Sessions over one engine. With another engine, another object."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._own = threading.local()
        self._threads = ThreadPoolExecutor(_MOST, thread_name_prefix="spark table")

    def each(self, work: Callable[[SparkSession, _Given], _Made], given: Iterable[_Given]) -> list[_Made]:
        """The work on each, in their order; the first failure in that order is raised when all have ended."""
        items = list(given)
        if len(items) < 2:
            return [work(self._spark, item) for item in items]
        futures = [self._threads.submit(lambda item: work(self._session(), item), item) for item in items]
        wait(futures)
        return [future.result() for future in futures]

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown()

    def _session(self) -> SparkSession:
        if not hasattr(self._own, "session"):
            self._own.session = self._spark.newSession()
        session: SparkSession = self._own.session
        return session
