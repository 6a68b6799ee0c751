"""Characters of other sets than UTF-8, bytes, and the labels of ENUM and SET."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from psql_streamer.binlog.cell_bytes import PADDING, Block, CellBytes, Texts, texts_by_table, texts_of
from psql_streamer.binlog.charsets import decode_characters, has_ascii
from psql_streamer.binlog.events import decompress
from psql_streamer.binlog.reader import Reader
from psql_streamer.cells import ragged
from psql_streamer.errors import ProtocolError
from psql_streamer.model import Index

_HEX = np.frombuffer("".join(f"{value:02x}" for value in range(256)).encode(), np.uint16)
_BACKSLASH_X = np.frombuffer(rb"\x", np.uint16)[0]


def characters(cells: CellBytes) -> Texts:
    """CHAR, VARCHAR and TEXT of a character set that is not UTF-8."""
    codec = cells.type.codec
    try:
        return texts_of([decode_characters(value, codec).encode() for value in cells.values()])
    except UnicodeDecodeError:
        raise ProtocolError(f"a text is not of its column's character set ({codec})") from None


def not_ascii(cells: CellBytes) -> NDArray[np.bool_]:
    """For each text whether it has to be decoded: the others are UTF-8 as they are."""
    if not has_ascii(cells.type.codec):
        return np.ones(len(cells), np.bool_)
    high = cells.block.beyond_ascii
    return np.asarray(high[cells.end] > high[cells.start])


def uncompressed_characters(cells: CellBytes) -> Texts:
    """The same of columns with the attribute COMPRESSED, UTF-8 included."""
    return characters(_uncompressed(cells))


def uncompressed_bytes(cells: CellBytes) -> Texts:
    """VARBINARY and BLOB with the attribute COMPRESSED."""
    return hexadecimal(_uncompressed(cells))


def _uncompressed(cells: CellBytes) -> CellBytes:
    found = texts_of([_uncompress(value) for value in cells.values()])
    return CellBytes(Block(found.data.tobytes() + PADDING), cells.type, found.start, found.end)


_ZLIB, _RAW = 0x80, 0x08


def _uncompress(value: bytes) -> bytes:
    """The first byte is 0 in front of a value that is not compressed; else its bits are the algorithm (4), whether
    zlib's header is left out, and the bytes of the length behind it (MariaDB source, Field_longstr::uncompress).
    """
    if value[:1] in (b"", b"\0"):
        return value[1:]
    reader = Reader(value, "column's COMPRESSED")
    head = reader.integer(1)
    size = reader.big_endian(head & 7)
    if head & 0xF0 != _ZLIB:
        raise ProtocolError("a COMPRESSED value is compressed with an unknown algorithm")
    return decompress(reader.rest(), size, "column's COMPRESSED", raw=bool(head & _RAW))


def hexadecimal(cells: CellBytes) -> Texts:
    r"""BINARY, VARBINARY and BLOB as PostgreSQL writes bytea: `\xdead`."""
    return _hex(cells, cells.end - cells.start)


def padded(cells: CellBytes) -> Texts:
    """BINARY(n), which the binlog has without the zero bytes at its end."""
    return _hex(cells, np.full(len(cells), cells.type.precision))


def _hex(cells: CellBytes, sizes: Index) -> Texts:
    """sizes: bytes that each is to have, zero bytes at the end."""
    begins = np.zeros(len(cells) + 1, np.int64)
    np.cumsum(sizes + 1, out=begins[1:])
    units = np.full(int(begins[-1]), _HEX[0], np.uint16)
    units[begins[:-1]] = _BACKSLASH_X
    lengths = cells.end - cells.start
    if (lengths > sizes).any():
        raise ProtocolError("a BINARY value is longer than its column")
    there = np.zeros(len(cells) + 1, np.int64)
    np.cumsum(lengths, out=there[1:])
    units[ragged(begins[:-1] + 1, there)] = _HEX[cells.block.u8[ragged(cells.start, there)]]
    return Texts(units.view(np.uint8), begins[:-1] * 2, begins[1:] * 2)


def enum_labels(cells: CellBytes) -> Texts:
    """ENUM: labels by number from 1; 0 is the empty text, which stands for a value that was refused."""
    labels = [b"", *cells.type.labels]
    which = cells.unsigned().astype(np.int64)
    if len(which) and int(which.max()) >= len(labels):
        raise ProtocolError("an ENUM has a number behind its last label")
    return texts_by_table(labels, which)


def set_labels(cells: CellBytes) -> Texts:
    """SET: the labels whose bit is set, in their order."""
    found, which = np.unique(cells.unsigned(), return_inverse=True)
    return texts_by_table([_members(bits, cells.type.labels) for bits in found.tolist()], which.astype(np.int64))


def _members(bits: int, labels: tuple[bytes, ...]) -> bytes:
    if bits >> len(labels):
        raise ProtocolError("a SET has a bit behind its last label")
    return b",".join(label for place, label in enumerate(labels) if bits >> place & 1)
