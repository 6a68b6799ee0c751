"""Wire layout of the pgoutput messages that come one by one (protocol version 1).

Source: PostgreSQL documentation, "Logical Replication Message Formats". Strings are NUL-terminated and in the
client encoding, which the connection pins to UTF-8. Rows (I, U, D) and transaction bounds (B, C) come in
masses and are read by columns: see decoder and tuples.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from struct import Struct
from struct import error as struct_error

from psql_streamer.errors import ProtocolError
from psql_streamer.model import Column, Relation, ReplicaIdentity, ReplicationOrigin
from psql_streamer.pgtype import PostgresType

_NUL = re.compile(rb"\0")
_KEY_FLAG = 1
_CASCADE = 1
_RESTART_IDENTITY = 2
_TRANSACTIONAL = 1
_COLUMN = Struct(">Ii")


@dataclass(frozen=True, slots=True)
class TruncateMessage:
    """'T': one TRUNCATE statement over the relations with these oids."""

    oids: tuple[int, ...]
    cascade: bool
    restart_identity: bool


@dataclass(frozen=True, slots=True)
class EmittedMessage:
    """'M': pg_logical_emit_message. content: of the body that it was read from, without a copy of a memoryview."""

    transactional: bool
    lsn: int
    prefix: str
    content: bytes | memoryview


class Reader:
    """Reads fields off one message; whatever does not fit is a ProtocolError that names the message."""

    def __init__(self, kind: str, body: bytes | memoryview) -> None:
        self._kind = kind
        self._body = body
        self._at = 0

    def read_number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def unpack(self, layout: Struct) -> tuple[int, ...]:
        try:
            fields = layout.unpack_from(self._body, self._at)
        except struct_error:
            raise self._make_layout_error() from None
        self._at += layout.size
        return fields

    def read_string(self) -> str:
        found = _NUL.search(self._body, self._at)
        if found is None:
            raise self._make_layout_error()
        text = str(self._body[self._at : found.start()], "utf-8", "replace")
        self._at = found.end()
        return text

    def take(self, size: int) -> bytes | memoryview:
        piece = self._body[self._at : self._at + size]
        if len(piece) != size:
            raise self._make_layout_error()
        self._at += size
        return piece

    def finish(self) -> None:
        if self._at != len(self._body):
            raise self._make_layout_error()

    def _make_layout_error(self) -> ProtocolError:
        return ProtocolError(f"a {self._kind} message of {len(self._body)} bytes does not have pgoutput's layout")


def read_relation(body: bytes) -> Relation:
    """'R': a table's shape. `version` is 1; the decoder counts.

    Under FULL every column is flagged, whatever tells the rows apart: then no column is a key here.
    """
    reader = Reader("Relation", body)
    oid = reader.read_number(4)
    # An empty namespace means pg_catalog.
    schema = reader.read_string() or "pg_catalog"
    table = reader.read_string()
    identity = reader.read_number(1)
    if identity not in ReplicaIdentity.__members__.values():
        raise ProtocolError(f"unknown replica identity {identity:#x} in a Relation message")
    flagged = identity != ReplicaIdentity.FULL
    columns = tuple(_read_column(reader, flagged) for _ in range(reader.read_number(2)))
    reader.finish()
    return Relation(str(oid), schema, table, columns, ReplicaIdentity(identity))


def parse_oid(relation: Relation) -> int:
    """The OID of a table, which is its id."""
    return int(relation.id)


def _read_column(reader: Reader, flagged: bool) -> Column:
    flags = reader.read_number(1)
    name = reader.read_string()
    type_oid, typmod = reader.unpack(_COLUMN)
    return Column(name, PostgresType(type_oid, typmod), key=flagged and bool(flags & _KEY_FLAG))


def read_truncate(body: bytes) -> TruncateMessage:
    """'T': the relations that one statement emptied."""
    reader = Reader("Truncate", body)
    count = reader.read_number(4)
    options = reader.read_number(1)
    if count * 4 > len(body):
        raise ProtocolError(f"a Truncate message names {count} relations in {len(body)} bytes")
    oids = tuple(reader.read_number(4) for _ in range(count))
    reader.finish()
    return TruncateMessage(oids, bool(options & _CASCADE), bool(options & _RESTART_IDENTITY))


def read_origin(body: bytes) -> ReplicationOrigin:
    """'O': the transaction is one that was replayed."""
    reader = Reader("Origin", body)
    commit_lsn = reader.read_number(8)
    name = reader.read_string()
    reader.finish()
    return ReplicationOrigin(name, commit_lsn)


def read_emitted_message(body: bytes | memoryview) -> EmittedMessage:
    """'M': a logical decoding message."""
    reader = Reader("Message", body)
    flags = reader.read_number(1)
    lsn = reader.read_number(8)
    prefix = reader.read_string()
    content = reader.take(reader.read_number(4))
    reader.finish()
    return EmittedMessage(bool(flags & _TRANSACTIONAL), lsn, prefix, content)
