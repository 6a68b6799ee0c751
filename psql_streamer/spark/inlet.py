"""A DataFrame whose rows are put in anew for every batch, so that what Spark has planned over it runs again and again.

Spark plans a query over the rows that it is given: analysis, optimisation, planning and generated code cost 20 to 30 ms
of CPU, whatever the number of rows. Here the rows are a block of Spark's block manager, and the DataFrame reads
whatever is in it when a job runs.

The classes are Spark's own and not part of its API: BlockRDD reads blocks for Spark Streaming, the function between
bytes and rows is the one that createDataFrame uses for Arrow. Where a release has them otherwise, Inlets.of gives None.
"""

from __future__ import annotations

import itertools
import logging
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

log = logging.getLogger("psql_streamer.spark")

_STREAM = 0
"""Blocks are named input-STREAM-NUMBER; nobody else uses these names, because no Spark Streaming runs here."""

_numbers = itertools.count()


class Inlets:
    """Makes inlets on one JVM; the classes that are needed, found once."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._folder: str = spark._sc._temp_dir
        # By reflection: py4j lists all methods of a class, and one of SparkEnv's names a class that is not there.
        environment = _field(jvm, "org.apache.spark.SparkEnv", "blockManager")
        self._blocks = environment.get(spark._jsc.sc().env())
        self._function = _field(jvm, "org.apache.spark.rdd.MapPartitionsRDD", "f")
        self._tag = jvm.scala.reflect.ClassTag.Any()
        self._level = jvm.org.apache.spark.storage.StorageLevel.MEMORY_AND_DISK()
        self._is_local: bool = spark._jsc.sc().isLocal()

    def make(self, spark: SparkSession, schema: StructType, arrow: pa.Schema) -> Inlet:
        """An inlet for rows of this schema. arrow: the same as Arrow's."""
        some = pa.Table.from_arrays([pa.nulls(1, field.type) for field in arrow], schema=arrow)
        rows = spark.createDataFrame(some, schema)._jdf.queryExecution().analyzed().rdd()
        block = self._jvm.org.apache.spark.storage.StreamBlockId(_STREAM, next(_numbers))
        gateway: Any = spark._sc._gateway
        ids = gateway.new_array(self._jvm.org.apache.spark.storage.BlockId, 1)
        ids[0] = block
        arrived = self._jvm.org.apache.spark.rdd.BlockRDD(spark._jsc.sc(), ids, self._tag)
        read = self._jvm.org.apache.spark.rdd.MapPartitionsRDD(
            arrived, self._function.get(rows), False, False, False, False, self._tag, self._tag
        )
        return Inlet(self, _frame_over(spark, read, schema), block, arrow)

    def put(self, block: Any, table: pa.Table) -> None:
        """The rows of the table, as the block that an inlet reads."""
        path = self._write(table)
        try:
            batches = self._jvm.PythonSQLUtils.readArrowStreamFromFile(path)
        finally:
            Path(path).unlink()
        if not self._blocks.putIterator(block, batches, self._level, not self._is_local, self._tag):
            raise RuntimeError("Spark's block manager did not take the rows of a batch")

    def remove(self, block: Any) -> None:
        """Forget a block, if it is there."""
        self._blocks.removeBlock(block, not self._is_local)

    def _write(self, table: pa.Table) -> str:
        handle, path = tempfile.mkstemp(dir=self._folder)
        with os.fdopen(handle, "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table)
        return path


class Inlet:
    """frame: a DataFrame of the rows that were put in last. For one batch at a time."""

    def __init__(self, inlets: Inlets, frame: DataFrame, block: Any, schema: pa.Schema) -> None:
        self.frame = frame
        self._inlets = inlets
        self._block = block
        self._schema = schema

    def put(self, table: pa.Table) -> None:
        """Put rows in; what was in before must have been removed. table: its columns are those of the schema."""
        named = table.rename_columns(self._schema.names)
        whole = named if named.schema.equals(self._schema) else named.cast(self._schema)
        self._inlets.put(self._block, whole.combine_chunks())

    def remove(self) -> None:
        """Take the rows out, if there are any."""
        self._inlets.remove(self._block)


def make_inlets(spark: SparkSession) -> Inlets | None:
    """None where this release of Spark has not what is needed."""
    from pyspark.sql.types import LongType, StructField, StructType

    try:
        inlets = Inlets(spark)
        inlets.make(spark, StructType([StructField("c0", LongType())]), pa.schema([("c0", pa.int64())]))
        return inlets
    except Exception as error:
        log.warning("this release of Spark plans every batch anew, which is slower (%s)", type(error).__name__)
        return None


def _field(jvm: Any, class_name: str, name: str) -> Any:
    """A field of a class, as java.lang.reflect gives it."""
    found = jvm.java.lang.Class.forName(class_name).getDeclaredField(name)
    found.setAccessible(True)
    return found


def _frame_over(spark: SparkSession, rows: Any, schema: StructType) -> DataFrame:
    from pyspark.sql import DataFrame

    jvm: Any = spark._jvm
    kind = jvm.org.apache.spark.sql.types.DataType.fromJson(schema.json())
    return DataFrame(spark._jsparkSession.internalCreateDataFrame(rows, kind, False), spark)
