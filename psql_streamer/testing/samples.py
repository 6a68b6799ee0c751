"""Batches that show what a part leaves out: of several tables and transactions, and with what stands beside rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from psql_streamer.model import (
    OUTSIDE,
    ArrowType,
    Batch,
    Changes,
    Column,
    Image,
    LogicalMessage,
    Rejection,
    Relation,
    RowOp,
    SchemaChange,
    TableStatement,
    TransactionCounts,
    TransactionMarks,
    TransactionMetadata,
    Transactions,
    Truncate,
)
from psql_streamer.pipeline.coalescing import merge
from psql_streamer.testing.batches import make_batch

ROWS = [{"id": number, "note": f"note {number}"} for number in range(1, 6)]
"""Rows that differ in every column."""

PUT_ASIDE_ROWS = 2
"""Rows that are put aside in each of `make_batches_with_rejections`."""


def make_batch_of_several(first: int = 1) -> Batch:
    """Three transactions with rows of two tables. first: the commit number of the first one."""
    return merge(
        [
            make_batch(ROWS[:2], "id", first),
            make_batch(ROWS, "id", first + 1, table="visits"),
            make_batch(ROWS[2:], "id", first + 2),
        ]
    )


def make_history_of_keys() -> Batch:
    """Two rows whose changes take turns: what arrives in another order leaves another row."""
    ops = [RowOp.INSERT, RowOp.INSERT, RowOp.UPDATE, RowOp.UPDATE, RowOp.DELETE, RowOp.UPDATE, RowOp.INSERT]
    ids, at = [1, 2, 1, 2, 1, 2, 1], np.arange(len(ops))
    columns = (Column("id", ArrowType(pa.int64()), key=True), Column("note", ArrowType(pa.string())))
    new = [row for row, op in enumerate(ops) if op is not RowOp.DELETE]
    old = [row for row, op in enumerate(ops) if op is RowOp.DELETE]
    after = pa.array([ids[row] for row in new]), pa.array([f"note {row}" for row in new])
    before = pa.array([ids[row] for row in old]), pa.array([f"note {row - 2}" for row in old])
    batch = make_batch([{"id": 0, "note": ""}], "id")
    changes = Changes(
        Relation("orders", "public", "orders", columns),
        columns,
        at,
        np.array(ops, np.uint8),
        at,
        np.zeros(len(ops), np.int32),
        Image(after, np.array(new)),
        Image(before, np.array(old)),
    )
    return replace(batch, changes=(changes,), nbytes=10_000)


def make_batches_with_rejections() -> tuple[Batch, Batch]:
    """Rows of which a handler put some aside; and a batch of which nothing else is left."""
    batch = make_batch(ROWS, "id")
    (changes,) = batch.changes
    put_aside = Rejection(changes.slice(0, PUT_ASIDE_ROWS), "its note is none", "note", "public.orders")
    kept = changes.slice(PUT_ASIDE_ROWS, len(changes))
    return (
        replace(batch, changes=(kept,), rejections=(put_aside,)),
        replace(batch, changes=(), rejections=(put_aside,)),
    )


def with_everything(batch: Batch) -> Batch:
    """The batch, and behind it a transaction with one of everything that is no row's."""
    return merge([batch, _make_beside_rows(batch)])


def _make_beside_rows(batch: Batch) -> Batch:
    changes, commit = batch.changes[0], int(batch.transactions.commit[-1]) + 1
    relation, none = changes.relation, np.zeros(1, np.int32)
    put_aside = replace(
        changes.slice(0, 1), batch_order=np.array([1]), seq=np.array([1]), tx=none, part=None, table_seq=None
    )
    metadata = TransactionMetadata(
        TransactionMarks(none, np.array([0])),
        TransactionMarks(none, np.array([3])),
        TransactionCounts(none, np.array([0]), np.array([2]), (relation,)),
    )
    return Batch(
        batch.source,
        batch.position,
        Transactions(np.array([commit], np.uint64), np.array([1_000_000])),
        truncates=(Truncate(relation, 0, 0, 0, 0, cascade=False, restart_identity=False),),
        messages=(
            LogicalMessage("inside", b"text", 2, 2, 0, 0),
            LogicalMessage("outside", b"", 3, OUTSIDE, commit, -1),
        ),
        schema_changes=(SchemaChange(relation, relation, 0, 0, 0),),
        statements=(TableStatement(relation, f"ALTER TABLE {relation}", 0, 0, 0),),
        transaction_metadata=metadata,
        rejections=(Rejection(put_aside, "it is no row of this rule", None, "a rule before"),),
        nbytes=10_000,
    )
