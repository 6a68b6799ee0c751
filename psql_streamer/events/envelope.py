"""The `envelope` format: before and after side by side. A field that does not apply is null or left out."""

from __future__ import annotations

from functools import lru_cache, partial

import pyarrow as pa

from psql_streamer import __version__
from psql_streamer.events.digits import to_digits
from psql_streamer.events.format import (
    BatchFormat,
    Format,
    OneRow,
    RowTexts,
    list_truncate_options,
    render_content_member,
    render_part_members,
)
from psql_streamer.events.json.json_text import join, render_name
from psql_streamer.events.json.row_json import render_unchanged_member
from psql_streamer.events.per_transaction import Fragment
from psql_streamer.events.rows import Rows
from psql_streamer.model import Batch, LogicalMessage, Marker, RowOp, Transactions, Truncate


class Envelope(Format):
    """Events as EnvelopeBatch makes them."""

    row_by_row = True

    def prepare(self, batch: Batch) -> EnvelopeBatch:
        return EnvelopeBatch(batch)


class EnvelopeBatch(BatchFormat):
    """`{schema, table, op, ts_ms, before, after, checksum, source{version, connector, ts_ms, db, ...}}`. Rows of a
    snapshot have `snapshot`, `snapshot_id` and `uuid` in `source`, parts of a change `part`, `parts` and `uuid`.
    """

    def render_rows(self, rows: Rows, texts: RowTexts) -> pa.Array:
        before: Fragment = b"null"
        if rows.new is None:
            before = texts.image
        elif rows.old is not None:
            before = texts.old
        fragments: list[Fragment] = [
            rows.render_by_relation(partial(_render_head, rows.op.name)),
            b',"before":',
            before,
            b',"after":',
            b"null" if rows.new is None else texts.image,
            b',"checksum":"',
            texts.checksum,
            b'"',
        ]
        if rows.unchanged is not None:
            fragments.append(render_unchanged_member(b',"unchanged":', rows))
        fragments += [
            rows.render_by_relation(self._render_source),
            self.render_transaction_fragment(rows.tx),
            *self.fields.render_envelope_places(rows.place),
            b',"seq":',
            to_digits(rows.seq),
            *render_part_members(rows, b"part", b"parts"),
        ]
        if rows.of_snapshot or rows.part is not None:
            fragments += [b',"uuid":"', self.compute_uuids(rows), b'"']
        return join(*fragments, b"}}")

    def render_row(self, row: OneRow) -> bytes:
        relation, old, new = row.relation, row.old or b"null", row.image
        if row.op is RowOp.DELETE:
            old, new = new, b"null"
        return b'%s,"before":%s,"after":%s,"checksum":"%s"%s%s%s,"seq":%d}}' % (
            _render_head(row.op.name, relation.schema, relation.table),
            old,
            new,
            row.checksum,
            self._render_source(relation.schema, relation.table),
            self.fields.render_envelope_member(row.transaction),
            self.fields.render_envelope_place(row.place),
            row.seq,
        )

    def render_truncate(self, truncate: Truncate) -> bytes:
        options = [word for word, on in list_truncate_options(truncate) if on]
        relation = truncate.relation
        return b'%s,"before":null,"after":null,"options":[%s]%s%s%s,"seq":%d}}' % (
            _render_head(Marker.TRUNCATE.name, relation.schema, relation.table),
            b",".join(map(render_name, options)),
            self._render_source(relation.schema, relation.table),
            self.render_transaction_text(truncate.tx),
            self.fields.render_envelope_place(truncate.place),
            truncate.seq,
        )

    def render_message(self, message: LogicalMessage) -> bytes:
        of_transaction = (
            self.render_transaction_text(message.tx)
            if message.tx >= 0
            else self.fields.render_envelope_outside(message.place)
        )
        return b'%s,"before":null,"after":null,"message":{"prefix":%s,%s}%s%s%s,"seq":%d}}' % (
            _render_head(Marker.MESSAGE.name, "", ""),
            render_name(message.prefix),
            render_content_member(message.content, b"content"),
            self._render_source("", ""),
            of_transaction,
            self.fields.render_envelope_place(message.place),
            message.seq,
        )

    def render_transactions(self, transactions: Transactions) -> pa.Array:
        return self.fields.render_envelope_members(transactions)

    def render_snapshot(self, transactions: Transactions, tx: int) -> bytes:
        return self.fields.render_envelope_snapshot(transactions, tx)

    def _render_source(self, schema: str, table: str) -> bytes:
        return _render_source_head(self.batch.source.name, self.batch.source.database, schema, table)


@lru_cache(maxsize=1 << 15)
def _render_head(op: str, schema: str, table: str) -> bytes:
    return b'{"schema":%s,"table":%s,"op":"%s"' % (render_name(schema), render_name(table), op.encode())


@lru_cache(maxsize=1 << 15)
def _render_source_head(source: str, database: str, schema: str, table: str) -> bytes:
    return b',"source":{"version":"%s","connector":"psql-streamer","name":%s,"db":%s,"schema":%s,"table":%s' % (
        __version__.encode(),
        render_name(source),
        render_name(database),
        render_name(schema),
        render_name(table),
    )
