"""The `event` format: the Go psql-streamer's event with more fields behind. A field that does not apply is left out."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

import pyarrow as pa

from psql_streamer.events.digits import to_digits
from psql_streamer.events.format import (
    BatchFormat,
    Format,
    OneRow,
    RowTexts,
    find_commit,
    list_truncate_options,
    render_content_member,
    render_part_members,
)
from psql_streamer.events.identity import make_uuid
from psql_streamer.events.json.json_text import join, render_name
from psql_streamer.events.json.row_json import render_unchanged_member
from psql_streamer.events.per_transaction import Fragment
from psql_streamer.events.rows import Rows
from psql_streamer.model import Batch, Kind, LogicalMessage, Marker, Transactions, Truncate


class Event(Format):
    """Events as EventBatch makes them."""

    row_by_row = True

    def prepare(self, batch: Batch) -> EventBatch:
        return EventBatch(batch)


class EventBatch(BatchFormat):
    """`Host Database Schema Table Action Timestamp XID CommitLSN WALPosition Seq UUID Checksum Columns`, and where
    they apply `Before` (old row of an update) and `Unchanged` (names of TOASTed columns that an update left alone).
    Rows of a snapshot have `Snapshot`, and `OnDemand` if an operator asked for it, and no `XID` and `WALPosition`. Rows
    that are parts of a change have `Part` and `Parts`.
    """

    def render_rows(self, rows: Rows, texts: RowTexts) -> pa.Array:
        fragments: list[Fragment] = [
            rows.render_by_relation(self._make_head_render(rows.op)),
            self.render_transaction_fragment(rows.tx),
            *self.fields.render_event_places(rows.place),
            b',"Seq":',
            to_digits(rows.seq),
            *render_part_members(rows, b"Part", b"Parts"),
            b',"UUID":"',
            self.compute_uuids(rows),
            b'","Checksum":"',
            texts.checksum,
            b'","Columns":',
            texts.image,
        ]
        if rows.new is not None and rows.old is not None:
            fragments += [b',"Before":', texts.old]
        if rows.unchanged is not None:
            fragments.append(render_unchanged_member(b',"Unchanged":', rows))
        return join(*fragments, b"}")

    def render_row(self, row: OneRow) -> bytes:
        relation = row.relation
        return b'%s%s%s,"Seq":%d,"UUID":"%s","Checksum":"%s","Columns":%s%s}' % (
            self._make_head_render(row.op)(relation.schema, relation.table),
            self.fields.render_event_member(row.transaction),
            self.fields.render_event_place(row.place),
            row.seq,
            make_uuid(self.batch.source, row.transaction.commit, row.seq),
            row.checksum,
            row.image,
            b"" if row.old is None else b',"Before":' + row.old,
        )

    def render_truncate(self, truncate: Truncate) -> bytes:
        options = [word for word, on in list_truncate_options(truncate) if on]
        return b'%s%s%s,"Seq":%d,"UUID":"%s","Columns":{},"Options":[%s]}' % (
            self._make_head_render(Marker.TRUNCATE)(truncate.relation.schema, truncate.relation.table),
            self.render_transaction_text(truncate.tx),
            self.fields.render_event_place(truncate.place),
            truncate.seq,
            truncate.uuid
            or make_uuid(self.batch.source, int(self.batch.transactions.commit[truncate.tx]), truncate.seq),
            b",".join(map(render_name, options)),
        )

    def render_message(self, message: LogicalMessage) -> bytes:
        of_transaction = (
            self.render_transaction_text(message.tx)
            if message.tx >= 0
            else self.fields.render_event_outside(message.place)
        )
        return b'%s%s%s,"Seq":%d,"UUID":"%s","Prefix":%s,%s}' % (
            self._make_head_render(Marker.MESSAGE)("", ""),
            of_transaction,
            self.fields.render_event_place(message.place),
            message.seq,
            message.uuid or make_uuid(self.batch.source, find_commit(message, self.batch), message.seq),
            render_name(message.prefix),
            render_content_member(message.content, b"Content"),
        )

    def render_transactions(self, transactions: Transactions) -> pa.Array:
        return self.fields.render_event_members(transactions)

    def render_snapshot(self, transactions: Transactions, tx: int) -> bytes:
        return self.fields.render_event_snapshot(transactions, tx)

    def _make_head_render(self, kind: Kind) -> Callable[[str, str], bytes]:
        """How the events of a kind begin, by schema and table."""
        return partial(_render_head, self.batch.source.host, self.batch.source.database, kind.action)


@lru_cache(maxsize=1 << 15)
def _render_head(host: str, database: str, action: str, schema: str, table: str) -> bytes:
    return b'{"Host":%s,"Database":%s,"Schema":%s,"Table":%s,"Action":"%s"' % (
        render_name(host),
        render_name(database),
        render_name(schema),
        render_name(table),
        action.encode(),
    )
