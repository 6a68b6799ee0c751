"""Plans that are run where they are asked for, in the JVM's thread that serves the caller, without a job.

A job of one task costs 10 to 20 ms of CPU, whatever its rows: it is scheduled, serialised, listened to, and its result
goes through a server of its own. Where the executor is the driver, and the plan is one pipeline, the task would do
nothing but iterate over the plan's RDD. KeptPlans.java does that, with a TaskContext as a task has it. It is Java, so
that a run is one call: each call of py4j costs 0.1 to 0.2 ms, in the service and in the JVM.

The classes are Spark's own and not part of its API. Where a release has them otherwise, ThreadInlets cannot be made.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from importlib import resources
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pyarrow as pa

from psql_streamer.errors import HandlerUnavailable
from psql_streamer.spark.arrow_rows import ArrowRows, find_field, name_taken, remove_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_IN_ONE_PIPELINE = re.compile(
    r"WholeStageCodegen \(\d+\)|InputAdapter|Project|Filter|Scan ExistingRDD.*|Broadcast(?:HashJoin|NestedLoopJoin)"
)
"""Nodes of physical plans, from the root to the rows, that need neither another task, nor memory of a task's own, nor
a process for Python code."""

_plans_of: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
"""The object of the class KeptPlans in the JVM of a gateway."""


class ThreadInlets:
    """On a JVM that is the only executor."""

    def __init__(self, spark: SparkSession, rows: ArrowRows) -> None:
        from py4j.clientserver import ClientServer

        jvm: Any = spark._jvm
        if not spark._jsc.sc().isLocal() or not isinstance(spark._sc._gateway, ClientServer):
            raise RuntimeError("the calls of a thread are not served by a thread of this JVM")
        self.rows = rows
        self._to_seq = jvm.PythonUtils.toSeq
        self._client = spark._sc._gateway._gateway_client
        self._waiting: dict[Any, str] = {}  # connections, each with the file of its rows
        environment = spark._jsc.sc().env()
        self._serializer = (
            find_field(jvm, "org.apache.spark.SparkEnv", "closureSerializer").get(environment).newInstance()
        )
        self._new_properties = jvm.java.util.Properties
        self._plans = _find_plans(spark)

    def make(self, spark: SparkSession, schema: StructType, arrow: pa.Schema) -> ThreadInlet:
        """See Inlets.make."""
        arrived = spark._jsc.sc().parallelize(self._to_seq([]), 1, self.rows.tag)
        return ThreadInlet(self, self.rows.make_frame(spark, arrived, schema, arrow), arrow)

    def keep(self, batches: Any, result: DataFrame) -> Any:
        """A KeptPlan, with what is set in the session of the result. batches: an RDD of the result's record batches."""
        settings = self._new_properties()
        settings.putAll(result.sparkSession._jsparkSession.sessionState().conf().settings())
        return self._plans.keep(batches, self._serializer, settings)

    def cancel(self) -> None:
        """Nobody waits any more for plans that run. They end in their own time, and what they make is lost."""
        while self._waiting:
            with suppress(OSError, KeyError, AttributeError):
                connection, path = self._waiting.popitem()
                # The call that py4j sends again finds no rows, also where the first one has not begun.
                remove_rows(path)
                connection.socket.shutdown(socket.SHUT_RDWR)

    def run(self, plan: Any, path: str) -> str:
        """Run a KeptPlan over the rows in a file; the path of the result. HandlerUnavailable when `cancel` came
        meanwhile."""
        connection = self._connect()
        self._waiting[connection] = path
        taken = name_taken(path)
        try:
            plan.run(path, taken)
        finally:
            if self._waiting.pop(connection, None) is None:
                connection.close()  # also where the run had ended: the next call would find out, and be sent twice
                raise HandlerUnavailable("nobody waited for what Spark made of a batch", "it is sent again") from None
        return taken

    def _connect(self) -> Any:
        """The connection of this thread. A thread that has not called anything yet has none, or one that was closed."""
        connection = self._client.get_thread_connection()
        if connection is None or connection.socket is None:
            self._plans.hashCode()
        return self._client.get_thread_connection()


def _find_plans(spark: SparkSession) -> Any:
    """An object of the class KeptPlans. One class a JVM: py4j takes classes with the same name for the same."""
    gateway = spark._sc._gateway
    if gateway not in _plans_of:
        _plans_of[gateway] = _compile_plans(spark._jvm)
    return _plans_of[gateway]


def _compile_plans(jvm: Any) -> Any:
    """By the compiler that Spark has for the code that it generates."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(resources.files(__package__).joinpath("KeptPlans.java").read_text())
    return compiler.getClassLoader().loadClass("KeptPlans").newInstance()


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

    Each run has a copy that no other has meanwhile: expressions keep parsers, buffers and formats.
    """

    def __init__(self, inlets: ThreadInlets, result: DataFrame, batches: Any, schema: pa.Schema) -> None:
        """batches: an RDD of the result's record batches. schema: of the rows."""
        from pyspark.sql.pandas.types import to_arrow_schema

        self._inlets = inlets
        self._schema = schema
        self._returned = to_arrow_schema(result.schema, timezone="UTC")
        frame: Any = result._jdf
        self.text = str(frame.queryExecution().executedPlan().toString())
        self._kept = inlets.keep(batches, result)

    def run(self, table: pa.Table) -> pa.Table:
        """See Plan.run."""
        with self._inlets.rows.write(table, self._schema) as path:
            made_at = self._inlets.run(self._kept, path)
            made = [pa.ipc.read_record_batch(message, self._returned) for message in _read_messages(made_at)]
        return pa.Table.from_batches(made, self._returned)


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
