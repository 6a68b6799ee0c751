"""Plans that are run by jobs: their rows are a block of Spark's block manager, which is put in anew for every run.

Spark plans a query over the rows that it is given: analysis, optimisation, planning and generated code cost 20 to 30 ms
of CPU, whatever the number of rows. Here the DataFrame reads whatever is in the block when a job runs.

BlockRDD is not part of Spark's API: it reads blocks for Spark Streaming.
"""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from psql_streamer.spark.arrow_rows import ArrowRows, find_field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_STREAM = 0
"""Blocks are named input-STREAM-NUMBER; nobody else uses these names, because no Spark Streaming runs here."""

_numbers = itertools.count()


class JobInlets:
    """On one JVM, its executors or those of a cluster."""

    def __init__(self, spark: SparkSession, rows: ArrowRows) -> None:
        jvm: Any = spark._jvm
        self.rows = rows
        self._new_id = jvm.org.apache.spark.storage.StreamBlockId
        self._id_class = jvm.org.apache.spark.storage.BlockId
        self._arrived = jvm.org.apache.spark.rdd.BlockRDD
        # By reflection: py4j lists all methods of a class, and one of SparkEnv's names a class that is not there.
        environment = find_field(jvm, "org.apache.spark.SparkEnv", "blockManager")
        self._blocks = environment.get(spark._jsc.sc().env())
        self._level = jvm.org.apache.spark.storage.StorageLevel.MEMORY_AND_DISK()
        self._is_local: bool = spark._jsc.sc().isLocal()

    def make(self, spark: SparkSession, schema: StructType, arrow: pa.Schema) -> JobInlet:
        """See Inlets.make."""
        block = self._new_id(_STREAM, next(_numbers))
        gateway: Any = spark._sc._gateway
        ids = gateway.new_array(self._id_class, 1)
        ids[0] = block
        arrived = self._arrived(spark._jsc.sc(), ids, self.rows.tag)
        return JobInlet(self, self.rows.make_frame(spark, arrived, schema, arrow), block, arrow)

    def cancel(self) -> None:
        """See Inlets.cancel."""

    def put(self, block: Any, batches: Any) -> None:
        """Record batches, as the block that an inlet reads."""
        if not self._blocks.putIterator(block, batches, self._level, not self._is_local, self.rows.tag):
            raise RuntimeError("Spark's block manager did not take the rows of a batch")

    def remove(self, block: Any) -> None:
        """Forget a block, if it is there."""
        self._blocks.removeBlock(block, not self._is_local)


class JobInlet:
    """frame: a DataFrame of the rows that are in the block."""

    def __init__(self, inlets: JobInlets, frame: DataFrame, block: Any, schema: pa.Schema) -> None:
        self.frame = frame
        self._inlets = inlets
        self._block = block
        self._schema = schema

    def plan(self, result: DataFrame) -> JobPlan:
        """See Inlet.plan: any plan."""
        return JobPlan(self, result)

    def put(self, table: pa.Table) -> None:
        """Put rows in; what was in before must have been removed."""
        self._inlets.put(self._block, self._inlets.rows.arrive(table, self._schema))

    def remove(self) -> None:
        """Take the rows out, if there are any."""
        self._inlets.remove(self._block)


class JobPlan:
    """Runs a DataFrame's plan by a job, one at a time. Dataset.toArrow would describe the plan for Spark's page too."""

    def __init__(self, inlet: JobInlet, result: DataFrame) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self._inlet = inlet
        self._in_use = threading.Lock()
        self._schema = to_arrow_schema(result.schema, timezone="UTC")
        spark = result.sparkSession
        jvm: Any = spark._jvm
        self._gateway: Any = spark._sc._gateway
        self._serve = jvm.PythonRDD.collectAndServe
        self._set = spark._jsc.sc().setLocalProperty
        self._settings = _read_settings(spark)
        frame: Any = result._jdf
        plan = frame.queryExecution().executedPlan()
        self.text = str(plan.toString())
        self._batches = frame.toArrowBatchRdd(plan)

    def run(self, table: pa.Table) -> pa.Table:
        """See Plan.run."""
        with self._in_use:
            try:
                self._inlet.put(table)
                return self._collect()
            finally:
                self._inlet.remove()

    def _collect(self) -> pa.Table:
        from pyspark.serializers import NoOpSerializer
        from pyspark.util import _load_from_socket

        self._propagate()
        with _load_from_socket(self._serve(self._batches), NoOpSerializer()) as messages:
            batches = [pa.ipc.read_record_batch(pa.py_buffer(message), self._schema) for message in messages]
        return pa.Table.from_batches(batches, self._schema)

    def _propagate(self) -> None:
        """Tasks look for settings of queries at the thread that began the job, not at the session. It is a thread of
        the JVM, and another one where the connection of ours is another."""
        from py4j.clientserver import ClientServer

        client = self._gateway._gateway_client
        connection = client.get_thread_connection() if isinstance(self._gateway, ClientServer) else None
        settings = (self._gateway, connection, self._settings)
        if getattr(_propagated, "settings", None) != settings:
            for name, value in self._settings.items():
                self._set(name, value)
            _propagated.settings = settings


_propagated = threading.local()
"""settings: of which engine and connection the thread has which."""


def _read_settings(spark: SparkSession) -> dict[str, str]:
    """What is set for queries."""
    return {name: value for name, value in spark.conf.getAll.items() if name.startswith("spark.sql.")}
