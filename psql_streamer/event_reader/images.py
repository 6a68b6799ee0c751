"""The images of rows, cell by cell, until they are tuples of a table of cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from psql_streamer.cells import Tuples
from psql_streamer.event_reader import kinds
from psql_streamer.event_reader.growing import Growing, GrowingTables
from psql_streamer.event_reader.parsed import Image
from psql_streamer.event_reader.tables import Layout, Table, Tables
from psql_streamer.model import Index

_NULL = b"null"


@dataclass(slots=True)
class Images:
    """One image of rows: raw JSON, cell by cell. arrays: the cells in front of `values`. cells: how many they are."""

    arrays: list[pa.Array] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)
    rows: Growing = field(default_factory=lambda: Growing(np.int64))
    cells: int = 0
    absent: list[int] = field(default_factory=list)
    tables: GrowingTables = field(default_factory=GrowingTables)

    def add(self, row: int, image: Image, layout: Layout) -> None:
        """The image of a row."""
        values = self.values
        if layout.places is None:
            values.extend(map(bytes, image.values()))
        else:
            first = len(values)
            values.extend([_NULL] * layout.width)
            lacking = set(range(layout.width)).difference(layout.places)
            self.absent.extend(self.cells + place for place in lacking)
            for place, value in zip(layout.places, image.values(), strict=True):
                values[first + place] = bytes(value)
        self.rows.append(row)
        self.cells += layout.width
        self.tables.append(layout.table)

    def add_all(self, first: int, images: Sequence[Image], layout: Layout) -> None:
        """The images of rows from the first on, whose values are the columns of one table."""
        self.values.extend(map(bytes, chain.from_iterable(image.values() for image in images)))
        self._count_rows(first, len(images), layout)

    def add_cells(self, first: int, cells: pa.Array, layout: Layout) -> None:
        """The same of an array of their values, row after row."""
        self._close()
        self.arrays.append(cells)
        self._count_rows(first, len(cells) // layout.width, layout)

    def join_cells(self) -> pa.Array:
        """All values: one array, `binary`."""
        self._close()
        return pa.concat_arrays(self.arrays) if self.arrays else pa.array([], pa.binary())

    def find_begins(self) -> Index:
        """Where the cells of each row begin, and where those of the last one end."""
        widths = self.tables.spread(lambda table: len(table.columns))
        return np.concatenate((np.zeros(1, np.int64), np.cumsum(widths)))

    def _close(self) -> None:
        if self.values:
            self.arrays.append(pa.array(self.values, pa.binary()))
            self.values = []

    def _count_rows(self, first: int, count: int, layout: Layout) -> None:
        self.rows.extend(np.arange(first, first + count))
        self.cells += count * layout.width
        self.tables.append(layout.table, count)


class Texts(NamedTuple):
    """Text forms of both images' cells, and the tables that have got another shape, by the number of the old one."""

    texts: Sequence[pa.Array]
    now: dict[int, Table]


def convert_cells(held: kinds.Held, images: Sequence[Images], tables: Tables) -> Texts:
    """All cells at once: what they hold widens the kinds of their columns, which say how they are written."""
    if not len(held.values):
        return Texts((held.values, held.values), {})
    of_tables = {number: table for image in images for number, table in image.tables.collect_by_number().items()}
    firsts, width = _number_columns(of_tables)
    columns = np.concatenate([_map_cells_to_columns(image, firsts) for image in images])
    bits = np.zeros(width, np.uint8)
    np.bitwise_or.at(bits, columns, held.bits)
    now = {}
    own = {number: slice(firsts[number], firsts[number] + len(table.columns)) for number, table in of_tables.items()}
    for number, table in of_tables.items():
        tables.note(table, bits[own[number]].tolist())
    for number, table in of_tables.items():
        widened = tables.widen(table)
        bits[own[number]] = widened.bits
        if widened is not table:
            now[number] = widened
    texts = kinds.to_text_forms(held, bits[columns])
    new = images[0].cells
    return Texts((texts[:new], texts[new:]), now)


def _number_columns(of_tables: dict[int, Table]) -> tuple[dict[int, int], int]:
    """The columns of all tables one behind the other: where those of each begin, and how many there are."""
    firsts, total = {}, 0
    for number, table in of_tables.items():
        firsts[number] = total
        total += len(table.columns)
    return firsts, total


def _map_cells_to_columns(image: Images, firsts: dict[int, int]) -> Index:
    """For each cell which column it is of."""
    if not image.cells:
        return np.empty(0, np.int64)
    begins, first = image.find_begins(), image.tables.spread(lambda table: firsts[table.number])
    found: Index = np.repeat(first - begins[:-1], np.diff(begins)) + np.arange(image.cells)
    return found


def make_tuples(image: Images, texts: pa.Array, addresses: pa.StructArray | None) -> Tuples:
    """The image, with the text forms of its cells. addresses: of each row."""
    absent = None
    if image.absent:
        absent = np.zeros(len(texts), np.bool_)
        absent[image.absent] = True
    return Tuples(image.rows.join(), image.find_begins(), texts, absent, addresses=addresses)
