"""Versions of lookups as views of Spark's sessions."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from psql_streamer.spark.connect import is_of_a_server
from psql_streamer.spark.lookups.version import Version

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_GLOBAL = "global_temp"
"""The database of views that all sessions of an engine see."""

_LOCAL_RELATION = "spark.sql.execution.arrow.localRelationThreshold"
_LOCAL_RELATION_BYTES = str(1 << 30)
_FEW_ROWS = 1000
"""Up to this many rows are a LocalRelation, which takes no job to broadcast."""

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class _Shared:
    version: Version
    view: str
    frame: DataFrame


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a session sees under a name: a view of all sessions, and see _identify_view."""

    of: str
    identity: int | None


class Views:
    """The views of one engine. From several threads, each with a session of its own.

    A version is sent once, and kept by Spark in one partition with the hint that joins shall broadcast it. All sessions
    see the same relation until the next version, so that a plan over it can be used again.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._shared: dict[str, _Shared] = {}
        self._old: list[_Shared] = []
        self._seen: dict[tuple[int, str], _Seen] = {}
        self._lock = threading.Lock()

    def show(self, spark: SparkSession, name: str, version: Version) -> None:
        """Make a version the view of this name in a session."""
        with self._lock:
            shared = self._share(name, version)
            seen = self._seen.get((id(spark), name))
        if seen is not None and seen.of == shared.view:
            return
        spark.table(f"{_GLOBAL}.{shared.view}").createOrReplaceTempView(name)
        with self._lock:
            self._seen[id(spark), name] = _Seen(shared.view, _identify_view(spark, name))

    def check(self, spark: SparkSession) -> None:
        """Somebody else may have changed views of a session: one that is another now is made anew when it is shown."""
        with self._lock:
            mine = [(name, seen) for (session, name), seen in self._seen.items() if session == id(spark)]
        changed = [name for name, seen in mine if seen.identity is None or _identify_view(spark, name) != seen.identity]
        with self._lock:
            for name in changed:
                self._seen.pop((id(spark), name), None)

    def show_rows(self, spark: SparkSession, name: str, rows: pa.Table, schema: StructType) -> None:
        """Make rows the view of this name in a session, for one plan."""
        from pyspark.sql.functions import broadcast

        with self._lock:
            self._seen.pop((id(spark), name), None)
        with _use_local_relations(spark) if rows.num_rows <= _FEW_ROWS else nullcontext():
            frame = spark.createDataFrame(rows, schema)
        broadcast(frame).createOrReplaceTempView(name)

    def _share(self, name: str, version: Version) -> _Shared:
        from pyspark.sql.functions import broadcast

        held = self._shared.get(name)
        if held is not None and held.version is version:
            return held
        shared = _Shared(version, f"psql_streamer_{next(_numbers)}", self._make_frame(version))
        hinted = shared.frame if version.table is None else broadcast(shared.frame)
        hinted.createOrReplaceGlobalTempView(shared.view)
        self._shared[name] = shared
        if held is not None:
            self._old.append(held)
        self._drop_old()
        return shared

    def _make_frame(self, version: Version) -> DataFrame:
        if version.frame is not None:
            return version.frame
        frame = self._spark.createDataFrame(version.table, version.schema).coalesce(1).persist()
        frame.count()
        return frame

    def _drop_old(self) -> None:
        """Spark forgets what it holds of versions. What runs with them goes on.

        One that Spark alone holds stays until the lookup has let it go, as dropping its view would do that, too.
        """
        dropped = [one for one in self._old if one.version.table is not None or one.version.is_lost]
        self._old = [one for one in self._old if not any(one is other for other in dropped)]
        for one in dropped:
            with suppress(Exception):
                self._spark.catalog.dropGlobalTempView(one.view)
                one.frame.unpersist()


def _identify_view(spark: SparkSession, name: str) -> int | None:
    """What tells the view of this name from any other; None where nobody knows: on a Spark Connect server, and where
    there is none."""
    if is_of_a_server(spark):
        return None
    jvm: Any = spark._jvm
    found = spark._jsparkSession.sessionState().catalog().getRawTempView(name)
    return int(jvm.System.identityHashCode(found.get())) if found.isDefined() else None


@contextmanager
def _use_local_relations(spark: SparkSession) -> Iterator[None]:
    """Frames that are made in it from few rows are LocalRelations; on a Spark Connect server they are anyway."""
    if is_of_a_server(spark):
        yield
        return
    before = spark.conf.get(_LOCAL_RELATION)
    spark.conf.set(_LOCAL_RELATION, _LOCAL_RELATION_BYTES)
    try:
        yield
    finally:
        spark.conf.set(_LOCAL_RELATION, str(before))
