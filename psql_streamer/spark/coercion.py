"""The `coerce` of a rule: columns cast to other Spark types before the rule's query sees them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from psql_streamer.spark.metadata import IMAGE_SHIFT, ROW
from psql_streamer.spark.quoting import quote_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NESTED = re.compile(r"\s*(?:struct|array|map)\s*<", re.IGNORECASE)
_FLOATING = re.compile(r"(?i)\b(?:double|float|real)\b")
_TIMESTAMP = re.compile(r"(?i)timestamp(?:_ltz)?")
_MARK = "psql-streamer cannot coerce"
_CORRUPT = "psql_streamer_corrupt"
_END = "psql_streamer_end"
_FOUND = re.compile(rf"{_MARK} column (\d+) of row (\d+)")


def is_nested(kind: str) -> bool:
    """Whether a Spark type is a struct, an array or a map."""
    return _NESTED.match(kind) is not None


def render_coercions(names: Sequence[str], types: Mapping[str, str], read: Collection[str]) -> list[str]:
    """SQL of columns, some of them cast. A value that cannot be cast fails the job that reads it.

    names: of all columns. types: column -> Spark type. struct, array and map are read from JSON text, but for the
    columns in `read`, which have their type already.
    """
    return [
        f"{_render_coercion(at, name, types[name], name in read)} AS {quote_name(name)}"
        if name in types
        else quote_name(name)
        for at, name in enumerate(names)
    ]


def find_uncoercible_values(changes: DataFrame, types: Mapping[str, str]) -> DataFrame:
    """`_row`, and for every column that is cast whether its value cannot be, of the rows that have such a value.

    No value fails the job. Its columns are named by the indexes of the changes'.
    """
    names = changes.columns
    failed = [
        f"({quote_name(name)} IS NOT NULL AND {_render_conversion(quote_name(name), types[name])[1]}) AS `{at}`"
        for at, name in enumerate(names)
        if name in types
    ]
    found = changes.selectExpr(ROW, *failed)
    return found.where(" OR ".join(quote_name(name) for name in found.columns[1:]))


def parse_uncoercible_error(error: Exception) -> tuple[int, int] | None:
    """(column, image) of the value that failed a job, if it was one that could not be cast."""
    found = _FOUND.search(str(error))
    return (int(found[1]), int(found[2]) >> IMAGE_SHIFT) if found else None


def _render_coercion(at: int, name: str, kind: str, is_read: bool) -> str:
    column = quote_name(name)
    if is_read:  # a column that Spark sees passed on would count as the one that was sent
        return f"CASE WHEN {column} IS NOT NULL THEN {column} END"
    message = f"concat('{_MARK} column {at} of row ', {ROW})"
    value, failed = _render_conversion(column, kind)
    return f"CASE WHEN {column} IS NOT NULL AND {failed} THEN raise_error({message}) ELSE {value} END"


def _render_conversion(column: str, kind: str) -> tuple[str, str]:
    """SQL of the value, and of whether it could not be had."""
    return _parse_json(column, kind) if is_nested(kind) else _cast_text(column, kind)


def _cast_text(column: str, kind: str) -> tuple[str, str]:
    """A number past the range of a floating type is Infinity to Spark, and to a time without a date it adds today's,
    which is another one in a repeat."""
    value = f"try_cast({column} AS {kind})"
    failed = f"{value} IS NULL"
    if _FLOATING.fullmatch(kind.strip()):
        written = f"lower(CAST({column} AS STRING))"
        failed = f"({failed} OR (abs({value}) = double('Infinity') AND {written} NOT LIKE '%inf%'))"
    if _TIMESTAMP.fullmatch(kind.strip()):
        # typeof is known when the plan is made: other columns are not looked at.
        without_date = f"CAST({column} AS STRING) RLIKE '^[\\\\p{{Cntrl}} ]*(T|[0-9]{{1,2}}:)'"
        failed = f"({failed} OR (typeof({column}) = 'string' AND {without_date}))"
    return value, failed


def _parse_json(column: str, kind: str) -> tuple[str, str]:
    """Spark tells of a field of the wrong type, at any depth, in a column for corrupt records only,
    which has its place in a struct: so the document goes into one. It reads no further than to the end of a document,
    so that a text is one document if what stands behind it is read, and it is the only one in its array."""
    options = f"map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '{_CORRUPT}')"
    schema = f"value ARRAY<{kind}>, {_END} BOOLEAN, {_CORRUPT} STRING".replace("'", "\\'")
    parsed = f"from_json(concat('{{\"value\":[', {column}, '],\"{_END}\":true}}'), '{schema}', {options})"
    failed = f"({parsed}.{_CORRUPT} IS NOT NULL OR {parsed}.{_END} IS NULL OR size({parsed}.value) <> 1)"
    value = f"{parsed}.value[0]"
    if _FLOATING.search(kind):
        failed = f"({failed} OR {_render_overflow_test(column, value)})"
    return f"CASE WHEN size({parsed}.value) = 1 THEN {value} END", failed


def _render_overflow_test(column: str, value: str) -> str:
    """SQL of whether more numbers are infinite, as which Spark reads those that are too large, than the document says:
    it can only say so in a string."""
    return f"regexp_count(to_json({value}), '\"-?Infinity\"') > regexp_count({column}, '(?i)\"[+-]?inf(?:inity)?\"')"
