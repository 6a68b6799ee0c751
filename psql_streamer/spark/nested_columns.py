"""Columns whose text forms are read as arrays, structs and maps before Spark sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from psql_streamer.errors import HandlerRefused
from psql_streamer.model import Column, TextType
from psql_streamer.pgtype import PgType, PostgresType
from psql_streamer.pgtypes.builtin import BY_OID
from psql_streamer.spark.coercion import is_nested
from psql_streamer.spark.exchange import Sent
from psql_streamer.spark.lacking import Mask
from psql_streamer.spark.nested_texts import Unreadable, is_read_here, read_texts
from psql_streamer.spark.quoting import quote_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def find_nested_types(
    spark: SparkSession, types: Mapping[str, str], columns: Sequence[Column]
) -> dict[int, pa.DataType]:
    """Those of the columns to coerce that are read here, and the Arrow type of what they become.

    types: column -> Spark type. The others are cast by Spark, or have JSON, which Spark reads. No job runs.
    """
    wanted = {
        at: types[column.name]
        for at, column in enumerate(columns)
        if column.name in types and is_nested(types[column.name]) and _find_known_type(column) is not None
    }
    if not wanted:
        return {}
    from pyspark.sql.pandas.types import to_arrow_type

    nulls = [f"CAST(NULL AS {kind}) AS {quote_name(str(at))}" for at, kind in wanted.items()]
    fields = spark.range(0).selectExpr(*nulls).schema.fields
    arrow = {at: to_arrow_type(field.dataType, timezone="UTC") for at, field in zip(wanted, fields, strict=True)}
    return {at: kind for at, kind in arrow.items() if is_read_here(_find_known_type(columns[at]), kind)}


def read_nested(sent: Sent, types: Mapping[int, pa.DataType], where: str) -> tuple[Sent, dict[int, Mask]]:
    """The same with these columns read, and where a value could not be: column -> images.

    Raises HandlerRefused when a type cannot be read at all. where: table and rule.
    """
    arrays, failed = dict[int, pa.Array](), dict[int, Mask]()
    for at, kind in types.items():
        column = sent.changes.columns[at]
        try:
            read = read_texts(sent.seen[at], _find_known_type(column), kind)
        except Unreadable as error:
            raise HandlerRefused(
                f"{where}: column {column.name} cannot be coerced: {error}", "correct the type in coerce"
            ) from None
        arrays[at] = read.values
        if read.failed.any():
            failed[at] = read.failed
    return (sent.with_read(arrays) if types else sent), failed


def _find_known_type(column: Column) -> PgType | None:
    """What is known of a column's type, if it is one of PostgreSQL's."""
    kind = column.type.like if isinstance(column.type, TextType) else column.type
    return (kind.known or BY_OID.get(kind.oid)) if isinstance(kind, PostgresType) else None
