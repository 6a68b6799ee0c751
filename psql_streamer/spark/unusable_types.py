"""Types of Spark that no event can hold."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from psql_streamer.errors import HandlerRefused
from psql_streamer.spark.facts import Field

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_UNUSABLE = re.compile(
    r"(?:^|[:<,])(?P<type>variant|geography|geometry|interval(?! day| hour| minute| second))"
    r"(?=$|[>,(]| year| month)"
)
"""In a type as `DataType.simpleString` has it. Arrow has no such types; of a VARIANT it gets the two byte strings of
Spark's own encoding."""

_IN_THEIR_PLACE = {
    "variant": "make text of it with to_json({name}), or take a value out with variant_get",
    "interval": "make text of it with CAST({name} AS STRING), or numbers with extract",
}
_TAKE_TEXT = "make text or bytes of it, with a function that takes this type"


def refuse_unusable_types(fields: Iterable[Field], where: str) -> None:
    """HandlerRefused when a column of a result is of such a type, or has one in it."""
    for field in fields:
        found = _UNUSABLE.search(field.kind)
        if found is not None:
            remedy = _IN_THEIR_PLACE.get(found["type"], _TAKE_TEXT).format(name=field.name)
            what = f"the column {field.name} is of type {field.kind}, and events have no {found['type'].upper()}"
            raise HandlerRefused(f"{where}: {what}", remedy)
        if field.twice:
            what = f"the column {field.name} has a struct with two fields named {field.twice}"
            raise HandlerRefused(f"{where}: {what}", "name one of them otherwise")


def find_repeated_field(kind: DataType) -> str:
    """A name that two fields of one struct have, at any depth; empty where there is none."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        twice = next((name for name in kind.names if kind.names.count(name) > 1), "")
        return twice or _find_first(field.dataType for field in kind.fields)
    if isinstance(kind, ArrayType):
        return find_repeated_field(kind.elementType)
    return _find_first((kind.keyType, kind.valueType)) if isinstance(kind, MapType) else ""


def _find_first(kinds: Iterable[DataType]) -> str:
    return next((found for kind in kinds if (found := find_repeated_field(kind))), "")
