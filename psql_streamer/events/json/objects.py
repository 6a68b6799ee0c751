"""Cells as JSON objects, of many relations at once.

Columns of all relations are numbered as they are met. A cell's number says what stands before its value, and how its
value is written; values that are written alike are written together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from psql_streamer import batching
from psql_streamer.binary_columns import measure_bytes, read_offsets
from psql_streamer.cells import Shape, Tuples
from psql_streamer.events.column_numbers import ColumnNumbers
from psql_streamer.events.json import json_text
from psql_streamer.events.json.json_text import Render
from psql_streamer.events.json.values import OF_ONE, select_plain_renders
from psql_streamer.events.rows import Cells, Mask, Rows
from psql_streamer.few_rows import ABSENT, RowCells
from psql_streamer.growing import GrowingArray
from psql_streamer.model import Column, Index
from psql_streamer.picked_values import PickedValues

Marker: TypeAlias = Callable[[Column], bytes]
"""What stands for a value of a column that the image lacks, as JSON."""

Lost: TypeAlias = Callable[[Index], None]
"""Told which cells of an image became null, or hold a null, for want of a way to write their values."""

One: TypeAlias = Callable[[bytes], bytes | None]
"""Writes one text form as JSON; None for what the type has no JSON for."""

_Changed: TypeAlias = tuple[Index, pa.Array]
"""Cells, and what stands in place of their values."""

_InQuotes: TypeAlias = tuple[Mask, Mask | None]
"""What of a pattern stands in quotes; and which cells do, if they are not all as the pattern says."""

_LEADS = 6
"""In so many ways a member begins: behind a value, as the first one, behind one in quotes; the same with a quote."""

_TAILS = pa.array([b"}", b'"}', b"null", b""], pa.binary())
_NULL, _NO_TAIL = 2, 3
"""Where they stand among the tails."""

_INSTEAD = pa.array([b"", b"null"], pa.binary())
"""What stands in place of a value that stands for itself, and of a null."""

_NOTHING = pa.scalar(b"{}", pa.binary())
_NO_LEADS = pa.array([], pa.binary())


def collect_columns(at: Index, cells: Cells, rows: Rows) -> tuple[Sequence[Column], Index, Index]:
    """The columns that some cells are of, which of these each is of, and its row."""
    row = np.searchsorted(cells.tuples.begins, at, side="right") - 1
    code = rows.shape[row].astype(np.int64) << 16 | cells.list_places()[at]
    distinct, which = np.unique(code, return_inverse=True)
    return [rows.shapes[one >> 16].columns[one & 0xFFFF] for one in distinct.tolist()], which, row


def count_by_column(at: Index, cells: Cells, rows: Rows) -> Mapping[str, int]:
    """schema.table.column -> how many of some cells are of it."""
    columns, which, row = collect_columns(at, cells, rows)
    _, firsts, counts = np.unique(which, return_index=True, return_counts=True)
    found = Counter[str]()
    for column, shape, count in zip(columns, rows.shape[row[firsts]].tolist(), counts.tolist(), strict=True):
        found[f"{rows.shapes[shape].relation}.{column.name}"] += count  # a table may have several shapes
    return found


class WrittenByColumn(Exception):
    """A value is of a type whose values are written by column always."""


class Objects:
    """Writes cells as objects. render: how the values of a column are written; equal renders are called together. one:
    how one of them is; None: as a column of PostgreSQL's type.

    Columns keep their numbers from batch to batch. For one thread.
    """

    def __init__(self, render: Callable[[Column], Render], one: Callable[[Column], One | None] | None = None) -> None:
        self._render = render
        self._one = one
        self._numbers = ColumnNumbers(self._add, self._forget)
        self._known = _Numbered()
        self._renders: dict[Render, int] = {}

    def write(self, cells: Cells, rows: Rows, marker: Marker | None = None, lost: Lost | None = None) -> pa.Array:
        """`{"id":1,"name":"x"}` of every row; what its tuple lacks is left out."""
        known, firsts = self._number_shapes(rows.shapes)
        picked = cells.tuples.picked
        if len(picked) <= batching.FEW_CELLS and not _are_long(picked):
            with suppress(WrittenByColumn):
                return _write_few(known, firsts, cells, rows)
        return _Writing(known, np.array(firsts, np.int32), cells, rows, marker, lost).write()

    def make_singles(self, shapes: Sequence[Shape], complete: bool = False) -> Singles:
        """What writes one image at a time. complete: whether what an image lacks is null."""
        return Singles(*self._number_shapes(shapes), complete)

    def _number_shapes(self, shapes: Sequence[Shape]) -> tuple[_Numbered, Sequence[int]]:
        """All columns that are known, and for each shape the number of its first one."""
        firsts = self._numbers.number_shapes(shapes)
        return self._known, firsts

    def _add(self, columns: tuple[Column, ...]) -> int:
        first = len(self._known.names)
        for column in columns:
            render = self._render(column)
            kind = self._renders.setdefault(render, len(self._renders))
            if kind == len(self._known.renders):
                self._known.renders.append(render)
            self._known.kinds.append(kind)
            self._known.names.append(json_text.render_name(column.name))
            self._known.of_one.append(OF_ONE.get(render) if self._one is None else self._one(column))
        return first

    def _forget(self) -> None:
        self._renders.clear()
        self._known = _Numbered()


def _render_leads(name: bytes) -> tuple[bytes, ...]:
    """As _LEADS counts them."""
    bare = b"," + name + b":", b"{" + name + b":", b'",' + name + b":"
    return *bare, *(lead + b'"' for lead in bare)


class _Numbered:
    """Columns by number; more come behind them. kinds: for each its render's place in renders.

    names: their literals. of_one: what writes a single value of them; None: they go by column always.
    """

    def __init__(self) -> None:
        self.renders: list[Render] = []
        self.names: list[bytes] = []
        self.kinds: list[int] = []
        self.of_one: list[One | None] = []
        self._leads = _NO_LEADS
        self._kind_numbers = GrowingArray(np.int32)

    @property
    def leads(self) -> pa.Array:
        """_LEADS for each column. Few rows are written without, so they are made when somebody asks."""
        if len(self._leads) < _LEADS * len(self.names):
            more = self.names[len(self._leads) // _LEADS :]
            added = pa.array([lead for name in more for lead in _render_leads(name)], pa.binary())
            self._leads = pa.concat_arrays([self._leads, added])
        return self._leads

    @property
    def kind_numbers(self) -> NDArray[np.int32]:
        """The kinds as an array."""
        known = len(self._kind_numbers.array)
        return self._kind_numbers.extend(self.kinds[known:]) if known < len(self.kinds) else self._kind_numbers.array

    def render_member(self, number: int, value: bytes | None) -> bytes:
        """`"id":1` for a value of a column. Raises WrittenByColumn."""
        write = self.of_one[number]
        if write is None:
            raise WrittenByColumn
        if value is None:
            return self.names[number] + b":null"
        written = write(value)
        if written is None:  # it is lost, and counted by column
            raise WrittenByColumn
        return self.names[number] + b":" + written


class SingleWriter(Protocol):
    """Writes images one at a time."""

    def write(self, shape: int, image: RowCells, columns: Sequence[int]) -> bytes:
        """These columns of an image. Raises WrittenByColumn."""


@dataclass(frozen=True, slots=True)
class Singles:
    """Writes images one at a time. firsts: the number of the first column of each shape. complete: as make_singles."""

    known: _Numbered
    firsts: Sequence[int]
    complete: bool

    def write(self, shape: int, image: RowCells, columns: Iterable[int]) -> bytes:
        """`{"id":1,"name":"x"}` of these columns of an image; what it lacks is left out. Raises WrittenByColumn."""
        first, render_member = self.firsts[shape], self.known.render_member
        members = []
        for column in columns:
            value = image[column]
            if value is not ABSENT:
                members.append(render_member(first + column, value))
            elif self.complete:
                members.append(render_member(first + column, None))
        return b"{%s}" % b",".join(members)


def _find_columns_of_all(firsts: NDArray[np.int32], cells: Cells, rows: Rows) -> NDArray[np.int32] | None:
    """The numbers of the columns that each tuple has, whatever table it is of; None where tuples differ."""
    if cells.tuples.absent is not None or not len(rows.shape):
        return None
    shape = int(rows.shape[0])
    if rows.only is None:
        of_rows = firsts[rows.shape]
        if (of_rows != of_rows[0]).any() or not _are_same(cells.place, cells.tuples.widths):
            return None
    found: NDArray[np.int32] = firsts[shape] + cells.list_shape_columns(rows, shape)
    return found


def _are_same(place: Index | None, widths: Index) -> bool:
    """Whether tuples of the same columns have the same ones of them. place: of each cell; None: they have all.

    Not if they have none: the columns of a table without any have the number of another table's first one.
    """
    width = int(widths[0])
    if not width or (widths != width).any():
        return False
    return place is None or bool((place.reshape(-1, width) == place[:width]).all())


def _write_few(known: _Numbered, firsts: Sequence[int], cells: Cells, rows: Rows) -> pa.Array:
    """As Objects.write, value by value. Raises WrittenByColumn."""
    tuples = cells.tuples
    if cells.marked is not None or tuples.typed:
        raise WrittenByColumn
    values, places, begins = tuples.values.to_pylist(), cells.list_places().tolist(), tuples.begins.tolist()
    absent = None if tuples.absent is None else tuples.absent.tolist()
    objects = []
    for shape, begin, end in zip(rows.shape.tolist(), begins, begins[1:], strict=False):
        held = (cell for cell in range(begin, end) if absent is None or not absent[cell])
        members = [known.render_member(firsts[shape] + places[cell], values[cell]) for cell in held]
        objects.append(b"{%s}" % b",".join(members))
    return pa.array(objects, pa.binary())


class _Writing:
    """One image of rows on its way to JSON.

    Tuples of one relation that lack nothing are alike: what is known of the columns of one holds for all. `pattern` has
    the columns' numbers, of one tuple or of all cells.
    """

    def __init__(
        self,
        known: _Numbered,
        firsts: NDArray[np.int32],
        cells: Cells,
        rows: Rows,
        marker: Marker | None,
        lost: Lost | None,
    ) -> None:
        self._known = known
        self._cells = cells
        self._rows = rows
        self._marker = marker
        self._lost = lost
        self._tuples = tuples = cells.tuples
        self._marked = cells.marked
        self._at: Index | None = None  # which cells of the image these are; None: all
        of_all = _find_columns_of_all(firsts, cells, rows)
        self._alike = of_all is not None
        if of_all is not None:
            self._pattern = of_all
            return
        numbers = np.repeat(firsts[rows.shape], tuples.widths) + cells.list_places().astype(np.int32)
        if tuples.absent is not None:
            self._at = np.flatnonzero(~tuples.absent)
            self._tuples = drop_absent(tuples, self._at)
            self._marked = None if cells.marked is None else cells.marked[self._at]
            numbers = numbers[self._at]
        self._pattern = numbers

    def write(self) -> pa.Array:
        """An object for each row."""
        begins = self._tuples.begins
        held = begins[1:] > begins[:-1]
        every = bool(held.all())
        if not held.any():
            return pa.repeat(_NOTHING, len(held))
        changed, in_quotes = self._render_changed()
        frame = self._compute_frame(in_quotes, begins if every else begins[np.append(True, held)])
        long = _are_long(self._tuples.picked)
        objects = self._join_objects(*frame, changed) if long or not every else self._gather_objects(*frame, changed)
        return objects if every else pc.if_else(pa.array(held), objects, _NOTHING)

    def _compute_frame(self, in_quotes: _InQuotes, begins: Index) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """What stands before each value, and what behind each tuple, as places among leads and tails; of one tuple if
        all are alike. begins: of tuples with cells.
        """
        quoted, exceptions = in_quotes
        pattern = self._pattern
        if self._alike and exceptions is None:
            begins = np.array([0, len(pattern)])
        elif self._alike:
            pattern = np.tile(pattern, len(self._tuples))
        if exceptions is not None:
            quoted = exceptions
        leads = pattern * _LEADS + 3 * quoted
        leads[1:] += 2 * quoted[:-1]
        first = begins[:-1]
        leads[first] = pattern[first] * _LEADS + 3 * quoted[first] + 1
        return leads, quoted[begins[1:] - 1].astype(np.int32)

    def _gather_objects(
        self, leads: NDArray[np.int32], tails: NDArray[np.int32], changed: Sequence[_Changed]
    ) -> pa.Array:
        values, begins, base = self._tuples.picked, self._tuples.begins, len(_TAILS) + len(self._known.leads)
        which = values.number_elements(base)
        self._substitute(which, changed, base + values.count_elements(), _NULL)
        pool = [_TAILS, self._known.leads, *values.arrays, *(others for _, others in changed)]
        rows = len(self._tuples)
        if self._alike:
            width = len(self._pattern)
            pieces = np.empty((rows, 2 * width + 1), np.int32)
            pieces[:, 0:-1:2] = leads.reshape(-1, width) + len(_TAILS)
            pieces[:, 1:-1:2] = which.reshape(rows, width)
            pieces[:, -1] = tails
            return json_text.gather(pool, pieces.reshape(-1), slice(0, None, 2 * width + 1))
        mixed = np.empty(2 * len(values) + rows, np.int32)
        at = 2 * np.arange(len(values)) + np.repeat(np.arange(rows), self._tuples.widths)
        ends = 2 * begins + np.arange(rows + 1)
        mixed[at] = leads + len(_TAILS)
        mixed[at + 1] = which
        mixed[ends[1:] - 1] = tails
        return json_text.gather(pool, mixed, ends)

    def _join_objects(
        self, leads: NDArray[np.int32], tails: NDArray[np.int32], changed: Sequence[_Changed]
    ) -> pa.Array:
        """The same with one copy of the values: those that others stand in for count as null, and nulls as nothing."""
        values, begins = self._tuples.values, self._tuples.begins
        placed = [one for one in changed if _can_be_placed(*one)]
        pooled = [one for one in changed if not _can_be_placed(*one)]
        pool = [_INSTEAD, *(texts for _, texts in pooled)]
        others = np.zeros(len(values), np.int32)
        self._substitute(others, pooled, len(_INSTEAD), 1)
        own = others == 0
        for at, _ in placed:
            own[at] = False
        behind = np.full(len(values), _NO_TAIL, np.int32)
        behind[begins[1:][begins[1:] > begins[:-1]] - 1] = tails
        members = json_text.join(
            self._known.leads.take(pa.array(np.resize(leads, len(values)))),
            _mask_others(values, own),
            pa.concat_arrays(pool).take(pa.array(others)),
            *(_place_texts(at, texts, len(values)) for at, texts in placed),
            _TAILS.take(pa.array(behind)),
            nulls=b"",
        )
        bounds = np.ascontiguousarray(read_offsets(members)[begins])
        return pa.Array.from_buffers(
            members.type, len(self._tuples), [None, pa.py_buffer(bounds), members.buffers()[2]]
        )

    def _substitute(self, which: NDArray[np.int32], changed: Sequence[_Changed], first: int, null: int) -> None:
        """Write what stands for each cell into `which`, as places in a pool: null for a null, else the changed texts,
        which follow each other from `first` on; the others are there.
        """
        nulls = self._tuples.picked.find_nulls()
        if nulls is not None:
            which[nulls] = null
        for at, texts in changed:
            which[at] = np.arange(first, first + len(texts), dtype=np.int32)
            if texts.null_count:
                which[at[texts.is_null().to_numpy(zero_copy_only=False)]] = null
            first += len(texts)

    def _render_changed(self) -> tuple[Sequence[_Changed], _InQuotes]:
        """The values whose JSON is not their text as it is, without their quotes; and what stands in quotes."""
        usable = self._find_usable()
        in_quotes = np.zeros(len(self._pattern), np.bool_)
        rendered = [*self._render_texts(usable, in_quotes), *self._render_typed()]
        changed = [one for one, _ in rendered] + list(self._render_markers())
        exceptions = [at for (at, _), quoted in rendered if quoted]
        if usable is None and not exceptions:
            return changed, (in_quotes, None)
        of_cells = np.tile(in_quotes, len(self._tuples)) if self._alike else in_quotes
        if usable is not None:
            of_cells = of_cells & usable
        for at in exceptions:
            of_cells[at] = True
        return changed, (in_quotes, of_cells)

    def _render_texts(self, usable: Mask | None, in_quotes: Mask) -> Iterator[tuple[_Changed, bool]]:
        """Text forms that change, and whether they stand in quotes though `in_quotes`, which is filled in, does not say
        so.
        """
        values, renders, kinds = self._tuples.picked, self._known.renders, self._known.kind_numbers[self._pattern]
        there = np.flatnonzero(np.bincount(kinds)).tolist()
        plain = select_plain_renders(values.arrays, {renders[kind] for kind in there})
        for kind in there:
            mine, render = kinds == kind, renders[kind]
            if render in plain:
                if plain[render]:
                    in_quotes |= mine
                continue
            at = self._select_cells(mine, usable)
            if not len(at):
                continue
            one, quoted = self._render_cells(render, at, _select_picked(values, at))
            if quoted and usable is None:
                in_quotes |= mine
                quoted = False
            yield one, quoted

    def _select_cells(self, of_pattern: Mask, usable: Mask | None) -> Index:
        """The cells of which this is true, and that have a value."""
        if not self._alike:
            return np.flatnonzero(of_pattern if usable is None else of_pattern & usable)
        columns, width = np.flatnonzero(of_pattern), len(of_pattern)
        cells = (np.arange(len(self._tuples))[:, None] * width + columns).reshape(-1)
        return cells if usable is None else cells[usable[cells]]

    def _find_usable(self) -> Mask | None:
        """Which cells have a value; None: all of them."""
        nulls = self._tuples.picked.find_nulls()
        usable = None if nulls is None else ~nulls
        if self._marked is None:
            return usable
        return ~self._marked if usable is None else usable & ~self._marked

    def _render_cells(self, render: Render, at: Index, values: pa.Array) -> tuple[_Changed, bool]:
        """These cells' JSON, and whether they stand in quotes besides."""
        piece = render(values)
        if self._lost is not None and (lost := json_text.find_lost(piece, values)) is not None and lost.true_count:
            lost_at = at[lost.to_numpy(zero_copy_only=False)]
            self._lost(lost_at if self._at is None else self._at[lost_at])
        if piece.open == piece.close == b'"':
            return (at, piece.values), True
        return (at, piece.values if not piece.open else json_text.join(piece.open, piece.values, piece.close)), False

    def _render_typed(self) -> Iterator[tuple[_Changed, bool]]:
        kinds = self._known.kind_numbers[self._pattern]
        for cells in self._tuples.typed:
            usable = cells.values.is_valid().to_numpy(zero_copy_only=False)
            if self._marked is not None:
                usable &= ~self._marked[cells.at]
            of_cells = kinds[cells.at % len(kinds)]
            for kind in np.unique(of_cells[usable]).tolist():
                mine = np.flatnonzero(usable & (of_cells == kind))
                yield self._render_cells(self._known.renders[kind], cells.at[mine], _select_values(cells.values, mine))

    def _render_markers(self) -> Iterator[_Changed]:
        if self._marked is None or self._marker is None:
            return
        at = np.flatnonzero(self._marked)
        columns, which, _ = collect_columns(at if self._at is None else self._at[at], self._cells, self._rows)
        yield at, pa.array([self._marker(column) for column in columns], pa.binary()).take(pa.array(which))


def drop_absent(tuples: Tuples, present: Index) -> Tuples:
    """Tuples without the cells that they lack; they no longer have one for each column."""
    before = np.zeros(len(tuples.picked) + 1, np.int64)
    before[1:][present] = 1
    return Tuples(
        tuples.rows,
        np.cumsum(before)[tuples.begins],
        tuples.picked.take(present),
        None,
        tuple(typed.select_cells(present) for typed in tuples.typed),
    )


def _are_long(picked: PickedValues) -> bool:
    """Whether the values are, on average: those that lie beside them are taken for alike."""
    return sum(map(measure_bytes, picked.arrays)) > json_text.LONG * picked.count_elements()


def _select_picked(picked: PickedValues, at: Index) -> pa.Array:
    return picked.make_array() if len(at) == len(picked) else picked.take(at)


def _select_values(values: pa.Array, at: Index) -> pa.Array:
    return values if len(at) == len(values) else values.take(pa.array(at))


def _can_be_placed(at: Index, texts: pa.Array) -> bool:
    """Whether they are worth, and fit for, _place_texts."""
    return json_text.are_long(texts) and not texts.null_count and bool((at[1:] > at[:-1]).all())


def _place_texts(at: Index, texts: pa.Array, cells: int) -> pa.Array:
    """The texts at these places among so many cells, and nothing elsewhere, without a copy: one may have 1 GB."""
    held = read_offsets(texts)
    bounds = np.zeros(cells + 1, held.dtype)
    bounds[0], bounds[at + 1] = held[0], np.diff(held)
    return pa.Array.from_buffers(
        texts.type, cells, [None, pa.py_buffer(np.cumsum(bounds, dtype=held.dtype)), texts.buffers()[2]]
    )


def _mask_others(values: pa.Array, chosen: Mask) -> pa.Array:
    """The values with null in place of the others, without a copy."""
    valid = np.packbits(chosen, bitorder="little")
    held = read_offsets(values)
    return pa.Array.from_buffers(
        values.type, len(values), [pa.py_buffer(valid), pa.py_buffer(np.ascontiguousarray(held)), values.buffers()[2]]
    )
