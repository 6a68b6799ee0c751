"""The rows of an answer by columns: where in its bytes each value lies.

A row is a packet, and in it a length and the bytes of each value (MySQL source, "Text Resultset Row"). Packets are
taken off the connection one by one, and taken apart column by column, all rows at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymysql
from numpy.typing import NDArray
from pymysql.constants import COMMAND, CR

from psql_streamer.binlog.cell_bytes import PADDING, Block
from psql_streamer.model import Index

_HEADER_BYTES = 4
_MOST_PAYLOAD = (1 << 24) - 1
_END, _ERROR = 0xFE, 0xFF
_LONGEST_END = 9
_NULL_MARK = 0xFB
_PREFIXES = ((0xFC, 2), (0xFD, 3), (0xFE, 8))
"""First bytes of a length that has more, and how many follow."""


@dataclass(frozen=True, slots=True)
class Values:
    """Of one column. start, end: in the block; nothing lies between them where `null` is."""

    start: Index
    end: Index
    null: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class TextRows:
    """block: all rows, back to back. count: how many. size: bytes. cut: there are more, and they were not taken."""

    block: Block
    columns: Sequence[Values]
    count: int
    size: int
    cut: bool


def read_rows(connection: Any, sql: str, most_bytes: int) -> TextRows:
    """The rows of a SELECT, up to so many bytes; one at least, if there is one. connection: of PyMySQL.

    Where there are more, the connection is in the middle of them: it can only be closed.
    """
    connection._execute_command(COMMAND.COM_QUERY, sql)
    width = connection._read_packet().read_length_encoded_integer()
    for _ in range(width + 1):  # what the columns are, and the packet behind that
        connection._read_packet()
    packets, size, cut = _read_packets(connection, most_bytes)
    block = Block(b"".join((*packets, PADDING)))
    return TextRows(block, _take_apart(block, packets, width), len(packets), size, cut)


def _read_packets(connection: Any, most_bytes: int) -> tuple[list[bytes], int, bool]:
    packets: list[bytes] = []
    size, read = 0, connection._rfile.read
    connection._sock.settimeout(connection._read_timeout)
    while True:
        packet = _read_packet(connection, read)
        first = packet[0]
        if first == _END and len(packet) < _LONGEST_END:
            return packets, size, False
        if first == _ERROR:
            pymysql.err.raise_mysql_exception(packet)
        if packets and size + len(packet) > most_bytes:
            return packets, size, True
        packets.append(packet)
        size += len(packet)


def _read_packet(connection: Any, read: Any) -> bytes:
    whole = b""
    while True:
        header = read(_HEADER_BYTES)
        length = int.from_bytes(header[:3], "little")
        payload: bytes = read(length) if len(header) == _HEADER_BYTES else b""
        if len(header) < _HEADER_BYTES or len(payload) < length:
            connection._force_close()
            raise pymysql.err.OperationalError(CR.CR_SERVER_LOST, "the connection was lost during a query")
        connection._next_seq_id = (header[3] + 1) % 256
        if length < _MOST_PAYLOAD:
            return whole + payload if whole else payload
        whole += payload


def _take_apart(block: Block, packets: Sequence[bytes], width: int) -> list[Values]:
    at = np.zeros(len(packets), np.int64)
    np.cumsum([len(packet) for packet in packets[:-1]], out=at[1:])
    columns = []
    for _ in range(width):
        values, at = _read_column(block, at)
        columns.append(values)
    return columns


def _read_column(block: Block, at: Index) -> tuple[Values, Index]:
    """Its values, and where the next column's lengths stand."""
    first = block.u8[at]
    null = first == _NULL_MARK
    length, head = np.where(null, 0, first).astype(np.int64), np.ones(len(at), np.int64)
    for mark, size in _PREFIXES:
        if len(long := np.flatnonzero(first == mark)):
            length[long] = block.read_unsigned(at[long] + 1, size).astype(np.int64)
            head[long] += size
    start = at + head
    return Values(start, start + length, null), start + length
