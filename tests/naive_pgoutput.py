"""The oracle: a plain decoder of the walsender's byte stream, a row and a cell at a time.

Written from PostgreSQL's documentation alone ("Streaming Replication Protocol", "Logical Replication Message
Formats", protocol version 1); it shares nothing with psql_streamer. Slow, and strict about every length.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

POSTGRES_EPOCH = 946_684_800_000_000
"""2000-01-01 in microseconds since 1970-01-01 UTC."""


class NaiveError(ValueError):
    """The bytes are not the protocol."""


class Lack(Enum):
    """The image does not say what the cell holds: no part of the key, or unchanged TOAST."""

    ABSENT = "absent"


ABSENT = Lack.ABSENT

NaiveCell = bytes | None | Lack
NaiveRow = tuple[NaiveCell, ...]


@dataclass(frozen=True)
class NaiveRelation:
    """A table in one shape; columns are (name, type oid, typmod, part of the replica identity)."""

    oid: int
    schema: str
    table: str
    identity: str
    columns: tuple[tuple[str, int, int, bool], ...]


@dataclass(frozen=True)
class NaiveChange:
    """One change. detail: (cascade, restart identity) of a truncate, (prefix, content) of a message.

    xid, commit_ts (microseconds since 1970): None for a message outside a transaction. origin: of a transaction that
    was replayed, its replication origin and the LSN of the commit there.
    """

    op: str
    commit_lsn: int
    seq: int
    lsn: int
    xid: int | None
    commit_ts: int | None
    relation: NaiveRelation | None = None
    after: NaiveRow | None = None
    before: NaiveRow | None = None
    detail: tuple[Any, ...] = ()
    origin: tuple[str, int] | None = None


@dataclass
class OpenTransaction:
    """A transaction between its Begin and its Commit."""

    commit_lsn: int
    commit_ts: int
    xid: int
    changes: int = 0
    origin: tuple[str, int] | None = None


class NaiveDecoder:
    """Decodes CopyData payloads one after the other; `changes` grows."""

    def __init__(self) -> None:
        self.changes: list[NaiveChange] = []
        self.end_lsn = 0
        self._relations: dict[int, NaiveRelation] = {}
        self._transaction: OpenTransaction | None = None

    def fork(self) -> NaiveDecoder:
        """Another decoder in the same state, without changes yet."""
        other = NaiveDecoder()
        other.end_lsn = self.end_lsn
        other._relations = dict(self._relations)
        other._transaction = self._transaction and replace(self._transaction)
        return other

    def stream(self, data: bytes) -> None:
        """Decode whole CopyData frames."""
        reader = Reader(data)
        while reader.left:
            if reader.char() != "d":
                raise NaiveError("not CopyData")
            self.payload(reader.take(reader.uint32() - 4))

    def payload(self, data: bytes) -> None:
        """Decode what one CopyData message carries."""
        reader = Reader(data)
        kind = reader.char()
        if kind == "k":
            self._keepalive(reader)
        elif kind == "w":
            start, _end, _sent_at = reader.uint64(), reader.uint64(), reader.int64()
            self._message(start, reader)
        else:
            raise NaiveError(f"unknown CopyData payload {kind!r}")

    def _keepalive(self, reader: Reader) -> None:
        wal_end, _sent_at, _reply_requested = reader.uint64(), reader.int64(), reader.uint8()
        reader.end()
        if self._transaction is None:
            self.end_lsn = max(self.end_lsn, wal_end)

    def _message(self, lsn: int, reader: Reader) -> None:
        kind = reader.char()
        if kind == "Y":  # what a type is called
            return
        readers: dict[str, Callable[[int, Reader], None]] = {
            "B": self._begin,
            "C": self._commit,
            "O": self._origin,
            "R": self._relation,
            "I": self._insert,
            "U": self._update,
            "D": self._delete,
            "T": self._truncate,
            "M": self._logical_message,
            "A": self._stream_abort,
        }
        if kind not in readers:
            raise NaiveError(f"unknown message {kind!r}")
        readers[kind](lsn, reader)
        reader.end()

    def _stream_abort(self, _lsn: int, reader: Reader) -> None:
        """What was rolled back, of which nothing came."""
        if self._transaction is not None:
            raise NaiveError("Stream Abort inside a transaction")
        reader.uint32()
        reader.uint32()

    def _begin(self, _lsn: int, reader: Reader) -> None:
        if self._transaction is not None:
            raise NaiveError("Begin inside a transaction")
        commit_lsn, commit_ts, xid = reader.uint64(), reader.int64(), reader.uint32()
        self._transaction = OpenTransaction(commit_lsn, commit_ts + POSTGRES_EPOCH, xid)

    def _commit(self, _lsn: int, reader: Reader) -> None:
        _flags, commit_lsn, end_lsn, _commit_ts = reader.uint8(), reader.uint64(), reader.uint64(), reader.int64()
        if self._transaction is None:
            raise NaiveError("Commit outside a transaction")
        if self._transaction.commit_lsn != commit_lsn:
            raise NaiveError("Commit of another transaction")
        self.end_lsn = max(self.end_lsn, end_lsn)
        self._transaction = None

    def _origin(self, _lsn: int, reader: Reader) -> None:
        commit_lsn, name = reader.uint64(), reader.string()
        if self._transaction is None:
            raise NaiveError("Origin outside a transaction")
        self._transaction.origin = (name, commit_lsn)

    def _relation(self, _lsn: int, reader: Reader) -> None:
        oid, schema, table, identity = reader.uint32(), reader.string(), reader.string(), reader.char()
        if identity not in "dnfi":
            raise NaiveError(f"unknown replica identity {identity!r}")
        columns = []
        for _ in range(reader.uint16()):
            flags = reader.uint8()
            name, type_oid, typmod = reader.string(), reader.uint32(), reader.int32()
            # Under FULL every column is flagged, and what tells the rows apart is in the catalog alone.
            columns.append((name, type_oid, typmod, bool(flags & 1) and identity != "f"))
        # The documentation of Relation: the namespace is the empty string for pg_catalog.
        self._relations[oid] = NaiveRelation(oid, schema or "pg_catalog", table, identity, tuple(columns))

    def _insert(self, lsn: int, reader: Reader) -> None:
        relation = self._known(reader.uint32())
        if reader.char() != "N":
            raise NaiveError("Insert without a new tuple")
        self._add("I", lsn, relation=relation, after=self._tuple(relation, reader))

    def _update(self, lsn: int, reader: Reader) -> None:
        relation = self._known(reader.uint32())
        before = None
        kind = reader.char()
        if kind in "KO":
            before = self._old(kind, relation, reader)
            kind = reader.char()
        if kind != "N":
            raise NaiveError("Update without a new tuple")
        self._add("U", lsn, relation=relation, before=before, after=self._tuple(relation, reader))

    def _delete(self, lsn: int, reader: Reader) -> None:
        relation = self._known(reader.uint32())
        kind = reader.char()
        if kind not in "KO":
            raise NaiveError("Delete without an old tuple")
        self._add("D", lsn, relation=relation, before=self._old(kind, relation, reader))

    def _truncate(self, lsn: int, reader: Reader) -> None:
        count, flags = reader.uint32(), reader.uint8()
        if reader.left != 4 * count:
            raise NaiveError("Truncate with another number of relations than it says")
        relations = [self._known(reader.uint32()) for _ in range(count)]
        for relation in relations:
            self._add("T", lsn, relation=relation, detail=(bool(flags & 1), bool(flags & 2)))

    def _logical_message(self, _lsn: int, reader: Reader) -> None:
        flags, lsn, prefix = reader.uint8(), reader.uint64(), reader.string()
        detail = (prefix, reader.take(reader.uint32()))
        if flags & 1:
            self._add("M", lsn, detail=detail)
        else:
            self.changes.append(NaiveChange("M", lsn, -1, lsn, None, None, detail=detail))

    def _old(self, kind: str, relation: NaiveRelation, reader: Reader) -> NaiveRow:
        row = self._tuple(relation, reader)
        if kind == "O":
            return row
        return tuple(cell if column[3] else ABSENT for cell, column in zip(row, relation.columns, strict=True))

    def _tuple(self, relation: NaiveRelation, reader: Reader) -> NaiveRow:
        if reader.uint16() != len(relation.columns):
            raise NaiveError("a tuple with another number of columns than its relation")
        return tuple(self._cell(reader) for _ in relation.columns)

    def _cell(self, reader: Reader) -> NaiveCell:
        kind = reader.char()
        if kind == "n":
            return None
        if kind == "u":
            return ABSENT
        if kind == "t":
            return reader.take(reader.uint32())
        raise NaiveError(f"unknown cell {kind!r}")  # 'b' too: binary is sent to those who ask for it

    def _known(self, oid: int) -> NaiveRelation:
        if oid not in self._relations:
            raise NaiveError(f"relation {oid} was never described")
        return self._relations[oid]

    def _add(self, op: str, lsn: int, **what: Any) -> None:
        tx = self._transaction
        if tx is None:
            raise NaiveError(f"{op!r} outside a transaction")
        self.changes.append(
            NaiveChange(op, tx.commit_lsn, tx.changes, lsn, tx.xid, tx.commit_ts, origin=tx.origin, **what)
        )
        tx.changes += 1


class Reader:
    """Network byte order, never past the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, count: int) -> bytes:
        if not 0 <= count <= self.left:
            raise NaiveError(f"{count} bytes wanted, {self.left} left")
        self._at += count
        return self._data[self._at - count : self._at]

    def char(self) -> str:
        return self.take(1).decode("latin-1")

    def string(self) -> str:
        end = self._data.find(b"\0", self._at)
        if end < 0:
            raise NaiveError("a string without its end")
        text = self.take(end - self._at)
        self._at += 1
        return text.decode("utf-8", "replace")

    def uint8(self) -> int:
        return self.take(1)[0]

    def uint16(self) -> int:
        return int.from_bytes(self.take(2))

    def uint32(self) -> int:
        return int.from_bytes(self.take(4))

    def int32(self) -> int:
        return int(struct.unpack(">i", self.take(4))[0])

    def uint64(self) -> int:
        return int.from_bytes(self.take(8))

    def int64(self) -> int:
        return int(struct.unpack(">q", self.take(8))[0])

    def end(self) -> None:
        if self.left:
            raise NaiveError(f"{self.left} bytes too many")


def naive_changes(stream: bytes) -> list[NaiveChange]:
    """All changes of a stream of whole CopyData frames."""
    decoder = NaiveDecoder()
    decoder.stream(stream)
    return decoder.changes


def without_places(changes: list[NaiveChange]) -> list[NaiveChange]:
    """The changes without what two servers that ran the same statements differ in: LSNs, xids, times, oids."""
    return [
        replace(
            change,
            commit_lsn=0,
            lsn=0,
            xid=None,
            commit_ts=None,
            relation=change.relation
            and replace(
                change.relation,
                oid=0,
                columns=tuple((name, min(oid, 16384), mod, key) for name, oid, mod, key in change.relation.columns),
            ),
        )
        for change in changes
    ]
