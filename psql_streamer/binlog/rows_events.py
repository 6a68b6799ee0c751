"""TABLE_MAP events and the rows events that they are about."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from psql_streamer.binlog.events import EventType, Header, inflate
from psql_streamer.binlog.layouts import Layout
from psql_streamer.binlog.reader import Reader
from psql_streamer.binlog.shapes import Table, TableShapes
from psql_streamer.errors import ProtocolError
from psql_streamer.model import RowOp


@dataclass(frozen=True, slots=True)
class _RowsForm:
    """Of a type of rows events. extra: whether version 2's extra data stand behind the flags."""

    op: RowOp
    extra: bool = False
    compressed: bool = False


ROWS: dict[int, _RowsForm] = {
    EventType.WRITE_ROWS_V1: _RowsForm(RowOp.INSERT),
    EventType.UPDATE_ROWS_V1: _RowsForm(RowOp.UPDATE),
    EventType.DELETE_ROWS_V1: _RowsForm(RowOp.DELETE),
    EventType.WRITE_ROWS: _RowsForm(RowOp.INSERT, extra=True),
    EventType.UPDATE_ROWS: _RowsForm(RowOp.UPDATE, extra=True),
    EventType.DELETE_ROWS: _RowsForm(RowOp.DELETE, extra=True),
    EventType.WRITE_ROWS_COMPRESSED_V1: _RowsForm(RowOp.INSERT, compressed=True),
    EventType.UPDATE_ROWS_COMPRESSED_V1: _RowsForm(RowOp.UPDATE, compressed=True),
    EventType.DELETE_ROWS_COMPRESSED_V1: _RowsForm(RowOp.DELETE, compressed=True),
    EventType.WRITE_ROWS_COMPRESSED: _RowsForm(RowOp.INSERT, extra=True, compressed=True),
    EventType.UPDATE_ROWS_COMPRESSED: _RowsForm(RowOp.UPDATE, extra=True, compressed=True),
    EventType.DELETE_ROWS_COMPRESSED: _RowsForm(RowOp.DELETE, extra=True, compressed=True),
}
"""The types of rows events."""

_STATEMENT_END = 1
"""Flag of rows events: table ids mean nothing behind it."""

_DUMMY = 0xFF_FFFF
"""The table id of an event that has no rows, and only ends a statement."""

_FIXED = Struct("<IHHH")
"""The table's id in 6 bytes, flags, and the length of version 2's extra data, its own 2 bytes included."""


class RowsEvent(NamedTuple):
    """images: as they lie, those of one row behind those of the one before. layouts: of the images of a row."""

    table: Table
    op: RowOp
    layouts: tuple[Layout, ...]
    images: bytes


class RowsReader:
    """Knows the tables by the ids that hold within a statement."""

    def __init__(self, shapes: TableShapes) -> None:
        self._shapes = shapes
        self._tables: dict[int, Table] = {}

    @property
    def in_statement(self) -> bool:
        """Whether ids of tables may still come in rows events."""
        return bool(self._tables)

    def forget_tables(self) -> None:
        """Ids mean nothing beyond a file."""
        self._tables.clear()

    def read_table_map(self, body: bytes) -> Table:
        """What the id stands for from now on. SourceRefused when the columns of a wanted table have no names."""
        table = self._shapes.read(body[8:])
        self._tables[int.from_bytes(body[:6], "little")] = table
        return table

    def wants(self, body: bytes) -> bool:
        """Whether a rows event is of a table that is wanted, or that nobody knows."""
        table = self._tables.get(int.from_bytes(body[:6], "little"))
        return table is None or table.number >= 0

    def read_rows(self, header: Header, body: bytes) -> RowsEvent | None:
        """None where the table is not wanted. ProtocolError when no TABLE_MAP event was about it."""
        form = ROWS[header.type]
        if len(body) < _FIXED.size:
            raise ProtocolError("a rows event is shorter than its fields")
        low, high, flags, extra = _FIXED.unpack_from(body)
        table_id = high << 32 | low
        table = self._tables.get(table_id)
        if flags & _STATEMENT_END:
            self._tables.clear()
        if table is None:
            if table_id != _DUMMY:
                raise ProtocolError("a rows event is of a table that no TABLE_MAP event names")
            return None
        if table.number < 0:
            return None
        if extra < 2 and form.extra:
            raise ProtocolError(f"a rows event of {table.name} has extra data without a length")
        return self._read_images(table, form, body, 8 + extra if form.extra else 8)

    def _read_images(self, table: Table, form: _RowsForm, body: bytes, at: int) -> RowsEvent:
        images = 2 if form.op is RowOp.UPDATE else 1
        behind = at + table.head_bytes + (images - 1) * table.bitmap_bytes
        head = body[at:behind]
        layouts = table.layouts_by_head.get(head)
        if layouts is None:
            layouts = table.layouts_by_head[head] = self._read_layouts(table, images, head)
        rows = body[behind:]
        return RowsEvent(table, form.op, layouts, inflate(rows, "rows") if form.compressed else rows)

    def _read_layouts(self, table: Table, images: int, head: bytes) -> tuple[Layout, ...]:
        """The number of columns, and for each image a bitmap of those that it has."""
        reader = Reader(head, "rows")
        columns = reader.read_packed()
        if columns != len(table.cells):
            raise ProtocolError(
                f"a rows event of {table.name} has {columns} columns where its TABLE_MAP has {len(table.cells)}"
            )
        return tuple(self._shapes.look_up_layout(table, reader.take(table.bitmap_bytes)) for _ in range(images))
