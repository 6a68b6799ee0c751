"""What `psql_streamer.model` says of a Batch, as checks, and small batches to try parts with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import NAMESPACE_URL, uuid5

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from psql_streamer.model import (
    NO_PLACE,
    OUTSIDE,
    PER_ROW,
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

Identity = tuple[int, int]
"""(commit number, seq) of a change."""


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


def list_identities(batch: Batch) -> list[Identity]:
    """The identities of changes and truncates, in their order; messages outside of transactions have none."""
    return [identity for _, identity in sorted(_list_with_orders(batch))]


class KeptOfRow(NamedTuple):
    """What a handler leaves of a row as it is."""

    batch_order: int
    commit: int
    commit_ts: int
    seq: int
    place: int | None
    op: int


def collect_kept_of_rows(batch: Batch) -> set[KeptOfRow]:
    """The same of all row changes."""
    found: set[KeptOfRow] = set()
    for changes in batch.changes:
        transactions = batch.transactions
        places = [None] * len(changes) if changes.place is None else changes.place.tolist()
        columns = (
            changes.batch_order.tolist(),
            transactions.commit[changes.tx].tolist(),
            transactions.commit_ts[changes.tx].tolist(),
            changes.seq.tolist(),
            places,
            changes.op.tolist(),
        )
        found |= {KeptOfRow(*row) for row in zip(*columns, strict=True)}
    return found


def count_transaction_changes(batch: Batch) -> dict[int, int]:
    """How many changes the metadata says that a transaction has, by its commit number."""
    found = Counter[int]()
    if batch.transaction_metadata is not None:
        counts = batch.transaction_metadata.counts
        for commit, count in zip(batch.transactions.commit[counts.tx].tolist(), counts.count.tolist(), strict=True):
            found[commit] += count
    return dict(found)


def check_batch(batch: Batch) -> None:
    """AssertionError when the batch is not what the model says."""
    assert batch.source.kind, "SourceInfo.kind is empty"
    assert batch.source.name, "SourceInfo.name is empty"
    transactions = batch.transactions
    assert len(transactions.commit_ts) == len(transactions), "Transactions: a commit_ts for each"
    assert transactions.ids is None or len(transactions.ids) == len(transactions), "Transactions: an id for each"
    commits, snapshots = transactions.commit.astype(np.int64), transactions.snapshots
    real = np.array([tx not in snapshots for tx in range(len(transactions))], np.bool_)
    assert np.all(np.diff(commits[real]) > 0), "Transactions: commit numbers increase"
    assert np.all(np.diff(commits) >= 0), "Transactions: those of snapshots stand where they were read"
    assert set(snapshots) <= set(range(len(transactions))), "Transactions: snapshots points into it"
    assert all(transactions.find_id(tx) is None for tx in snapshots), "Transactions: rows of a snapshot have no id"
    for changes in batch.changes:
        check_changes(changes, len(transactions))
        _check_rows_of_snapshots(changes, np.isin(changes.tx, list(snapshots)))
    for statement in batch.statements:
        assert 0 <= statement.tx < len(transactions), f"{statement.text}: tx points into Batch.transactions"
    order = [batch_order for batch_order, _ in _list_with_orders(batch)] + [
        one.batch_order for one in batch.messages if one.seq == OUTSIDE
    ]
    assert len(set(order)) == len(order), "two changes have one batch_order"
    found = [identity for _, identity in sorted(_list_with_orders(batch, snapshots=False))]
    assert found == sorted(set(found)), "sorted by batch_order, (commit, seq) increases and is unique"
    assert not len(batch) or batch.nbytes >= batch.overhead, "nbytes, by which queues are bounded, lacks the overhead"


def check_changes(changes: Changes, transactions: int) -> None:
    """The same of the changes of one table. transactions: how many the batch has."""
    table, rows = str(changes.relation), len(changes)
    assert rows > 0, f"{table}: Changes without rows"
    for field in PER_ROW:
        array = getattr(changes, field)
        assert array is None or len(array) == rows, f"{table}: {field} has {len(array)} elements for {rows} rows"
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
        lacking = image.columns[index].is_valid().to_numpy(zero_copy_only=False) & absent
        assert not lacking.any(), f"{where}: column {changes.columns[index].name} has values where it is absent"


def _list_with_orders(batch: Batch, snapshots: bool = True) -> Iterator[tuple[int, Identity]]:
    """snapshots: whether rows of snapshots are among them."""
    commit, left_out = batch.transactions.commit, [] if snapshots else list(batch.transactions.snapshots)
    for changes in batch.changes:
        rows = ~np.isin(changes.tx, left_out)
        rows[1:] &= np.diff(changes.batch_order) > 0  # the first part stands for its change
        orders, seqs = changes.batch_order[rows], changes.seq[rows]
        of_rows = zip(orders.tolist(), commit[changes.tx[rows]].tolist(), seqs.tolist(), strict=True)
        yield from ((batch_order, (number, seq)) for batch_order, number, seq in of_rows)
    for truncate in batch.truncates:
        yield truncate.batch_order, (int(commit[truncate.tx]), truncate.seq)
    for message in batch.messages:
        if message.seq != OUTSIDE:
            yield message.batch_order, (int(commit[message.tx]), message.seq)
