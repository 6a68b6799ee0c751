"""Whether compressing records makes them smaller.

lz4 and snappy look for bytes that came before, and nothing else: random characters, as in hashes and in what is
encrypted or compressed already, stay nearly as long as they are. 10 kB of hexadecimal digits become 9.3 kB, for which
lz4 takes 15 us of CPU, and the broker uncompresses them once more to validate them.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from psql_streamer.binary_columns import bound_bytes, measure_bytes, read_offsets
from sinks.kafka.librdkafka import resolve_properties
from sinks.kafka.outgoing import Outgoing, list_chunks

UNCOMPRESSED = {"compression.type": "none", "compression.codec": "none"}
"""Properties of a client that leaves records as they are, by both names that librdkafka has for it."""

_NAME = "compression.codec"

_CODECS = {"lz4": "lz4_raw", "snappy": "snappy"}
"""Those that look for repeated bytes alone -> Arrow's name. The others also write frequent bytes with fewer bits, which
helps with most texts.
"""

_LONG_VALUE_BYTES = 1 << 10
"""The average size of a value from which it is looked at: what is shorter repeats the names of its columns."""

_LOOK_BACK_BYTES = 64 << 10
"""How far lz4 looks back in librdkafka (LZ4F_max64KB in rd_kafka_lz4_compress). Fewer bytes are not looked at."""

_WORTH_IT = 0.9
"""The size behind, as part of the size before, up to which compressing is worth it."""


class Compression:
    """What a client with these properties of librdkafka's does to records."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        name = _CODECS.get(resolve_properties(properties, [_NAME])[_NAME], "")
        self._codec = pa.Codec(name) if name and pa.Codec.is_available(name) else None

    def makes_smaller(self, records: Outgoing) -> bool:
        """Whether it does; also where that is not looked at."""
        least = max(_LOOK_BACK_BYTES, _LONG_VALUE_BYTES * len(records))
        if self._codec is None or bound_bytes(records.values) < least:
            return True
        chunks = list_chunks(records.values)
        if sum(map(measure_bytes, chunks)) < least:
            return True
        sample = _take_sample(max(chunks, key=measure_bytes))
        return len(self._codec.compress(sample, asbytes=True)) < _WORTH_IT * len(sample)


def _take_sample(values: pa.BinaryArray) -> bytes:
    """A block, of bytes of the first values and of the last ones."""
    bounds, data = read_offsets(values), values.buffers()[2]
    begin, end = int(bounds[0]), int(bounds[-1])
    half = min(_LOOK_BACK_BYTES, end - begin) // 2
    return b"".join((data.slice(begin, half), data.slice(end - half, half)))
