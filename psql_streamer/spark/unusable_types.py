"""Types of Spark that no event can hold."""

from __future__ import annotations

import re
from collections.abc import Iterable

from psql_streamer.errors import HandlerRefused
from psql_streamer.spark.facts import Field

_VARIANT = re.compile(r"(?:^|[:<,])variant(?=$|[>,])")
"""In a type as `DataType.simpleString` has it. Arrow gets the two byte strings of Spark's own encoding for it."""


def refuse_unusable_types(fields: Iterable[Field], where: str) -> None:
    """HandlerRefused when a column of a result is of such a type, or has one in it."""
    for field in fields:
        if _VARIANT.search(field.kind):
            raise HandlerRefused(
                f"{where}: the column {field.name} is of type {field.kind}, and events have no VARIANT",
                f"make text of it with to_json({field.name}), or take a value out with variant_get",
            )
