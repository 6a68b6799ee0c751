"""MariaDB's UUID, INET6 and INET4, which the binlog has as BINARY: without the zero bytes at their end."""

from __future__ import annotations

from ipaddress import ip_address
from uuid import UUID

from psql_streamer.binlog.cell_bytes import CellBytes, Texts, texts_of
from psql_streamer.errors import ProtocolError


def uuids(cells: CellBytes) -> Texts:
    """`123e4567-e89b-12d3-a456-426655440000`."""
    return texts_of([str(UUID(bytes=value)).encode() for value in _padded(cells)])


def inets(cells: CellBytes) -> Texts:
    """`2001:db8::1`, `192.168.0.1`."""
    return texts_of([str(ip_address(value)).encode() for value in _padded(cells)])


def _padded(cells: CellBytes) -> list[bytes]:
    width = cells.type.precision
    values = [value.ljust(width, b"\0") for value in cells.values()]
    if any(len(value) != width for value in values):
        raise ProtocolError("a value of a BINARY column is longer than the column")
    return values
