"""Which changes a batch has, and what is said of each: in forms that can be compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from psql_streamer.model import OUTSIDE, Batch

Identity = tuple[int, int]
"""(commit number, seq) of a change."""


def list_identities(batch: Batch) -> list[Identity]:
    """The identities of changes and truncates, in their order; messages outside of transactions have none."""
    return [identity for _, identity in sorted(list_with_orders(batch))]


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
