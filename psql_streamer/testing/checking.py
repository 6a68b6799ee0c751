"""What `psql_streamer.model` says of a Batch, as checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from psql_streamer.model import (
    ADDRESS,
    NO_PLACE,
    OUTSIDE,
    PART,
    PER_ROW,
    ArrowType,
    Batch,
    Changes,
    Image,
    RowOp,
    TransactionMetadata,
    Transactions,
)
from psql_streamer.testing.identities import list_with_orders

_TYPES: Mapping[str, np.dtype[Any]] = {
    **{name: np.dtype(np.int64) for name in ("batch_order", "seq", "table_seq", "record_time")},
    "op": np.dtype(np.uint8),
    "tx": np.dtype(np.int32),
    "place": np.dtype(np.uint64),
    "part": PART,
}
"""The types of the fields of PER_ROW but `uuid`, whose texts have a length."""

_LEAST_SHARE_OF_VALUES = 0.5
"""What Batch.nbytes has of the bytes of the values at least, because it is rough."""


def check_batch(batch: Batch) -> None:
    """AssertionError when the batch is not what the model says."""
    assert batch.source.kind, "SourceInfo.kind is empty"
    assert batch.source.name, "SourceInfo.name is empty"
    transactions = batch.transactions
    _check_transactions(transactions)
    commits, snapshots = transactions.commit.astype(np.int64), transactions.snapshots
    real = np.array([tx not in snapshots for tx in range(len(transactions))], np.bool_)
    assert np.all(np.diff(commits[real]) > 0), "Transactions: commit numbers increase"
    assert np.all(np.diff(commits) >= 0), "Transactions: those of snapshots stand where they were read"
    assert all(transactions.find_id(tx) is None for tx in snapshots), "Transactions: rows of a snapshot have no id"
    singles = [("Truncate", one.tx) for one in batch.truncates]
    singles += [("LogicalMessage", one.tx) for one in batch.messages if one.seq != OUTSIDE]
    for what, tx in singles:
        assert 0 <= tx < len(transactions), f"{what}: tx points into Batch.transactions"
    for changes in batch.changes:
        check_changes(changes, len(transactions))
        _check_rows_of_snapshots(changes, np.isin(changes.tx, list(snapshots)))
    for statement in batch.statements:
        assert 0 <= statement.tx < len(transactions), f"{statement.text}: tx points into Batch.transactions"
    order = [batch_order for batch_order, _ in list_with_orders(batch)] + [
        one.batch_order for one in batch.messages if one.seq == OUTSIDE
    ]
    assert len(set(order)) == len(order), "two changes have one batch_order"
    found = [identity for _, identity in sorted(list_with_orders(batch, snapshots=False))]
    assert found == sorted(set(found)), "sorted by batch_order, (commit, seq) increases and is unique"
    if batch.transaction_metadata is not None:
        _check_metadata(batch.transaction_metadata, len(transactions))
    assert not len(batch) or batch.nbytes >= batch.overhead, "nbytes, by which queues are bounded, lacks the overhead"


def check_size(batch: Batch) -> None:
    """AssertionError when nbytes has little of what the values of a whole batch hold."""
    values = sum(found.size for found in batch.rows.count_rows())
    least = batch.overhead + int(_LEAST_SHARE_OF_VALUES * values)
    assert not len(batch) or batch.nbytes >= least, (
        f"nbytes, by which queues are bounded, is {batch.nbytes} for values of {values} bytes"
    )


def _check_transactions(transactions: Transactions) -> None:
    count, ids, threads = len(transactions), transactions.ids, transactions.threads
    _check_type(transactions.commit, np.dtype(np.uint64), "Transactions: commit")
    _check_type(transactions.commit_ts, np.dtype(np.int64), "Transactions: commit_ts")
    assert len(transactions.commit_ts) == count, "Transactions: a commit_ts for each"
    assert ids is None or len(ids) == count, "Transactions: an id for each"
    fits = ids is None or pa.types.is_integer(ids.type) or pa.types.is_binary(ids.type)
    assert fits, "Transactions: ids are integers or binary"
    assert threads is None or len(threads) == count, "Transactions: a thread for each"
    if threads is not None:
        _check_type(threads, np.dtype(np.int64), "Transactions: threads")
    for name in ("origins", "snapshots"):
        points = set(getattr(transactions, name)) <= set(range(count))
        assert points, f"Transactions: {name} points into it"


def _check_metadata(metadata: TransactionMetadata, transactions: int) -> None:
    counts = metadata.counts
    for name, tx in (("begins", metadata.begins.tx), ("ends", metadata.ends.tx), ("counts", counts.tx)):
        _check_type(tx, np.dtype(np.int32), f"TransactionMetadata: {name}.tx")
        inside = np.all((tx >= 0) & (tx < transactions))
        assert inside, f"TransactionMetadata: {name}.tx points into Batch.transactions"
    assert set(counts.tx.tolist()) <= set(metadata.ends.tx.tolist()), (
        "TransactionMetadata: counts are of the transactions that end in the batch"
    )
    inside = np.all((counts.table >= 0) & (counts.table < len(counts.tables)))
    assert inside, "TransactionCounts: table points into tables"


def _check_type(array: NDArray[Any], expected: np.dtype[Any], where: str) -> None:
    assert array.dtype == expected, f"{where} is of {array.dtype}, and the model says {expected}"


def check_changes(changes: Changes, transactions: int) -> None:
    """The same of the changes of one table. transactions: how many the batch has."""
    table, rows = str(changes.relation), len(changes)
    assert rows > 0, f"{table}: Changes without rows"
    for field in PER_ROW:
        array = getattr(changes, field)
        assert array is None or len(array) == rows, f"{table}: {field} has {len(array)} elements for {rows} rows"
        if array is not None and field in _TYPES:
            _check_type(array, _TYPES[field], f"{table}: {field}")
    assert changes.uuid is None or changes.uuid.dtype.kind == "S", f"{table}: uuid holds no bytes"
    _check_parts(changes)
    assert np.all((changes.tx >= 0) & (changes.tx < transactions)), f"{table}: tx points into Batch.transactions"
    assert set(changes.op.tolist()) <= set(RowOp), f"{table}: an op is none of RowOp"
    for image, called in ((changes.after, "after"), (changes.before, "before")):
        _check_image(changes, image, f"{table}: {called}")
    after, before = set(changes.after.rows.tolist()), set(changes.before.rows.tolist())
    deleted = set(np.flatnonzero(changes.op == RowOp.DELETE).tolist())
    assert after == set(range(rows)) - deleted, f"{table}: a new row for each insert, update and read, and no other"
    updated = set(np.flatnonzero(changes.op == RowOp.UPDATE).tolist())
    assert deleted <= before <= deleted | updated, f"{table}: an old row for each delete, and for updates that have one"


def _check_parts(changes: Changes) -> None:
    """Rows of one change have its batch_order and seq, and numbers that differ."""
    table, steps = str(changes.relation), np.diff(changes.batch_order)
    assert np.all(steps >= 0), f"{table}: batch_order increases"
    together = steps == 0
    parted = np.zeros(len(changes), np.bool_) if changes.part is None else changes.part["of"] > 0
    assert parted[1:][together].all(), f"{table}: two changes have one batch_order"
    assert parted[:-1][together].all(), f"{table}: two changes have one batch_order"
    assert not np.diff(changes.seq)[together].any(), f"{table}: the parts of a change have its seq"
    if changes.part is not None:
        found = list(zip(changes.batch_order[parted].tolist(), changes.part["number"][parted].tolist(), strict=True))
        assert len(set(found)) == len(found), f"{table}: two parts of a change have one number"
        number, of = changes.part["number"], changes.part["of"]
        alike = parted[1:] & together
        assert np.all((number >= 0) & (number < np.maximum(of, 1))), f"{table}: part: numbers are from 0 to below `of`"
        assert np.all(np.diff(number)[alike] > 0), f"{table}: part: numbers increase within a change"
        assert not np.diff(of)[alike].any(), f"{table}: part: all parts of a change say how many there are"


def _check_rows_of_snapshots(changes: Changes, rows: NDArray[np.bool_]) -> None:
    """rows: which of the changes are of snapshots. Their identity is their UUID."""
    if not rows.any():
        return
    table = str(changes.relation)
    ops = set(changes.op[rows].tolist())
    assert ops <= {RowOp.READ, RowOp.DELETE}, f"{table}: rows of a snapshot are READ, or DELETE for keys that are gone"
    uuids = [] if changes.uuid is None else changes.uuid[rows].tolist()
    assert {len(uuid) for uuid in uuids} == {36}, f"{table}: rows of a snapshot have UUIDs of 36 characters"
    assert len(set(uuids)) == len(uuids), f"{table}: two rows of a snapshot have one UUID"
    placed = changes.place is not None and bool((changes.place[rows] != NO_PLACE).any())
    assert not placed, f"{table}: rows of a snapshot have no place"


def _check_image(changes: Changes, image: Image, where: str) -> None:
    assert len(image.columns) == len(changes.columns), f"{where}: an array a column"
    assert np.all(np.diff(image.rows) > 0), f"{where}: rows increase strictly"
    _check_type(image.rows, np.dtype(np.int64), f"{where}: rows")
    assert image.addresses is None or image.addresses.type == ADDRESS, f"{where}: addresses are of type ADDRESS"
    assert image.addresses is None or len(image.addresses) == len(image), f"{where}: an address for each row"
    for column, array in zip(changes.columns, image.columns, strict=True):
        assert len(array) == len(image), f"{where}: column {column.name} has {len(array)} values for {len(image)} rows"
        expected = column.type.arrow if isinstance(column.type, ArrowType) else None
        fits = (
            array.type == expected
            if expected
            else pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type)
        )
        assert fits, f"{where}: column {column.name} is {array.type}, and its type says {expected or 'binary'}"
    for index, absent in image.absent.items():
        assert len(absent) == len(image), f"{where}: absent has an element a row"
        _check_type(absent, np.dtype(np.bool_), f"{where}: absent")
        lacking = image.columns[index].is_valid().to_numpy(zero_copy_only=False) & absent
        assert not lacking.any(), f"{where}: column {changes.columns[index].name} has values where it is absent"
