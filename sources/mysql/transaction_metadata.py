"""Where transactions begin and end, and how many changes they have of each table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from psql_streamer.binlog.decoded import Decoded
from psql_streamer.cells import CellTable, Shape
from psql_streamer.model import Index, Relation, TransactionCounts, TransactionMarks, TransactionMetadata, Truncate


class TransactionReader:
    """Counts the changes of transactions by table, from one piece of a stream to the next.

    open_counts: of the transaction that was open where the session starts: Relation.id -> changes that are delivered.
    """

    def __init__(self, open_counts: Mapping[str, int]) -> None:
        self._open = dict(open_counts)
        self._relations: dict[str, Relation] = {}

    @property
    def open_counts(self) -> Mapping[str, int]:
        """The same of the transaction that is open now."""
        return self._open

    def read(self, decoded: Decoded, is_open: bool) -> tuple[CellTable, tuple[Truncate, ...], TransactionMetadata]:
        """The changes with their table_seq, and what is said of transactions. is_open: whether the last one goes on."""
        changes, truncates, count = decoded.changes, decoded.truncates, len(decoded.transactions)
        tables = self._number_tables(changes.shapes, truncates)
        ids = list(tables)
        table = np.array([tables[shape.relation.id] for shape in changes.shapes], np.int64)[changes.shape]
        truncated = np.array([tables[one.relation.id] for one in truncates], np.int64)
        tx = np.concatenate([changes.tx.astype(np.int64), np.array([one.tx for one in truncates], np.int64)])
        order = np.concatenate([changes.batch_order, np.array([one.batch_order for one in truncates], np.int64)])
        kind = tx * max(1, len(ids)) + np.concatenate([table, truncated])
        seqs = _rank(kind, order)
        carried = np.zeros(count * max(1, len(ids)), np.int64)
        for name, changed in self._open.items():
            if count and name in tables:
                carried[tables[name]] = changed
        seqs += carried[kind] if len(kind) else 0
        metadata = self._metadata(tx, order, np.bincount(kind, minlength=len(carried)) + carried, ids, count, is_open)
        numbered = tuple(
            replace(one, table_seq=int(seq)) for one, seq in zip(truncates, seqs[changes.rows :].tolist(), strict=True)
        )
        return replace(changes, table_seq=seqs[: changes.rows]), numbered, metadata

    def _number_tables(self, shapes: Sequence[Shape], truncates: tuple[Truncate, ...]) -> dict[str, int]:
        """Every table that the piece or the open transaction has."""
        for relation in (*(shape.relation for shape in shapes), *(one.relation for one in truncates)):
            self._relations[relation.id] = relation
        return {name: number for number, name in enumerate(dict.fromkeys([*self._relations, *self._open]))}

    def _metadata(
        self, tx: Index, order: Index, counted: Index, ids: list[str], count: int, is_open: bool
    ) -> TransactionMetadata:
        if not count:
            return TransactionMetadata()
        of = counted.reshape(count, -1)
        begun = np.zeros(count, np.bool_)
        begun[0] = sum(self._open.values()) > 0
        first, last = np.full(count, -1), np.zeros(count, np.int64)
        if len(tx):
            np.maximum.at(last, tx, order + 1)
            first = np.full(count, np.iinfo(np.int64).max)
            np.minimum.at(first, tx, order)
        here = np.bincount(tx, minlength=count) > 0
        begins = np.flatnonzero(here & ~begun)
        ended = np.arange(count) < count - is_open
        ends = np.flatnonzero(ended & (of.sum(axis=1) > 0))
        self._open = {ids[table]: int(of[-1, table]) for table in np.flatnonzero(of[-1]).tolist()} if is_open else {}
        rows, tables = np.nonzero(of[ends])
        return TransactionMetadata(
            TransactionMarks(begins.astype(np.int32), first[begins].astype(np.int64)),
            TransactionMarks(ends.astype(np.int32), np.maximum.accumulate(last)[ends]),
            TransactionCounts(
                ends[rows].astype(np.int32),
                tables.astype(np.int64),
                of[ends][rows, tables],
                tuple(self._relations.get(name) for name in ids),
            ),
        )


def _rank(kind: Index, order: NDArray[np.int64]) -> Index:
    """For each change how many of its kind come before it."""
    sorted_by = np.lexsort((order, kind))
    kinds = kind[sorted_by]
    starts = np.flatnonzero(np.append(True, kinds[1:] != kinds[:-1])) if len(kinds) else np.empty(0, np.int64)
    ranks = np.empty(len(kind), np.int64)
    ranks[sorted_by] = np.arange(len(kind)) - np.repeat(starts, np.diff(np.append(starts, len(kind))))
    return ranks
