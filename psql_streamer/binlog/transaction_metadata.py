"""Where transactions begin and end, and counts of changes by table within them, over the pieces of a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from psql_streamer.model import Index, Relation, TransactionCounts, TransactionMarks, TransactionMetadata


@dataclass(frozen=True, slots=True)
class CountedChanges:
    """The changes of a piece, event by event: transaction, table, how many, and the batch order of the first one.

    table: a number of its own for each Relation.id. relations: of each event.
    """

    tx: Index
    table: Index
    weight: Index
    batch_order: Index
    relations: Sequence[Relation]


class TransactionCounter:
    """Counts the pieces of a session, in order. Transactions are given by their index in the piece."""

    def __init__(self) -> None:
        self._carried: dict[int, tuple[int, Relation]] = {}  # of the open transaction, by table

    def count(
        self, changes: CountedChanges, ends: Mapping[int, int], begun_here: Sequence[bool], open_tx: int | None
    ) -> tuple[TransactionMetadata, Index]:
        """What the piece says of transactions; and of each event which change of its table in its transaction its first
        one is.

        ends: transactions that end in the piece, with the batch order behind their last change. begun_here: for each
        transaction whether its first change is in the piece, and is to be delivered. open_tx: the one that goes on.
        """
        groups = _Groups.from_changes(changes, self._carried)
        begins = _mark_begins(changes, begun_here)
        has_changes = set(groups.tx.tolist()) | ({0} if self._carried else set())
        ended = [(tx, order) for tx, order in ends.items() if tx in has_changes]
        counts = groups.select([tx for tx, _ in ended], self._carried)
        self._carried = groups.carry(open_tx, self._carried)
        marks = TransactionMarks(
            np.array([tx for tx, _ in ended], np.int32), np.array([order for _, order in ended], np.int64)
        )
        return TransactionMetadata(begins, marks, counts), groups.first


def _mark_begins(changes: CountedChanges, begun_here: Sequence[bool]) -> TransactionMarks:
    there = np.flatnonzero(changes.weight)
    tx, at = np.unique(changes.tx[there], return_index=True)
    chosen = np.array(begun_here, np.bool_)[tx]
    return TransactionMarks(tx[chosen].astype(np.int32), changes.batch_order[there[at]][chosen])


@dataclass(frozen=True, slots=True)
class _Groups:
    """Changes of one table in one transaction, by both: how many there are up to there.

    first: of each event which change of its group its first one is.
    """

    tx: Index
    table: Index
    count: Index
    relations: Sequence[Relation]
    first: Index

    @classmethod
    def from_changes(cls, changes: CountedChanges, carried: Mapping[int, tuple[int, Relation]]) -> _Groups:
        """carried: of transaction 0, from pieces before."""
        order = np.lexsort((changes.table, changes.tx))
        tx, table, weight = changes.tx[order], changes.table[order], changes.weight[order]
        leads = np.ones(len(order), np.bool_)
        leads[1:] = (tx[1:] != tx[:-1]) | (table[1:] != table[:-1])
        starts = np.flatnonzero(leads)
        ends = np.append(starts[1:], len(order)) if len(starts) else starts
        counted = np.append(0, np.cumsum(weight))
        before = np.array(
            [carried.get(one, (0,))[0] if of == 0 else 0 for of, one in zip(tx[starts], table[starts], strict=True)],
            np.int64,
        )
        first = np.empty(len(order), np.int64)
        first[order] = counted[:-1] - np.repeat(counted[starts] - before, ends - starts)
        count = counted[ends] - counted[starts] + before
        relations = [changes.relations[at] for at in order[ends - 1].tolist()]
        return cls(tx[starts], table[starts], count, relations, first)

    def select(self, ended: Sequence[int], carried: Mapping[int, tuple[int, Relation]]) -> TransactionCounts:
        """Of the transactions that ended, by transaction and table."""
        wanted = set(ended)
        found = [group for group in self._merge_carried(carried) if group[0] in wanted]
        if not found:
            return TransactionCounts()
        tables: dict[int, int] = {}
        which = [tables.setdefault(id(relation), len(tables)) for *_, relation in found]
        by_place = {id(relation): relation for *_, relation in found}
        return TransactionCounts(
            np.array([tx for tx, *_ in found], np.int32),
            np.array(which, np.int64),
            np.array([count for _, _, count, _ in found], np.int64),
            tuple(by_place[one] for one in tables),
        )

    def carry(
        self, open_tx: int | None, carried: Mapping[int, tuple[int, Relation]]
    ) -> dict[int, tuple[int, Relation]]:
        """What the transaction that goes on has so far, by table."""
        return {
            table: (count, relation) for tx, table, count, relation in self._merge_carried(carried) if tx == open_tx
        }

    def _merge_carried(self, carried: Mapping[int, tuple[int, Relation]]) -> list[tuple[int, int, int, Relation]]:
        """The groups, and those of transaction 0 that have no change in this piece."""
        found = list(zip(self.tx.tolist(), self.table.tolist(), self.count.tolist(), self.relations, strict=True))
        met = {table for tx, table, *_ in found if tx == 0}
        rest = [(0, table, count, relation) for table, (count, relation) in carried.items() if table not in met]
        return sorted(rest + found, key=lambda group: group[:2])
