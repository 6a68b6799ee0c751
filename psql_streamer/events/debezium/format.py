"""The `debezium` format: what Debezium's PostgreSQL connector writes through Kafka Connect's JSON converter.

It follows Debezium 3.6.3.Final, field for field and in its order; docs/events.md lists what differs, and why.
Sources: Debezium documentation, "PostgreSQL connector", change events; what that release was seen to write, which
tests/data/debezium has.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from psql_streamer.events.debezium import transactions as blocks
from psql_streamer.events.debezium.schemas import (
    envelope_schema,
    key_schema,
    message_key_schema,
    message_schema,
    transaction_key_schema,
    transaction_schema,
)
from psql_streamer.events.debezium.source import source_block
from psql_streamer.events.debezium.types import connect_type, placeholder
from psql_streamer.events.format import BatchFormat, Boundaries, Format, FormatOptions, RowTexts
from psql_streamer.events.json import text as json_text
from psql_streamer.events.json.text import Piece, join, name
from psql_streamer.events.per_transaction import Part
from psql_streamer.events.rows import Rows, Values
from psql_streamer.model import Batch, Column, LogicalMessage, Marker, RowOp, TransactionMarks, Truncate

_CODES = {RowOp.INSERT: b"c", RowOp.UPDATE: b"u", RowOp.DELETE: b"d", RowOp.READ: b"r"}

_NEW_KEY, _OLD_KEY = "__debezium.newkey", "__debezium.oldkey"
"""Headers of the delete and of the insert that an update of a key becomes: the other record's key."""


class Debezium(Format):
    """Events as DebeziumBatch makes them, and a tombstone after each delete.

    schemas: whether every key and value carries its schema, as `schemas.enable` has it. transactions: whether events
    say which place they have in their transaction, and records where it begins and ends, as
    `provide.transaction.metadata` has it.
    """

    section_keys = MappingProxyType({"debezium_schemas": "schemas", "debezium_transactions": "transactions"})
    tombstones = True
    marks = True

    def __init__(self, options: FormatOptions, schemas: bool = False, transactions: bool = False) -> None:
        super().__init__(options)
        self.schemas = schemas
        self.transactions = transactions

    @classmethod
    def tells_transactions(cls, options: FormatOptions, **section: bool) -> bool:  # noqa: ARG003 - it has no options
        return section.get("transactions", False)

    def of(self, batch: Batch) -> DebeziumBatch:
        return DebeziumBatch(batch, self.schemas, self.transactions)


class DebeziumBatch(BatchFormat):
    """`{before, after, source{...}, transaction, op, ts_ms, ts_us, ts_ns}`. schemas, transactions: as Debezium."""

    def __init__(self, batch: Batch, schemas: bool, transactions: bool) -> None:
        super().__init__(batch)
        self.schemas = schemas
        self.transactions = transactions
        self._source = source_block(batch)

    def keys(self, rows: Rows) -> pa.Array:
        return self._keys(rows.image, rows) if rows.key else super().keys(rows)

    def extra_headers(self, rows: Rows) -> Mapping[str, pa.Array]:
        if rows.other is None:
            return {}
        return {_NEW_KEY if rows.op is RowOp.DELETE else _OLD_KEY: self._keys(rows.other, rows)}

    def rows(self, rows: Rows, texts: RowTexts) -> pa.Array:  # noqa: ARG002 - values are written otherwise here
        # A field that an old row lacks is null: Connect's converter writes every field of a struct.
        event = join(
            b'{"before":',
            self._image(rows.old and Values(rows.old.arrays), rows),
            b',"after":',
            self._image(rows.new, rows),
            *self._source.of_rows(rows.tx, rows.place, rows.relation, rows.op),
            b',"transaction":',
            blocks.of_rows(self.batch.transactions, rows) if self.transactions else b"null",
            b',"op":"%s",' % _CODES[rows.op],
            self._source.times(rows.tx),
            b"}",
        )
        return self._wrapped(event, lambda: envelope_schema(self.batch.source, rows.relation, rows.columns))

    def truncate(self, truncate: Truncate) -> bytes:
        relation = truncate.relation
        event = b'{"before":null,"after":null%s,"transaction":%s,"op":"t",%s}' % (
            self._source.of_table(truncate.tx, truncate.place, relation),
            blocks.of_one(self.batch.transactions, truncate) if self.transactions else b"null",
            self._source.times_of(truncate.tx),
        )
        return self._wrapped_one(event, lambda: envelope_schema(self.batch.source, relation, relation.columns))

    def message(self, message: LogicalMessage) -> bytes:
        placed = self.transactions and message.tx >= 0
        event = b'{"op":"m","ts_ms":%d%s,"transaction":%s,"message":{"prefix":%s,"content":"%s"}}' % (
            message.moment // 1000,
            self._source.of_message(message),
            blocks.of_one(self.batch.transactions, message) if placed else b"null",
            name(message.prefix),
            base64.b64encode(message.content),
        )
        return self._wrapped_one(event, lambda: message_schema(self.batch.source))

    def message_key(self, message: LogicalMessage) -> bytes:
        return self._wrapped_one(b'{"prefix":%s}' % name(message.prefix), lambda: message_key_schema(self.batch.source))

    def boundaries(self) -> Iterable[Boundaries]:
        transactions, metadata = self.batch.transactions, self.batch.transaction_metadata
        if not self.transactions or metadata is None:
            return
        if len(metadata.ends):
            counts = blocks.event_counts(metadata)
            yield self._boundaries(Marker.COMMIT, metadata.ends, counts, blocks.ends(transactions, metadata, counts))
        if len(metadata.begins):
            nothing_before = np.zeros(len(metadata.begins), np.int64)
            yield self._boundaries(
                Marker.BEGIN, metadata.begins, nothing_before, blocks.begins(transactions, metadata.begins)
            )

    def _boundaries(self, op: Marker, marks: TransactionMarks, seq: NDArray[np.int64], values: pa.Array) -> Boundaries:
        keys = self._wrapped(blocks.keys(self.batch.transactions, marks), transaction_key_schema)
        return Boundaries(op, marks, seq, keys, self._wrapped(values, transaction_schema))

    def _image(self, values: Values | None, rows: Rows) -> Part:
        return b"null" if values is None else self._struct(values, rows.columns, rows, lambda column: column.key)

    def _keys(self, image: Values, rows: Rows) -> pa.Array:
        columns = [rows.columns[index] for index in rows.key]
        values = Values(tuple(image.arrays[index] for index in rows.key))
        return self._wrapped(
            self._struct(values, columns, rows, lambda _: True),
            lambda: key_schema(self.batch.source.name, rows.relation, rows.columns, rows.key),
        )

    def _struct(
        self, values: Values, columns: Sequence[Column], rows: Rows, required: Callable[[Column], bool]
    ) -> pa.Array:
        """The JSON of every row; what its image lacks is left out, or where a marker stands for it Debezium's.

        required: whether a column's values must not become null, nor any two of them the same.
        """
        absent = values.absent
        held = [index for index in range(len(columns)) if index not in absent or not absent[index].all()]
        if not held:
            return pa.array([b"{}"] * len(rows), pa.binary())
        names = [name(columns[index].name) for index in held]
        pieces = [
            self._member(values.arrays[index], columns[index], values.marked.get(index), rows, required(columns[index]))
            for index in held
        ]
        if not absent:
            return join(*json_text.members(names, pieces))
        return join(*json_text.members_with_gaps(names, pieces, [absent.get(index) for index in held]))

    def _member(
        self, values: pa.Array, column: Column, unavailable: NDArray[np.bool_] | None, rows: Rows, required: bool
    ) -> Piece:
        kind = connect_type(column.type, flat=self.schemas, distinct=required)
        piece = kind.render(values)
        lost = json_text.lost(piece, values)
        if lost is not None:
            if required:
                piece = _texts_for_lost(piece, lost, kind.text(values.filter(lost)))
            else:
                self.nulled[f"{rows.relation}.{column.name}"] += lost.true_count
        if unavailable is None:
            return piece
        return json_text.replaced(piece, unavailable, placeholder(kind.schema, strict=self.schemas))

    def _wrapped(self, payload: pa.Array, schema: Callable[[], bytes]) -> pa.Array:
        return join(b'{"schema":', schema(), b',"payload":', payload, b"}") if self.schemas else payload

    def _wrapped_one(self, payload: bytes, schema: Callable[[], bytes]) -> bytes:
        return b'{"schema":%s,"payload":%s}' % (schema(), payload) if self.schemas else payload


def _texts_for_lost(piece: Piece, lost: pa.BooleanArray, texts: pa.Array) -> Piece:
    """A key is never null, or rows that PostgreSQL tells apart would be one: the text form stands in for a value that
    the type cannot hold."""
    rendered = join(piece.open, piece.values, piece.close, nulls=None)
    return Piece(pc.replace_with_mask(rendered, lost, texts))
