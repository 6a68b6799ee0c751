"""The block `source` of Debezium's events, and the times at the end of an event.

All times of a change are its commit's, so that a change that is sent again is the same bytes.
Source: Debezium documentation, "PostgreSQL connector", change events.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from psql_streamer import __version__
from psql_streamer.events.format import numbers
from psql_streamer.events.json_text import join, name
from psql_streamer.events.per_transaction import Part, PerTransaction
from psql_streamer.model import Batch, LogicalMessage, Relation, ReplicationOrigin, RowOp

_NO_ORIGIN = b'null,"origin_lsn":null'


class SourceBlock:
    """Of the events of one batch. What is the same for the batch, the transaction or the table is written once."""

    def __init__(self, batch: Batch) -> None:
        of = batch.transactions
        self._batch = batch
        self._head = b',"source":{"version":"%s","connector":"postgresql","name":%s,"ts_ms":' % (
            __version__.encode(),
            name(batch.origin.source),
        )
        database = name(batch.origin.database)
        self._between, self._between_read = (
            b',"snapshot":"%s","db":%s,"sequence":"[\\"' % (snapshot, database) for snapshot in (b"false", b"true")
        )
        self._millis = PerTransaction(lambda: numbers(of.commit_ts // 1000))
        self._position = PerTransaction(lambda: join(self._millis.all(), self._between, numbers(of.commit_lsn)))
        self._read_position = PerTransaction(
            lambda: join(self._millis.all(), self._between_read, numbers(of.commit_lsn))
        )
        self._fine_times = PerTransaction(lambda: _fine_times(of.commit_ts))
        self._times = PerTransaction(lambda: join(b'"ts_ms":', self._millis.all(), self._fine_times.all()))
        self._xid = PerTransaction(lambda: numbers(of.xid))
        self._origin = PerTransaction(
            lambda: pa.array([_origin(of.origins.get(tx)) for tx in range(len(of))], pa.binary())
        )

    def of_rows(
        self, tx: NDArray[np.int32], lsn: pa.Array, relation: Relation, op: RowOp = RowOp.INSERT
    ) -> tuple[Part, ...]:
        """tx: each row's transaction. lsn: its digits. op: what happened to all of them."""
        return self._parts(
            (self._read_position if op is RowOp.READ else self._position).of_rows(tx),
            lsn,
            self._fine_times.of_rows(tx),
            _table(relation.schema, relation.table),
            self._xid.of_rows(tx),
            self._origin.of_rows(tx) if self._batch.transactions.origins else _NO_ORIGIN,
        )

    def of_table(self, tx: int, lsn: int, relation: Relation) -> bytes:
        """Of something that happened to a whole table."""
        return self._in_transaction(tx, lsn, _table(relation.schema, relation.table))

    def of_message(self, message: LogicalMessage) -> bytes:
        """Outside of a transaction it has its own LSN as the commit's."""
        if message.tx >= 0:
            return self._in_transaction(message.tx, message.lsn, _table("", ""))
        lsn = b"%d" % message.lsn
        position = b"%d%s%s" % (message.moment // 1000, self._between, lsn)
        fine_times = b',"ts_us":%d,"ts_ns":%d' % (message.moment, message.moment * 1000)
        return _joined(self._parts(position, lsn, fine_times, _table("", ""), b"null", _NO_ORIGIN))

    def times(self, tx: NDArray[np.int32]) -> Part:
        """`"ts_ms":1,"ts_us":1000,"ts_ns":1000000` of each row's event."""
        return self._times.of_rows(tx)

    def times_of(self, tx: int) -> bytes:
        """The same for one transaction."""
        return self._times.of(tx)

    def _in_transaction(self, tx: int, lsn: int, table: bytes) -> bytes:
        return _joined(
            self._parts(
                self._position.of(tx),
                b"%d" % lsn,
                self._fine_times.of(tx),
                table,
                self._xid.of(tx),
                _origin(self._batch.transactions.origins.get(tx)),
            )
        )

    def _parts(
        self, position: Part, lsn: Part, fine_times: Part, table: bytes, xid: Part, origin: Part
    ) -> tuple[Part, ...]:
        return (
            self._head,
            position,
            rb"\",\"",
            lsn,
            rb'\"]"',
            fine_times,
            table,
            xid,
            b',"lsn":',
            lsn,
            b',"xmin":null,"origin":',
            origin,
            b"}",
        )


def _fine_times(micros: NDArray[np.int64]) -> pa.Array:
    return join(b',"ts_us":', numbers(micros), b',"ts_ns":', numbers(micros * 1000))


def _table(schema: str, table: str) -> bytes:
    return b',"schema":%s,"table":%s,"txId":' % (name(schema), name(table))


def _origin(origin: ReplicationOrigin | None) -> bytes:
    return _NO_ORIGIN if origin is None else b'%s,"origin_lsn":%d' % (name(origin.name), origin.commit_lsn)


def _joined(parts: tuple[Part, ...]) -> bytes:
    return b"".join(part for part in parts if isinstance(part, bytes))
