"""The types that columns of a lookup are known to have, and what another version has in their place.

Spark infers the types of JSON files, and of CSV files if it is asked to, from the values that are there. A rule that
works with one type may fail on another for every row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from psql_streamer.spark.lookups.version import Version

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_WIDER = ("tinyint", "smallint", "int", "bigint", "decimal", "float", "double")
"""Numbers, each of which is read like those in front of it."""

_NO_TYPE = "void"

KnownTypes = Mapping[tuple[str, ...], str]
"""The path of a column or of a field in it -> its type, as Spark's SQL has it."""


def find_types(version: Version) -> KnownTypes:
    """Of a column without a value nobody knows the type: whatever Spark takes for it was not seen in the rows."""
    found: dict[tuple[str, ...], str] = {}
    for field in version.schema.fields:
        if version.table is None or version.table.column(field.name).null_count < version.rows:
            found.update(_list_paths((field.name,), field.dataType))
    return found


def find_other_types(known: KnownTypes, version: Version) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Paths, the type that was known, and what a version has there: another type, or "" for no such field."""
    found = find_types(version)
    columns = {path[0] for path in found}
    for path, was in known.items():
        if path[0] not in columns:
            continue
        now = found.get(path, "")
        if now != was and not _is_wider(was, now):
            yield path, was, now


def _list_paths(path: tuple[str, ...], kind: DataType) -> Iterator[tuple[tuple[str, ...], str]]:
    from pyspark.sql.types import ArrayType, StructType

    if isinstance(kind, StructType):
        yield path, "struct"
        for field in kind.fields:
            yield from _list_paths((*path, field.name), field.dataType)
    elif isinstance(kind, ArrayType):
        yield path, "array"
        yield from _list_paths((*path, "[]"), kind.elementType)
    elif kind.simpleString() != _NO_TYPE:
        yield path, kind.simpleString()


def _is_wider(was: str, now: str) -> bool:
    """Whether the new type holds the numbers of the old one, and is read as they were."""
    before, after = was.partition("(")[0], now.partition("(")[0]
    return before in _WIDER and after in _WIDER and _WIDER.index(before) <= _WIDER.index(after)
