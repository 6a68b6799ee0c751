"""The `coerce` of a rule: columns cast to other Spark types before the rule's query sees them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from psql_streamer.errors import HandlerRefused
from psql_streamer.spark.images import ROW

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NESTED = re.compile(r"\s*(?:struct|array|map)\s*<", re.IGNORECASE)
_MARK = "psql-streamer cannot coerce"
_FOUND = re.compile(rf"{_MARK} column (\d+) of image (\d+)")


def coerced(changes: DataFrame, types: Mapping[str, str], where: str) -> DataFrame:
    """The changes with some columns cast. A value that cannot be cast fails the job that reads it.

    types: column -> Spark type. struct, array and map are read from JSON text. Raises HandlerRefused when a column
    is not there.
    """
    from pyspark.sql.functions import expr

    missing = [name for name in types if name not in changes.columns]
    if missing:
        raise HandlerRefused(f"{where}: there is no column {missing[0]} to coerce", "correct its name")
    return changes.select(
        *(
            expr(_cast(at, name, types[name])).alias(name) if name in types else changes[_quoted(name)]
            for at, name in enumerate(changes.columns)
        )
    )


def uncoercible(error: Exception) -> tuple[int, int] | None:
    """(column, image) of the value that failed a job, if it was one that could not be cast."""
    found = _FOUND.search(str(error))
    return (int(found[1]), int(found[2])) if found else None


def _cast(at: int, name: str, kind: str) -> str:
    column = _quoted(name)
    source = f"try_parse_json({column})" if _NESTED.match(kind) else column
    cast = f"try_cast({source} AS {kind})"
    message = f"concat('{_MARK} column {at} of image ', {ROW})"
    return f"CASE WHEN {column} IS NOT NULL AND {cast} IS NULL THEN raise_error({message}) ELSE {cast} END"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
