"""DataFrames whose rows Spark reads out of Arrow record batches when it runs their plan.

The function between record batches and rows is the one that createDataFrame uses. It is not part of Spark's API; where
a release has it otherwise, ArrowRows cannot be made.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


_TAKEN = ".taken"


class ArrowRows:
    """What is needed of one JVM, found once.

    folder: for files that pass between the service and the JVM. tag: what Scala wants to know of an RDD's elements.
    """

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self.folder: str = spark._sc._temp_dir
        self.tag = jvm.scala.reflect.ClassTag.Any()
        self._function = find_field(jvm, "org.apache.spark.rdd.MapPartitionsRDD", "f")
        self._mapped = jvm.org.apache.spark.rdd.MapPartitionsRDD
        self._kind_of = jvm.org.apache.spark.sql.types.DataType.fromJson
        self._arrive = jvm.PythonSQLUtils.readArrowStreamFromFile

    def make_frame(self, spark: SparkSession, arrived: Any, schema: StructType, arrow: pa.Schema) -> DataFrame:
        """arrived: an RDD of record batches. arrow: their schema, that of the rows as Arrow has it."""
        from pyspark.sql import DataFrame

        some = pa.Table.from_arrays([pa.nulls(1, field.type) for field in arrow], schema=arrow)
        rows = spark.createDataFrame(some, schema)._jdf.queryExecution().analyzed().rdd()
        read = self._mapped(arrived, self._function.get(rows), False, False, False, False, self.tag, self.tag)
        made = spark._jsparkSession.internalCreateDataFrame(read, self._kind_of(schema.json()), False)
        return DataFrame(made, spark)

    def arrive(self, table: pa.Table, schema: pa.Schema) -> Any:
        """A Scala iterator of record batches in the JVM, with the rows of the table; columns go by their order."""
        with self.write(table, schema) as path:
            return self._arrive(path)

    @contextmanager
    def write(self, table: pa.Table, schema: pa.Schema) -> Iterator[str]:
        """The path of a file with the rows of the table, as a stream of Arrow, which is there while the block runs."""
        named = table.rename_columns(schema.names)
        whole = (named if named.schema.equals(schema) else named.cast(schema)).combine_chunks()
        handle, path = tempfile.mkstemp(dir=self.folder)
        try:
            with os.fdopen(handle, "wb") as file, pa.ipc.new_stream(file, schema) as stream:
                stream.write_table(whole)
            yield path
        finally:
            remove_rows(path)


def name_taken(path: str) -> str:
    """What a file of rows is called after the JVM has taken it away."""
    return path + _TAKEN


def remove_rows(path: str) -> None:
    """Remove a file of rows, taken or not. In this order: after the first step nobody can take it any more."""
    Path(path).unlink(missing_ok=True)
    Path(name_taken(path)).unlink(missing_ok=True)


def find_field(jvm: Any, class_name: str, name: str) -> Any:
    """A field of a class, as java.lang.reflect gives it."""
    found = jvm.java.lang.Class.forName(class_name).getDeclaredField(name)
    found.setAccessible(True)
    return found
