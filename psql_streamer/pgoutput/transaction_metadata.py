"""Where transactions begin and end, and counts of changes by table within them, over the blocks of a session."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from psql_streamer.model import Relation, TransactionCounts, TransactionMarks, TransactionMetadata
from psql_streamer.pgoutput.block import Frames, Shapes
from psql_streamer.pgoutput.messages import TruncateMessage
from psql_streamer.pgoutput.tuples import Index

_MESSAGES = 0
"""In place of a table's OID: logical messages. No table has PostgreSQL's InvalidOid."""


@dataclass(frozen=True, slots=True)
class _Counted:
    """A table's changes within one block: for each transaction that has some, how many it has up to there.

    tables: what the table is called; which: index into these.
    """

    oid: int
    tx: NDArray[np.int32]
    count: Index
    which: Index
    tables: tuple[Relation | None, ...]


@dataclass(frozen=True, slots=True)
class BlockMetadata:
    """What one block says of transactions.

    of_batch: as Batch has it, None where nobody counts. of_rows: oid -> for each row which change of its table in its
    transaction it is. of_truncate: the same for a truncate, by frame and oid. of_message: frame -> which of its
    transaction's messages it is.
    """

    of_batch: TransactionMetadata | None = None
    of_rows: Mapping[int, Index] = field(default_factory=dict)
    of_truncate: Mapping[tuple[int, int], int] = field(default_factory=dict)
    of_message: Mapping[int, int] = field(default_factory=dict)


class TransactionReader:
    """Reads the blocks of a session, in order."""

    def __init__(self) -> None:
        self._counts = TableCounts()

    def read(
        self,
        frames: Frames,
        keep: NDArray[np.bool_],
        shapes: Shapes,
        rows: Mapping[int, Index],
        truncates: Iterable[tuple[int, TruncateMessage]],
        in_transaction: bool,
    ) -> BlockMetadata:
        """keep: for each frame whether its changes are still to be delivered; those that are not count, too.

        rows: oid -> the frames of a table's rows. truncates: each TRUNCATE's frame, and the message.
        in_transaction: whether the block ends inside a transaction.
        """
        truncated: dict[int, list[int]] = {}
        for index, message in truncates:
            for oid in message.oids:
                truncated.setdefault(oid, []).append(index)
        of_rows: dict[int, Index] = {}
        of_truncate: dict[tuple[int, int], int] = {}
        for oid in dict.fromkeys((*rows, *truncated)):
            of_table = rows.get(oid, np.empty(0, np.int64))
            at = np.union1d(of_table, truncated[oid]) if oid in truncated else of_table
            found = self._counts.number(oid, at, frames.tx[at], shapes.of_changes(oid, int(at[0])))
            of_rows[oid] = found[np.searchsorted(at, of_table)] if oid in truncated else found
            for index in truncated.get(oid, ()):
                of_truncate[index, oid] = int(found[np.searchsorted(at, index)])
        emitted = np.flatnonzero((frames.tag == ord("M")) & (frames.weight > 0))
        of_message: dict[int, int] = {}
        if len(emitted):
            numbers = self._counts.number(_MESSAGES, emitted, frames.tx[emitted], [(-1, None)])
            of_message = dict(zip(emitted.tolist(), numbers.tolist(), strict=True))
        ends = _ends(frames, keep)
        counts = self._count_ended(frames, ends, in_transaction)
        metadata = TransactionMetadata(_begins(frames, keep), ends, counts)
        return BlockMetadata(metadata, of_rows, of_truncate, of_message)

    def _count_ended(self, frames: Frames, ends: TransactionMarks, in_transaction: bool) -> TransactionCounts:
        ended = np.zeros(len(frames.transactions), np.bool_)
        ended[ends.tx + frames.first] = True
        counts = self._counts.finish(ended, len(ended) - 1 if in_transaction else None)
        return replace(counts, tx=counts.tx - np.int32(frames.first))


class TableCounts:
    """`number` every table of a block, then `finish` the block.

    Transactions are given by their index in the block; 0 is the one that was open when it began.
    """

    def __init__(self) -> None:
        self._block: list[_Counted] = []
        self._carried: dict[int, tuple[int, Relation | None]] = {}

    def number(
        self, oid: int, at: Index, tx: NDArray[np.int32], shapes: Sequence[tuple[int, Relation | None]]
    ) -> Index:
        """Which change of its table in its transaction each is, from 0.

        at: the frames of all the table's changes in the block, in order. tx: the transaction of each.
        shapes: the table's, each with the frame from which it holds.
        """
        bounds = np.flatnonzero(tx[1:] != tx[:-1]) + 1
        starts, ends = np.append(0, bounds), np.append(bounds, len(at))
        count = ends - starts
        numbers: Index = np.arange(len(at))
        if len(bounds):
            numbers -= np.repeat(starts, count)
        if tx[0] == 0 and oid in self._carried:
            carried, _ = self._carried[oid]
            numbers[: ends[0]] += carried
            count[0] += carried
        which = np.searchsorted([since for since, _ in shapes[1:]], at[ends - 1])
        self._block.append(_Counted(oid, tx[starts], count, which, tuple(shape for _, shape in shapes)))
        return numbers

    def finish(self, ended: NDArray[np.bool_], left_open: int | None) -> TransactionCounts:
        """The counts of the transactions that ended in the block, by transaction and then by OID.

        ended: for each transaction. left_open: the one that is open at the block's end.
        """
        block = [*self._block, *self._not_met()]
        self._block = []
        self._carried = {}
        if not block:
            return TransactionCounts()
        if left_open is not None:
            self._carried = {one.oid: _last(one) for one in block if one.tx[-1] == left_open}
        return _count(block, ended) if ended.any() else TransactionCounts()

    def _not_met(self) -> list[_Counted]:
        """Tables that the open transaction changed before the block, and not in it."""
        met = {one.oid for one in self._block if one.tx[0] == 0}
        only = np.zeros(1, np.int64)
        return [
            _Counted(oid, np.zeros(1, np.int32), np.array([count], np.int64), only, (relation,))
            for oid, (count, relation) in self._carried.items()
            if oid not in met
        ]


def _last(one: _Counted) -> tuple[int, Relation | None]:
    return int(one.count[-1]), one.tables[one.which[-1]]


def _count(block: Sequence[_Counted], ended: NDArray[np.bool_]) -> TransactionCounts:
    if len(block) == 1:
        (one,) = block
        there = ended[one.tx]
        return TransactionCounts(one.tx[there], one.which[there], one.count[there], one.tables)
    before = np.cumsum([0, *(len(one.tables) for one in block)])
    tx = np.concatenate([one.tx for one in block])
    count = np.concatenate([one.count for one in block])
    table = np.concatenate([one.which + first for one, first in zip(block, before.tolist(), strict=False)])
    oid = np.repeat([one.oid for one in block], [len(one.tx) for one in block])
    order = np.lexsort((oid, tx))
    order = order[ended[tx[order]]]
    return TransactionCounts(tx[order], table[order], count[order], tuple(name for one in block for name in one.tables))


def _begins(frames: Frames, keep: NDArray[np.bool_]) -> TransactionMarks:
    at = np.flatnonzero(frames.seq == 0)
    at = at[(frames.weight[at] > 0) & keep[at]]
    return TransactionMarks(frames.tx_of(at), frames.ordinal[at])


def _ends(frames: Frames, keep: NDArray[np.bool_]) -> TransactionMarks:
    """At a Commit, `seq` is how many changes its transaction has."""
    at = np.flatnonzero(frames.tag == ord("C"))
    at = at[(frames.seq[at] > 0) & keep[at]]
    return TransactionMarks(frames.tx_of(at), frames.ordinal[at])
