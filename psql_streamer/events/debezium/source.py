"""The block `source` of Debezium's events, and the times at the end of an event.

All times of a change are its commit's, so that a change that is sent again is the same bytes.
Source: Debezium documentation, "PostgreSQL connector", change events. What every connector's block has (version,
connector, name, ts_ms, snapshot, db, sequence, ts_us, ts_ns) is io.debezium.connector.AbstractSourceInfo's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from psql_streamer import __version__
from psql_streamer.events.binlog_names import (
    compute_file_offset,
    compute_file_offsets,
    render_file,
    render_files,
    render_gtids,
    render_server_ids,
)
from psql_streamer.events.digits import to_digits
from psql_streamer.events.format import OneRow
from psql_streamer.events.json.json_text import join, render_name
from psql_streamer.events.json.objects import WrittenByColumn
from psql_streamer.events.per_transaction import Fragment, cache_per_transaction
from psql_streamer.events.rows import Rows
from psql_streamer.events.source_fields import choose_snapshot_word
from psql_streamer.model import (
    MARIADB,
    MYSQL,
    POSTGRESQL,
    Batch,
    LogicalMessage,
    Relation,
    ReplicationOrigin,
    RowOp,
    Transactions,
)


class SourceBlock(ABC):
    """The block `source` of the events of one batch. What is the same for the batch, the transaction or the table is
    rendered once.
    """

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._head = b',"source":{"version":"%s","connector":%s,"name":%s,"ts_ms":' % (
            __version__.encode(),
            render_name(batch.source.kind),
            render_name(batch.source.name),
        )

    @abstractmethod
    def render_rows(self, rows: Rows) -> tuple[Fragment, ...]:
        """The block of each row's event."""

    def render_row(self, row: OneRow) -> bytes:  # noqa: ARG002 - for those that write one
        """The same of one row."""
        raise WrittenByColumn

    @abstractmethod
    def render_table(self, tx: int, place: int, relation: Relation) -> bytes:
        """The block of an event about a whole table."""

    @abstractmethod
    def render_message(self, message: LogicalMessage) -> bytes:
        """The block of a logical message's event."""

    def render_times(self, tx: NDArray[np.int32]) -> Fragment:
        """`"ts_ms":1,"ts_us":1000,"ts_ns":1000000` of each row's event."""
        return self._times.take(tx)

    def render_transaction_times(self, tx: int) -> bytes:
        """The same for one transaction."""
        return self._times.get(tx)

    @cache_per_transaction
    def _millis(self) -> pa.Array:
        return to_digits(self._batch.transactions.commit_ts // 1000)

    @cache_per_transaction
    def _fine_times(self) -> pa.Array:
        return _render_fine_times(self._batch.transactions.commit_ts)

    @cache_per_transaction
    def _times(self) -> pa.Array:
        return join(b'"ts_ms":', self._millis.list_texts(), self._fine_times.list_texts())

    @cache_per_transaction
    def _snapshots(self) -> pa.Array:
        return render_snapshot_words(self._batch.transactions)

    def _render_snapshots(self, rows: Rows) -> Fragment:
        """What `snapshot` is of each row's event."""
        return self._snapshots.take(rows.tx) if _names_snapshot(rows) else _NO_SNAPSHOT

    def _render_until_sequence(self, snapshot: Fragment) -> tuple[Fragment, ...]:
        """The members after `ts_ms`, up to the name of `sequence`."""
        return b',"snapshot":"', snapshot, b'","db":%s,"sequence":' % render_name(self._batch.source.database)


def render_fine_times_of_one(moment: int) -> bytes:
    """`,"ts_us":1000,"ts_ns":1000000` of a moment in microseconds."""
    return b',"ts_us":%d,"ts_ns":%d' % (moment, moment * 1000)


def render_snapshot_words(of: Transactions) -> pa.Array:
    """Of what stands for the transaction of a snapshot's rows. READ rows of sources that name no snapshots are all of
    one.
    """
    words = {tx: choose_snapshot_word(snapshot) for tx, snapshot in of.snapshots.items()}
    return pa.array([words.get(tx, b"true") for tx in range(len(of))], pa.binary())


def make_source_block(batch: Batch) -> SourceBlock:
    """The block of the kind of source that a batch is from."""
    return _BLOCKS.get(batch.source.kind, OtherBlock)(batch)


_NO_SNAPSHOT = b"false"


class OtherBlock(SourceBlock):
    """What every connector's block has, and the table."""

    def render_rows(self, rows: Rows) -> tuple[Fragment, ...]:
        return self._render_fragments(
            self._millis.take(rows.tx),
            self._fine_times.take(rows.tx),
            rows.render_by_relation(_render_names),
            self._render_snapshots(rows),
        )

    def render_table(self, tx: int, place: int, relation: Relation) -> bytes:  # noqa: ARG002 - as render_rows
        names = _render_names(relation.schema, relation.table)
        return _join_fragments(self._render_fragments(self._millis.get(tx), self._fine_times.get(tx), names))

    def render_message(self, message: LogicalMessage) -> bytes:
        micros = np.array([message.moment], np.int64)
        return _join_fragments(
            self._render_fragments(
                b"%d" % (message.moment // 1000), _render_fine_times(micros)[0].as_py(), _render_names("", "")
            )
        )

    def _render_fragments(
        self, millis: Fragment, fine_times: Fragment, names: Fragment, snapshot: Fragment = _NO_SNAPSHOT
    ) -> tuple[Fragment, ...]:
        return self._head, millis, *self._render_until_sequence(snapshot), b"null", fine_times, names, b"}"


_NO_ORIGIN = b'null,"origin_lsn":null'


class PostgresBlock(SourceBlock):
    """What the connector for PostgreSQL adds: the transaction, the LSNs and the replication origin."""

    def render_rows(self, rows: Rows) -> tuple[Fragment, ...]:
        tx = rows.tx
        return self._render_fragments(
            (self._snapshot_position if _names_snapshot(rows) else self._position).take(tx),
            None if rows.place is None else to_digits(rows.place),
            self._fine_times.take(tx),
            rows.render_by_relation(_render_names),
            self._xid.take(tx),
            self._origin.take(tx) if self._batch.transactions.origins else _NO_ORIGIN,
        )

    def render_row(self, row: OneRow) -> bytes:
        if self._batch.transactions.origins:
            raise WrittenByColumn
        transaction, lsn = row.transaction, b"%d" % row.place
        millis, moment = b"%d" % (transaction.moment // 1000), transaction.moment
        position = (millis, *self._render_until_commit(_NO_SNAPSHOT), b"%d" % transaction.commit)
        return _join_fragments(
            self._render_fragments(
                _join_fragments(position),
                lsn,
                render_fine_times_of_one(moment),
                _render_names(row.relation.schema, row.relation.table),
                b"%d" % transaction.id,
                _NO_ORIGIN,
            )
        )

    def render_table(self, tx: int, place: int, relation: Relation) -> bytes:
        return self._render_in_transaction(tx, place, _render_names(relation.schema, relation.table))

    def render_message(self, message: LogicalMessage) -> bytes:
        """Outside of a transaction it has its own LSN as the commit's."""
        if message.tx >= 0:
            return self._render_in_transaction(message.tx, message.place, _render_names("", ""))
        lsn = b"%d" % message.place
        position = _join_fragments((b"%d" % (message.moment // 1000), *self._render_until_commit(_NO_SNAPSHOT), lsn))
        fine_times = render_fine_times_of_one(message.moment)
        return _join_fragments(
            self._render_fragments(position, lsn, fine_times, _render_names("", ""), b"null", _NO_ORIGIN)
        )

    @cache_per_transaction
    def _position(self) -> pa.Array:
        return self._render_positions(_NO_SNAPSHOT)

    @cache_per_transaction
    def _snapshot_position(self) -> pa.Array:
        return self._render_positions(self._snapshots.list_texts())

    @cache_per_transaction
    def _xid(self) -> pa.Array:
        return pc.fill_null(self._batch.transactions.list_id_texts(), b"null")

    @cache_per_transaction
    def _origin(self) -> pa.Array:
        of = self._batch.transactions
        return pa.array([_render_origin(of.origins.get(tx)) for tx in range(len(of))], pa.binary())

    def _render_positions(self, snapshot: Fragment) -> pa.Array:
        return join(
            self._millis.list_texts(), *self._render_until_commit(snapshot), to_digits(self._batch.transactions.commit)
        )

    def _render_until_commit(self, snapshot: Fragment) -> tuple[Fragment, ...]:
        return *self._render_until_sequence(snapshot), b'"[\\"'

    def _render_in_transaction(self, tx: int, lsn: int, names: bytes) -> bytes:
        return _join_fragments(
            self._render_fragments(
                self._position.get(tx),
                b"%d" % lsn,
                self._fine_times.get(tx),
                names,
                self._xid.get(tx),
                _render_origin(self._batch.transactions.origins.get(tx)),
            )
        )

    def _render_fragments(
        self,
        position: Fragment,
        lsn: Fragment | None,
        fine_times: Fragment,
        names: Fragment,
        xid: Fragment,
        origin: Fragment,
    ) -> tuple[Fragment, ...]:
        rest_of_sequence = (rb'\",null]"',) if lsn is None else (rb"\",\"", lsn, rb'\"]"')
        return (
            self._head,
            position,
            *rest_of_sequence,
            fine_times,
            names,
            b',"txId":',
            xid,
            b',"lsn":',
            b"null" if lsn is None else lsn,
            b',"xmin":null,"origin":',
            origin,
            b"}",
        )


class BinlogBlock(SourceBlock):
    """What the connectors for MySQL and MariaDB say: their `db` is the table's schema, and there is no `schema`.

    row: which change of its transaction it is. thread: the session that made it, on MySQL. query is not known.
    Source: Debezium documentation, "Debezium connector for MySQL", change events.
    """

    def render_rows(self, rows: Rows) -> tuple[Fragment, ...]:
        source, places = self._batch.source, rows.place
        return self._render_fragments(
            rows.tx,
            self._render_snapshots(rows),
            (rows.render_by_relation(_render_db_name), rows.render_by_relation(_render_table_name)),
            b'""' if places is None else render_files(source, places),
            b"0" if places is None else to_digits(compute_file_offsets(places)),
            to_digits(rows.seq),
        )

    def render_table(self, tx: int, place: int, relation: Relation) -> bytes:
        names = _render_db_name(relation.schema, relation.table), _render_table_name(relation.schema, relation.table)
        file, offset = render_file(self._batch.source, place), b"%d" % compute_file_offset(place)
        return _join_fragments(
            self._render_fragments(np.array([tx], np.int32), _NO_SNAPSHOT, names, file, offset, b"0")
        )

    def render_message(self, message: LogicalMessage) -> bytes:
        raise NotImplementedError("a binary log has no logical messages")

    @cache_per_transaction
    def _transaction(self) -> pa.Array:
        of, source = self._batch.transactions, self._batch.source
        return join(b',"server_id":', render_server_ids(source, of), b',"gtid":', render_gtids(source, of), b',"file":')

    @cache_per_transaction
    def _threads(self) -> pa.Array:
        return _render_threads(self._batch.transactions)

    def _render_fragments(
        self,
        tx: NDArray[np.int32],
        snapshot: Fragment,
        names: tuple[Fragment, Fragment],
        file: Fragment,
        offset: Fragment,
        row: Fragment,
    ) -> tuple[Fragment, ...]:
        db, table = names
        return (
            self._head,
            self._millis.take(tx),
            b',"snapshot":"',
            snapshot,
            b'","db":',
            db,
            b',"sequence":null',
            self._fine_times.take(tx),
            b',"table":',
            table,
            self._transaction.take(tx),
            file,
            b',"pos":',
            offset,
            b',"row":',
            row,
            b',"thread":',
            _NO_THREAD if self._batch.transactions.threads is None else self._threads.take(tx),
            b',"query":null}',
        )


def _names_snapshot(rows: Rows) -> bool:
    return rows.of_snapshot or rows.op is RowOp.READ


_BLOCKS: dict[str, type[SourceBlock]] = {POSTGRESQL: PostgresBlock, MYSQL: BinlogBlock, MARIADB: BinlogBlock}


_NO_THREAD = b"null"


def _render_threads(of: Transactions) -> pa.Array:
    """The session of each transaction as JSON; null where it is not known."""
    threads = np.zeros(len(of), np.int64) if of.threads is None else of.threads
    return pc.if_else(pa.array(threads > 0), to_digits(threads), pa.scalar(_NO_THREAD, pa.binary()))


def _render_db_name(schema: str, _: str) -> bytes:
    return render_name(schema)


def _render_table_name(_: str, table: str) -> bytes:
    return render_name(table)


def _render_fine_times(micros: NDArray[np.int64]) -> pa.Array:
    return join(b',"ts_us":', to_digits(micros), b',"ts_ns":', to_digits(micros * 1000))


@lru_cache(maxsize=1 << 15)
def _render_names(schema: str, table: str) -> bytes:
    return b',"schema":%s,"table":%s' % (render_name(schema), render_name(table))


def _render_origin(origin: ReplicationOrigin | None) -> bytes:
    return _NO_ORIGIN if origin is None else b'%s,"origin_lsn":%d' % (render_name(origin.name), origin.commit_lsn)


def _join_fragments(fragments: tuple[Fragment, ...]) -> bytes:
    return b"".join(fragment for fragment in fragments if isinstance(fragment, bytes))
