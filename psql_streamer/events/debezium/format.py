"""The `debezium` format: what Debezium's PostgreSQL connector writes through Kafka Connect's JSON converter.

It follows Debezium 3.6.3.Final, field for field and in its order; docs/events.md lists what differs, and why.
Sources: Debezium documentation, "PostgreSQL connector", change events; what that release was seen to write, which
tests/data/debezium has.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from psql_streamer.cells import Shape
from psql_streamer.events.addresses import merge_keys
from psql_streamer.events.debezium.connect_type import ConnectType
from psql_streamer.events.debezium.schemas import (
    render_envelope_schema,
    render_key_schema,
    render_message_key_schema,
    render_message_schema,
    render_transaction_key_schema,
    render_transaction_schema,
)
from psql_streamer.events.debezium.source import make_source_block, render_fine_times_of_one
from psql_streamer.events.debezium.transactions import (
    count_events,
    render_begins,
    render_block,
    render_blocks,
    render_ends,
    render_keys,
)
from psql_streamer.events.debezium.types import choose_connect_type, render_unavailable
from psql_streamer.events.format import BatchFormat, BoundaryRecords, Format, FormatOptions, OneRow, RowTexts
from psql_streamer.events.json import json_text
from psql_streamer.events.json.json_text import Piece, Render, join, render_name, render_quoted
from psql_streamer.events.json.objects import Lost, Objects, One, Singles, SingleWriter, count_by_column
from psql_streamer.events.json.row_json import RowJson, render_keyed
from psql_streamer.events.json.values import choose_one, choose_render
from psql_streamer.events.per_transaction import Fragment
from psql_streamer.events.rows import Cells, Rows
from psql_streamer.few_rows import RowCells
from psql_streamer.model import (
    Batch,
    Column,
    Index,
    LogicalMessage,
    Marker,
    RowOp,
    TextType,
    TransactionMarks,
    Truncate,
)

CODES = {RowOp.INSERT: b"c", RowOp.UPDATE: b"u", RowOp.DELETE: b"d", RowOp.READ: b"r"}

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
    row_by_row = True
    checksums = False

    def __init__(self, options: FormatOptions, schemas: bool = False, transactions: bool = False) -> None:
        super().__init__(options)
        self.schemas = schemas
        self.transactions = transactions
        self._structs = Structs(flat=schemas)
        self._encoded = self._structs if schemas else Structs(flat=False, encoded=True)

    @classmethod
    def tells_transactions(cls, options: FormatOptions, **section: bool) -> bool:  # noqa: ARG003 - it has no options
        return section.get("transactions", False)

    def prepare(self, batch: Batch) -> DebeziumBatch:
        structs = self._encoded if batch.source.encoded else self._structs
        return DebeziumBatch(batch, structs, self.schemas, self.transactions)


class DebeziumBatch(BatchFormat):
    """`{before, after, source{...}, transaction, op, ts_ms, ts_us, ts_ns}`. schemas, transactions: as Debezium."""

    def __init__(self, batch: Batch, structs: Structs, schemas: bool, transactions: bool) -> None:
        super().__init__(batch)
        self.schemas = schemas
        self.transactions = transactions
        self._source = make_source_block(batch)
        self._structs = structs

    def render_keys(self, rows: Rows, texts: RowTexts) -> pa.Array:  # noqa: ARG002 - keys are written otherwise here
        return render_keyed(rows, lambda: self._render_image_keys(rows.image, rows))

    def render_extra_headers(self, rows: Rows) -> Mapping[str, pa.Array]:
        """The key of the other half of a changed key; and what tells parts of a change apart, which the value has no
        field for.
        """
        found = dict(self.render_headers_of_parts(rows))
        if rows.other is not None:
            other = merge_keys(rows.other.tuples.addresses, self._render_image_keys(rows.other, rows))
            found[_NEW_KEY if rows.op is RowOp.DELETE else _OLD_KEY] = other
        return found

    def render_rows(self, rows: Rows, texts: RowTexts) -> pa.Array:  # noqa: ARG002 - values are written otherwise here
        event = join(
            b'{"before":',
            b"null" if rows.old is None else self._render_image(_complete_image(rows.old), rows),
            b',"after":',
            b"null" if rows.new is None else self._render_image(rows.new, rows),
            *self._source.render_rows(rows),
            b',"transaction":',
            render_blocks(self.batch.transactions, rows) if self.transactions and not rows.of_snapshot else b"null",
            b',"op":"%s",' % CODES[rows.op],
            self._source.render_times(rows.tx),
            b"}",
        )
        return self._wrap_payloads(
            event,
            lambda: rows.render_by_shape(
                lambda shape, _: render_envelope_schema(self.batch.source, shape.relation, shape.columns)
            ),
        )

    def make_singles(
        self,
        json: RowJson,  # noqa: ARG002 - images are written otherwise here
        shapes: Sequence[Shape],
    ) -> tuple[SingleWriter, SingleWriter]:
        images, keys = self._structs.make_singles(shapes)
        return images, _KeysWithSchemas(keys, shapes, self.batch.source.name) if self.schemas else keys

    def render_row(self, row: OneRow) -> bytes:
        old, new = row.old or b"null", row.image
        if row.op is RowOp.DELETE:
            old, new = new, b"null"
        moment = row.transaction.moment
        event = b'{"before":%s,"after":%s%s,"transaction":null,"op":"%s","ts_ms":%d%s}' % (
            old,
            new,
            self._source.render_row(row),
            CODES[row.op],
            moment // 1000,
            render_fine_times_of_one(moment),
        )
        return self._wrap_payload(event, lambda: render_envelope_schema(self.batch.source, row.relation, row.columns))

    def render_truncate(self, truncate: Truncate) -> bytes:
        relation = truncate.relation
        event = b'{"before":null,"after":null%s,"transaction":%s,"op":"t",%s}' % (
            self._source.render_table(truncate.tx, truncate.place, relation),
            render_block(self.batch.transactions, truncate) if self.transactions else b"null",
            self._source.render_transaction_times(truncate.tx),
        )
        return self._wrap_payload(event, lambda: render_envelope_schema(self.batch.source, relation, relation.columns))

    def render_message(self, message: LogicalMessage) -> bytes:
        placed = self.transactions and message.tx >= 0
        event = b'{"op":"m","ts_ms":%d%s,"transaction":%s,"message":{"prefix":%s,"content":"%s"}}' % (
            message.moment // 1000,
            self._source.render_message(message),
            render_block(self.batch.transactions, message) if placed else b"null",
            render_name(message.prefix),
            base64.b64encode(message.content),
        )
        return self._wrap_payload(event, lambda: render_message_schema(self.batch.source))

    def render_message_key(self, message: LogicalMessage) -> bytes:
        return self._wrap_payload(
            b'{"prefix":%s}' % render_name(message.prefix), lambda: render_message_key_schema(self.batch.source)
        )

    def render_boundaries(self) -> Iterable[BoundaryRecords]:
        transactions, metadata = self.batch.transactions, self.batch.transaction_metadata
        if not self.transactions or metadata is None:
            return
        if len(metadata.ends):
            counts = count_events(metadata)
            yield self._make_boundary_records(
                Marker.COMMIT, metadata.ends, counts, render_ends(transactions, metadata, counts)
            )
        if len(metadata.begins):
            nothing_before = np.zeros(len(metadata.begins), np.int64)
            yield self._make_boundary_records(
                Marker.BEGIN, metadata.begins, nothing_before, render_begins(transactions, metadata.begins)
            )

    def _make_boundary_records(
        self, op: Marker, marks: TransactionMarks, seq: NDArray[np.int64], values: pa.Array
    ) -> BoundaryRecords:
        keys = self._wrap_payloads(render_keys(self.batch.transactions, marks), render_transaction_key_schema)
        return BoundaryRecords(op, marks, seq, keys, self._wrap_payloads(values, render_transaction_schema))

    def _render_image(self, image: Cells, rows: Rows) -> pa.Array:
        return self._structs.images.write(image, rows, self._structs.render_placeholder, self._note_lost(image, rows))

    def _render_image_keys(self, image: Cells, rows: Rows) -> pa.Array:
        return self._wrap_payloads(
            self._structs.keys.write(rows.select_key_cells(image), rows, self._structs.render_placeholder),
            lambda: rows.render_by_shape(
                lambda shape, key: render_key_schema(self.batch.source.name, shape.relation, shape.columns, key)
            ),
        )

    def _note_lost(self, image: Cells, rows: Rows) -> Lost:
        def note(cells: Index) -> None:
            self.nulled.update(count_by_column(cells, image, rows))

        return note

    def _wrap_payloads(self, payload: pa.Array, schema: Callable[[], Fragment]) -> pa.Array:
        return join(b'{"schema":', schema(), b',"payload":', payload, b"}") if self.schemas else payload

    def _wrap_payload(self, payload: bytes, schema: Callable[[], bytes]) -> bytes:
        return b'{"schema":%s,"payload":%s}' % (schema(), payload) if self.schemas else payload


@dataclass(frozen=True, slots=True)
class _KeysWithSchemas:
    """Writes single keys with their schema. server: the source's name."""

    keys: SingleWriter
    shapes: Sequence[Shape]
    server: str

    def write(self, shape: int, image: RowCells, columns: Sequence[int]) -> bytes:
        """A key of these columns. Raises WrittenByColumn."""
        relation, of_relation = self.shapes[shape]
        schema = render_key_schema(self.server, relation, of_relation, tuple(columns))
        return b'{"schema":%s,"payload":%s}' % (schema, self.keys.write(shape, image, columns))


def _complete_image(image: Cells) -> Cells:
    """A field that an old row lacks is null: Connect's converter writes every field of a struct."""
    return image if image.tuples.absent is None else replace(image, tuples=replace(image.tuples, absent=None))


class Structs:
    """Images and keys as Connect's structs. flat: as connect_type has it, for schemas. encoded: whether the values are
    JSON as Debezium writes it already, and stay so.

    A value of a key is never null, nor are two of them the same, or rows that PostgreSQL tells apart would be one: the
    text form stands in for a value that the type cannot hold.
    """

    def __init__(self, flat: bool, encoded: bool = False) -> None:
        self._flat = flat
        self._is_encoded = encoded
        self.images = Objects(
            lambda column: self._choose_key_render(column) if column.key else self._render(column),
            lambda column: self._choose_one(column, column.key),
        )
        self.keys = Objects(self._choose_key_render, lambda column: self._choose_one(column, True))

    def make_singles(self, shapes: Sequence[Shape]) -> tuple[Singles, Singles]:
        """What writes single images of relations, with null for what they lack, and what writes single keys."""
        return self.images.make_singles(shapes, complete=True), self.keys.make_singles(shapes)

    def render_placeholder(self, column: Column) -> bytes:
        """What stands for a value that an update left alone."""
        return render_unavailable(self._resolve_kind(column).schema, strict=self._flat)

    def _resolve_kind(self, column: Column) -> ConnectType:
        return choose_connect_type(column.type, flat=self._flat)

    def _render(self, column: Column) -> Render:
        return choose_render(column.type) if self._stays(column) else self._resolve_kind(column).render

    def _choose_one(self, column: Column, of_key: bool) -> One | None:
        """What is lost goes by column, where something stands in for it, or it is counted."""
        if self._stays(column):
            return choose_one(column.type)
        return choose_connect_type(column.type, flat=self._flat, distinct=of_key).one

    def _stays(self, column: Column) -> bool:
        """Not what a handler made."""
        return self._is_encoded and isinstance(column.type, TextType)

    def _choose_key_render(self, column: Column) -> Render:
        if self._stays(column):
            return choose_render(column.type)
        kind = choose_connect_type(column.type, flat=self._flat, distinct=True)
        return kind.render if kind.render in _NEVER_LOST else _make_lossless_render(kind.render, kind.text)


@lru_cache(maxsize=1 << 12)
def _make_lossless_render(render: Render, text: Callable[[pa.Array], pa.Array]) -> Render:
    def render_or_text(values: pa.Array) -> Piece:
        piece = render(values)
        lost = json_text.find_lost(piece, values)
        if lost is None or not lost.true_count:
            return piece
        rendered = join(piece.open, piece.values, piece.close, nulls=None)
        return Piece(pc.replace_with_mask(rendered, lost, text(values.filter(lost))))

    return render_or_text


_NEVER_LOST = (render_quoted,)
