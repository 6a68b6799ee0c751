"""The record `source` of Debezium's events, by columns.

Its fields stand in the order of their schema, which `events/debezium/schemas.py` has; what each of them says,
`events/debezium/source.py` has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from psql_streamer import __version__
from psql_streamer.events.avro.columns import NULL, VALUE, encode_long, encode_longs, encode_text, encode_texts
from psql_streamer.events.avro.values import read_strings
from psql_streamer.events.binlog_names import (
    compute_file_offsets,
    render_files,
    render_gtids,
    render_server_ids,
)
from psql_streamer.events.debezium.source import render_snapshot_words
from psql_streamer.events.digits import to_digits
from psql_streamer.events.format import OneRow
from psql_streamer.events.json.json_text import Piece, join
from psql_streamer.events.json.objects import WrittenByColumn
from psql_streamer.events.per_transaction import Fragment, cache_per_transaction
from psql_streamer.events.rows import Rows
from psql_streamer.model import MARIADB, MYSQL, POSTGRESQL, Batch, Index, ReplicationOrigin, RowOp

_NULL_TEXT = pa.scalar(NULL, pa.binary())

_FIRST = NULL
"""The branch of the union that stands first: that of the type, where the field has a default."""


class SourceRecords(ABC):
    """The records of one batch. What is the same for the batch, the transaction or the table is encoded once."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        names = (__version__, batch.source.kind, batch.source.name)
        self._head = b"".join(encode_text(name.encode()) for name in names)
        self._database = encode_text(batch.source.database.encode())

    @abstractmethod
    def encode_rows(self, rows: Rows) -> tuple[Fragment, ...]:
        """The record of each row's event."""

    def encode_row(self, row: OneRow) -> bytes:  # noqa: ARG002 - for those that write one
        """The same of one row. Raises WrittenByColumn."""
        raise WrittenByColumn

    def encode_times(self, tx: NDArray[np.int32]) -> Fragment:
        """`ts_ms`, `ts_us` and `ts_ns` of each row's event."""
        return self._times.take(tx)

    @cache_per_transaction
    def _millis(self) -> pa.Array:
        return encode_longs(self._batch.transactions.commit_ts // 1000)

    @cache_per_transaction
    def _fine_times(self) -> pa.Array:
        micros = self._batch.transactions.commit_ts
        return join(encode_longs(micros, VALUE), encode_longs(micros * 1000, VALUE))

    @cache_per_transaction
    def _times(self) -> pa.Array:
        return join(VALUE, self._millis.list_texts(), self._fine_times.list_texts())

    @cache_per_transaction
    def _snapshots(self) -> pa.Array:
        return encode_texts(render_snapshot_words(self._batch.transactions), _FIRST)

    def _encode_snapshots(self, rows: Rows) -> Fragment:
        return self._snapshots.take(rows.tx) if rows.of_snapshot or rows.op is RowOp.READ else _NO_SNAPSHOT


def make_source_records(batch: Batch) -> SourceRecords:
    """Those of the kind of source that a batch is from."""
    return _RECORDS.get(batch.source.kind, OtherRecords)(batch)


class OtherRecords(SourceRecords):
    """What every connector's record has, and the table."""

    def encode_rows(self, rows: Rows) -> tuple[Fragment, ...]:
        return (
            *(self._head, self._millis.take(rows.tx), self._encode_snapshots(rows), self._database),
            *(NULL, self._fine_times.take(rows.tx)),  # it has no sequence
            rows.render_by_relation(_encode_names),
        )


class PostgresRecords(SourceRecords):
    """What the connector for PostgreSQL adds: the transaction, the LSNs and the replication origin."""

    def encode_rows(self, rows: Rows) -> tuple[Fragment, ...]:
        return (
            *(self._head, self._millis.take(rows.tx), self._encode_snapshots(rows), self._database),
            *(self._encode_sequences(rows), self._fine_times.take(rows.tx)),
            *(rows.render_by_relation(_encode_names), self._ids.take(rows.tx)),
            *(NULL if rows.place is None else encode_longs(rows.place.astype(np.int64), VALUE), NULL),  # and no xmin
            self._origins.take(rows.tx) if self._batch.transactions.origins else _NO_ORIGIN,
        )

    def encode_row(self, row: OneRow) -> bytes:
        if self._batch.transactions.origins:
            raise WrittenByColumn
        transaction, lsn = row.transaction, row.place
        parts = (
            *(self._head, encode_long(transaction.moment // 1000), _NO_SNAPSHOT, self._database),
            *(VALUE, encode_text(b'["%d","%d"]' % (transaction.commit, lsn)), _encode_fine_times(transaction.moment)),
            *(_encode_names(row.relation.schema, row.relation.table), VALUE, encode_long(transaction.id)),
            *(VALUE, encode_long(lsn), NULL, _NO_ORIGIN),
        )
        return b"".join(parts)

    def _encode_sequences(self, rows: Rows) -> pa.Array:
        commits = to_digits(self._batch.transactions.commit[rows.tx])
        if rows.place is None:
            return encode_texts(join(b'["', commits, b'",null]'), VALUE)
        return encode_texts(join(b'["', commits, b'","', to_digits(rows.place), b'"]'), VALUE)

    @cache_per_transaction
    def _ids(self) -> pa.Array:
        return _encode_digits(self._batch.transactions.list_id_texts())

    @cache_per_transaction
    def _origins(self) -> pa.Array:
        of = self._batch.transactions
        return pa.array([_encode_origin(of.origins.get(tx)) for tx in range(len(of))], pa.binary())


class BinlogRecords(SourceRecords):
    """What the connectors for MySQL and MariaDB say."""

    def encode_rows(self, rows: Rows) -> tuple[Fragment, ...]:
        source, places = self._batch.source, rows.place
        count = len(rows)
        return (
            *(self._head, self._millis.take(rows.tx), self._encode_snapshots(rows)),
            *(rows.render_by_relation(_encode_db), NULL, self._fine_times.take(rows.tx)),
            *(rows.render_by_relation(_encode_table), self._transactions.take(rows.tx)),
            encode_text(b"") if places is None else encode_texts(read_strings(Piece(render_files(source, places)))),
            encode_longs(np.zeros(count, np.int64) if places is None else _to_signed(compute_file_offsets(places))),
            *(encode_longs(rows.seq), self._threads.take(rows.tx), NULL),
        )

    @cache_per_transaction
    def _transactions(self) -> pa.Array:
        """`server_id` and `gtid`."""
        of, source = self._batch.transactions, self._batch.source
        servers = render_server_ids(source, of).view(pa.string()).cast(pa.int64()).to_numpy()
        gtids = render_gtids(source, of)
        named = encode_texts(read_strings(Piece(gtids)), VALUE)
        return join(encode_longs(servers), pc.if_else(pc.equal(gtids, b"null"), _NULL_TEXT, named))

    @cache_per_transaction
    def _threads(self) -> pa.Array:
        threads = self._batch.transactions.threads
        if threads is None:
            return pa.repeat(_NULL_TEXT, len(self._batch.transactions))
        known = _to_signed(threads)
        return pc.if_else(pa.array(known > 0), encode_longs(known, VALUE), _NULL_TEXT)


_RECORDS: dict[str, type[SourceRecords]] = {POSTGRESQL: PostgresRecords, MYSQL: BinlogRecords, MARIADB: BinlogRecords}


def encode_times_of_one(moment: int) -> bytes:
    """`ts_ms`, `ts_us` and `ts_ns` of a moment in microseconds."""
    return VALUE + encode_long(moment // 1000) + _encode_fine_times(moment)


def encode_blocks(ids: pa.Array, seq: Index, table_seq: Index) -> Sequence[Fragment]:
    """The record `transaction` of each row's event. ids: of their transactions, as Debezium has them."""
    return VALUE, encode_texts(ids), encode_longs(seq + 1), encode_longs(table_seq + 1)


def _encode_fine_times(moment: int) -> bytes:
    return VALUE + encode_long(moment) + VALUE + encode_long(moment * 1000)


_NO_SNAPSHOT = _FIRST + encode_text(b"false")
_NO_ORIGIN = NULL + NULL


def _encode_names(schema: str, table: str) -> bytes:
    return encode_text(schema.encode()) + encode_text(table.encode())


def _encode_db(schema: str, _: str) -> bytes:
    return encode_text(schema.encode())


def _encode_table(_: str, table: str) -> bytes:
    return VALUE + encode_text(table.encode())


def _encode_origin(origin: ReplicationOrigin | None) -> bytes:
    if origin is None:
        return _NO_ORIGIN
    return VALUE + encode_text(origin.name.encode()) + VALUE + encode_long(origin.commit_lsn)


def _encode_digits(texts: pa.Array) -> pa.Array:
    """Numbers that may be null, which are digits."""
    numbers = texts.view(pa.string()).cast(pa.int64())
    written = encode_longs(numbers.fill_null(0).to_numpy(), VALUE)
    return written if not numbers.null_count else pc.if_else(numbers.is_valid(), written, _NULL_TEXT)


def _to_signed(numbers: NDArray[np.uint64] | NDArray[np.uint32] | NDArray[np.int64]) -> NDArray[np.int64]:
    return numbers.astype(np.int64)
