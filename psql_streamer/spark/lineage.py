"""Where the columns of a rule's result come from, and how `_row` gets into a result that does not name it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from psql_streamer.spark.images import ROW, Field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

ORIGIN = "psql_streamer.column"
"""Metadata of a field: which column it is. Spark keeps a field's metadata through filters, joins and renames, and
drops it from anything that is computed."""

# Plan nodes that give their child's rows with all of its columns. Their output follows from their children's.
_PASS_ALL = frozenset(
    {
        "Filter",
        "Generate",
        "GlobalLimit",
        "Join",
        "LocalLimit",
        "RebalancePartitions",
        "Repartition",
        "RepartitionByExpression",
        "ResolvedHint",
        "Sample",
        "Sort",
        "SubqueryAlias",
        "View",
        "Window",
    }
)


def schema_of(shape: pa.Schema) -> StructType:
    """The Spark schema of a table that is sent, with the origin of each field."""
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructField, StructType

    return StructType(
        [
            StructField(
                field.name,
                from_arrow_type(field.type, prefer_timestamp_ntz=True),
                True,
                {ORIGIN: at},
            )
            for at, field in enumerate(shape)
        ]
    )


def fields_of(result: DataFrame) -> list[Field]:
    """The columns of a rule's result."""
    return [Field(field.name, field.metadata.get(ORIGIN)) for field in result.schema.fields]


def with_row(result: DataFrame) -> DataFrame | None:
    """The result with `_row`: as it is when the rule selects it, else added to the projections that left it out.

    None when that cannot be done: the rule aggregates, unites, or runs on Spark Connect, which has no plan to add to.
    """
    if ROW in result.columns:
        return result
    plan = getattr(result, "_jdf", None)
    if plan is None:
        return None
    return _carried(result.sparkSession, plan.queryExecution().analyzed())


def _carried(spark: SparkSession, plan: Any) -> DataFrame | None:
    from pyspark.sql import DataFrame

    jvm: Any = spark._jvm
    carried = _carry(jvm, plan)
    if carried is None:
        return None
    dataset = jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, carried[0])
    return DataFrame(dataset, spark)


def _carry(jvm: Any, plan: Any) -> tuple[Any, Any] | None:
    """The plan with the `_row` attribute in its output, and the attribute; None when it has no way there.

    This is what Spark itself does for the metadata columns of files (org.apache.spark.sql.catalyst.analysis.
    AddMetadataColumns): attributes are found by identity, so nothing that a query names can be confused with it.
    """
    row = _row_attribute(plan)
    if row is not None:
        return plan, row
    kind = plan.nodeName()
    if kind == "Project":
        return _carry_through_project(jvm, plan)
    if kind not in _PASS_ALL:
        return None
    children = _list(plan.children())
    for at, child in enumerate(children):
        carried = _carry(jvm, child)
        if carried is not None:
            children[at], row = carried
            renewed = plan.withNewChildren(jvm.PythonUtils.toSeq(children))
            return (renewed, row) if _row_attribute(renewed) is not None else None
    return None


def _carry_through_project(jvm: Any, plan: Any) -> tuple[Any, Any] | None:
    carried = _carry(jvm, plan.child())
    if carried is None:
        return None
    child, row = carried
    expressions = jvm.PythonUtils.toSeq([*_list(plan.projectList()), row])
    return jvm.org.apache.spark.sql.catalyst.plans.logical.Project(expressions, child), row


def _row_attribute(plan: Any) -> Any:
    return next(
        (one for one in _list(plan.output()) if one.name() == ROW and ORIGIN in json.loads(one.metadata().json())),
        None,
    )


def _list(seq: Any) -> list[Any]:
    return [seq.apply(at) for at in range(seq.length())]
