"""What the function of a rule does to its session does not hold for the rules that run in it next."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from psql_streamer.spark.connect import is_of_a_server
from psql_streamer.spark.job import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def undo(job: Job) -> Iterator[None]:
    """The settings of a job's session, and its views of lookups, are behind it what they were before it."""
    if job.rule.function is None:
        yield
        return
    settings = _ServerSettings(job.spark) if is_of_a_server(job.spark) else _Settings(job.spark)
    try:
        yield
    finally:
        with suppress(Exception):  # the engine may be gone, and its session with it
            settings.restore()
            job.check_lookups(job.spark)


class _Settings:
    """Those of a session of the local engine, or of a cluster's."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self._map: Any = spark._jsparkSession.sessionState().conf().settings()
        self._before = jvm.java.util.HashMap(self._map)

    def restore(self) -> None:
        if not self._before.equals(self._map):
            self._map.clear()
            self._map.putAll(self._before)


class _ServerSettings:
    """Those of a session on a Spark Connect server."""

    def __init__(self, spark: SparkSession) -> None:
        self._conf = spark.conf
        self._before = self._conf.getAll

    def restore(self) -> None:
        after = self._conf.getAll
        for name in after.keys() - self._before.keys():
            self._conf.unset(name)
        for name, value in self._before.items():
            if after.get(name) != value:
                self._conf.set(name, value)
