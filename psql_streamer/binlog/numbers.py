"""Integers, floats, decimals and bits as PostgreSQL writes them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from psql_streamer.binary_columns import read_offsets, read_value_bytes
from psql_streamer.binlog.cell_bytes import Bytes, CellBytes, Texts, look_up_texts, slice_grid
from psql_streamer.errors import ProtocolError
from psql_streamer.model import Index

_ZERO, _MINUS, _POINT = ord("0"), ord("-"), ord(".")


def decode_signed(cells: CellBytes) -> Texts:
    """TINYINT to BIGINT."""
    shift = np.int64(64 - 8 * cells.type.width)
    return _cast(pa.array((cells.read_unsigned() << np.uint64(shift)).view(np.int64) >> shift))


def decode_unsigned(cells: CellBytes) -> Texts:
    """The same without sign."""
    return _cast(pa.array(cells.read_unsigned()))


def decode_year(cells: CellBytes) -> Texts:
    """YEAR; 0 is the year 0000."""
    return look_up_texts(_YEARS, cells.read_unsigned().astype(np.int64))


_YEARS = [b"0", *(b"%d" % (1900 + number) for number in range(1, 256))]


def decode_floats(cells: CellBytes) -> Texts:
    """FLOAT: the shortest digits that stand for the same float."""
    return _cast(pa.array(_require_finite(cells.read_unsigned().astype(np.uint32).view(np.float32))))


def decode_doubles(cells: CellBytes) -> Texts:
    """DOUBLE."""
    return _cast(pa.array(_require_finite(cells.read_unsigned().view(np.float64))))


def _require_finite(values: NDArray[np.floating]) -> NDArray[np.floating]:
    """The servers' FLOAT and DOUBLE have no infinity, and nothing that is no number."""
    if not np.isfinite(values).all():
        raise ProtocolError("a FLOAT or DOUBLE is no number")
    return values


def _cast(values: pa.Array) -> Texts:
    texts = values.cast(pa.string()).view(pa.binary())
    bounds = read_offsets(texts).astype(np.int64)
    return Texts(read_value_bytes(texts), bounds[:-1], bounds[1:])


def decode_bits(cells: CellBytes) -> Texts:
    """BIT(n): n digits."""
    count = cells.type.precision
    grid = np.unpackbits(_read_cell_bytes(cells), axis=1)[:, -count:] + np.uint8(_ZERO)
    return slice_grid(np.ascontiguousarray(grid), 0, count)


def decode_decimals(cells: CellBytes) -> Texts:
    """DECIMAL: nine digits in four bytes, and as few bytes as do for the digits over (MySQL source, decimal2bin).

    The first bit is the sign's, inverted. Of a negative number all bits are inverted.
    """
    raw = _read_cell_bytes(cells)
    negative = raw[:, 0] < 0x80
    raw[:, 0] ^= 0x80
    raw[negative] ^= 0xFF
    whole, scale = cells.type.precision - cells.type.scale, cells.type.scale
    # A column for the sign, one for a zero, the digits, the point, the digits of the fraction.
    grid = np.full((len(cells), whole + 3 + scale), _ZERO, np.uint8)
    at = 0
    for first, digits, width in _group_digits(whole, scale):
        group = _read_integers(raw[:, at : at + width])
        if len(group) and int(group.max()) >= 10**digits:
            raise ProtocolError("a decimal has digits that are none")
        _write_digits(grid, group, first + 2 + (first >= whole), digits)
        at += width
    point = whole + 2
    grid[:, point] = _POINT
    lead = grid[:, 1:point] != _ZERO
    lead[:, -1] = True
    first = lead.argmax(axis=1) + 1
    grid[np.flatnonzero(negative), first[negative] - 1] = _MINUS
    return slice_grid(grid, first - negative, point + (1 + scale if scale else 0))


def _read_cell_bytes(cells: CellBytes) -> Bytes:
    """A line for each cell."""
    width = cells.type.width
    found: Bytes = cells.block.u8[cells.start[:, None] + np.arange(width)]
    return found


_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def _group_digits(whole: int, scale: int) -> list[tuple[int, int, int]]:
    """First digit, how many, and in how many bytes: the short group of the integer part comes first, that of the
    fraction last.
    """
    sizes = [whole % 9, *[9] * (whole // 9), *[9] * (scale // 9), scale % 9]
    firsts = np.cumsum([0, *sizes]).tolist()
    return [(first, size, _DIGIT_BYTES[size]) for first, size in zip(firsts, sizes, strict=False) if size]


def _read_integers(raw: Bytes) -> Index:
    value = np.zeros(len(raw), np.int64)
    for column in raw.T:
        value = value << 8 | column
    return value


def _write_digits(grid: Bytes, values: Index, first: int, digits: int) -> None:
    rest: NDArray[np.uint32] = values.astype(np.uint32)
    for column in range(first + digits - 1, first - 1, -1):
        rest, digit = np.divmod(rest, np.uint32(10))
        grid[:, column] = digit + _ZERO
