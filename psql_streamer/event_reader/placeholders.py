"""What stands in `debezium` for a value that an update left alone: it depends on the column's type."""

from __future__ import annotations

from collections.abc import Iterator

from psql_streamer.events.debezium.connect_type import Schema
from psql_streamer.events.debezium.types import BY_LOGICAL, BY_MODIFIER, render_unavailable

_NO_MODIFIER, _OF_SOME_LENGTH = -1, 1 << 16 | 4
"""Modifiers of types. Those of numeric(1) are a decimal's, with a scale."""


def is_placeholder(value: bytes) -> bool:
    """Whether this JSON is the placeholder of some type, or of an array of it. No array of others begins like one."""
    return value.startswith(_BEGINS) and value.lstrip(b"[").rstrip(b"]") in _INNERMOST


def _list_schemas() -> Iterator[Schema]:
    for kind in BY_LOGICAL.values():
        yield kind.schema
    for of_modifier in BY_MODIFIER.values():
        for modifier in (_NO_MODIFIER, _OF_SOME_LENGTH):
            yield of_modifier(modifier).schema


_SCALARS = {render_unavailable(schema, strict=False) for schema in _list_schemas()}
_ARRAYS = {render_unavailable({"type": "array", "items": schema}, strict=False) for schema in _list_schemas()}
_INNERMOST = frozenset(value.strip(b"[]") for value in _SCALARS | _ARRAYS)
_BEGINS = tuple({value[:6] for value in _SCALARS | _ARRAYS} | {b"[["})
