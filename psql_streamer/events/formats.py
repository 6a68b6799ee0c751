"""The event formats: rows of one kind -> the JSON value of each.

FORMATS is the table. `event` is the Go psql-streamer's event with more fields behind; `envelope` has before and
after side by side. A field that does not apply (no old image, nothing unchanged) is left out of `event` and null
or absent in `envelope`, as each is documented in docs/events.md.
"""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from psql_streamer import __version__
from psql_streamer.events.identity import checksums, lsn_texts, uuids
from psql_streamer.events.json_text import join, name
from psql_streamer.events.objects import image_json, names_json
from psql_streamer.events.rows import Rows
from psql_streamer.model import Batch, LogicalMessage, Lsn, Op, Transactions, Truncate

Part: TypeAlias = pa.Array | bytes


class Format(ABC):
    """Encodes the changes of one batch. Made anew for each, so that text of a transaction is made once."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self._texts: pa.Array | None = None

    @abstractmethod
    def rows(self, rows: Rows, image: pa.Array, checksum: pa.Array) -> pa.Array:
        """image: the JSON of rows.image; checksum: of each, eight hexadecimal digits."""

    @abstractmethod
    def truncate(self, truncate: Truncate) -> bytes:
        """The event of one truncated table."""

    @abstractmethod
    def message(self, message: LogicalMessage) -> bytes:
        """The event of a logical message."""

    @abstractmethod
    def transaction(self, index: int, transactions: Transactions, iso: str) -> bytes:
        """What every event of a transaction says of it."""

    def of_transactions(self, tx: NDArray[np.int32]) -> Part:
        """`transaction` for each row; a constant when all rows are of one."""
        if (tx == tx[0]).all():
            return bytes(self._transaction_texts()[int(tx[0])].as_py())
        return self._transaction_texts().take(pa.array(tx))

    def _transaction_texts(self) -> pa.Array:
        if self._texts is None:
            of = self.batch.transactions
            iso = np.datetime_as_string(of.commit_ts.astype("M8[us]")).tolist()
            self._texts = pa.array([self.transaction(index, of, iso[index]) for index in range(len(of))], pa.binary())
        return self._texts


class Event(Format):
    """`Host Database Schema Table Action Timestamp XID CommitLSN WALPosition Seq UUID Checksum Columns`, and where
    they apply `Before` (old row of an update) and `Unchanged` (names of TOASTed columns that an update left alone).
    """

    def rows(self, rows: Rows, image: pa.Array, checksum: pa.Array) -> pa.Array:
        origin = self.batch.origin
        identity = uuids(
            origin, self.batch.transactions.commit_lsn[rows.tx], rows.seq, int(rows.key_change and rows.op is Op.DELETE)
        )
        parts: list[Part] = [
            self._head(rows.relation.schema, rows.relation.table, rows.op),
            self.of_transactions(rows.tx),
            b',"WALPosition":',
            _numbers(rows.lsn),
            b',"Seq":',
            _numbers(rows.seq),
            b',"UUID":"',
            identity,
            b'","Checksum":"',
            checksum,
            b'","Columns":',
            image,
        ]
        if rows.new is not None and rows.old is not None:
            parts += [b',"Before":', image_json(rows.old, rows.columns, len(rows))]
        if rows.unchanged:
            parts += [b',"Unchanged":', names_json(rows.unchanged, rows.columns)]
        return join(*parts, b"}")

    def truncate(self, truncate: Truncate) -> bytes:
        options = [word for word, on in _truncate_options(truncate) if on]
        return b'%s%s,"WALPosition":%d,"Seq":%d,"UUID":"%s","Columns":{},"Options":[%s]}' % (
            self._head(truncate.relation.schema, truncate.relation.table, Op.TRUNCATE),
            bytes(self._transaction_texts()[truncate.tx].as_py()),
            truncate.lsn,
            truncate.seq,
            self._uuid(int(self.batch.transactions.commit_lsn[truncate.tx]), truncate.seq),
            b",".join(map(name, options)),
        )

    def message(self, message: LogicalMessage) -> bytes:
        of_transaction = (
            bytes(self._transaction_texts()[message.tx].as_py())
            if message.tx >= 0
            else b',"CommitLSN":%d' % message.lsn
        )
        return b'%s%s,"WALPosition":%d,"Seq":%d,"UUID":"%s","Prefix":%s,%s}' % (
            self._head("", "", Op.MESSAGE),
            of_transaction,
            message.lsn,
            message.seq,
            self._uuid(_commit_lsn(message, self.batch), message.seq),
            name(message.prefix),
            _content(message.content, b"Content"),
        )

    def transaction(self, index: int, transactions: Transactions, iso: str) -> bytes:
        return b',"Timestamp":"%sZ","XID":%d,"CommitLSN":%d' % (
            iso.encode(),
            transactions.xid[index],
            transactions.commit_lsn[index],
        )

    def _head(self, schema: str, table: str, op: Op) -> bytes:
        origin = self.batch.origin
        return b'{"Host":%s,"Database":%s,"Schema":%s,"Table":%s,"Action":"%s"' % (
            name(origin.host),
            name(origin.database),
            name(schema),
            name(table),
            op.action.encode(),
        )

    def _uuid(self, commit_lsn: int, seq: int) -> bytes:
        return bytes(uuids(self.batch.origin, np.array([commit_lsn], np.uint64), np.array([seq], np.int64))[0].as_py())


class Envelope(Format):
    """`{schema, table, op, ts_ms, before, after, checksum, source{version, connector, ts_ms, db, ...}}`."""

    def rows(self, rows: Rows, image: pa.Array, checksum: pa.Array) -> pa.Array:
        before: Part = b"null"
        if rows.new is None:
            before = image
        elif rows.old is not None:
            before = image_json(rows.old, rows.columns, len(rows))
        parts: list[Part] = [
            self._head(rows.relation.schema, rows.relation.table, rows.op.name),
            b',"before":',
            before,
            b',"after":',
            b"null" if rows.new is None else image,
            b',"checksum":"',
            checksum,
            b'"',
        ]
        if rows.unchanged:
            parts += [b',"unchanged":', names_json(rows.unchanged, rows.columns)]
        parts += [
            self._source(rows.relation.schema, rows.relation.table),
            self.of_transactions(rows.tx),
            b',"lsn":"',
            lsn_texts(rows.lsn),
            b'","seq":',
            _numbers(rows.seq),
        ]
        return join(*parts, b"}}")

    def truncate(self, truncate: Truncate) -> bytes:
        options = [word for word, on in _truncate_options(truncate) if on]
        relation = truncate.relation
        return b'%s,"before":null,"after":null,"options":[%s]%s%s,"lsn":"%s","seq":%d}}' % (
            self._head(relation.schema, relation.table, Op.TRUNCATE.name),
            b",".join(map(name, options)),
            self._source(relation.schema, relation.table),
            bytes(self._transaction_texts()[truncate.tx].as_py()),
            str(Lsn(truncate.lsn)).encode(),
            truncate.seq,
        )

    def message(self, message: LogicalMessage) -> bytes:
        commit_lsn = str(Lsn(message.lsn)).encode()
        of_transaction = (
            bytes(self._transaction_texts()[message.tx].as_py())
            if message.tx >= 0
            else b',"ts_ms":null,"xid":null,"commit_lsn":"%s"' % commit_lsn
        )
        return b'%s,"before":null,"after":null,"message":{"prefix":%s,%s}%s%s,"lsn":"%s","seq":%d}}' % (
            self._head("", "", Op.MESSAGE.name),
            name(message.prefix),
            _content(message.content, b"content"),
            self._source("", ""),
            of_transaction,
            commit_lsn,
            message.seq,
        )

    def transaction(self, index: int, transactions: Transactions, iso: str) -> bytes:  # noqa: ARG002 - milliseconds here
        return b',"ts_ms":%d,"xid":%d,"commit_lsn":"%s"' % (
            transactions.commit_ts[index] // 1000,
            transactions.xid[index],
            str(Lsn(transactions.commit_lsn[index])).encode(),
        )

    def _head(self, schema: str, table: str, op: str) -> bytes:
        return b'{"schema":%s,"table":%s,"op":"%s"' % (name(schema), name(table), op.encode())

    def _source(self, schema: str, table: str) -> bytes:
        origin = self.batch.origin
        return b',"source":{"version":"%s","connector":"psql-streamer","name":%s,"db":%s,"schema":%s,"table":%s' % (
            __version__.encode(),
            name(origin.source),
            name(origin.database),
            name(schema),
            name(table),
        )


FORMATS: dict[str, Callable[[Batch], Format]] = {"event": Event, "envelope": Envelope}
"""Format name -> what encodes a batch in it."""


def image_with_checksum(rows: Rows) -> tuple[pa.Array, pa.Array]:
    """The JSON of each row's image, and its checksum: what a consumer compares to tell a repeat."""
    image = image_json(rows.image, rows.columns, len(rows))
    return image, checksums(image)


def _numbers(values: NDArray[np.uint64] | NDArray[np.int64]) -> pa.Array:
    return pa.array(values).cast(pa.string()).cast(pa.binary())


def _truncate_options(truncate: Truncate) -> tuple[tuple[str, bool], ...]:
    return ("CASCADE", truncate.cascade), ("RESTART IDENTITY", truncate.restart_identity)


def _commit_lsn(message: LogicalMessage, batch: Batch) -> int:
    return message.lsn if message.tx < 0 else int(batch.transactions.commit_lsn[message.tx])


def _content(content: bytes, field: bytes) -> bytes:
    """Text as it is; bytes that are not UTF-8 as base64, under another name so that nobody mistakes them."""
    try:
        return b'"%s":%s' % (field, name(content.decode()))
    except UnicodeDecodeError:
        return b'"%sBase64":%s' % (field, name(base64.b64encode(content).decode()))
