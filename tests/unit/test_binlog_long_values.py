"""Long values: what is made of them takes little more memory than they do, and time that grows as they do."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from struct import pack

import numpy as np
import pyarrow as pa
import pytest

from psql_streamer.binlog.cell_bytes import PADDING, Block, CellBytes, Texts, take_spans
from psql_streamer.binlog.cell_types import CellType, Kind
from psql_streamer.binlog.characters import decode_bytes, decode_padded_bytes, find_non_ascii
from psql_streamer.binlog.documents import decode_documents

LONG = 2_500_000
CODES = bytes(range(256))


def cells_of(values: list[bytes], kind: CellType) -> CellBytes:
    ends = np.cumsum([len(value) for value in values])
    return CellBytes(Block(b"".join(values) + PADDING), kind, np.append(0, ends[:-1]), ends)


def texts_of(found: Texts) -> list[bytes]:
    spans = zip(found.start.tolist(), found.end.tolist(), strict=True)
    return [found.data[start:end].tobytes() for start, end in spans]


def measure_peak(work: Callable[[], object]) -> int:
    """The most bytes that were taken at once."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("long", [CODES * 5000, bytes(2), b""], ids=["long", "short", "empty"])
def test_bytes_are_the_same_digits_however_long_they_are(long: bytes) -> None:
    values = [b"", long, b"\xff", CODES]
    assert texts_of(decode_bytes(cells_of(values, CellType(Kind.BYTES, 0)))) == [
        rb"\x" + value.hex().encode() for value in values
    ]
    width = max(map(len, values)) + 3
    padded = decode_padded_bytes(cells_of(values, CellType(Kind.PADDED_BYTES, 0, precision=width)))
    assert texts_of(padded) == [rb"\x" + value.ljust(width, b"\0").hex().encode() for value in values]


def test_digits_of_long_bytes_take_no_more_memory_than_they_are_long() -> None:
    cells = cells_of([bytes(LONG), b"x"], CellType(Kind.BYTES, 0))
    assert measure_peak(lambda: decode_bytes(cells)) < 2 * LONG + (4 << 20)


def test_long_texts_are_looked_through_without_numbers_for_their_bytes() -> None:
    kind = CellType(Kind.CHARACTERS, 0, codec="iso8859-2")
    cells = cells_of([b"x" * LONG, b"", b"\xe9", b"x" * LONG + b"\xe9"], kind)
    found = []
    assert measure_peak(lambda: found.extend(find_non_ascii(cells).tolist())) < 2 * LONG
    assert found == [False, False, True, True]


def test_long_runs_are_taken_out_of_bytes_without_numbers_for_their_bytes() -> None:
    data = np.frombuffer(bytes(LONG) + b"abc", np.uint8)
    start, end = np.array([LONG, 0, 1]), np.array([LONG + 3, LONG, 1])
    found: list[pa.Array] = []
    assert measure_peak(lambda: found.append(take_spans(data, start, end, np.array([False, False, True])))) < 1 << 20
    assert found[0].to_pylist() == [b"abc", bytes(LONG), None]


def test_a_long_document_takes_time_and_memory_as_it_is_long() -> None:
    count = 60_000
    elements = b"".join(b"\x07" + pack("<i", number % 1000) for number in range(count))
    value = b"\x03" + pack("<II", count, 8 + len(elements)) + elements
    cells = cells_of([value], CellType(Kind.JSON, 0))
    (text,) = texts_of(decode_documents(cells))
    assert text == f"[{', '.join(str(number % 1000) for number in range(count))}]".encode()
    assert measure_peak(lambda: decode_documents(cells)) < 6 * len(value)
