"""Rows as JSON objects: whole images and keys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from psql_streamer.events.json import text as json_text
from psql_streamer.events.json.text import Piece
from psql_streamer.events.json.values import json_values
from psql_streamer.events.rows import Absent, Values
from psql_streamer.model import Column
from psql_streamer.pgtype import JsonForm, PostgresType

_EMPTY = pa.scalar(b"", pa.binary())


def image_json(values: Values, columns: Sequence[Column], rows: int) -> pa.Array:
    """`{"id":1,"name":"x"}` of every row; columns that its image lacks are left out, unless a marker stands there."""
    held = [index for index in range(len(columns)) if not _always(values.absent.get(index))]
    pieces = [_member(values, index, columns[index]) for index in held]
    names = [json_text.name(columns[index].name) for index in held]
    if not held:
        return pa.array([b"{}"] * rows, pa.binary())
    if not values.absent.keys() & set(held):
        return json_text.join(*json_text.members(names, pieces))
    absent = [values.absent.get(index) for index in held]
    return json_text.join(*json_text.members_with_gaps(names, pieces, absent))


def key_json(values: Values, columns: Sequence[Column], key: Sequence[int], rows: int) -> pa.Array:
    """`{"id":1}` of the key columns; null (no key) where there are none.

    Keys that PostgreSQL tells apart are never the same: an array with bounds of its own, which a JSON array does not
    say, or of JSON documents stands as its text form.
    """
    if not key:
        return pa.nulls(rows, pa.binary())
    names = [json_text.name(columns[index].name) for index in key]
    pieces = [_key_member(values.arrays[index], columns[index]) for index in key]
    return json_text.join(*json_text.members(names, pieces))


def names_json(flags: Absent, columns: Sequence[Column]) -> pa.Array:
    """`["a","b"]` of every row: the names of the columns flagged there."""
    parts = [
        pc.if_else(pa.array(flagged), pa.scalar(b"," + json_text.name(columns[index].name), pa.binary()), _EMPTY)
        for index, flagged in sorted(flags.items())
    ]
    return json_text.join(b"[", pc.binary_replace_slice(json_text.join(*parts), 0, 1, b""), b"]")


def _member(values: Values, index: int, column: Column) -> Piece:
    piece = json_values(values.arrays[index], column.type)
    marked = values.marked.get(index)
    return piece if marked is None else json_text.replaced(piece, marked, values.marker)


def _key_member(values: pa.Array, column: Column) -> Piece:
    piece = json_values(values, column.type)
    known = column.type.known if isinstance(column.type, PostgresType) else None
    if known is None or known.element is None:
        return piece
    if known.element.form is JsonForm.EMBEDDED:
        return Piece(json_text.quote(values))  # a null or an array of its own would look like one of PostgreSQL's
    bounded = pc.fill_null(pc.starts_with(values, b"["), False)
    if not bounded.true_count:
        return piece
    rendered = json_text.join(piece.open, piece.values, piece.close, nulls=None)
    return Piece(pc.replace_with_mask(rendered, bounded, json_text.quote(values.filter(bounded))))


def _always(absent: NDArray[np.bool_] | None) -> bool:
    return absent is not None and bool(absent.all())
