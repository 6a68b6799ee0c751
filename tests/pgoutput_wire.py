"""Builders of the bytes a walsender sends: pgoutput messages, the XLogData and keepalives around them, CopyData frames.

Written from PostgreSQL's documentation: "Streaming Replication Protocol", "Logical Replication Message Formats"
(protocol version 1) and "Message Formats" (CopyData).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum


class Toast(Enum):
    """A cell whose value the server did not send, because the UPDATE left a TOASTed value alone."""

    UNCHANGED = "u"


UNCHANGED = Toast.UNCHANGED

Cell = bytes | None | Toast
"""A cell as the wire has it: text form, SQL NULL, or unchanged TOAST."""

Row = Sequence[Cell]


@dataclass(frozen=True)
class WireColumn:
    """A column of a Relation message."""

    name: str
    type_oid: int = 25
    typmod: int = -1
    key: bool = False


@dataclass(frozen=True)
class WireRelation:
    """A Relation message: a table in one shape. identity: pg_class.relreplident."""

    oid: int
    schema: str
    table: str
    columns: tuple[WireColumn, ...]
    identity: str = "d"

    def __repr__(self) -> str:
        names = few([column.name + "*" * column.key for column in self.columns])
        return f"<{self.oid} {self.schema!r}.{self.table!r} {self.identity} {names}>"


def begin(commit_lsn: int, commit_ts: int, xid: int) -> bytes:
    """commit_ts: microseconds since 2000-01-01."""
    return b"B" + struct.pack(">QqI", commit_lsn, commit_ts, xid)


def commit(commit_lsn: int, end_lsn: int, commit_ts: int) -> bytes:
    return b"C" + struct.pack(">BQQq", 0, commit_lsn, end_lsn, commit_ts)


def stream_abort(xid: int, subxid: int) -> bytes:
    return b"A" + struct.pack(">II", xid, subxid)


def origin(commit_lsn: int, name: str) -> bytes:
    return b"O" + struct.pack(">Q", commit_lsn) + _text(name)


def relation(shape: WireRelation) -> bytes:
    head = b"R" + struct.pack(">I", shape.oid) + _text(shape.schema) + _text(shape.table)
    columns = b"".join(
        struct.pack(">B", column.key) + _text(column.name) + struct.pack(">Ii", column.type_oid, column.typmod)
        for column in shape.columns
    )
    return head + shape.identity.encode() + struct.pack(">h", len(shape.columns)) + columns


def type_(oid: int, schema: str, name: str) -> bytes:
    return b"Y" + struct.pack(">I", oid) + _text(schema) + _text(name)


def insert(oid: int, new: Row) -> bytes:
    return b"I" + struct.pack(">I", oid) + b"N" + tuple_data(new)


def update(oid: int, new: Row, old: Row | None = None, old_kind: str = "K") -> bytes:
    """old_kind: `K` (key columns only, the others sent as NULL) or `O` (the whole old row, identity FULL)."""
    before = b"" if old is None else old_kind.encode() + tuple_data(old)
    return b"U" + struct.pack(">I", oid) + before + b"N" + tuple_data(new)


def delete(oid: int, old: Row, old_kind: str = "K") -> bytes:
    return b"D" + struct.pack(">I", oid) + old_kind.encode() + tuple_data(old)


def truncate(oids: Sequence[int], *, cascade: bool = False, restart_identity: bool = False) -> bytes:
    return b"T" + struct.pack(f">IB{len(oids)}I", len(oids), cascade | restart_identity << 1, *oids)


def message(lsn: int, prefix: str, content: bytes, *, transactional: bool = True) -> bytes:
    return b"M" + struct.pack(">BQ", transactional, lsn) + _text(prefix) + struct.pack(">I", len(content)) + content


def tuple_data(row: Row) -> bytes:
    return struct.pack(">H", len(row)) + b"".join(map(_cell, row))


def xlog_data(payload: bytes, start: int = 0, end: int | None = None, sent_at: int = 0) -> bytes:
    """XLogData around a pgoutput message; start: the LSN of the change."""
    return b"w" + struct.pack(">QQq", start, start if end is None else end, sent_at) + payload


def keepalive(wal_end: int, sent_at: int = 0, *, reply_requested: bool = False) -> bytes:
    return b"k" + struct.pack(">Qqb", wal_end, sent_at, reply_requested)


def copy_data(payload: bytes) -> bytes:
    return b"d" + struct.pack(">I", len(payload) + 4) + payload


def copy_stream(payloads: Iterable[bytes]) -> bytes:
    """The bytes on the socket for these XLogData and keepalive payloads."""
    return b"".join(map(copy_data, payloads))


def split_frames(stream: bytes) -> list[bytes]:
    """The CopyData frames of a sound stream, each whole."""
    frames = []
    start = 0
    while start < len(stream):
        end = start + 1 + struct.unpack_from(">I", stream, start + 1)[0]
        frames.append(stream[start:end])
        start = end
    return frames


def few(items: Sequence[object]) -> str:
    """How a row or its columns show in a failure: two hundred of them help nobody."""
    shown = ", ".join(map(repr, items[:6]))
    return f"[{shown}, ... {len(items)} in all]" if len(items) > 6 else f"[{shown}]"


def _text(value: str) -> bytes:
    return value.encode() + b"\0"


def _cell(cell: Cell) -> bytes:
    if cell is None:
        return b"n"
    if cell is UNCHANGED:
        return b"u"
    assert isinstance(cell, bytes)
    return b"t" + struct.pack(">I", len(cell)) + cell
