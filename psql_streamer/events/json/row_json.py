"""Images and keys of rows as JSON, and what a row lacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from psql_streamer.cells import Shape
from psql_streamer.events.json import json_text
from psql_streamer.events.json.json_text import Piece, Render, render_quoted
from psql_streamer.events.json.objects import Objects, Singles, collect_columns
from psql_streamer.events.json.values import choose_render
from psql_streamer.events.rows import Cells, Rows
from psql_streamer.model import Column, find_text_form
from psql_streamer.pgtype import JsonForm, PgType, PostgresType

_NO_TEXT = pa.scalar(None, pa.binary())


class RowJson:
    """Writes images and keys of rows. Remembers the columns that it met: for one thread."""

    def __init__(self) -> None:
        self._images, self._keys = Objects(_choose_image_render), Objects(_choose_key_render)

    def make_singles(self, shapes: Sequence[Shape]) -> tuple[Singles, Singles]:
        """What writes single images of relations, and what writes single keys."""
        return self._images.make_singles(shapes), self._keys.make_singles(shapes)

    def render_images(self, cells: Cells, rows: Rows) -> pa.Array:
        """`{"id":1,"name":"x"}` of every row; columns that its image lacks are left out, unless they are marked."""
        literal = json_text.render_name(rows.marker)
        return self._images.write(cells, rows, lambda _: literal)

    def render_keys(self, rows: Rows) -> pa.Array:
        """`{"id":1}` of the key columns of every row; null (no key) where there are none.

        Keys that PostgreSQL tells apart are never the same: an array with bounds of its own, which a JSON array does
        not say, or of JSON documents stands as its text form.
        """
        return render_keyed(rows, lambda: self._keys.write(rows.select_key_cells(rows.image), rows))


def render_keyed(rows: Rows, write: Callable[[], pa.Array]) -> pa.Array:
    """What is written of the keys; null for rows that have none."""
    keyed = rows.keyed
    if not keyed.any():
        return pa.nulls(len(rows), pa.binary())
    return write() if keyed.all() else pc.if_else(pa.array(keyed), write(), _NO_TEXT)


def render_unchanged(rows: Rows) -> pa.Array:
    """`["a","b"]` of every row: the columns that it lacks because an update left their TOASTed values alone; null for a
    row that lacks none.
    """
    if rows.new is None or rows.unchanged is None:
        return pa.nulls(len(rows), pa.binary())
    cells = np.flatnonzero(rows.unchanged)
    columns, which, row = collect_columns(cells, rows.new, rows)
    names = pa.array([json_text.render_name(column.name) for column in columns], pa.binary()).take(pa.array(which))
    counts = np.bincount(row, minlength=len(rows))
    begins = np.append(0, np.cumsum(counts)).astype(np.int32)
    of_rows = pc.binary_join(pa.ListArray.from_arrays(pa.array(begins), names), b",")
    return pc.if_else(pa.array(counts > 0), json_text.join(b"[", of_rows, b"]"), _NO_TEXT)


def render_unchanged_member(lead: bytes, rows: Rows) -> pa.Array:
    """The same as a member of the row's event, behind its lead; nothing for a row that lacks none."""
    return pc.fill_null(json_text.join(lead, render_unchanged(rows), nulls=None), b"")


def _choose_image_render(column: Column) -> Render:
    return choose_render(column.type)


def _choose_key_render(column: Column) -> Render:
    form = find_text_form(column.type)
    known = None if form is None else form.known
    return choose_render(column.type) if known is None or known.element is None else _make_key_array_render(known)


@lru_cache(maxsize=1 << 10)
def _make_key_array_render(kind: PgType) -> Render:
    """A null or an array inside of a document would look like one of PostgreSQL's; JSON arrays have no bounds."""
    assert kind.element is not None  # noqa: S101 - it is an array
    if kind.element.form is JsonForm.EMBEDDED:
        return render_quoted
    render = choose_render(PostgresType(0, -1, kind))

    def render_unless_bounded(values: pa.Array) -> Piece:
        piece = render(values)
        bounded = pc.fill_null(pc.starts_with(values, b"["), False)
        if not bounded.true_count:
            return piece
        rendered = json_text.join(piece.open, piece.values, piece.close, nulls=None)
        return Piece(pc.replace_with_mask(rendered, bounded, json_text.quote(values.filter(bounded))))

    return render_unless_bounded
