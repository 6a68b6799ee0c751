"""What a column is in Debezium's events: its schema, and how its values are rendered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from psql_streamer.events.json.json_text import Piece, quote

Schema: TypeAlias = dict[str, Any]

WriteOne: TypeAlias = Callable[[bytes], bytes | None]
"""The JSON of one text form; None for what the type cannot hold."""


@dataclass(frozen=True, slots=True)
class ConnectType:
    """schema: Kafka Connect's, as its JSON converter writes it, without `optional` and `field`.

    render: the JSON of a column of text forms; null for what the type cannot hold. text: JSON strings that stand for
    such values in keys. distinct: what the text form looks like of values whose JSON no other value has; None: of all.
    one: the JSON of one value, as render has it; None: values are written by column always.
    """

    schema: Schema
    render: Callable[[pa.Array], Piece]
    text: Callable[[pa.Array], pa.Array] = quote
    distinct: str | None = None
    one: WriteOne | None = None


def make_named_schema(kind: str, name: str, **more: Any) -> Schema:
    """A schema with a semantic name, in the order of Connect's JSON converter."""
    return {"type": kind, "name": name, "version": 1, **more}


def make_value_type(schema: Schema, function: Callable[[str], str | None], **more: Any) -> ConnectType:
    """One whose values are rendered one by one. more: fields besides."""
    return ConnectType(schema, make_value_render(function), one=make_one(function), **more)


def make_one(function: Callable[[str], str | None]) -> WriteOne:
    """The same of bytes."""
    return partial(_apply_to_bytes, function)


def make_value_render(function: Callable[[str], str | None]) -> Callable[[pa.Array], Piece]:
    """Distinct values one by one."""

    def render(values: pa.Array) -> Piece:
        distinct = pc.dictionary_encode(values)
        rendered = [_apply_to_bytes(function, text) for text in distinct.dictionary.to_pylist()]
        return Piece(pa.array(rendered, pa.binary()).take(distinct.indices))

    return render


def _apply_to_bytes(function: Callable[[str], str | None], text: bytes) -> bytes | None:
    """What is not UTF-8 (in a database with the encoding SQL_ASCII) stays as it is, as in every other text."""
    rendered = function(text.decode("utf-8", "surrogateescape"))
    return None if rendered is None else rendered.encode("utf-8", "surrogateescape")


POINT_SCHEMA: Schema = {
    "type": "struct",
    "fields": [
        {"type": "double", "optional": False, "field": "x"},
        {"type": "double", "optional": False, "field": "y"},
        {"type": "bytes", "optional": True, "field": "wkb"},
        {"type": "int32", "optional": True, "field": "srid"},
    ],
    "name": "io.debezium.data.geometry.Point",
    "version": 1,
    "doc": "Geometry (POINT)",
}
