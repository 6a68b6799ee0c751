"""Columns whose text forms are read before Spark sees them: as arrays, structs and maps, or as the strings that they
are coerced to, where the type that Spark would cast from does not hold every value."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pyarrow.compute as pc

from psql_streamer.errors import HandlerRefused
from psql_streamer.model import ArrowType, Column, TextType
from psql_streamer.pgtype import PgType, PostgresType
from psql_streamer.pgtypes import casts
from psql_streamer.pgtypes.builtin import BY_OID, OIDS
from psql_streamer.spark.coercion import is_nested
from psql_streamer.spark.exchange import Sent
from psql_streamer.spark.lacking import Mask
from psql_streamer.spark.nested_texts import Unreadable, is_read_here, read_texts
from psql_streamer.spark.quoting import quote_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

_TEXT = PostgresType(OIDS["text"])
_STRING = "string"


def find_nested_types(
    spark: SparkSession, types: Mapping[str, str], columns: Sequence[Column]
) -> dict[int, pa.DataType]:
    """Those of the columns to coerce that are read here, and the Arrow type of what they become.

    types: column -> Spark type. The others are cast by Spark, or have JSON, which Spark reads. No job runs.
    """
    written: dict[int, pa.DataType] = {
        at: pa.string()
        for at, column in enumerate(columns)
        if types.get(column.name, "").strip().lower() == _STRING and _may_lose_values(column)
    }
    wanted = {
        at: types[column.name]
        for at, column in enumerate(columns)
        if column.name in types and is_nested(types[column.name]) and find_known_type(column) is not None
    }
    if not wanted:
        return written
    from pyspark.sql.pandas.types import to_arrow_type

    arrow = {at: to_arrow_type(kind, timezone="UTC") for at, kind in parse_types(spark, wanted).items()}
    nested = {at: kind for at, kind in arrow.items() if is_read_here(find_known_type(columns[at]), kind)}
    return written | nested


def parse_types(spark: SparkSession, types: Mapping[int, str]) -> dict[int, DataType]:
    """What Spark makes of the names of types. No job runs."""
    nulls = [f"CAST(NULL AS {kind}) AS {quote_name(str(at))}" for at, kind in types.items()]
    fields = spark.range(0).selectExpr(*nulls).schema.fields if nulls else []
    return {at: field.dataType for at, field in zip(types, fields, strict=True)}


def is_text(column: Column) -> bool:
    """Whether a column goes to Spark as a string."""
    return not isinstance(column.type, ArrowType) and bool(pa.types.is_string(casts.choose_arrow_type(column.type)))


def find_lost_values(sent: Sent, names: Collection[str]) -> dict[int, Mask]:
    """Where a value is not what these columns are sent as, and a cast would make NULL of it: column -> images."""
    lost = dict[int, Mask]()
    for at, column in enumerate(sent.changes.columns):
        if column.name in names and at not in sent.read and _may_lose_values(column):
            texts, typed = sent.seen[at], sent.typed[at]
            if texts.null_count != typed.null_count:
                lost[at] = pc.and_(texts.is_valid(), typed.is_null()).to_numpy(zero_copy_only=False)
    return lost


def read_nested(sent: Sent, types: Mapping[int, pa.DataType], where: str) -> tuple[Sent, dict[int, Mask]]:
    """The same with these columns read, and where a value could not be: column -> images.

    Raises HandlerRefused when a type cannot be read at all. where: table and rule.
    """
    arrays, failed = dict[int, pa.Array](), dict[int, Mask]()
    for at, kind in types.items():
        column = sent.changes.columns[at]
        if pa.types.is_string(kind):
            arrays[at] = _write_texts(sent, at)
            continue
        try:
            read = read_texts(sent.seen[at], find_known_type(column), kind)
        except Unreadable as error:
            raise HandlerRefused(
                f"{where}: column {column.name} cannot be coerced: {error}", "correct the type in coerce"
            ) from None
        arrays[at] = read.values
        if read.failed.any():
            failed[at] = read.failed
    return (sent.with_read(arrays) if types else sent), failed


def _may_lose_values(column: Column) -> bool:
    """Whether there are values of a column's type that its Arrow type does not hold: infinity, NaN, years BC."""
    if isinstance(column.type, ArrowType):
        return False
    kind = casts.choose_arrow_type(column.type)
    return bool(pa.types.is_temporal(kind) or pa.types.is_decimal(kind))


def _write_texts(sent: Sent, at: int) -> pa.Array:
    """What Spark's cast to a string gives; PostgreSQL's own text of a value that Spark's type does not hold."""
    kind = cast("PostgresType | TextType", sent.changes.columns[at].type)
    typed, texts = sent.typed[at], sent.seen[at]
    written = casts.to_text(typed, kind).view(pa.string())
    if pa.types.is_timestamp(typed.type) and typed.type.tz:
        written = pc.replace_substring_regex(written, r"\+00$", "")  # in the session's time zone, which is UTC
    return written if typed.null_count == texts.null_count else pc.coalesce(written, casts.cast(texts, _TEXT))


def find_known_type(column: Column) -> PgType | None:
    """What is known of a column's type, if it is one of PostgreSQL's."""
    kind = column.type.like if isinstance(column.type, TextType) else column.type
    return (kind.known or BY_OID.get(kind.oid)) if isinstance(kind, PostgresType) else None
