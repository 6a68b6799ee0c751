"""The row changes of a batch as one table of cells, whatever relations they are of.

The images of all rows lie one behind the other, cell by cell, as pgoutput sends them. What is done to cells is then
done once for a batch, and not once for each of a relation's columns: a batch of a thousand tables costs what its cells
cost. Views by relation, with an array a column, are made for those who ask: rules, and sinks that want columns.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Generic, NamedTuple, TypeVar, overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from psql_streamer.binary_columns import measure_bytes, read_offsets
from psql_streamer.columns import ChosenCells, Columns, choose_each, list_held_arrays
from psql_streamer.model import (
    ADDRESS,
    PER_ROW,
    UNKNOWN_OF_ROW,
    ArrowType,
    BatchChanges,
    Changes,
    Column,
    Counted,
    Image,
    Index,
    Relation,
    RowOp,
    Shift,
    select_row_fields,
)
from psql_streamer.picked_values import PickedValues

Made = TypeVar("Made")

_NO_CELLS = pa.array([], pa.binary())


@dataclass(frozen=True, slots=True)
class ArrowCells:
    """Cells whose values are Arrow's, of one type; in Tuples.values they are null. at: which, increasing."""

    at: Index
    values: pa.Array

    def find(self, cells: Index) -> Index:
        """For each cell which of the values it is, -1 for none of them."""
        if not len(self.at):
            return np.full(len(cells), -1)
        at = np.minimum(np.searchsorted(self.at, cells), len(self.at) - 1)
        return np.where(self.at[at] == cells, at, -1)

    def select_cells(self, cells: Index) -> ArrowCells:
        """Those of some cells, which are numbered anew. cells: increasing within a tuple, and from tuple to tuple."""
        found = self.find(cells)
        there = np.flatnonzero(found >= 0)
        return ArrowCells(there, self.values.take(pa.array(found[there])))


@dataclass(frozen=True)
class Tuples:
    """One image (old or new) of rows: the cells of one tuple behind those of the one before.

    rows: index into the table's rows, strictly increasing: which row each tuple belongs to.
    begins: where the cells of each tuple begin, and where those of the last one end. A tuple has a cell for each column
        of its row's relation.
    held: the values, `binary`, PostgreSQL's text forms; null is SQL NULL, or what `absent` says. An array, or where in
        others they lie.
    absent: for each cell whether the image lacks it (a key-only old row, unchanged TOAST); None: no image lacks any.
    typed: cells of columns of Arrow's types, by their number among these.
    addresses: of each tuple, as Image has them.
    """

    rows: Index
    begins: Index
    held: pa.Array | PickedValues
    absent: NDArray[np.bool_] | None = None
    typed: tuple[ArrowCells, ...] = ()
    addresses: pa.StructArray | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def values(self) -> pa.Array:
        """The values as an array of their own."""
        return self.held.make_array() if isinstance(self.held, PickedValues) else self.held

    @property
    def picked(self) -> PickedValues:
        """The values where they lie."""
        return self.held if isinstance(self.held, PickedValues) else PickedValues((self.held,))

    @property
    def widths(self) -> Index:
        """How many cells each tuple has."""
        return np.diff(self.begins)

    def measure_sizes(self) -> Index:
        """Bytes of the values of each tuple. Where values are Arrow's, each is as large as their average."""
        if isinstance(self.held, PickedValues):
            bounds = np.append(0, np.cumsum(self.held.measure_each()))
        else:
            bounds = read_offsets(self.held).astype(np.int64)
        found = np.diff(bounds[self.begins])
        for cells in self.typed:
            each = measure_bytes(cells.values) // max(1, len(cells.at))
            found += each * np.diff(np.searchsorted(cells.at, self.begins))
        return found

    def find_cells(self, tuples: Index) -> tuple[Index, Index]:
        """Where the cells of each of these tuples begin, put one behind the other; and which cells these are."""
        begins = np.zeros(len(tuples) + 1, np.int64)
        np.cumsum(self.widths[tuples], out=begins[1:])
        return begins, expand_ranges(self.begins[:-1][tuples], begins)

    def take(self, chosen: Index, rows: Index) -> Tuples:
        """Some of the tuples. chosen: which, increasing. rows: the rows that they belong to from now on."""
        if len(chosen) == len(self):
            return replace(self, rows=rows)
        begins, cells = self.find_cells(chosen)
        return Tuples(
            rows,
            begins,
            self.picked.take(cells),
            _drop_if_all_false(None if self.absent is None else self.absent[cells]),
            tuple(typed.select_cells(cells) for typed in self.typed),
            None if self.addresses is None else self.addresses.take(pa.array(chosen)),
        )

    def narrow(self, cells: Index) -> Tuples:
        """The tuples with these of their cells. cells: which, increasing."""
        return replace(
            self,
            begins=np.searchsorted(cells, self.begins),
            held=self.picked.take(cells),
            absent=_drop_if_all_false(None if self.absent is None else self.absent[cells]),
            typed=tuple(typed.select_cells(cells) for typed in self.typed),
        )

    def slice(self, begin: int, end: int) -> Tuples:
        """The tuples of the rows in [begin, end), without a copy."""
        first, last = np.searchsorted(self.rows, (begin, end)).tolist()
        low, high = int(self.begins[first]), int(self.begins[last])
        return Tuples(
            self.rows[first:last] - begin,
            self.begins[first : last + 1] - low,
            self.values[low:high],
            _drop_if_all_false(None if self.absent is None else self.absent[low:high]),
            tuple(_slice_cells(typed, low, high) for typed in self.typed),
            None if self.addresses is None else self.addresses[first:last],
        )

    @classmethod
    def concat(cls, parts: Sequence[Tuples], rows_before: Sequence[int]) -> Tuples:
        """One behind the other. rows_before: of each, how many rows stand before its own."""
        cells_before = np.cumsum([0, *(len(part.values) for part in parts)]).tolist()
        return cls(
            np.concatenate([part.rows + before for part, before in zip(parts, rows_before, strict=True)]),
            np.concatenate(
                [
                    *(part.begins[:-1] + before for part, before in zip(parts, cells_before, strict=False)),
                    [cells_before[-1]],
                ]
            ),
            pa.concat_arrays([part.values for part in parts]),
            join_arrays([(part.absent, len(part.values)) for part in parts], False),
            group_by_type(
                ArrowCells(typed.at + before, typed.values)
                for part, before in zip(parts, cells_before, strict=False)
                for typed in part.typed
            ),
            join_addresses([(part.addresses, len(part)) for part in parts]),
        )


NO_TUPLES = Tuples(np.empty(0, np.int64), np.zeros(1, np.int64), _NO_CELLS)


class Shape(NamedTuple):
    """A relation, and the columns that its cells are of: the relation's own, unless a handler made others."""

    relation: Relation
    columns: tuple[Column, ...]


class Tabular(BatchChanges):
    """Row changes that are a table of cells, or become one when asked for."""

    @property
    @abstractmethod
    def cells(self) -> CellTable:
        """The table. It is made once."""


@dataclass(frozen=True, eq=False)
class CellTable(Tabular):
    """Row changes, in their batch order; all arrays but the images' have one element a row.

    shapes: relations, each with the columns that its cells are of; some may have no rows. Batches of one session have
    the same list, to which shapes are only added, so that what is made of a shape can be kept. shape: index into it.
    The other fields are as Changes has them.
    """

    shapes: Sequence[Shape]
    shape: NDArray[np.int32]
    batch_order: Index
    op: NDArray[np.uint8]
    seq: Index
    tx: NDArray[np.int32]
    after: Tuples
    before: Tuples
    place: NDArray[np.uint64] | None = None
    table_seq: Index | None = None
    uuid: NDArray[np.bytes_] | None = None
    part: NDArray[np.void] | None = None
    record_time: Index | None = None

    @property
    def cells(self) -> CellTable:
        return self

    @property
    def rows(self) -> int:
        return len(self.shape)

    @property
    def overhead(self) -> int:
        return _TABLE_OBJECTS

    @property
    def next_batch_order(self) -> int:
        return int(self.batch_order[-1]) + 1 if len(self.batch_order) else 0

    def count_rows(self) -> Iterator[Counted]:
        sizes = np.zeros(self.rows, np.int64)
        for image in (self.after, self.before):
            sizes[image.rows] += image.measure_sizes()
        kinds = self.shape * len(_OPS) + _NUMBER_OF_OP[self.op]
        rows, held = np.bincount(kinds), np.bincount(kinds, weights=sizes)
        found = np.flatnonzero(rows)
        for kind, count, size in zip(found.tolist(), rows[found].tolist(), held[found].tolist(), strict=True):
            shape, op = divmod(kind, len(_OPS))
            yield Counted(self.shapes[shape].relation, _OPS[op], count, int(size))

    @overload
    def __getitem__(self, index: int) -> Changes: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Changes]: ...
    def __getitem__(self, index: int | slice) -> Changes | Sequence[Changes]:
        return self._views[index]

    def __len__(self) -> int:
        return int(np.count_nonzero(np.bincount(self.shape)))

    def take(self, rows: Index) -> CellTable:
        """These rows. rows: indexes, increasing."""
        if len(rows) == self.rows:
            return self
        return self._select_rows(rows, lambda image: select_tuples(image, rows))

    def select_between(self, first: int, last: int) -> CellTable:
        """The rows whose batch order lies in [first, last), without a copy."""
        begin, end = np.searchsorted(self.batch_order, (first, last)).tolist()
        return self._select_rows(slice(begin, end), lambda image: image.slice(begin, end))

    def shift_rows(self, by: Shift) -> CellTable:
        """The same behind other batches."""
        return replace(self, batch_order=self.batch_order + by.rows, tx=self.tx + np.int32(by.transactions))

    @classmethod
    def concat(cls, parts: Sequence[CellTable]) -> CellTable:
        """One behind the other: the batch orders of each part are greater than those before."""
        parts = [part for part in parts if part.rows]
        if len(parts) < 2:
            return parts[0] if parts else NO_CELLS
        shapes, numbered = _join_shapes(parts)
        before = np.cumsum([0, *(part.rows for part in parts[:-1])]).tolist()
        arrays = {
            name: join_arrays([(getattr(part, name), part.rows) for part in parts], UNKNOWN_OF_ROW.get(name))
            for name in PER_ROW
        }
        return cls(
            shapes,
            np.concatenate(numbered),
            **arrays,
            after=Tuples.concat([part.after for part in parts], before),
            before=Tuples.concat([part.before for part in parts], before),
        )

    def drop_shapes(self, shapes: NDArray[np.bool_]) -> CellTable:
        """The rows of other shapes. shapes: for each whether it goes."""
        if not shapes.any():
            return self
        return self.take(np.flatnonzero(~shapes[self.shape]))

    @cached_property
    def _views(self) -> tuple[Changes, ...]:
        order = np.argsort(self.shape, kind="stable")
        there = np.flatnonzero(np.bincount(self.shape))
        bounds = np.append(np.searchsorted(self.shape[order], there), len(order)).tolist()
        return tuple(
            self._view(number, order[begin:end])
            for number, (begin, end) in zip(there.tolist(), pairwise(bounds), strict=True)
        )

    def _view(self, number: int, rows: Index) -> Changes:
        shape = self.shapes[number]
        return Changes(
            shape.relation,
            shape.columns,
            self.batch_order[rows],
            self.op[rows],
            self.seq[rows],
            self.tx[rows],
            _build_image(self.after, rows, shape.columns),
            _build_image(self.before, rows, shape.columns),
            **select_known_fields(self, rows),
        )

    def select_views(self, shapes: NDArray[np.bool_]) -> tuple[Changes, ...]:
        """By relation, the changes of some of the shapes. shapes: for each whether it is wanted."""
        return tuple(self.drop_shapes(~shapes))

    @classmethod
    def from_changes(cls, parts: Iterable[Changes]) -> CellTable:
        """Changes by relation as one table. Their rows are put into batch order."""
        held = [part for part in parts if len(part)]
        if not held:
            return NO_CELLS
        batch_order = np.concatenate([part.batch_order for part in held])
        order = np.argsort(batch_order, kind="stable")
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        placed = np.split(place, np.cumsum([len(part) for part in held[:-1]]))
        joined = {
            name: join_arrays([(getattr(part, name), len(part)) for part in held], UNKNOWN_OF_ROW.get(name))
            for name in PER_ROW
        }
        arrays: dict[str, Any] = {name: None if array is None else array[order] for name, array in joined.items()}
        return cls(
            tuple(Shape(part.relation, part.columns) for part in held),
            np.repeat(np.arange(len(held), dtype=np.int32), [len(part) for part in held])[order],
            **arrays,
            after=_build_tuples([(part.after, part.columns) for part in held], placed),
            before=_build_tuples([(part.before, part.columns) for part in held], placed),
        )

    @classmethod
    def merge(cls, parts: Sequence[CellTable]) -> CellTable:
        """Tables whose rows stand between each other's, as one."""
        table = cls.concat(parts)
        if (table.batch_order[1:] >= table.batch_order[:-1]).all():
            return table
        order = np.argsort(table.batch_order, kind="stable")
        return table._select_rows(order, lambda image: _reorder_tuples(image, order))

    def _select_rows(self, rows: Index | slice, of_image: Callable[[Tuples], Tuples]) -> CellTable:
        return replace(
            self,
            shape=self.shape[rows],
            op=self.op[rows],
            **select_row_fields(self, rows),
            after=of_image(self.after),
            before=of_image(self.before),
        )


_OPS = tuple(RowOp)

_NUMBER_OF_OP = np.zeros(256, np.int32)
_NUMBER_OF_OP[list(_OPS)] = np.arange(len(_OPS))

_MOST_LISTS = 16

_MOST_HELD_COLUMNS = 100_000
"""Of how many columns OfShapes holds the shapes, besides those of its lists: 13 MB, if each shape has columns of its
own."""

_COLUMNS_A_SHAPE = 8
"""What a shape takes itself, in columns."""

_MOST_LEFT_OUT = 2
"""Elements of arrays in which values lie, for each value, up to which they stay there."""

_TABLE_OBJECTS = 8192
"""Bytes of a table's objects, whatever it holds."""

NO_CELLS = CellTable(
    (),
    np.empty(0, np.int32),
    np.empty(0, np.int64),
    np.empty(0, np.uint8),
    np.empty(0, np.int64),
    np.empty(0, np.int32),
    NO_TUPLES,
    NO_TUPLES,
)


class OfShapes(Generic[Made]):
    """Something of each shape of a list, made once. make: of one shape. For one thread.

    A few lists are remembered: one for each source's session, if it is one of theirs. What rules make comes in a new
    list with every batch: its shapes are known by their relations and columns, as long as these are the same objects.
    Who makes these anew for every batch finds nothing again, and what is held of them has a bound.
    """

    def __init__(self, make: Callable[[Shape], Made]) -> None:
        self._make = make
        self._of_lists: dict[int, tuple[Sequence[Shape], list[Made]]] = {}
        self._of_objects: dict[tuple[int, int], tuple[Shape, Made]] = {}
        self._size = 0

    def make_each(self, shapes: Sequence[Shape]) -> list[Made]:
        """By shape. The list grows as the other does."""
        held = self._of_lists.pop(id(shapes), (shapes, []))
        if len(self._of_lists) >= _MOST_LISTS:
            self._of_lists.pop(next(iter(self._of_lists)))  # what was not asked for the longest
        self._of_lists[id(shapes)] = held
        found = held[1]
        while len(found) < len(shapes):
            found.append(self._find(shapes[len(found)]))
        return found

    def _find(self, shape: Shape) -> Made:
        """What was made of a shape of the same objects, or is now. The objects are held, so that no others get their
        ids.
        """
        key = id(shape.relation), id(shape.columns)
        if key not in self._of_objects:
            made = self._make(shape)
            if self._size >= _MOST_HELD_COLUMNS:
                self._of_objects.clear()
                self._size = 0
            self._of_objects[key] = shape, made
            self._size += len(shape.columns) + _COLUMNS_A_SHAPE
        return self._of_objects[key][1]


def convert_to_cells(changes: Sequence[Changes]) -> CellTable:
    """The changes of a batch as a table of cells."""
    return changes.cells if isinstance(changes, Tabular) else CellTable.from_changes(changes)


def select_known_fields(table: CellTable, rows: Index) -> dict[str, Any]:
    """The fields of UNKNOWN_OF_ROW for these rows."""
    return {
        name: _select_known_elements(getattr(table, name), rows, unknown) for name, unknown in UNKNOWN_OF_ROW.items()
    }


def _select_known_elements(array: NDArray[Any] | None, rows: Index, unknown: Any) -> NDArray[Any] | None:
    """The elements of these rows; None when all are unknown."""
    return None if array is None or (array[rows] == unknown).all() else array[rows]


def join_arrays(parts: Sequence[tuple[NDArray[Any] | None, int]], unknown: Any) -> Any:
    """An array of all rows; None if no part has one. Each part with its rows. unknown: in place of what it lacks."""
    if all(array is None for array, _ in parts):
        return None
    return np.concatenate([np.full(rows, unknown) if array is None else array for array, rows in parts])


def expand_ranges(firsts: Index, begins: Index) -> Index:
    """For each range, its numbers from its first one on: [4, 5, 6, 1, 2] for firsts [4, 1] and begins [0, 3, 5]."""
    numbers: Index = np.repeat(firsts - begins[:-1], np.diff(begins))
    numbers += np.arange(int(begins[-1]))
    return numbers


def select_tuples(image: Tuples, rows: Index) -> Tuples:
    """The tuples of some of the rows, which are numbered anew."""
    if not len(image):
        return image
    at = np.minimum(np.searchsorted(rows, image.rows), max(0, len(rows) - 1))
    chosen = np.flatnonzero(rows[at] == image.rows) if len(rows) else at[:0]
    return image.take(chosen, at[chosen])


def _reorder_tuples(image: Tuples, order: Index) -> Tuples:
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    rows = place[image.rows]
    tuples = np.argsort(rows, kind="stable")
    begins, cells = image.find_cells(tuples)
    return Tuples(
        rows[tuples],
        begins,
        image.picked.take(cells),
        None if image.absent is None else image.absent[cells],
        tuple(_reorder_cells(typed, cells) for typed in image.typed),
        None if image.addresses is None else image.addresses.take(pa.array(tuples)),
    )


def _reorder_cells(typed: ArrowCells, cells: Index) -> ArrowCells:
    place = np.empty(len(cells), np.int64)
    place[cells] = np.arange(len(cells))
    at = place[typed.at]
    order = np.argsort(at)
    return ArrowCells(at[order], typed.values.take(pa.array(order)))


def _slice_cells(typed: ArrowCells, low: int, high: int) -> ArrowCells:
    first, last = np.searchsorted(typed.at, (low, high)).tolist()
    return ArrowCells(typed.at[first:last] - low, typed.values[first:last])


def _join_shapes(parts: Sequence[CellTable]) -> tuple[Sequence[Shape], list[NDArray[np.int32]]]:
    """The shapes of all parts, and the shape of each row of each part among them."""
    if all(part.shapes is parts[0].shapes for part in parts):
        return parts[0].shapes, [part.shape for part in parts]
    numbers: dict[tuple[str, int], list[int]] = {}
    shapes: list[Shape] = []
    numbered = []
    for part in parts:
        places = np.zeros(len(part.shapes), np.int32)
        for at in np.flatnonzero(np.bincount(part.shape)).tolist():
            shape = part.shapes[at]
            alike = numbers.setdefault((shape.relation.id, shape.relation.version), [])
            place = next((number for number in alike if shapes[number] == shape), len(shapes))
            if place == len(shapes):
                shapes.append(shape)
                alike.append(place)
            places[at] = place
        numbered.append(places[part.shape])
    return shapes, numbered


def _drop_if_all_false(flags: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
    return flags if flags is not None and flags.any() else None


def join_addresses(parts: Sequence[tuple[pa.StructArray | None, int]]) -> pa.StructArray | None:
    """Those of images one behind the other, each with its length; null where an image has none. None: none has any."""
    if all(addresses is None for addresses, _ in parts):
        return None
    return pa.concat_arrays([pa.nulls(size, ADDRESS) if some is None else some for some, size in parts])


def _build_image(tuples: Tuples, rows: Index, columns: Sequence[Column]) -> Image:
    """The tuples of rows of one relation, as columns."""
    at = np.searchsorted(tuples.rows, rows)
    there = at < len(tuples)
    there[there] = tuples.rows[at[there]] == rows[there]
    firsts = tuples.begins[:-1][at[there]]
    held: list[pa.Array | ChosenCells] = choose_each(tuples.values, firsts, range(len(columns)))
    absent = {}
    for number, column in enumerate(columns):
        if isinstance(column.type, ArrowType):
            held[number] = _build_typed_column(tuples, firsts + number, column.type)
    if tuples.absent is not None:
        for number in range(len(columns)):
            if (gone := tuples.absent[firsts + number]).any():
                absent[number] = gone
    addresses = None if tuples.addresses is None else tuples.addresses.take(pa.array(at[there]))
    return Image(Columns(held), np.flatnonzero(there), absent, _drop_if_all_null(addresses))


def _drop_if_all_null(addresses: pa.StructArray | None) -> pa.StructArray | None:
    return None if addresses is None or addresses.null_count == len(addresses) else addresses


def _build_typed_column(tuples: Tuples, cells: Index, kind: ArrowType) -> pa.Array:
    found: list[_Part] = []
    for typed in tuples.typed:
        mine = typed.select_cells(cells)
        if len(mine.at):
            found.append(_Part(mine.at, mine.values))
    return _pick_parts(found, len(cells), kind.arrow).make_array()


def _build_tuples(parts: Sequence[tuple[Image, Sequence[Column]]], placed: Sequence[Index]) -> Tuples:
    """Images by relation, each with its columns, as tuples. placed: where the rows of each stand."""
    images = [image for image, _ in parts]
    rows = np.concatenate([place[image.rows] for image, place in zip(images, placed, strict=True)])
    order = np.argsort(rows, kind="stable")
    widths = np.repeat([len(image.columns) for image in images], [len(image) for image in images])
    begins = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(widths[order], out=begins[1:])
    firsts = np.empty(len(rows), np.int64)
    firsts[order] = begins[:-1]
    of_images = np.split(firsts, np.cumsum([len(image) for image in images[:-1]]))
    total = int(begins[-1])
    texts: list[_Part] = []
    typed: list[ArrowCells] = []
    absent = np.zeros(total, np.bool_)
    for (image, columns), first in zip(parts, of_images, strict=True):
        typed += (
            ArrowCells(first + number, image.columns[number])
            for number, column in enumerate(columns)
            if len(first) and isinstance(column.type, ArrowType)
        )
        if len(first):
            texts += _group_text_columns(image, columns, first)
        for number, lacking in image.absent.items():
            absent[first + number] = lacking
    picked = _pick_parts(texts, total, pa.binary())
    # Who writes them in any case copies the arrays, so these must not hold much that is left out.
    held = picked if picked.count_elements() <= _MOST_LEFT_OUT * total else picked.make_array()
    addresses = join_addresses([(image.addresses, len(image)) for image in images])
    if addresses is not None:
        addresses = addresses.take(pa.array(order))
    return Tuples(rows[order], begins, held, _drop_if_all_false(absent), group_by_type(typed), addresses)


def _group_text_columns(image: Image, columns: Sequence[Column], at: Index) -> Iterator[_Part]:
    """Its columns of text forms, those together that lie beside each other in the image and where they are held."""
    held, begin = list_held_arrays(image.columns), 0
    while begin < len(columns):
        first, end = held[begin], begin + 1
        if isinstance(columns[begin].type, ArrowType):
            begin = end
            continue
        if isinstance(first, ChosenCells):
            while end < len(columns) and first.is_beside(held[end], end - begin):
                end += 1
        yield _Part(at, first, begin, end)
        begin = end


def group_by_type(typed: Iterable[ArrowCells]) -> tuple[ArrowCells, ...]:
    """All cells of one type together."""
    of_types: dict[pa.DataType, list[ArrowCells]] = {}
    for cells in typed:
        of_types.setdefault(cells.values.type, []).append(cells)
    return tuple(
        _sort_by_cell(np.concatenate([one.at for one in alike]), pa.concat_arrays([one.values for one in alike]))
        for alike in of_types.values()
    )


def _sort_by_cell(cells: Index, array: pa.Array) -> ArrowCells:
    order = np.argsort(cells)
    return ArrowCells(cells[order], array.take(pa.array(order)))


class _Part(NamedTuple):
    """What holds a column, or the first of some beside each other. at: where the cells of its rows begin. The columns
    are the cells from the first to behind the last one of these.
    """

    at: Index
    held: pa.Array | ChosenCells
    first: int = 0
    behind: int = 1


def _pick_parts(parts: Sequence[_Part], total: int, kind: pa.DataType) -> PickedValues:
    """Each element where it belongs; null where there is none."""
    source = np.full(total, -1, np.int32)
    arrays: dict[int, tuple[pa.Array, int]] = {}  # by identity, and how many elements are before it
    elements = 0
    for at, held, first, behind in parts:
        if not len(at):
            continue
        array = held.values if isinstance(held, ChosenCells) else held
        if id(array) not in arrays:
            arrays[id(array)] = array, elements
            elements += len(array)
        begins = arrays[id(array)][1]
        firsts = held.cells if isinstance(held, ChosenCells) else np.arange(len(held))
        elements_of = (firsts + begins).astype(np.int32)[:, None] + np.arange(behind - first, dtype=np.int32)
        width = total // len(at)
        if len(at) * width == total and np.array_equal(at, np.arange(0, total, width)):
            source.reshape(len(at), width)[:, first:behind] = elements_of
        else:
            source[at[:, None] + np.arange(first, behind)] = elements_of
    return PickedValues([array for array, _ in arrays.values()] or [pa.nulls(0, kind)], source)
