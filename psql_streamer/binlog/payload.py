"""TRANSACTION_PAYLOAD: a transaction whose events are compressed together (binlog_transaction_compression=ON).

MySQL source, libs/mysql/binlog/event/codecs/binary.cpp: fields, each a type, a length and a value, up to the type 0;
behind them the events without checksums.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from psql_streamer.binlog.events import HEADER_BYTES
from psql_streamer.binlog.reader import Reader
from psql_streamer.errors import ProtocolError, SourceRefused

_END_OF_FIELDS, _COMPRESSION = 0, 2
_ZSTD, _UNCOMPRESSED = 0, 255


def read_payload(body: bytes) -> Iterator[bytes]:
    """The events, one after the other; no more of them is in memory than is asked for."""
    reader, compression = Reader(body, "TRANSACTION_PAYLOAD"), _ZSTD
    while (kind := reader.read_packed()) != _END_OF_FIELDS:
        value = Reader(reader.take(reader.read_packed()), "TRANSACTION_PAYLOAD")
        if kind == _COMPRESSION:
            compression = value.read_packed()
    if compression not in (_ZSTD, _UNCOMPRESSED):
        raise SourceRefused(f"a transaction is compressed with the unknown algorithm {compression}")
    held = pa.BufferReader(reader.take_rest())
    stream = pa.CompressedInputStream(held, "zstd") if compression == _ZSTD else held
    while header := _read(stream, HEADER_BYTES, may_end=True):
        size = int.from_bytes(header[9:13], "little")
        if size < HEADER_BYTES:
            raise ProtocolError("an event in a TRANSACTION_PAYLOAD event is shorter than its header")
        yield header + _read(stream, size - HEADER_BYTES)


def _read(stream: pa.NativeFile, size: int, may_end: bool = False) -> bytes:
    """So many bytes; none where the stream ends and may."""
    try:
        found: bytes = stream.read(size)
    except OSError:
        raise ProtocolError("a TRANSACTION_PAYLOAD event cannot be decompressed") from None
    if len(found) < size and not (may_end and not found):
        raise ProtocolError("a TRANSACTION_PAYLOAD event ends within an event")
    return found
