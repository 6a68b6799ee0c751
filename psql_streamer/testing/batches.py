"""Small batches to try parts with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import NAMESPACE_URL, uuid5

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
    Position,
    Relation,
    RowOp,
    SnapshotRows,
    SourceInfo,
    Transactions,
    Truncate,
)

SOURCE = SourceInfo("test", "test", "localhost", "test")


def make_batch(rows: Sequence[Mapping[str, Any]], key: str, first: int = 1, table: str = "orders") -> Batch:
    """A batch of inserts, one transaction with commit number `first`. rows: of one shape. key: the column to key by."""
    arrays = tuple(pa.array([row[name] for row in rows]) for name in rows[0])
    columns = tuple(
        Column(name, ArrowType(array.type), name == key) for name, array in zip(rows[0], arrays, strict=True)
    )
    changes = Changes.from_new_rows(Relation(table, "public", table, columns), arrays, np.zeros(len(rows), np.int32))
    transactions = Transactions(np.array([first], np.uint64), np.zeros(1, np.int64))
    position = Position({"commit": first}, str(first))
    batch = Batch(SOURCE, position, transactions, (changes,))
    return replace(batch, nbytes=batch.overhead + sum(array.nbytes for array in arrays))


def make_mixed_batch() -> Batch:
    """A change of every kind: an insert, a read, an update, one that changes the key, a delete, a truncate, and a
    logical message inside of the transaction and one outside.
    """
    columns = (Column("id", ArrowType(pa.int64()), key=True), Column("note", ArrowType(pa.string())))
    relation = Relation("orders", "public", "orders", columns)
    ops = [RowOp.INSERT, RowOp.READ, RowOp.UPDATE, RowOp.UPDATE, RowOp.DELETE]
    after = Image((pa.array([1, 2, 3, 40]), pa.array(["a", "b", "c", None])), np.arange(4))
    before = Image((pa.array([3, 4, 5]), pa.array(["old", "d", "e"])), np.array([2, 3, 4]))
    at = np.arange(len(ops))
    changes = Changes(relation, columns, at, np.array(ops, np.uint8), at, np.zeros(len(ops), np.int32), after, before)
    return Batch(
        SOURCE,
        Position({"commit": 1}, "1"),
        Transactions(np.array([1], np.uint64), np.zeros(1, np.int64)),
        (changes,),
        truncates=(Truncate(relation, 5, 5, 0, 0, cascade=False, restart_identity=True),),
        messages=(LogicalMessage("inside", b"text", 6, 6, 0, 0), LogicalMessage("outside", b"\xff", 7, OUTSIDE, 9, -1)),
        nbytes=10_000,
    )


def make_snapshot_batch(
    snapshot: SnapshotRows = SnapshotRows("first", on_demand=False),  # noqa: B008 - it is immutable
    ids: Sequence[int] = (1, 2),
    commit: int = 1,
) -> Batch:
    """READ rows of a snapshot, as a source gives those that it read together."""
    columns = (Column("id", ArrowType(pa.int64()), key=True), Column("note", ArrowType(pa.string())))
    arrays = pa.array(ids, pa.int64()), pa.array([f"note {number}" for number in ids], pa.string())
    relation = Relation("orders", "public", "orders", columns)
    changes = Changes.from_new_rows(relation, arrays, np.zeros(len(ids), np.int32), RowOp.READ)
    uuids = [str(uuid5(NAMESPACE_URL, f"{snapshot.id}/{number}")) for number in ids]
    return Batch(
        SOURCE,
        Position({"commit": commit, "snapshot": snapshot.id}, f"{commit} and {snapshot.id}"),
        Transactions(np.array([commit], np.uint64), np.array([5_000_000]), snapshots={0: snapshot}),
        (replace(changes, uuid=np.array(uuids, "S36")),),
        nbytes=10_000,
    )


def as_read(batch: Batch, snapshot: SnapshotRows) -> Batch:
    """The rows that a batch inserts, as if a snapshot had found them."""
    found = []
    for changes in batch.changes:
        rows = np.flatnonzero(changes.op == RowOp.INSERT)
        if not len(rows):
            continue
        some = changes.take(rows)
        uuids = [str(uuid5(NAMESPACE_URL, f"{some.relation}/{order}")) for order in some.batch_order.tolist()]
        read, none = np.full(len(rows), RowOp.READ, np.uint8), np.zeros(len(rows), np.int32)
        given = np.array(uuids, "S36")
        found.append(replace(some, op=read, seq=some.batch_order, tx=none, place=None, table_seq=None, uuid=given))
    of = batch.transactions
    transactions = Transactions(of.commit[:1], of.commit_ts[:1], snapshots={0: snapshot})
    return replace(batch.with_only(tuple(found)), transactions=transactions)


def make_empty_batch(commit: int = 1) -> Batch:
    """A mere move of the position."""
    return Batch(
        SOURCE, Position({"commit": commit}, str(commit)), Transactions(np.empty(0, np.uint64), np.empty(0, np.int64))
    )
