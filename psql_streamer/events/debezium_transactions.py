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

from psql_streamer.events.format import numbers
from psql_streamer.events.json_text import join, name
from psql_streamer.events.rows import Rows
from psql_streamer.model import Batch, Bounds, LogicalMessage, Relation, Tallies, Transactions, Truncate

_MESSAGES = "LOGICAL_DECODING_MESSAGE"
"""What Debezium counts logical messages as."""


def of_rows(transactions: Transactions, rows: Rows) -> pa.Array:
    """The `transaction` block of each row's event."""
    one = bool((rows.tx == rows.tx[0]).all())
    return join(
        b'{"id":"',
        _id(transactions, int(rows.tx[0])) if one else _ids(transactions, rows.tx),
        b'","total_order":',
        numbers(rows.seq + 1),
        b',"data_collection_order":',
        numbers(rows.tally + 1),
        b"}",
    )


def of_one(transactions: Transactions, event: Truncate | LogicalMessage) -> bytes:
    """The `transaction` block of an event that is no row's."""
    return b'{"id":"%s","total_order":%d,"data_collection_order":%d}' % (
        _id(transactions, event.tx),
        event.seq + 1,
        event.tally + 1,
    )


def keys(transactions: Transactions, bounds: Bounds) -> pa.Array:
    """The keys of both kinds of records."""
    return join(b'{"id":"', _ids(transactions, bounds.tx), b'"}')


def begins(batch: Batch) -> pa.Array:
    """A record for each transaction that begins in the batch."""
    tx = batch.begins.tx
    return join(
        b'{"status":"BEGIN","id":"',
        _ids(batch.transactions, tx),
        b'","event_count":null,"data_collections":null,"ts_ms":',
        _moments(batch.transactions, tx),
        b"}",
    )


def ends(batch: Batch, counts: NDArray[np.int64]) -> pa.Array:
    """A record for each transaction that ends in the batch. counts: of its changes, as event_counts gives them."""
    tx, tallies = batch.ends.tx, batch.tallies
    first, behind = np.searchsorted(tallies.tx, tx, "left"), np.searchsorted(tallies.tx, tx, "right")
    return join(
        b'{"status":"END","id":"',
        _ids(batch.transactions, tx),
        b'","event_count":',
        numbers(counts),
        b',"data_collections":[',
        pc.binary_join(_slices(_collections(tallies), first, behind), b","),
        b'],"ts_ms":',
        _moments(batch.transactions, tx),
        b"}",
    )


def event_counts(batch: Batch) -> NDArray[np.int64]:
    """How many changes each transaction has that ends in the batch."""
    before = np.concatenate((np.zeros(1, np.int64), np.cumsum(batch.tallies.count)))
    at = batch.tallies.tx
    counts: NDArray[np.int64] = (
        before[np.searchsorted(at, batch.ends.tx, "right")] - before[np.searchsorted(at, batch.ends.tx, "left")]
    )
    return counts


def _collections(tallies: Tallies) -> pa.Array:
    names = pa.array([name(_name(table)) for table in tallies.tables], pa.binary())
    tables = names.take(pa.array(tallies.table))
    return join(b'{"data_collection":', tables, b',"event_count":', numbers(tallies.count), b"}")


def _name(table: Relation | None) -> str:
    return _MESSAGES if table is None else str(table)


def _slices(values: pa.Array, first: NDArray[np.int64], behind: NDArray[np.int64]) -> pa.ListArray:
    """Lists of neighbours: each begins where the one before it ends."""
    offsets = np.append(first, behind[-1:]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values)


def _id(transactions: Transactions, tx: int) -> bytes:
    return b"%d:%d" % (transactions.xid[tx], transactions.commit_lsn[tx])


def _ids(transactions: Transactions, tx: NDArray[np.int32]) -> pa.Array:
    return join(numbers(transactions.xid[tx]), b":", numbers(transactions.commit_lsn[tx]))


def _moments(transactions: Transactions, tx: NDArray[np.int32]) -> pa.Array:
    return numbers(transactions.commit_ts[tx] // 1000)
