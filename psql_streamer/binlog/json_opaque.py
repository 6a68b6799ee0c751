"""Values in a JSON document that JSON has no type for: decimals, dates and times, bytes."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import numpy as np

from psql_streamer.binlog.cell_bytes import PADDING, Block, CellBytes
from psql_streamer.binlog.cell_types import make_decimal_type
from psql_streamer.binlog.numbers import decode_decimals
from psql_streamer.binlog.table_map import FieldType
from psql_streamer.errors import ProtocolError


def render_opaque(kind: int, data: bytes) -> str:
    """The JSON text of a value of the column type `kind`, as the server shows it."""
    if kind == FieldType.NEWDECIMAL:
        return _render_decimal(data)
    if kind in (FieldType.DATE, FieldType.DATETIME, FieldType.TIMESTAMP):
        return f'"{_render_moment(_read_packed(data), kind == FieldType.DATE)}"'
    if kind == FieldType.TIME:
        return f'"{_render_time(_read_packed(data))}"'
    return f'"base64:type{kind}:{b64encode(data).decode()}"'


def _render_decimal(data: bytes) -> str:
    """Precision, scale, and the digits as in a column."""
    if len(data) < 2 or not (cell := make_decimal_type(data[0], data[1])) or len(data) != 2 + cell.width:
        raise ProtocolError("a decimal in a JSON value is not one")
    at: Any = np.array([2], np.int64)
    found = decode_decimals(CellBytes(Block(data + PADDING), cell, at, at + cell.width))
    return bytes(found.data[found.start[0] : found.end[0]]).decode()


def _read_packed(data: bytes) -> int:
    """A moment's fields in 64 bits, little-endian; the lowest 24 are microseconds."""
    if len(data) != 8:
        raise ProtocolError("a time in a JSON value is not one")
    return int.from_bytes(data, "little", signed=True)


def _render_moment(packed: int, is_date: bool) -> str:
    size = abs(packed)
    whole, micros = size >> 24, size & 0xFF_FFFF
    day, clock = whole >> 17, whole & 0x1_FFFF
    months = day >> 5
    date = f"{months // 13:04d}-{months % 13:02d}-{day & 31:02d}"
    return date if is_date else f"{date} {_render_clock(clock)}.{micros:06d}"


def _render_time(packed: int) -> str:
    size = abs(packed)
    return f"{'-' if packed < 0 else ''}{_render_clock(size >> 24)}.{size & 0xFF_FFFF:06d}"


def _render_clock(fields: int) -> str:
    return f"{fields >> 12 & 1023:02d}:{fields >> 6 & 63:02d}:{fields & 63:02d}"
