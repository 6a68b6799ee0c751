"""Python functions of a plan that do not fail the job: each says whether it failed, and what it gave.

Only functions that are called row by row (`udf`) can be wrapped. A pandas function gets many rows at once.
Source: PySpark source, pyspark/sql/udf.py and pyspark/worker.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from psql_streamer.spark.catalyst import list_items

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_VALUE, _HAS_FAILED = 0, 1
"""Fields of what a wrapped function gives."""


class PythonFunctions:
    """Wraps the Python functions of expressions. make_alias: of an expression, under a name of its own."""

    def __init__(self, spark: SparkSession, make_alias: Callable[[Any, str], Any]) -> None:
        from pyspark.util import PythonEvalType

        jvm: Any = spark._jvm
        self._project = jvm.org.apache.spark.sql.catalyst.plans.logical.Project
        self._expressions = jvm.org.apache.spark.sql.catalyst.expressions
        self._function = jvm.org.apache.spark.api.python.SimplePythonFunction
        self._struct = jvm.org.apache.spark.sql.types.StructType
        self._boolean = jvm.org.apache.spark.sql.types.DataType.fromDDL("boolean")
        self._seq = jvm.PythonUtils.toSeq
        self._nothing = jvm.scala.Option.empty()
        self._make_alias = make_alias
        self._row_by_row = (PythonEvalType.SQL_BATCHED_UDF, PythonEvalType.SQL_ARROW_BATCHED_UDF)

    def lift(self, expression: Any, below: Any) -> tuple[Any, Any, list[Any]]:
        """The expression with attributes for its functions, the plan that computes these on top of `below`, and whether
        each has failed."""
        children, failed = list[Any](), list[Any]()
        for child in list_items(expression.children()):
            lifted, below, of_child = self.lift(child, below)
            children.append(lifted)
            failed += of_child
        if failed:
            expression = expression.withNewChildren(self._seq(children))
        wrapped = self._wrap(expression) if expression.nodeName() == "PythonUDF" else None
        if wrapped is None:
            return expression, below, failed
        alias = self._make_alias(wrapped, "python")
        output = below.output().appended(alias)
        attribute = alias.toAttribute()
        return (
            self._expressions.GetStructField(attribute, _VALUE, self._nothing),
            self._project(output, below),
            [*failed, self._expressions.GetStructField(attribute, _HAS_FAILED, self._nothing)],
        )

    def _wrap(self, call: Any) -> Any:
        """None for what cannot be wrapped."""
        before = call.func()
        command = _wrap_command(before.command()) if call.evalType() in self._row_by_row else None
        if command is None:
            return None
        function = self._function(
            command,
            before.envVars(),
            before.pythonIncludes(),
            before.pythonExec(),
            before.pythonVer(),
            before.broadcastVars(),
            before.accumulator(),
        )
        kind = self._struct().add("value", call.dataType()).add("has_failed", self._boolean)
        number = self._expressions.NamedExpression.newExprId()
        return call.copy(call.name(), function, kind, call.children(), call.evalType(), call.udfDeterministic(), number)


def _wrap_command(command: Any) -> bytearray | None:
    """command: a pickled function and its type, as Scala's Seq of bytes. None for one of more than a megabyte, in whose
    place there is a variable that was broadcast."""
    from pyspark.serializers import CloudPickleSerializer
    from pyspark.sql.types import BooleanType, StructType

    make_serializer: Any = CloudPickleSerializer
    serializer = make_serializer()
    pickled = serializer.loads(bytes(int(number) & 0xFF for number in command.mkString(",").split(",")))
    if not isinstance(pickled, tuple):
        return None
    function, kind = pickled
    struct = StructType().add("value", kind).add("has_failed", BooleanType())
    return bytearray(serializer.dumps((_make_tolerant(function), struct)))


def _make_tolerant(function: Callable[..., Any]) -> Callable[..., tuple[Any, bool]]:
    # A function in a function is pickled with its code: executors need not have this module.
    def tolerant(*values: Any, **named: Any) -> tuple[Any, bool]:
        try:
            return function(*values, **named), False
        except Exception:  # of whatever kind: the job would fail on it
            return None, True

    return tolerant
