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
    commit_of,
    content_member,
    part_members,
    truncate_options,
)
from psql_streamer.events.identity import uuid_of
from psql_streamer.events.json.json_text import join, name
from psql_streamer.events.json.row_json import unchanged_member
from psql_streamer.events.per_transaction import Fragment
from psql_streamer.events.rows import Rows
from psql_streamer.model import Batch, Kind, LogicalMessage, Marker, Transactions, Truncate


class Event(Format):
    """Events as EventBatch makes them."""

    row_by_row = True

    def of(self, batch: Batch) -> EventBatch:
        return EventBatch(batch)


class EventBatch(BatchFormat):
    """`Host Database Schema Table Action Timestamp XID CommitLSN WALPosition Seq UUID Checksum Columns`, and where
    they apply `Before` (old row of an update) and `Unchanged` (names of TOASTed columns that an update left alone).
    Rows of a snapshot have `Snapshot`, and `OnDemand` if an operator asked for it, and no `XID` and `WALPosition`. Rows
    that are parts of a change have `Part` and `Parts`.
    """

    def rows(self, rows: Rows, texts: RowTexts) -> pa.Array:
        fragments: list[Fragment] = [
            rows.render_by_relation(self._heads(rows.op)),
            self.transaction_fragment(rows.tx),
            *self.fields.render_event_places(rows.place),
            b',"Seq":',
            to_digits(rows.seq),
            *part_members(rows, b"Part", b"Parts"),
            b',"UUID":"',
            self.uuids(rows),
            b'","Checksum":"',
            texts.checksum,
            b'","Columns":',
            texts.image,
        ]
        if rows.new is not None and rows.old is not None:
            fragments += [b',"Before":', texts.old]
        if rows.unchanged is not None:
            fragments.append(unchanged_member(b',"Unchanged":', rows))
        return join(*fragments, b"}")

    def row(self, row: OneRow) -> bytes:
        relation = row.relation
        return b'%s%s%s,"Seq":%d,"UUID":"%s","Checksum":"%s","Columns":%s%s}' % (
            self._heads(row.op)(relation.schema, relation.table),
            self.fields.render_event_member(row.transaction),
            self.fields.render_event_place(row.place),
            row.seq,
            uuid_of(self.batch.source, row.transaction.commit, row.seq),
            row.checksum,
            row.image,
            b"" if row.old is None else b',"Before":' + row.old,
        )

    def truncate(self, truncate: Truncate) -> bytes:
        options = [word for word, on in truncate_options(truncate) if on]
        return b'%s%s%s,"Seq":%d,"UUID":"%s","Columns":{},"Options":[%s]}' % (
            self._heads(Marker.TRUNCATE)(truncate.relation.schema, truncate.relation.table),
            self.transaction_text(truncate.tx),
            self.fields.render_event_place(truncate.place),
            truncate.seq,
            truncate.uuid or uuid_of(self.batch.source, int(self.batch.transactions.commit[truncate.tx]), truncate.seq),
            b",".join(map(name, options)),
        )

    def message(self, message: LogicalMessage) -> bytes:
        of_transaction = (
            self.transaction_text(message.tx) if message.tx >= 0 else self.fields.render_event_outside(message.place)
        )
        return b'%s%s%s,"Seq":%d,"UUID":"%s","Prefix":%s,%s}' % (
            self._heads(Marker.MESSAGE)("", ""),
            of_transaction,
            self.fields.render_event_place(message.place),
            message.seq,
            message.uuid or uuid_of(self.batch.source, commit_of(message, self.batch), message.seq),
            name(message.prefix),
            content_member(message.content, b"Content"),
        )

    def render_transactions(self, transactions: Transactions) -> pa.Array:
        return self.fields.render_event_members(transactions)

    def render_snapshot(self, transactions: Transactions, tx: int) -> bytes:
        return self.fields.render_event_snapshot(transactions, tx)

    def _heads(self, kind: Kind) -> Callable[[str, str], bytes]:
        """How the events of a kind begin, by schema and table."""
        return partial(_head, self.batch.source.host, self.batch.source.database, kind.action)


@lru_cache(maxsize=1 << 15)
def _head(host: str, database: str, action: str, schema: str, table: str) -> bytes:
    return b'{"Host":%s,"Database":%s,"Schema":%s,"Table":%s,"Action":"%s"' % (
        name(host),
        name(database),
        name(schema),
        name(table),
        action.encode(),
    )
