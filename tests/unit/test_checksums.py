"""Checksums of events' images are those of zlib, however many images there are, and however large."""

from __future__ import annotations

import zlib

import pyarrow as pa
import pytest

from psql_streamer import batching
from psql_streamer.events.identity import compute_checksums

SIZES = (0, 1, 30, 2047, 2049, 10_000)


@pytest.mark.parametrize("count", [1, batching.FEW_ROWS, batching.FEW_ROWS + 1, 300])
@pytest.mark.parametrize("sizes", [*((size,) for size in SIZES), SIZES], ids=str)
def test_checksums_are_those_of_zlib(count: int, sizes: tuple[int, ...]) -> None:
    values = [bytes([65 + at % 26]) * (sizes[at % len(sizes)] + at % 3) for at in range(count + 2)]
    texts = pa.array(values, pa.binary())
    assert compute_checksums(texts).to_pylist() == list(map(_sum, values))
    assert compute_checksums(texts[1:-1]).to_pylist() == list(map(_sum, values[1:-1]))


def _sum(value: bytes) -> bytes:
    return b"%08x" % zlib.crc32(value)
