"""Rows events read row by row and byte by byte, to compare with. Of a few types: INT, BIGINT UNSIGNED, and texts."""

from __future__ import annotations

from typing import NamedTuple

ABSENT = "absent"


class NaiveError(Exception):
    """The bytes are not a rows event of the table."""


class NaiveColumn(NamedTuple):
    """width: of an integer; prefix: bytes of the length of a text."""

    name: str
    width: int = 0
    prefix: int = 0
    signed: bool = False


Row = dict[str, bytes | None]
Change = tuple[Row | None, Row | None]


class _Bytes:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        found = self._data[self.at : self.at + size]
        if len(found) < size:
            raise NaiveError("too short")
        self.at += size
        return found

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    @property
    def left(self) -> int:
        return len(self._data) - self.at


def read_rows(op: str, body: bytes, columns: list[NaiveColumn]) -> list[Change]:
    """The old and the new row of each change. body: of a rows event of version 2."""
    data = _Bytes(body)
    data.take(8)
    extra = data.number(2)
    if extra < 2:
        raise NaiveError("extra data")
    data.take(extra - 2)
    if data.number(1) != len(columns):
        raise NaiveError("columns")
    present = [data.take((len(columns) + 7) // 8) for _ in range(2 if op == "update" else 1)]
    found: list[Change] = []
    if not any(_has_columns(bits, len(columns)) for bits in present):
        if data.left:
            raise NaiveError("rows without columns have no bytes")
        return [({}, {}) if op == "update" else (None, {}) if op == "insert" else ({}, None)]
    while data.left:
        images = [_image(data, columns, bits) for bits in present]
        found.append(
            (images[0], images[1]) if op == "update" else (None, images[0]) if op == "insert" else (images[0], None)
        )
    return found


def _has_columns(bits: bytes, columns: int) -> bool:
    return any(bits[place // 8] >> place % 8 & 1 for place in range(columns))


def _image(data: _Bytes, columns: list[NaiveColumn], present: bytes) -> Row:
    there = [column for place, column in enumerate(columns) if present[place // 8] >> place % 8 & 1]
    nulls = data.take((len(there) + 7) // 8)
    return {
        column.name: None if nulls[place // 8] >> place % 8 & 1 else _value(data, column)
        for place, column in enumerate(there)
    }


def _value(data: _Bytes, column: NaiveColumn) -> bytes:
    if column.prefix:
        return data.take(data.number(column.prefix))
    return b"%d" % int.from_bytes(data.take(column.width), "little", signed=column.signed)
