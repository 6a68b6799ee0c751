"""Columns that a handler made, which have Arrow's types: structs, lists and maps as JSON, at any depth.

A struct is an object, a list an array, and a map an object where its keys are strings, else an array of pairs: so has
Kafka Connect's JSON converter them. What is inside of them is what a column of its type is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from psql_streamer.events.json import json_text
from psql_streamer.events.json.json_text import Piece, join

Leaf: TypeAlias = Callable[[pa.Array], Piece]

_NULL = pa.scalar(b"null", pa.binary())


def render_made_values(values: pa.Array, leaf: Leaf) -> Piece:
    """The JSON of every value; null stays null. leaf: of a column of a type that holds no others."""
    kind = values.type
    if pa.types.is_struct(kind):
        return Piece(_keep_nulls(values, _render_objects(values, leaf)))
    if pa.types.is_map(kind):
        return Piece(_keep_nulls(values, _render_maps(values, leaf)))
    if is_list(kind):
        return Piece(_keep_nulls(values, _render_arrays(values, leaf)))
    return leaf(values.dictionary_decode() if pa.types.is_dictionary(kind) else values)


def is_list(kind: pa.DataType) -> bool:
    """Of Arrow's several kinds of lists."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def has_names(kind: pa.DataType) -> bool:
    """Whether a map's keys are strings."""
    return bool(pa.types.is_string(kind.key_type) or pa.types.is_large_string(kind.key_type))


def _render_objects(values: pa.Array, leaf: Leaf) -> pa.Array:
    if not values.type.num_fields:
        return pa.repeat(pa.scalar(b"{}", pa.binary()), len(values))
    names = [json_text.render_name(field.name) for field in values.type]
    pieces = [Piece(_render_literals(field, leaf)) for field in values.flatten()]
    return join(*json_text.render_members(names, pieces))


def _render_arrays(values: pa.Array, leaf: Leaf) -> pa.Array:
    lists = values if pa.types.is_list(values.type) else values.cast(pa.list_(values.type.value_type))
    return _join_items(lists, _render_literals(lists.values, leaf), b"[", b"]")


def _render_maps(values: pa.Array, leaf: Leaf) -> pa.Array:
    keys, items = _render_literals(values.keys, leaf), _render_literals(values.items, leaf)
    if has_names(values.type):
        return _join_items(values, join(keys, b":", items), b"{", b"}")
    return _join_items(values, join(b"[", keys, b",", items, b"]"), b"[", b"]")


def _join_items(lists: pa.Array, items: pa.Array, opening: bytes, closing: bytes) -> pa.Array:
    """items: of all lists, those included that a slice of them leaves out."""
    of_each = pa.ListArray.from_arrays(lists.offsets, items)
    return join(opening, pc.binary_join(of_each, b","), closing)


def _render_literals(values: pa.Array, leaf: Leaf) -> pa.Array:
    piece = render_made_values(values, leaf)
    return pc.fill_null(join(piece.open, piece.values, piece.close, nulls=None), _NULL)


def _keep_nulls(values: pa.Array, texts: pa.Array) -> pa.Array:
    return pc.if_else(values.is_valid(), texts, pa.scalar(None, pa.binary()))
