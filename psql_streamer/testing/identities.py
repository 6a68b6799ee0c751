"""Which changes a batch has, and what is said of each: in forms that can be compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from psql_streamer.model import OUTSIDE, UNKNOWN_OF_ROW, Batch, Changes, ReplicationOrigin, Transactions

_Transaction: TypeAlias = tuple[int, int, str | None, ReplicationOrigin | None, int]

_OF_ROW = ("batch_order", "tx", "seq", "place", "table_seq", "uuid", "record_time", "op")

_NOT_THERE: _Transaction = (-1, -1, None, None, 0)
"""For the transaction of a row that points outside of Batch.transactions."""

Identity = tuple[int, int]
"""(commit number, seq) of a change."""


def list_identities(batch: Batch) -> list[Identity]:
    """The identities of changes and truncates, in their order; messages outside of transactions have none."""
    return [identity for _, identity in sorted(list_with_orders(batch))]


class KeptOfRow(NamedTuple):
    """What a handler leaves of a row as it is: where it stands, what it is of, and what the source said of it.

    table: the relation's id, schema, table and version. transaction: its commit number and time, its id, its origin and
    its session.
    """

    batch_order: int
    table: tuple[str, str, str, int]
    transaction: _Transaction
    seq: int
    place: int
    table_seq: int
    uuid: bytes
    record_time: int
    op: int


def collect_kept_of_rows(batch: Batch) -> set[KeptOfRow]:
    """The same of all row changes."""
    return {row for changes in batch.changes for row in list_kept_of_rows(changes, batch.transactions)}


def list_kept_of_rows(changes: Changes, transactions: Transactions) -> list[KeptOfRow]:
    """The same of changes of one table, in their order."""
    relation = changes.relation
    table = (relation.id, relation.schema, relation.table, relation.version)
    said: list[_Transaction] = [
        (
            int(transactions.commit[tx]),
            int(transactions.commit_ts[tx]),
            transactions.find_id(tx),
            transactions.origins.get(tx),
            0 if transactions.threads is None else int(transactions.threads[tx]),
        )
        for tx in range(len(transactions))
    ]
    found = []
    for row in zip(*(_list_field(changes, name) for name in _OF_ROW), strict=True):
        order, tx, *others = row
        found.append(KeptOfRow(order, table, said[tx] if 0 <= tx < len(said) else _NOT_THERE, *others))
    return found


def _list_field(changes: Changes, name: str) -> list[Any]:
    """A field of each row; where nobody has it, what stands for that."""
    array = getattr(changes, name)
    return [UNKNOWN_OF_ROW[name].item()] * len(changes) if array is None else array.tolist()


def count_transaction_changes(batch: Batch) -> dict[int, int]:
    """How many changes the metadata says that a transaction has, by its commit number."""
    found = Counter[int]()
    if batch.transaction_metadata is not None:
        counts = batch.transaction_metadata.counts
        for commit, count in zip(batch.transactions.commit[counts.tx].tolist(), counts.count.tolist(), strict=True):
            found[commit] += count
    return dict(found)


def list_with_orders(batch: Batch, snapshots: bool = True) -> Iterator[tuple[int, Identity]]:
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
