"""Batches that show what a part leaves out: of several tables and transactions, and with what stands beside rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from psql_streamer.model import (
    ADDRESS,
    OUTSIDE,
    PART,
    ArrowType,
    Batch,
    Changes,
    Column,
    Image,
    LogicalMessage,
    Rejection,
    Relation,
    ReplicationOrigin,
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

_RECEIVED_AT = 5.0


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
    ids, at = list_ids_of_history(), np.arange(len(ops))
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


def list_ids_of_history() -> list[int]:
    """The key of each of its changes."""
    return [1, 2, 1, 2, 1, 2, 1]


def make_batch_of_action(op: RowOp) -> Batch:
    """The same row of the same transaction, to which this happened."""
    batch = make_batch(ROWS[:1], "id")
    (changes,) = batch.changes
    after, before = (changes.before, changes.after) if op is RowOp.DELETE else (changes.after, changes.before)
    return replace(batch, changes=(replace(changes, op=np.array([op], np.uint8), after=after, before=before),))


def make_batch_of_parts(commit: int) -> Batch:
    """What is left of three parts of a change: the last two."""
    batch = make_batch(ROWS[:2], "id", commit)
    (changes,) = batch.changes
    one = np.zeros(2, np.int64)
    parts = replace(changes, batch_order=one, seq=one, part=np.array([(1, 3), (2, 3)], PART))
    return replace(batch, changes=(parts,))


def make_batch_with_metadata() -> Batch:
    """Transactions of which everything is told that a source may tell."""
    return merge([_tell(make_batch(ROWS[:2], "id")), _tell(make_batch(ROWS, "id", 2, table="visits"))])


def _tell(batch: Batch) -> Batch:
    (changes,) = batch.changes
    none, rows = np.zeros(1, np.int32), len(changes)
    metadata = TransactionMetadata(
        TransactionMarks(none, np.array([0])),
        TransactionMarks(none, np.array([rows])),
        TransactionCounts(none, np.array([0]), np.array([rows]), (changes.relation,)),
    )
    told = replace(changes, table_seq=np.arange(rows))
    return replace(batch, changes=(told,), transaction_metadata=metadata)


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


def with_row_fields(batch: Batch) -> Batch:
    """The batch, whose rows and transactions have everything that a source may say of them."""
    of = batch.transactions
    count, may_have_ids = len(of), not of.snapshots
    transactions = replace(
        of,
        ids=pa.array(np.arange(count) + 700) if of.ids is None and may_have_ids else of.ids,
        origins=of.origins or {tx: ReplicationOrigin("elsewhere", 5 + tx) for tx in range(count)},
        threads=np.arange(count) + 90 if of.threads is None else of.threads,
    )
    return _with_changes(replace(batch, transactions=transactions), _fill_row_fields)


def _fill_row_fields(changes: Changes) -> Changes:
    at = np.arange(len(changes))
    said: dict[str, Any] = {
        "place": at.astype(np.uint64) + np.uint64(40),
        "table_seq": at + 50,
        "uuid": np.array([str(uuid5(NAMESPACE_URL, f"{changes.relation}/{row}")) for row in at], "S36"),
        "record_time": at + 1_700_000_000_000,
    }
    return replace(changes, **{name: array for name, array in said.items() if getattr(changes, name) is None})


def with_addresses(batch: Batch) -> Batch:
    """The batch, of whose rows a handler before has said where their events go."""
    return _with_changes(batch, lambda one: replace(one, after=_address(one.after), before=_address(one.before)))


def _address(image: Image) -> Image:
    address = {"topic": b"contract", "key": b"a key", "headers": [(b"contract", b"a header")]}
    return replace(image, addresses=pa.array([address] * len(image), ADDRESS))


def with_absent_values(batch: Batch) -> Batch:
    """The batch, whose inserts are updates that left the values of one column alone: their new rows lack them."""
    return _with_changes(batch, _leave_out_values)


def _leave_out_values(changes: Changes) -> Changes:
    others = [index for index, column in enumerate(changes.columns) if not column.key]
    op, image = changes.op.copy(), changes.after
    op[op == RowOp.INSERT] = RowOp.UPDATE
    updated = np.isin(image.rows, np.flatnonzero(op == RowOp.UPDATE))
    if not others or not updated.any():
        return changes
    columns = list(image.columns)
    nulls = pa.nulls(len(image), columns[others[-1]].type)
    columns[others[-1]] = pc.if_else(pa.array(updated), nulls, columns[others[-1]])
    absent = {**image.absent, others[-1]: updated | image.absent.get(others[-1], np.zeros(len(image), np.bool_))}
    return replace(changes, op=op, after=replace(image, columns=tuple(columns), absent=absent))


def _with_changes(batch: Batch, alter: Callable[[Changes], Changes]) -> Batch:
    altered = replace(batch, changes=tuple(map(alter, batch.changes)))
    return replace(altered, nbytes=altered.overhead + max(0, batch.nbytes - batch.overhead))


def with_everything(batch: Batch) -> Batch:
    """The batch, and behind it a transaction with one of everything that is no row's."""
    return replace(merge([batch, _make_beside_rows(batch)]), received_at=_RECEIVED_AT)


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
