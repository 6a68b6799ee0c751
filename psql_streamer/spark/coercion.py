"""The `coerce` of a rule: columns cast to other Spark types before the rule's query sees them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from psql_streamer.errors import HandlerRefused
from psql_streamer.spark.metadata import IMAGE_SHIFT, ROW

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NESTED = re.compile(r"\s*(?:struct|array|map)\s*<", re.IGNORECASE)
_MARK = "psql-streamer cannot coerce"
_CORRUPT = "psql_streamer_corrupt"
_FOUND = re.compile(rf"{_MARK} column (\d+) of row (\d+)")


def coerced(changes: DataFrame, types: Mapping[str, str], where: str) -> DataFrame:
    """The changes with some columns cast. A value that cannot be cast fails the job that reads it.

    types: column -> Spark type. struct, array and map are read from JSON text. Raises HandlerRefused when a column
    is not there.
    """
    missing = [name for name in types if name not in changes.columns]
    if missing:
        raise HandlerRefused(f"{where}: there is no column {missing[0]} to coerce", "correct its name")
    return changes.selectExpr(
        *(
            f"{_cast(at, name, types[name])} AS {_quoted(name)}" if name in types else _quoted(name)
            for at, name in enumerate(changes.columns)
        )
    )


def uncoercible_rows(changes: DataFrame, types: Mapping[str, str]) -> DataFrame:
    """`_row` and the index of a column, for every row that has a value which cannot be cast. No value fails the job."""
    cases = " ".join(
        f"WHEN {_quoted(name)} IS NOT NULL AND {_converted(_quoted(name), types[name])[1]} THEN {at}"
        for at, name in enumerate(changes.columns)
        if name in types
    )
    return changes.selectExpr(ROW, f"CASE {cases} END AS failed").where("failed IS NOT NULL")


def uncoercible(error: Exception) -> tuple[int, int] | None:
    """(column, image) of the value that failed a job, if it was one that could not be cast."""
    found = _FOUND.search(str(error))
    return (int(found[1]), int(found[2]) >> IMAGE_SHIFT) if found else None


def _cast(at: int, name: str, kind: str) -> str:
    column = _quoted(name)
    message = f"concat('{_MARK} column {at} of row ', {ROW})"
    value, failed = _converted(column, kind)
    return f"CASE WHEN {column} IS NOT NULL AND {failed} THEN raise_error({message}) ELSE {value} END"


def _converted(column: str, kind: str) -> tuple[str, str]:
    """SQL of the value, and of whether it could not be had."""
    return _parse_json(column, kind) if _NESTED.match(kind) else _cast_text(column, kind)


def _cast_text(column: str, kind: str) -> tuple[str, str]:
    value = f"try_cast({column} AS {kind})"
    return value, f"{value} IS NULL"


def _parse_json(column: str, kind: str) -> tuple[str, str]:
    """Spark tells of a field of the wrong type, at any depth, in a column for corrupt records only,
    which has its place in a struct: so the document goes into one."""
    options = f"map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '{_CORRUPT}')"
    schema = f"value {kind}, {_CORRUPT} STRING".replace("'", "\\'")
    parsed = f"from_json(concat('{{\"value\":', {column}, '}}'), '{schema}', {options})"
    return f"{parsed}.value", f"{parsed}.{_CORRUPT} IS NOT NULL"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
