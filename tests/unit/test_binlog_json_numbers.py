"""Floating numbers in JSON documents of the binlog."""

from __future__ import annotations

from struct import pack

import numpy as np
import pytest

from psql_streamer.binlog.cell_bytes import PADDING, Block, CellBytes
from psql_streamer.binlog.cell_types import CellType, Kind
from psql_streamer.binlog.documents import decode_documents


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (-1.0, "-1.0"),
        (120.0, "120.0"),
        (0.1 + 0.2, "0.30000000000000004"),
        (1e-7, "0.0000001"),
        (-1.5e-7, "-0.00000015"),
        (1e-15, "0.000000000000001"),
        (1e-16, "1e-16"),
        (1.5e-16, "1.5e-16"),
        (1e14, "100000000000000.0"),
        (1e15, "1e15"),
        (1234567890123456.0, "1.234567890123456e15"),
        (1234567890123456.8, "1234567890123456.8"),
        (1e20, "1e20"),
        (-1.7976931348623157e308, "-1.7976931348623157e308"),
        (5e-324, "5e-324"),
    ],
)
@pytest.mark.behaviour("N9")
def test_a_floating_number_is_written_as_the_server_does_so_that_a_snapshot_has_the_same(
    number: float, shown: str
) -> None:
    value = b"\x0b" + pack("<d", number)
    cells = CellBytes(Block(value + PADDING), CellType(Kind.JSON, 0), np.array([0]), np.array([len(value)]))
    found = decode_documents(cells)
    assert found.data[found.start[0] : found.end[0]].tobytes().decode() == shown
