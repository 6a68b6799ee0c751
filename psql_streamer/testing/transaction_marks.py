"""What a source says of its transactions when it is asked to, held against the changes that it gave."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from psql_streamer.model import OUTSIDE, Batch, Relation, TransactionMetadata

_Table: TypeAlias = str | None
"""The id of a table; None for logical messages."""

_Change: TypeAlias = tuple[int, int, _Table, int | None]
"""batch_order, commit number, table, table_seq."""


def check_transactions(batches: Iterable[Batch], must_be_told: bool) -> None:
    """AssertionError when something of it is not so. batches: with whole transactions. must_be_told: whether a source
    says that it tells (Source.gives_transaction_metadata); others need not.
    """
    log = _Log()
    for batch in batches:
        metadata = batch.transaction_metadata
        changes = sorted(_list_changes(batch), key=lambda change: change[0])
        if metadata is None:
            assert not (must_be_told and changes), "transaction_metadata: a batch with changes has none"
            continue
        log.note(batch, metadata, changes)
    log.require_ends()


class _Log:
    """Of the transactions so far, by their commit numbers."""

    def __init__(self) -> None:
        self._begun: set[int] = set()
        self._ended: set[int] = set()
        self._counts: defaultdict[int, Counter[_Table]] = defaultdict(Counter)

    def note(self, batch: Batch, metadata: TransactionMetadata, changes: list[_Change]) -> None:
        commits = batch.transactions.commit.tolist()
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for order, commit, *_ in changes:
            first.setdefault(commit, order)
            last[commit] = order
        for tx, order in zip(metadata.begins.tx.tolist(), metadata.begins.batch_order.tolist(), strict=True):
            commit = commits[tx]
            assert commit not in self._begun, "TransactionMetadata.begins: a transaction begins twice"
            assert first.get(commit) == order, "TransactionMetadata.begins: it begins before its first change"
            self._begun.add(commit)
        for order, commit, table, table_seq in changes:
            assert commit in self._begun, "TransactionMetadata.begins lacks a transaction"
            assert commit not in self._ended, "a transaction has changes behind its end"
            expected = self._counts[commit][table]
            assert table_seq == expected, f"batch_order {order}: table_seq is {table_seq}, and should be {expected}"
            self._counts[commit][table] += 1
        for tx, order in zip(metadata.ends.tx.tolist(), metadata.ends.batch_order.tolist(), strict=True):
            commit = commits[tx]
            assert commit in self._begun - self._ended, "TransactionMetadata.ends: one ends that has not begun"
            assert order > last.get(commit, -1), "TransactionMetadata.ends: it ends behind its last change"
            self._ended.add(commit)
        self._check_counts(metadata, commits)

    def require_ends(self) -> None:
        assert self._begun == self._ended, "TransactionMetadata.ends lacks a transaction whose changes are all there"

    def _check_counts(self, metadata: TransactionMetadata, commits: list[int]) -> None:
        counts, told = metadata.counts, defaultdict[int, Counter[_Table]](Counter)
        for tx, table, count in zip(counts.tx.tolist(), counts.table.tolist(), counts.count.tolist(), strict=True):
            told[commits[tx]][_find_id(counts.tables[table])] += count
        for tx in metadata.ends.tx.tolist():
            commit = commits[tx]
            assert told[commit] == self._counts[commit], "TransactionCounts: as many of each table as were read"


def _list_changes(batch: Batch) -> Iterator[_Change]:
    """Those of transactions, which rows of snapshots are not."""
    commit, snapshots = batch.transactions.commit.tolist(), batch.transactions.snapshots
    for changes in batch.changes:
        seqs = [None] * len(changes) if changes.table_seq is None else changes.table_seq.tolist()
        for order, tx, seq in zip(changes.batch_order.tolist(), changes.tx.tolist(), seqs, strict=True):
            if tx not in snapshots:
                yield order, commit[tx], changes.relation.id, seq
    for truncate in batch.truncates:
        yield truncate.batch_order, commit[truncate.tx], truncate.relation.id, truncate.table_seq
    for message in batch.messages:
        if message.seq != OUTSIDE:
            yield message.batch_order, commit[message.tx], None, message.table_seq


def _find_id(table: Relation | None) -> _Table:
    return None if table is None else table.id
