"""The `event` format: the Go psql-streamer's event with more fields behind. A field that does not apply is left out."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from psql_streamer.events.format import (
    Format,
    RowTexts,
    commit_lsn_of,
    content_member,
    moments,
    numbers,
    truncate_options,
)
from psql_streamer.events.identity import uuids
from psql_streamer.events.json_text import join, name
from psql_streamer.events.objects import image_json, names_json
from psql_streamer.events.per_transaction import Part
from psql_streamer.events.rows import Rows
from psql_streamer.model import Kind, LogicalMessage, Marker, RowOp, Transactions, Truncate


class Event(Format):
    """`Host Database Schema Table Action Timestamp XID CommitLSN WALPosition Seq UUID Checksum Columns`, and where
    they apply `Before` (old row of an update) and `Unchanged` (names of TOASTed columns that an update left alone).
    """

    def rows(self, rows: Rows, texts: RowTexts) -> pa.Array:
        origin = self.batch.origin
        identity = uuids(
            origin,
            self.batch.transactions.commit_lsn[rows.tx],
            rows.seq,
            int(rows.key_change and rows.op is RowOp.DELETE),
        )
        parts: list[Part] = [
            self._head(rows.relation.schema, rows.relation.table, rows.op),
            self.of_transactions(rows.tx),
            b',"WALPosition":',
            numbers(rows.lsn),
            b',"Seq":',
            numbers(rows.seq),
            b',"UUID":"',
            identity,
            b'","Checksum":"',
            texts.checksum,
            b'","Columns":',
            texts.image,
        ]
        if rows.new is not None and rows.old is not None:
            parts += [b',"Before":', image_json(rows.old, rows.columns, len(rows))]
        if rows.unchanged:
            parts += [b',"Unchanged":', names_json(rows.unchanged, rows.columns)]
        return join(*parts, b"}")

    def truncate(self, truncate: Truncate) -> bytes:
        options = [word for word, on in truncate_options(truncate) if on]
        return b'%s%s,"WALPosition":%d,"Seq":%d,"UUID":"%s","Columns":{},"Options":[%s]}' % (
            self._head(truncate.relation.schema, truncate.relation.table, Marker.TRUNCATE),
            self.of_transaction(truncate.tx),
            truncate.lsn,
            truncate.seq,
            self._uuid(int(self.batch.transactions.commit_lsn[truncate.tx]), truncate.seq),
            b",".join(map(name, options)),
        )

    def message(self, message: LogicalMessage) -> bytes:
        of_transaction = self.of_transaction(message.tx) if message.tx >= 0 else b',"CommitLSN":%d' % message.lsn
        return b'%s%s,"WALPosition":%d,"Seq":%d,"UUID":"%s","Prefix":%s,%s}' % (
            self._head("", "", Marker.MESSAGE),
            of_transaction,
            message.lsn,
            message.seq,
            self._uuid(commit_lsn_of(message, self.batch), message.seq),
            name(message.prefix),
            content_member(message.content, b"Content"),
        )

    def of_each_transaction(self, transactions: Transactions) -> pa.Array:
        return join(
            b',"Timestamp":"',
            moments(transactions.commit_ts),
            b'Z","XID":',
            numbers(transactions.xid),
            b',"CommitLSN":',
            numbers(transactions.commit_lsn),
        )

    def _head(self, schema: str, table: str, kind: Kind) -> bytes:
        origin = self.batch.origin
        return b'{"Host":%s,"Database":%s,"Schema":%s,"Table":%s,"Action":"%s"' % (
            name(origin.host),
            name(origin.database),
            name(schema),
            name(table),
            kind.action.encode(),
        )

    def _uuid(self, commit_lsn: int, seq: int) -> bytes:
        return bytes(uuids(self.batch.origin, np.array([commit_lsn], np.uint64), np.array([seq], np.int64))[0].as_py())
