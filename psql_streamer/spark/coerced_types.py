"""Whether the types in `coerce` are types of Spark that a table's columns can become: looked at before any row."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from psql_streamer.errors import HandlerRefused
from psql_streamer.model import Column
from psql_streamer.pgtype import JsonForm, Logical, PgType
from psql_streamer.spark.coercion import is_nested
from psql_streamer.spark.nested_columns import find_known_type, parse_types
from psql_streamer.spark.unusable_types import find_repeated_field

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

_REMEDY = "correct the type in coerce"

_DIGITS = "DECIMAL_PRECISION_EXCEEDS_MAX_PRECISION"

_OF_LENGTH = re.compile(r"(?i)\b(?:var)?char(?:acter)?\s*\(")

_MISMATCH = "due to data type mismatch: "

_PLAIN = frozenset(
    {
        *(Logical.BIT, Logical.VARBIT, Logical.BOOLEAN, Logical.DATE, Logical.FLOAT4, Logical.FLOAT8),
        *(Logical.INT2, Logical.INT4, Logical.INT8, Logical.INTERVAL, Logical.MONEY, Logical.NUMERIC, Logical.OID),
        *(Logical.TIME, Logical.TIMETZ, Logical.TIMESTAMP, Logical.TIMESTAMPTZ, Logical.UUID, Logical.XID),
    }
)
"""Types of which no value is a JSON document of objects or arrays."""


def refuse_coerced_types(spark: SparkSession, types: Mapping[str, str], columns: Sequence[Column], where: str) -> None:
    """HandlerRefused when one is no type of Spark, or no value of the column can become one. No job runs.

    types: column -> Spark type, as in `coerce`. where: table and rule.
    """
    wanted = {at: types[column.name] for at, column in enumerate(columns) if column.name in types}
    try:
        kinds = parse_types(spark, wanted)
    except Exception as error:
        if not _is_about_types(error):
            raise
        kinds = {at: _parse_type(spark, columns[at].name, kind, where) for at, kind in wanted.items()}
    for at, kind in kinds.items():
        column = columns[at]
        problem = next(_list_problems(column, wanted[at], kind), None)
        if problem is not None:
            raise make_refusal(column.name, wanted[at], problem, where)


def make_refusal(column: str, kind: str, why: str, where: str, remedy: str = _REMEDY) -> HandlerRefused:
    """The error for a column that cannot be coerced, whatever its values are."""
    return HandlerRefused(f"{where}: column {column} cannot be coerced to {kind.strip()}: {why}", remedy)


def describe_refused_type(error: Exception) -> str:
    """What Spark says of a type, without the SQL in which it stood."""
    said = str(error).strip().split(" SQLSTATE:")[0].splitlines()[0].rstrip(".; ")
    return said.partition(_MISMATCH)[2] or said


def _parse_type(spark: SparkSession, name: str, kind: str, where: str) -> DataType:
    try:
        return parse_types(spark, {0: kind})[0]
    except Exception as error:
        if not _is_about_types(error):
            raise
        if _DIGITS in str(error):
            why, remedy = "a decimal of Spark has 38 digits at most", 'use decimal(38, s), or "string" for all digits'
            raise make_refusal(name, kind, why, where, remedy) from None
        raise make_refusal(name, kind, describe_refused_type(error), where) from None


def _is_about_types(error: Exception) -> bool:
    from pyspark.errors import AnalysisException, ParseException

    return isinstance(error, AnalysisException | ParseException) or _DIGITS in str(error)


def _list_problems(column: Column, written: str, kind: DataType) -> Iterator[str]:
    """What keeps every value of a column from becoming one of a type. written: the type as it is in `coerce`."""
    if twice := find_repeated_field(kind):
        yield f"the struct has two fields named {twice}"
    if _has_calendar_interval(kind):
        yield "no event holds an interval of months and days: use string"
    known = find_known_type(column)
    nested = is_nested(written)
    if nested and _OF_LENGTH.search(written):
        yield "a text inside of another type has no length: use string"
    if known is None:
        return
    shape = _find_shape(known)
    if nested and known.logical in _PLAIN and not shape:
        yield f"{known.name} has neither fields nor elements"
    if nested and not shape and (path := _find_other_keys(kind)) is not None:
        yield f"the keys of JSON objects are strings, and those of {path} are not"
    if shape and not nested and kind.simpleString() not in ("string", "binary"):
        yield f'{known.name or "the column"} is {shape}: use such a type, or "string"'
    if shape == "array<...>" and nested and not kind.simpleString().startswith("array<"):
        yield f"{known.name or 'the column'} is {shape}"


def _find_shape(known: PgType) -> str:
    """Which nested type a type's text form is read as; empty for others."""
    if known.logical is Logical.JSON:
        return ""
    if known.form is JsonForm.ARRAY:
        return "array<...>"
    if known.logical is Logical.HSTORE:
        return "map<string, string>"
    return "struct<...>" if known.form is JsonForm.OBJECT else ""


def _has_calendar_interval(kind: DataType) -> bool:
    return re.search(r"(?:^|[:<,])interval(?=$|[>,])", kind.simpleString()) is not None


def _find_other_keys(kind: DataType) -> str | None:
    """A map in a type whose keys are no strings."""
    from pyspark.sql.types import ArrayType, MapType, StringType, StructType

    if isinstance(kind, StructType):
        return next((found for one in kind.fields if (found := _find_other_keys(one.dataType)) is not None), None)
    if isinstance(kind, ArrayType):
        return _find_other_keys(kind.elementType)
    if isinstance(kind, MapType):
        return _find_other_keys(kind.valueType) if isinstance(kind.keyType, StringType) else kind.simpleString()
    return None
