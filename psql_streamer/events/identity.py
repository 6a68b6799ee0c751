"""What tells one change from another: UUID and checksum, by columns.

The UUID is RFC 9562 version 8: the commit number, the change's place in its transaction, and 25 bits of hash of
where it came from, so that a change that is sent again has the UUID it had before.
"""

from __future__ import annotations

import hashlib
import zlib
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from fastcrc import crc32
from numpy.typing import NDArray

from psql_streamer import batching
from psql_streamer.binary_columns import list_views, measure_bytes, pack_values
from psql_streamer.model import MYSQL, Index, SourceInfo

_DASHED = np.array([0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 14, 15, 16, 17, 19, 20, 21, 22, *range(24, 36)])

_DEAR_TO_COPY = 2048
"""Bytes of a value, on average, from which on a copy of each costs more than a view of it."""


def make_uuids(
    source: SourceInfo, commit: NDArray[np.uint64], seq: NDArray[np.int64], old_key: bool = False
) -> pa.Array:
    """36-character UUIDs. old_key: whether the records delete the old keys of rows whose key was changed."""
    where = _hash_source(source)
    if len(seq) <= batching.FEW_ROWS:
        changes = zip(commit.tolist(), seq.tolist(), strict=True)
        return pack_values([_render_uuid(*change, old_key, where) for change in changes])
    # All but the last eight digits, which are the place in the transaction, are the same for a whole transaction.
    starts = np.flatnonzero(np.append(True, commit[1:] != commit[:-1]))
    text = np.empty((len(seq), 36), np.uint8)
    text[:, :28] = np.repeat(
        _render_leads(commit[starts], old_key, where), np.diff(np.append(starts, len(seq))), axis=0
    )
    text[:, 28:] = _render_hex_digits(seq.astype(">u4"))
    return _make_binary_array(text)


def convert_given_uuids(uuid: NDArray[np.bytes_]) -> pa.Array:
    """UUIDs that changes have already, 36 characters each."""
    return _make_binary_array(uuid.astype("S36").view(np.uint8).reshape(len(uuid), 36))


def make_part_uuids(changes: pa.Array, parts: Index) -> pa.Array:
    """The UUIDs of parts of changes: version 5 of RFC 9562, of the part's number in decimal digits, in the namespace
    that the change's UUID is.
    """
    digits = pc.replace_substring(changes.view(pa.string()), "-", "")
    namespaces = bytes.fromhex("".join(digits.to_pylist()))
    named = (
        hashlib.sha1(namespaces[at : at + 16] + b"%d" % part, usedforsecurity=False).digest()[:16]
        for at, part in zip(range(0, len(namespaces), 16), parts.tolist(), strict=True)
    )
    words = np.frombuffer(b"".join(named), ">u8").reshape(len(parts), 2)
    return convert_given_uuids(format_uuids(words.astype(np.uint64), version=5))


def format_uuids(words: NDArray[np.uint64], version: int = 8) -> NDArray[np.bytes_]:
    """UUIDs of a version from 122 of 128 bits. words: two for each."""
    marked = words.astype(">u8")
    marked[:, 0] = marked[:, 0] & np.uint64(0xFFFF_FFFF_FFFF_0FFF) | np.uint64(version << 12)
    marked[:, 1] = marked[:, 1] & np.uint64(0x3FFF_FFFF_FFFF_FFFF) | np.uint64(2 << 62)
    text = np.full((len(words), 36), ord("-"), np.uint8)
    text[:, _DASHED] = _render_hex_digits(marked)
    return text.view("S36")[:, 0]


def _render_leads(commit: NDArray[np.uint64], old_key: bool, where: int) -> NDArray[np.uint8]:
    """The first 28 characters of UUIDs."""
    words = np.empty((len(commit), 2), ">u8")
    high = commit & np.uint64(0xFFFF_FFFF_FFFF_0000)
    words[:, 0] = high | np.uint64(0x8000) | ((commit >> np.uint64(4)) & np.uint64(0xFFF))
    variant = np.uint64((2 << 62) | (old_key << 57) | (where << 32))
    words[:, 1] = variant | ((commit & np.uint64(0xF)) << np.uint64(58))
    text = np.full((len(commit), 36), ord("-"), np.uint8)
    text[:, _DASHED] = _render_hex_digits(words)
    return text[:, :28]


def make_uuid(source: SourceInfo, commit: int, seq: int) -> bytes:
    """The UUID of one change."""
    return _render_uuid(commit, seq, False, _hash_source(source))


@lru_cache(maxsize=256)
def _hash_source(source: SourceInfo) -> int:
    """25 bits of where changes come from.

    MySQL's GTIDs hold the uuid of the server that made them, and are the same on every server that has them.
    """
    if source.kind == MYSQL and source.identity:
        return zlib.crc32(source.identity.encode()) >> 7
    return zlib.crc32(f"{source.identity}/{source.host}/{source.database}".encode()) >> 7


def _render_uuid(commit: int, seq: int, old_key: bool, where: int) -> bytes:
    high = (commit & 0xFFFF_FFFF_FFFF_0000) | 0x8000 | (commit >> 4 & 0xFFF)
    low = 2 << 62 | (commit & 0xF) << 58 | old_key << 57 | where << 32 | seq & 0xFFFF_FFFF
    digits = b"%016x%016x" % (high, low)
    return b"-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def render_lsns(lsn: NDArray[np.uint64]) -> pa.Array:
    """`16/B374D848` for each."""
    high, place = np.unique(lsn >> np.uint64(32), return_inverse=True)
    leads = pa.array([f"{value:X}/".encode() for value in high.tolist()], pa.binary()).take(pa.array(place))
    low = (lsn & np.uint64(0xFFFF_FFFF)).astype(">u4")
    digits = _make_binary_array(_render_hex_digits(low, b"A"))
    short = pc.utf8_ltrim(digits.view(pa.string()), characters="0").view(pa.binary())
    return pc.binary_join_element_wise(
        leads, pc.if_else(pc.equal(short, b""), pa.scalar(b"0", pa.binary()), short), b""
    )


def compute_checksums(texts: pa.Array) -> pa.Array:
    """CRC-32 (as zlib and gzip have it) of each value, as 8 hexadecimal digits."""
    if len(texts) <= batching.FEW_ROWS:  # which may be large
        return pack_values([compute_checksum(text) for text in list_views(texts)])
    copies_cost_more = measure_bytes(texts) > _DEAR_TO_COPY * len(texts)
    values = list_views(texts) if copies_cost_more else texts.to_numpy(zero_copy_only=False).tolist()
    sums = np.fromiter(map(crc32.iso_hdlc, values), ">u4", len(values))
    return _make_binary_array(_render_hex_digits(sums))


def compute_checksum(text: bytes | memoryview) -> bytes:
    """The CRC-32 of one value, as 8 hexadecimal digits."""
    return b"%08x" % crc32.iso_hdlc(text)


def _render_hex_digits(numbers: NDArray[np.generic], ten: bytes = b"a") -> NDArray[np.uint8]:
    """Two digits for each byte of big-endian numbers: a row for each element of the first axis. ten: what 10 is."""
    held = numbers.view(np.uint8).reshape(-1)
    digits = np.empty((len(held), 2), np.uint8)
    np.right_shift(held, 4, out=digits[:, 0])
    np.bitwise_and(held, 15, out=digits[:, 1])
    digits += ord("0") + (digits > 9) * np.uint8(ord(ten) - ord("0") - 10)
    return digits.reshape(len(numbers), -1)


def _make_binary_array(text: NDArray[np.uint8]) -> pa.Array:
    rows, width = text.shape
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(width)
    return pa.Array.from_buffers(
        pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(text))]
    )
