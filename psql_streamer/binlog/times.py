"""Dates and times as PostgreSQL writes them under DateStyle ISO and TimeZone UTC.

What is no date in PostgreSQL (0000-00-00, a day 0, a month 0) stands as MySQL shows it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from psql_streamer.binlog.cell_bytes import Bytes, CellBytes, Texts, slice_grid
from psql_streamer.errors import ProtocolError
from psql_streamer.model import Index

Numbers = NDArray[np.uint64]

_DATE, _CLOCK, _FRACTION = 10, 8, 7
_ZERO = ord("0")
_PAIRS = np.frombuffer(b"".join(b"%02d" % number for number in range(100)), np.uint16)
"""Two digits as one integer of the machine's."""


def decode_date(cells: CellBytes) -> Texts:
    """DATE: 5 bits of the day, 4 of the month, 15 of the year."""
    packed = cells.read_unsigned().astype(np.int64)
    grid = np.empty((len(cells), _DATE), np.uint8)
    _write_date(grid, packed >> 9, packed >> 5 & 15, packed & 31)
    return slice_grid(grid, 0, _DATE)


def decode_datetime2(cells: CellBytes) -> Texts:
    """DATETIME since 5.6: 5 bytes big-endian of sign, year and month (17 bits), day, hour, minute, second; fraction."""
    packed = cells.read_big_endian(width=5).astype(np.int64) - 0x80_0000_0000
    grid, last = _make_moment_grid(cells, 5)
    day, clock = packed >> 17, packed
    months = day >> 5
    _write_date(grid, months // 13, months % 13, day & 31)
    _write_clock(grid[:, _DATE + 1 :], clock >> 12 & 31, clock >> 6 & 63, clock & 63)
    return slice_grid(grid, 0, last)


def decode_timestamp2(cells: CellBytes) -> Texts:
    """TIMESTAMP since 5.6: 4 bytes big-endian of seconds since 1970, and the fraction."""
    seconds = cells.read_big_endian(width=4).astype(np.int64)
    grid, last = _make_moment_grid(cells, 4)
    return _render_moments(seconds, grid, last)


def decode_timestamp(cells: CellBytes) -> Texts:
    """TIMESTAMP before 5.6: seconds since 1970."""
    grid, last = _make_whole_moment_grid(cells)
    return _render_moments(cells.read_unsigned().astype(np.int64), grid, last)


def decode_datetime(cells: CellBytes) -> Texts:
    """DATETIME before 5.6: the number YYYYMMDDhhmmss."""
    date_part, clock = np.divmod(cells.read_unsigned(), np.uint64(1_000_000))
    grid, last = _make_whole_moment_grid(cells)
    day, time = date_part.astype(np.int64), clock.astype(np.int64)
    _require_old_form(
        (day <= 9999_12_31)
        & (day // 100 % 100 <= 12)
        & (day % 100 <= 31)
        & (time // 10_000 < 24)
        & (time // 100 % 100 < 60)
        & (time % 100 < 60)
    )
    _write_date(grid, day // 10_000, day // 100 % 100, day % 100)
    _write_clock(grid[:, _DATE + 1 :], time // 10_000, time // 100 % 100, time % 100)
    return slice_grid(grid, 0, last)


def decode_time2(cells: CellBytes) -> Texts:
    """TIME since 5.6: 3 bytes big-endian and the fraction, together one number with an offset, so that a negative time
    is a negative number (MySQL source, my_time_packed_from_binary).
    """
    digits = cells.type.precision
    width, fraction_bytes = cells.type.width, (digits + 1) // 2
    bits = 8 * fraction_bytes
    packed = cells.read_big_endian(width=width).astype(np.int64) - (1 << (bits + 23))
    size = np.abs(packed)
    fraction = (size & ((1 << bits) - 1)) * 100 ** (3 - fraction_bytes)
    return _render_times(packed < 0, size >> bits, fraction)


def decode_time(cells: CellBytes) -> Texts:
    """TIME before 5.6: the number hhmmss, with a sign."""
    packed = (cells.read_unsigned() << np.uint64(40)).view(np.int64) >> 40
    size = np.abs(packed)
    _require_old_form((size // 100 % 100 < 60) & (size % 100 < 60) & (size // 10_000 <= _MOST_HOURS))
    fields = (size // 10_000) << 12 | (size // 100 % 100) << 6 | size % 100
    return _render_times(packed < 0, fields, np.zeros(len(cells), np.int64))


_MOST_HOURS = 838


def _require_old_form(fits: NDArray[np.bool_]) -> None:
    """The binlog does not say how many digits a time of the form before 5.6 has behind its seconds: none is assumed."""
    if not fits.all():
        raise ProtocolError(
            "a time is in MariaDB's form of before 10.1 and has a fraction: the binlog does not say how it is read",
            "SET GLOBAL mysql56_temporal_format = ON, ALTER TABLE ... FORCE on the table, and start behind that place",
        )


def _render_times(negative: NDArray[np.bool_], fields: Index, fraction: Index) -> Texts:
    """fields: hour, minute, second in 10, 6 and 6 bits. fraction: microseconds."""
    grid = np.full((len(fields), 2 + _CLOCK + _FRACTION), _ZERO, np.uint8)
    hour = fields >> 12 & 1023
    _write_clock(grid[:, 2:], hour % 100, fields >> 6 & 63, fields & 63)
    grid[:, 1] = hour // 100 + _ZERO
    last = 2 + _CLOCK + _write_fraction(grid[:, 2 + _CLOCK :], fraction)
    first = np.where(hour >= 100, 1, 2)
    grid[np.flatnonzero(negative), first[negative] - 1] = ord("-")
    return slice_grid(grid, first - negative, last)


def _make_moment_grid(cells: CellBytes, width: int) -> tuple[Bytes, Index]:
    """A grid of moments with their fractions, and where each ends. width: bytes in front of the fraction."""
    grid, whole = _make_whole_moment_grid(cells)
    size = (cells.type.precision + 1) // 2
    if not size:
        return grid, whole
    fraction = cells.read_big_endian(width, size).astype(np.int64) * 100 ** (3 - size)
    return grid, whole + _write_fraction(grid[:, _DATE + 1 + _CLOCK :], fraction)


def _make_whole_moment_grid(cells: CellBytes) -> tuple[Bytes, Index]:
    grid = np.empty((len(cells), _DATE + 1 + _CLOCK + _FRACTION + 3), np.uint8)
    grid[:, _DATE] = ord(" ")
    return grid, np.full(len(cells), _DATE + 1 + _CLOCK)


_ZONE = np.frombuffer(b"+00", np.uint8)


def _render_moments(seconds: Index, grid: Bytes, last: Index) -> Texts:
    """Second 0 is the zero timestamp, 0000-00-00 00:00:00."""
    days = seconds.astype("datetime64[s]").astype("datetime64[D]")
    months = days.astype("datetime64[M]")
    month = months.astype(np.int64)
    zero = seconds == 0
    _write_date(
        grid,
        np.where(zero, 0, 1970 + month // 12),
        np.where(zero, 0, month % 12 + 1),
        np.where(zero, 0, (days - months.astype("datetime64[D]")).astype(np.int64) + 1),
    )
    clock = seconds % 86_400
    _write_clock(grid[:, _DATE + 1 :], clock // 3600, clock // 60 % 60, clock % 60)
    lines = np.arange(len(grid))
    for place, sign in enumerate(_ZONE):
        grid[lines, last + place] = sign
    return slice_grid(grid, 0, np.where(zero, last, last + len(_ZONE)))


def _write_date(grid: Bytes, year: Index, month: Index, day: Index) -> None:
    _write_pair(grid, 0, year // 100)
    _write_pair(grid, 2, year % 100)
    _write_pair(grid, 5, month)
    _write_pair(grid, 8, day)
    grid[:, 4] = grid[:, 7] = ord("-")


def _write_clock(grid: Bytes, hour: Index, minute: Index, second: Index) -> None:
    _write_pair(grid, 0, hour)
    _write_pair(grid, 3, minute)
    _write_pair(grid, 6, second)
    grid[:, 2] = grid[:, 5] = ord(":")


def _write_pair(grid: Bytes, column: int, value: Index) -> None:
    grid[:, column] = value // 10 + _ZERO
    grid[:, column + 1] = value % 10 + _ZERO


def _write_fraction(grid: Bytes, microseconds: Index) -> Index:
    """The point and the digits, without zeros at the end; how many columns these are for each."""
    grid[:, 0] = ord(".")
    for pair, unit in enumerate((10_000, 100, 1)):
        _write_pair(grid, 1 + 2 * pair, microseconds // unit % 100)
    significant = grid[:, 1:_FRACTION] != _ZERO
    reach: Index = (significant * np.arange(2, _FRACTION + 1)).max(axis=1, initial=0)
    return reach
