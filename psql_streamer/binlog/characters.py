"""Characters of other sets than UTF-8, bytes, and the labels of ENUM and SET."""

from __future__ import annotations

from binascii import hexlify

import numpy as np
from numpy.typing import NDArray

from psql_streamer.binlog.cell_bytes import PADDING, Block, Bytes, CellBytes, Texts, are_long, join_texts, look_up_texts
from psql_streamer.binlog.charsets import decode_characters, has_ascii
from psql_streamer.binlog.events import decompress
from psql_streamer.binlog.reader import Reader
from psql_streamer.cells import expand_ranges
from psql_streamer.errors import ProtocolError
from psql_streamer.model import Index

_HEX = np.frombuffer("".join(f"{value:02x}" for value in range(256)).encode(), np.uint16)
_BACKSLASH_X = np.frombuffer(rb"\x", np.uint16)[0]
_BEYOND_ASCII = 0x80


def recode_characters(cells: CellBytes) -> Texts:
    """CHAR, VARCHAR and TEXT of a character set that is not UTF-8."""
    codec = cells.type.codec
    try:
        return join_texts([decode_characters(value, codec).encode() for value in cells.list_values()])
    except UnicodeDecodeError:
        raise ProtocolError(f"a text is not of its column's character set ({codec})") from None


def find_non_ascii(cells: CellBytes) -> NDArray[np.bool_]:
    """For each text whether it has to be decoded: the others are UTF-8 as they are."""
    if not has_ascii(cells.type.codec):
        return np.ones(len(cells), np.bool_)
    if are_long(cells):
        data, spans = cells.block.u8, zip(cells.start.tolist(), cells.end.tolist(), strict=True)
        return np.array([end > start and data[start:end].max() >= _BEYOND_ASCII for start, end in spans], np.bool_)
    high = cells.block.beyond_ascii
    return np.asarray(high[cells.end] > high[cells.start])


def uncompress_characters(cells: CellBytes) -> Texts:
    """The same of columns with the attribute COMPRESSED, UTF-8 included."""
    return recode_characters(_uncompress_cells(cells))


def uncompress_bytes(cells: CellBytes) -> Texts:
    """VARBINARY and BLOB with the attribute COMPRESSED."""
    return decode_bytes(_uncompress_cells(cells))


def _uncompress_cells(cells: CellBytes) -> CellBytes:
    found = join_texts([_uncompress(value) for value in cells.list_values()])
    return CellBytes(Block(found.data.tobytes() + PADDING), cells.type, found.start, found.end)


_ZLIB, _RAW = 0x80, 0x08


def _uncompress(value: bytes) -> bytes:
    """The first byte is 0 in front of a value that is not compressed; else its bits are the algorithm (4), whether
    zlib's header is left out, and the bytes of the length behind it (MariaDB source, Field_longstr::uncompress).
    """
    if value[:1] in (b"", b"\0"):
        return value[1:]
    reader = Reader(value, "column's COMPRESSED")
    head = reader.read_integer(1)
    size = reader.read_big_endian(head & 7)
    if head & 0xF0 != _ZLIB:
        raise ProtocolError("a COMPRESSED value is compressed with an unknown algorithm")
    return decompress(reader.take_rest(), size, "column's COMPRESSED", raw=bool(head & _RAW))


def decode_bytes(cells: CellBytes) -> Texts:
    r"""BINARY, VARBINARY and BLOB as PostgreSQL writes bytea: `\xdead`."""
    return _render_hex(cells, cells.end - cells.start)


def decode_padded_bytes(cells: CellBytes) -> Texts:
    """BINARY(n), which the binlog has without the zero bytes at its end."""
    return _render_hex(cells, np.full(len(cells), cells.type.precision))


def _render_hex(cells: CellBytes, sizes: Index) -> Texts:
    """sizes: bytes that each is to have, zero bytes at the end."""
    begins = np.zeros(len(cells) + 1, np.int64)
    np.cumsum(sizes + 1, out=begins[1:])
    lengths = cells.end - cells.start
    if (lengths > sizes).any():
        raise ProtocolError("a BINARY value is longer than its column")
    if are_long(cells):
        return Texts(_render_long_hex(cells, begins), begins[:-1] * 2, begins[1:] * 2)
    units = np.full(int(begins[-1]), _HEX[0], np.uint16)
    units[begins[:-1]] = _BACKSLASH_X
    there = np.zeros(len(cells) + 1, np.int64)
    np.cumsum(lengths, out=there[1:])
    units[expand_ranges(begins[:-1] + 1, there)] = _HEX[cells.block.u8[expand_ranges(cells.start, there)]]
    return Texts(units.view(np.uint8), begins[:-1] * 2, begins[1:] * 2)


def _render_long_hex(cells: CellBytes, begins: Index) -> Bytes:
    """Value by value, each in pieces. begins: of each, in units of two digits."""
    found = np.full(int(begins[-1]) * 2, ord("0"), np.uint8)
    read, write = memoryview(cells.block.data), found.data
    for start, end, begin in zip(cells.start.tolist(), cells.end.tolist(), (begins[:-1] * 2).tolist(), strict=True):
        write[begin : begin + 2] = rb"\x"
        for at in range(start, end, _PIECE_BYTES):
            digits = hexlify(read[at : min(at + _PIECE_BYTES, end)])
            to = begin + 2 + 2 * (at - start)
            write[to : to + len(digits)] = digits
    return found


_PIECE_BYTES = 1 << 16
"""Of a long value that is rendered at once."""


def decode_enum_labels(cells: CellBytes) -> Texts:
    """ENUM: labels by number from 1; 0 is the empty text, which stands for a value that was refused."""
    labels = [b"", *cells.type.labels]
    which = cells.read_unsigned().astype(np.int64)
    if len(which) and int(which.max()) >= len(labels):
        raise ProtocolError("an ENUM has a number behind its last label")
    return look_up_texts(labels, which)


def decode_set_labels(cells: CellBytes) -> Texts:
    """SET: the labels whose bit is set, in their order."""
    found, which = np.unique(cells.read_unsigned(), return_inverse=True)
    return look_up_texts([_join_members(bits, cells.type.labels) for bits in found.tolist()], which.astype(np.int64))


def _join_members(bits: int, labels: tuple[bytes, ...]) -> bytes:
    if bits >> len(labels):
        raise ProtocolError("a SET has a bit behind its last label")
    return b",".join(label for place, label in enumerate(labels) if bits >> place & 1)
