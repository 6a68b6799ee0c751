"""Plans that are run where they are asked for, in the JVM's thread that serves the caller, without a job.

A job of one task costs 10 to 20 ms of CPU, whatever its rows: it is scheduled, serialised, listened to, and its result
goes through a server of its own. Where the executor is the driver, and the plan is one pipeline, the task would do
nothing but iterate over the plan's RDD. That is done here, with a TaskContext as a task has it.

The classes are Spark's own and not part of its API. Where a release has them otherwise, ThreadInlets cannot be made.
"""

from __future__ import annotations

import os
import re
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from psql_streamer.errors import HandlerUnavailable
from psql_streamer.spark.arrow_rows import ArrowRows, find_field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_IN_ONE_PIPELINE = re.compile(
    r"WholeStageCodegen \(\d+\)|InputAdapter|Project|Filter|Scan ExistingRDD.*|Broadcast(?:HashJoin|NestedLoopJoin)"
)
"""Nodes of physical plans, from the root to the rows, that need neither another task, nor memory of a task's own, nor
a process for Python code."""

_NO_TASK = -1024
"""The id of tasks that are none, under which the block manager keeps locks of the driver's own threads (Spark's
BlockInfo.NON_TASK_WRITER)."""


class ThreadInlets:
    """On a JVM that is the only executor."""

    def __init__(self, spark: SparkSession, rows: ArrowRows) -> None:
        from py4j.clientserver import ClientServer

        jvm: Any = spark._jvm
        if not spark._jsc.sc().isLocal() or not isinstance(spark._sc._gateway, ClientServer):
            raise RuntimeError("the calls of a thread are not served by a thread of this JVM")
        self.rows = rows
        self.new_properties = jvm.java.util.Properties
        self._to_seq = jvm.PythonUtils.toSeq
        self._client = spark._sc._gateway._gateway_client
        self._waiting: set[Any] = set()
        self._contexts = find_field(jvm, "org.apache.spark.TaskContext$", "MODULE$").get(None)
        environment = spark._jsc.sc().env()
        self._serializer = (
            find_field(jvm, "org.apache.spark.SparkEnv", "closureSerializer").get(environment).newInstance()
        )
        self._nothing = jvm.scala.Option.empty()
        self.write = jvm.PythonRDD.writeIteratorToStream
        self.new_file = jvm.java.io.FileOutputStream
        self.new_stream = jvm.java.io.DataOutputStream
        # A Java object of which a method was called is let go by Python's cyclic collector alone, so rows would stay.
        self._list_of = getattr(jvm.scala.collection.immutable.List, "from")
        self._new_partition = jvm.org.apache.spark.rdd.ParallelCollectionPartition
        # TaskContextImpl's constructor is another one in every release, and wants what py4j cannot pass.
        self._task, self._settings = (
            find_field(jvm, "org.apache.spark.TaskContextImpl", name) for name in ("taskAttemptId", "localProperties")
        )

    def make(self, spark: SparkSession, schema: StructType, arrow: pa.Schema) -> ThreadInlet:
        """See Inlets.make."""
        arrived = spark._jsc.sc().parallelize(self._to_seq([]), 1, self.rows.tag)
        return ThreadInlet(self, self.rows.make_frame(spark, arrived, schema, arrow), arrow)

    def serialize(self, rdd: Any) -> Any:
        """An RDD as tasks get it."""
        return self._serializer.serialize(rdd, self.rows.tag)

    def copy(self, serialized: Any) -> Any:
        """An RDD that nobody else has."""
        return self._serializer.deserialize(serialized.duplicate(), self.rows.tag)

    def collect_settings(self, result: DataFrame) -> Any:
        """What is set in the session of the result, as Java properties."""
        made = self.new_properties()
        made.putAll(result.sparkSession._jsparkSession.sessionState().conf().settings())
        return made

    def cancel(self) -> None:
        """Nobody waits any more for plans that run. They end in their own time, and what they make is lost."""
        while self._waiting:
            with suppress(OSError, KeyError, AttributeError):
                self._waiting.pop().socket.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def as_task(self, settings: Any) -> Iterator[Any]:
        """The JVM's thread that serves this one has a TaskContext meanwhile; what it holds is let go at the end.

        settings: of queries, as Java properties.
        """
        context = self._make_context(settings)
        self._contexts.setTaskContext(context)
        connection = self._client.get_thread_connection()
        self._waiting.add(connection)
        try:
            yield context
            if self._client.get_thread_connection() is not connection:
                # py4j has sent the last call again, by another connection, and it found nothing left to do.
                raise _make_cancelled_error()
        finally:
            if connection in self._waiting:  # else it still runs, with what it holds
                self._waiting.discard(connection)
                # Of a JVM that has ended neither works; what it raised first says so.
                with suppress(Exception):
                    context.markTaskCompleted(self._nothing)
                with suppress(Exception):
                    self._contexts.unset()

    def require_wanted(self) -> None:
        """HandlerUnavailable when `cancel` came since the task began: py4j would send the call that follows by another
        connection, though it takes long.
        """
        if self._client.get_thread_connection() not in self._waiting:
            raise _make_cancelled_error()

    def partition(self, table: pa.Table, schema: pa.Schema) -> Any:
        """The rows of the table, as the partition of an RDD that was made of a collection."""
        return self._new_partition(0, 0, self._list_of(self.rows.arrive(table, schema)), self.rows.tag)

    def _make_context(self, settings: Any) -> Any:
        made = self._contexts.empty()
        self._task.set(made, _NO_TASK)
        self._settings.set(made, settings)
        return made


def _make_cancelled_error() -> HandlerUnavailable:
    return HandlerUnavailable("nobody waited for what Spark made of a batch", "it is sent again")


class ThreadInlet:
    """frame: a DataFrame of the rows of whatever partition its RDD is asked for."""

    def __init__(self, inlets: ThreadInlets, frame: DataFrame, schema: pa.Schema) -> None:
        self.frame = frame
        self._inlets = inlets
        self._schema = schema

    def plan(self, result: DataFrame) -> ThreadPlan | None:
        """See Inlet.plan: those that are one pipeline."""
        frame: Any = result._jdf
        plan = frame.queryExecution().executedPlan()
        if not _is_one_pipeline(plan):
            return None
        batches = frame.toArrowBatchRdd(plan)
        return ThreadPlan(self._inlets, result, batches, self._schema) if _is_narrow(batches) else None


class ThreadPlan:
    """Runs a DataFrame's plan, in as many threads at once as ask for it.

    Each run has a copy of its own, as a task has: expressions keep parsers, buffers and formats, which two runs must
    not share, and which an exception leaves as they were at that moment.
    """

    def __init__(self, inlets: ThreadInlets, result: DataFrame, batches: Any, schema: pa.Schema) -> None:
        """batches: an RDD of the result's record batches. schema: of the rows."""
        from pyspark.sql.pandas.types import to_arrow_schema

        self._inlets = inlets
        self._schema = schema
        self._returned = to_arrow_schema(result.schema, timezone="UTC")
        self._settings = inlets.collect_settings(result)
        frame: Any = result._jdf
        self.text = str(frame.queryExecution().executedPlan().toString())
        self._original = inlets.serialize(batches)

    def run(self, table: pa.Table) -> pa.Table:
        """See Plan.run."""
        inlets = self._inlets
        partition = inlets.partition(table, self._schema)
        with _make_temporary_file(inlets.rows.folder) as path:
            with inlets.as_task(self._settings) as context:
                batches = inlets.copy(self._original)
                self._write(batches.iterator(partition, context), path)
            made = [pa.ipc.read_record_batch(message, self._returned) for message in _read_messages(path)]
        return pa.Table.from_batches(made, self._returned)

    def _write(self, batches: Any, path: str) -> None:
        stream = self._inlets.new_stream(self._inlets.new_file(path))
        try:
            self._inlets.require_wanted()
            self._inlets.write(batches, stream)
        finally:
            stream.close()


@contextmanager
def _make_temporary_file(folder: str) -> Iterator[str]:
    handle, path = tempfile.mkstemp(dir=folder)
    os.close(handle)
    try:
        yield path
    finally:
        Path(path).unlink()


def _read_messages(path: str) -> Iterator[pa.Buffer]:
    """What PythonRDD.writeIteratorToStream wrote: the length of each message in four bytes, and the message."""
    with pa.OSFile(path) as file:
        whole = file.read_buffer()
    at = 0
    while at < len(whole):
        length = int.from_bytes(whole[at : at + 4], "big")
        yield whole.slice(at + 4, length)
        at += 4 + length


def _is_one_pipeline(node: Any) -> bool:
    """Whether all nodes of a physical plan are, from the root to the rows, which are on the left of every join."""
    while _IN_ONE_PIPELINE.fullmatch(node.nodeName()):
        children = node.children()
        if not children.size():
            return True
        node = children.apply(0)
    return False


def _is_narrow(rdd: Any) -> bool:
    """Whether one partition is made of one, all the way down. Asks each RDD for what it depends on, without which it
    cannot be serialised (RDD.dependencies_).
    """
    while (dependencies := rdd.dependencies()).size():
        first = dependencies.apply(0)
        if dependencies.size() > 1 or first.getClass().getSimpleName() != "OneToOneDependency":
            return False
        rdd = first.rdd()
    return str(rdd.getClass().getSimpleName()) == "ParallelCollectionRDD"
