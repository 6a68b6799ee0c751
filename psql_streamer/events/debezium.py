"""The `debezium` format: what Debezium's PostgreSQL connector writes through Kafka Connect's JSON converter.

Field for field its events, with these differences: `source.sequence` has the transaction's own commit LSN in front, and
`ts_ms` is the commit's time in both places, so that a change that is sent again is the same bytes; `source.version` is
psql-streamer's.
Source: Debezium documentation, "PostgreSQL connector", change events.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from psql_streamer import __version__
from psql_streamer.events import debezium_transactions as blocks
from psql_streamer.events import json_text
from psql_streamer.events.debezium_schemas import (
    envelope_schema,
    key_schema,
    message_key_schema,
    message_schema,
    transaction_key_schema,
    transaction_schema,
)
from psql_streamer.events.debezium_types import connect_type
from psql_streamer.events.format import Boundaries, Format, Part, RowTexts, numbers
from psql_streamer.events.json_text import Piece, join, name
from psql_streamer.events.rows import Rows, Values
from psql_streamer.model import Bounds, Column, LogicalMessage, Op, Transactions, Truncate

_SEQUENCE_ON = rb"\",\""
_CODES = {Op.INSERT: b"c", Op.UPDATE: b"u", Op.DELETE: b"d", Op.TRUNCATE: b"t", Op.MESSAGE: b"m"}

_NEW_KEY, _OLD_KEY = "__debezium.newkey", "__debezium.oldkey"
"""Headers of the delete and of the insert that an update of a key becomes: the other record's key."""


class Debezium(Format):
    """`{before, after, source{...}, op, ts_ms, transaction}`, and a tombstone after each delete."""

    tombstones = True
    marks = True
    schemas: ClassVar[bool] = False

    def keys(self, rows: Rows) -> pa.Array:
        return self._keys(rows.image, rows) if rows.key else super().keys(rows)

    def extra_headers(self, rows: Rows) -> Mapping[str, pa.Array]:
        if rows.other is None:
            return {}
        return {_NEW_KEY if rows.op is Op.DELETE else _OLD_KEY: self._keys(rows.other, rows)}

    def rows(self, rows: Rows, texts: RowTexts) -> pa.Array:  # noqa: ARG002 - values are written otherwise here
        # A field that an old row lacks is null: Connect's converter writes every field of a struct.
        before = _image(rows.old and Values(rows.old.arrays), rows)
        after = _image(rows.new, rows)
        moments = self.batch.transactions.commit_ts[rows.tx] // 1000
        lsn = numbers(rows.lsn)
        event = join(
            b'{"before":',
            before,
            b',"after":',
            after,
            self._source_head(),
            self.of_transactions(rows.tx),
            lsn,
            self._source_table(rows.relation.schema, rows.relation.table),
            _same_or_each(self.batch.transactions.xid[rows.tx].astype(np.int64)),
            b',"lsn":',
            lsn,
            b',"xmin":null},"op":"%s","ts_ms":' % _CODES[rows.op],
            _same_or_each(moments),
            b',"transaction":',
            blocks.of_rows(self.batch.transactions, rows) if self.transactions else b"null",
            b"}",
        )
        return self._wrapped(event, lambda: envelope_schema(self.batch.origin.source, rows.relation, rows.columns))

    def truncate(self, truncate: Truncate) -> bytes:
        of, tx, relation = self.batch.transactions, truncate.tx, truncate.relation
        source = self._source(
            self.of_transaction(tx), truncate.lsn, relation.schema, relation.table, b"%d" % of.xid[tx]
        )
        event = b'{"before":null,"after":null%s,"op":"t","ts_ms":%d,"transaction":%s}' % (
            source,
            of.commit_ts[tx] // 1000,
            blocks.of_truncate(of, truncate) if self.transactions else b"null",
        )
        return self._wrapped_one(event, lambda: envelope_schema(self.batch.origin.source, relation, relation.columns))

    def message(self, message: LogicalMessage) -> bytes:
        of, inside = self.batch.transactions, message.tx >= 0
        moment = b"%d" % (of.commit_ts[message.tx] // 1000) if inside else b"null"
        source = self._source(
            self.of_transaction(message.tx) if inside else self._position(b"null", message.lsn),
            message.lsn,
            "",
            "",
            b"%d" % of.xid[message.tx] if inside else b"null",
        )
        content = base64.b64encode(message.content)
        event = b'{"op":"m","ts_ms":%s%s,"message":{"prefix":%s,"content":"%s"}}' % (
            moment,
            source,
            name(message.prefix),
            content,
        )
        return self._wrapped_one(event, message_schema)

    def message_key(self, message: LogicalMessage) -> bytes:
        return self._wrapped_one(b'{"prefix":%s}' % name(message.prefix), message_key_schema)

    def boundaries(self) -> Iterable[Boundaries]:
        batch = self.batch
        if not self.transactions:
            return
        if len(batch.ends):
            counts = blocks.event_counts(batch)
            yield self._boundaries(Op.COMMIT, batch.ends, counts, blocks.ends(batch, counts))
        if len(batch.begins):
            nothing_before = np.zeros(len(batch.begins), np.int64)
            yield self._boundaries(Op.BEGIN, batch.begins, nothing_before, blocks.begins(batch))

    def of_each_transaction(self, transactions: Transactions) -> pa.Array:
        return join(
            numbers(transactions.commit_ts // 1000), self._sequence(), numbers(transactions.commit_lsn), _SEQUENCE_ON
        )

    # The source block, in pieces: the same for the batch, the transaction, the table, the row.

    def _source_head(self) -> bytes:
        return b',"source":{"version":"%s","connector":"postgresql","name":%s,"ts_ms":' % (
            __version__.encode(),
            name(self.batch.origin.source),
        )

    def _position(self, moment: bytes, commit_lsn: int) -> bytes:
        return b"%s%s%d%s" % (moment, self._sequence(), commit_lsn, _SEQUENCE_ON)

    def _sequence(self) -> bytes:
        return b',"snapshot":"false","db":%s,"sequence":"[\\"' % name(self.batch.origin.database)

    def _source_table(self, schema: str, table: str) -> bytes:
        return b'\\"]","schema":%s,"table":%s,"txId":' % (name(schema), name(table))

    def _source(self, position: bytes, lsn: int, schema: str, table: str, xid: bytes) -> bytes:
        return b'%s%s%d%s%s,"lsn":%d,"xmin":null}' % (
            self._source_head(),
            position,
            lsn,
            self._source_table(schema, table),
            xid,
            lsn,
        )

    def _boundaries(self, op: Op, bounds: Bounds, seq: NDArray[np.int64], values: pa.Array) -> Boundaries:
        keys = self._wrapped(blocks.keys(self.batch.transactions, bounds), transaction_key_schema)
        return Boundaries(op, bounds, seq, keys, self._wrapped(values, transaction_schema))

    def _keys(self, image: Values, rows: Rows) -> pa.Array:
        columns = [rows.columns[index] for index in rows.key]
        values = Values(tuple(image.arrays[index] for index in rows.key))
        return self._wrapped(
            _struct(values, columns, len(rows)),
            lambda: key_schema(self.batch.origin.source, rows.relation, rows.columns, rows.key),
        )

    def _wrapped(self, payload: pa.Array, schema: Callable[[], bytes]) -> pa.Array:
        return join(b'{"schema":', schema(), b',"payload":', payload, b"}") if self.schemas else payload

    def _wrapped_one(self, payload: bytes, schema: Callable[[], bytes]) -> bytes:
        return b'{"schema":%s,"payload":%s}' % (schema(), payload) if self.schemas else payload


class DebeziumWithSchemas(Debezium):
    """Every key and value with its schema, as `schemas.enable` has it."""

    schemas = True


def _image(values: Values | None, rows: Rows) -> Part:
    return b"null" if values is None else _struct(values, rows.columns, len(rows))


def _struct(values: Values, columns: Sequence[Column], rows: int) -> pa.Array:
    """The JSON of every row; what its image lacks is left out, or where a marker stands for it Debezium's."""
    absent = values.absent
    held = [index for index in range(len(columns)) if index not in absent or not absent[index].all()]
    if not held:
        return pa.array([b"{}"] * rows, pa.binary())
    names = [name(columns[index].name) for index in held]
    pieces = [_member(values.arrays[index], columns[index], values.marked.get(index)) for index in held]
    if not absent:
        return join(*json_text.members(names, pieces))
    return join(*json_text.members_with_gaps(names, pieces, [absent.get(index) for index in held]))


def _member(values: pa.Array, column: Column, unavailable: NDArray[np.bool_] | None) -> Piece:
    kind = connect_type(column)
    piece = kind.render(values)
    return piece if unavailable is None else json_text.replaced(piece, unavailable, kind.unavailable)


def _same_or_each(values: NDArray[np.int64]) -> Part:
    return b"%d" % values[0] if (values == values[0]).all() else numbers(values)
