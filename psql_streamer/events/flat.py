"""The `flat` format: the row itself as the value, for compacted topics; what happened to it is in the headers."""

from __future__ import annotations

import pyarrow as pa

from psql_streamer.errors import SinkRefused
from psql_streamer.events.addresses import names_key
from psql_streamer.events.format import KEYLESS_REMEDY, BatchFormat, Format, RowTexts, render_content_member
from psql_streamer.events.json.json_text import render_name
from psql_streamer.events.rows import Rows
from psql_streamer.model import Batch, LogicalMessage, RowOp, Truncate


class Flat(Format):
    """A delete is a tombstone. A column that an update left alone and the WAL does not hold is not in the value; the
    header `unchanged` names it.

    A truncate is a tombstone under the key `{}`, which no row has: a compacted topic takes no record without a key.
    """

    headers = True
    needs_key = True

    def prepare(self, batch: Batch) -> FlatBatch:
        return FlatBatch(batch)


class FlatBatch(BatchFormat):
    """The rows of a batch as they are."""

    def render_keys(self, rows: Rows, texts: RowTexts) -> pa.Array:
        keyed = rows.keyed if rows.addresses is None else rows.keyed | names_key(rows.addresses)
        if not keyed.all():
            relation = rows.shapes[int(rows.shape[~keyed][0])].relation
            raise SinkRefused(f'format "flat" cannot take {relation}: its rows have no key', KEYLESS_REMEDY)
        return super().render_keys(rows, texts)

    def render_rows(self, rows: Rows, texts: RowTexts) -> pa.Array:
        return pa.nulls(len(rows), pa.binary()) if rows.op is RowOp.DELETE else texts.image

    def render_truncate(self, truncate: Truncate) -> None:  # noqa: ARG002 - its headers say all
        return None

    def truncate_key(self, truncate: Truncate) -> bytes:  # noqa: ARG002 - the same for all tables
        return b"{}"

    def render_message(self, message: LogicalMessage) -> bytes:
        return b'{"prefix":%s,%s}' % (render_name(message.prefix), render_content_member(message.content, b"content"))

    def render_message_key(self, message: LogicalMessage) -> bytes:
        return b'{"prefix":%s}' % render_name(message.prefix)
