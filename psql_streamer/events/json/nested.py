"""Columns of arrays and composites as JSON: all elements of all values go through their type's form at once.

Each distinct value is taken apart once. A value that does not have its type's text form (a type that was altered
while older rows were still in the WAL) goes out as text: it must neither vanish nor stop the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from psql_streamer.events.json import json_text
from psql_streamer.events.json.json_text import Piece
from psql_streamer.pgtype import Attribute, JsonForm
from psql_streamer.pgtypes import arrays, composites


def render_arrays(values: pa.Array, delimiter: str, render: Callable[[pa.Array], Piece]) -> Piece:
    """JSON arrays; null stays null. render: the JSON of a column of elements.

    An array is lossy where an element that is not NULL becomes null, or is lossy itself.
    """
    distinct = pc.dictionary_encode(values)
    parsed = [arrays.parse(text, delimiter.encode()) for text in distinct.dictionary.to_pylist()]
    elements = pa.array(list(chain.from_iterable(parts[1] for parts in parsed if parts)), pa.binary())
    piece = render(elements) if len(elements) else Piece(elements)
    rendered = iter(_render_literals(piece))
    texts: list[bytes | None] = [
        _interleave_elements(parts[0], [next(rendered) for _ in parts[1]]) if parts else None for parts in parsed
    ]
    lost = json_text.find_lost(piece, elements)
    if lost is None:
        return _expand_distinct(distinct, texts)
    held_by = np.repeat(np.arange(len(parsed)), [len(parts[1]) if parts else 0 for parts in parsed])
    lossy = np.zeros(len(parsed), np.bool_)
    lossy[held_by[lost.to_numpy(zero_copy_only=False)]] = True
    return replace(_expand_distinct(distinct, texts), lossy=pc.fill_null(pa.array(lossy).take(distinct.indices), False))


def render_objects(
    values: pa.Array, attributes: Sequence[Attribute], render: Callable[[pa.Array, Attribute], Piece]
) -> Piece:
    """JSON objects with a member for each attribute; null stays null. render: the JSON of a column of an attribute."""
    distinct = pc.dictionary_encode(values)
    parsed = [composites.parse(text, len(attributes)) for text in distinct.dictionary.to_pylist()]
    rows = [row for row in parsed if row is not None]
    if not attributes:
        return _expand_distinct(distinct, [None if row is None else b"{}" for row in parsed])
    columns = [pa.array([row[at] for row in rows], pa.binary()) for at in range(len(attributes))]
    fits = np.ones(len(rows), np.bool_)
    for column, attribute in zip(columns, attributes, strict=True):
        fits &= _match_form(column, attribute.type.form)
    if not fits.all():
        columns = [column.filter(pa.array(fits)) for column in columns]
    names = [json_text.render_name(attribute.name) for attribute in attributes]
    pieces = [render(column, attribute) for column, attribute in zip(columns, attributes, strict=True)]
    objects = iter(json_text.join(*json_text.render_members(names, pieces)).to_pylist())
    good = iter(fits.tolist())
    return _expand_distinct(distinct, [next(objects) if row is not None and next(good) else None for row in parsed])


def _expand_distinct(distinct: pa.DictionaryArray, texts: list[bytes | None]) -> Piece:
    """The JSON of every value from that of the distinct ones; what has none is a string."""
    if None in texts:
        quoted = json_text.quote(distinct.dictionary).to_pylist()
        texts = [literal if text is None else text for text, literal in zip(texts, quoted, strict=True)]
    return Piece(pa.array(texts, pa.binary()).take(distinct.indices))


def _render_literals(piece: Piece) -> list[bytes]:
    literals: list[bytes] = json_text.join(piece.open, piece.values, piece.close).to_pylist()
    return literals


def _interleave_elements(gaps: list[bytes], elements: list[bytes]) -> bytes:
    return b"".join(chain.from_iterable(zip(gaps, elements, strict=False))) + gaps[-1]


# What the fields of a composite must look like so that their form gives JSON. The table's own columns need no such
# look: each of their rows follows the Relation message that holds for it. None: any text gives JSON.
LOOKS: dict[JsonForm, str | None] = {
    JsonForm.TEXT: None,
    JsonForm.TIMESTAMP: None,
    JsonForm.TIMESTAMP_UTC: None,
    JsonForm.ARRAY: None,
    JsonForm.OBJECT: None,
    JsonForm.INTEGER: r"^-?\d+$",
    JsonForm.NUMBER: r"^(-?\d+(\.\d+)?([eE][+-]?\d+)?|NaN|-?Infinity)$",
    JsonForm.BOOLEAN: r"^[tf]$",
    JsonForm.BASE64: r"^\\x([0-9a-f]{2})*$",
    JsonForm.EMBEDDED: r"^\s*[\[{\"tfn\d-]",
}


def _match_form(values: pa.Array, form: JsonForm) -> NDArray[np.bool_]:
    look = LOOKS[form]
    if look is None:
        return np.ones(len(values), np.bool_)
    matched = pc.match_substring_regex(values, look)
    fits: NDArray[np.bool_] = pc.fill_null(matched, True).to_numpy(zero_copy_only=False)
    return fits
