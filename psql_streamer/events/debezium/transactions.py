"""Debezium's transaction metadata (provide.transaction.metadata): what an event says of its transaction, and the
records that say where transactions begin and end.

A transaction's id is `XID:LSN` with the LSN of its commit, so that a change that is sent again is the same bytes.
Source: Debezium documentation, "PostgreSQL connector", transaction metadata; fields stand in the order of their schema,
as Connect's JSON converter writes them.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from psql_streamer.events.digits import to_digits
from psql_streamer.events.json.json_text import join, render_name
from psql_streamer.events.rows import Rows
from psql_streamer.model import (
    LogicalMessage,
    Relation,
    TransactionCounts,
    TransactionMarks,
    TransactionMetadata,
    Transactions,
    Truncate,
)

_MESSAGES = "LOGICAL_DECODING_MESSAGE"
"""What Debezium counts logical messages as."""


def render_blocks(transactions: Transactions, rows: Rows) -> pa.Array:
    """The `transaction` block of each row's event."""
    one = bool((rows.tx == rows.tx[0]).all())
    return join(
        b'{"id":"',
        _render_id(transactions, int(rows.tx[0])) if one else render_ids(transactions, rows.tx),
        b'","total_order":',
        to_digits(rows.seq + 1),
        b',"data_collection_order":',
        to_digits(_require_table_seq(rows) + 1),
        b"}",
    )


def render_block(transactions: Transactions, event: Truncate | LogicalMessage) -> bytes:
    """The `transaction` block of an event that is no row's."""
    return b'{"id":"%s","total_order":%d,"data_collection_order":%d}' % (
        _render_id(transactions, event.tx),
        event.seq + 1,
        event.table_seq + 1,
    )


def render_ids(transactions: Transactions, tx: NDArray[np.int32]) -> pa.Array:
    """The id of each of these transactions, as text."""
    commits = to_digits(transactions.commit[tx])
    return join(b":" if transactions.ids is None else join(transactions.select_id_texts(tx), b":"), commits)


def render_keys(transactions: Transactions, marks: TransactionMarks) -> pa.Array:
    """The keys of BEGIN and END records."""
    return join(b'{"id":"', render_ids(transactions, marks.tx), b'"}')


def render_begins(transactions: Transactions, begun: TransactionMarks) -> pa.Array:
    """The value of a BEGIN record for each transaction that begins in the batch."""
    return join(
        b'{"status":"BEGIN","id":"',
        render_ids(transactions, begun.tx),
        b'","event_count":null,"data_collections":null,"ts_ms":',
        _render_moments(transactions, begun.tx),
        b"}",
    )


def render_ends(transactions: Transactions, metadata: TransactionMetadata, counts: NDArray[np.int64]) -> pa.Array:
    """The value of an END record for each transaction that ends in the batch. counts: see count_events."""
    tx = metadata.ends.tx
    first, end = _find_count_bounds(metadata)
    return join(
        b'{"status":"END","id":"',
        render_ids(transactions, tx),
        b'","event_count":',
        to_digits(counts),
        b',"data_collections":[',
        pc.binary_join(_group_neighbours(_render_collections(metadata.counts), first, end), b","),
        b'],"ts_ms":',
        _render_moments(transactions, tx),
        b"}",
    )


def count_events(metadata: TransactionMetadata) -> NDArray[np.int64]:
    """How many changes each transaction has that ends in the batch."""
    before = np.concatenate((np.zeros(1, np.int64), np.cumsum(metadata.counts.count)))
    first, end = _find_count_bounds(metadata)
    counts: NDArray[np.int64] = before[end] - before[first]
    return counts


def _find_count_bounds(metadata: TransactionMetadata) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the counts of each transaction that ends begin and end."""
    at, tx = metadata.counts.tx, metadata.ends.tx
    return np.searchsorted(at, tx, "left"), np.searchsorted(at, tx, "right")


def _render_collections(counts: TransactionCounts) -> pa.Array:
    names = pa.array([render_name(_name_table(table)) for table in counts.tables], pa.binary())
    tables = names.take(pa.array(counts.table))
    return join(b'{"data_collection":', tables, b',"event_count":', to_digits(counts.count), b"}")


def _name_table(table: Relation | None) -> str:
    return _MESSAGES if table is None else str(table)


def _group_neighbours(values: pa.Array, first: NDArray[np.int64], end: NDArray[np.int64]) -> pa.ListArray:
    """Lists of neighbours: each begins where the one before it ends."""
    offsets = np.append(first, end[-1:]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values)


def _render_id(transactions: Transactions, tx: int) -> bytes:
    return b"%s:%d" % ((transactions.find_id(tx) or "").encode(), transactions.commit[tx])


def _render_moments(transactions: Transactions, tx: NDArray[np.int32]) -> pa.Array:
    return to_digits(transactions.commit_ts[tx] // 1000)


def _require_table_seq(rows: Rows) -> NDArray[np.int64]:
    assert rows.table_seq is not None  # noqa: S101 - Source.provide_transaction_metadata was called
    return rows.table_seq
