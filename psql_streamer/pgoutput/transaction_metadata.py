"""Where transactions begin and end, and counts of changes by table within them, over the blocks of a session."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from psql_streamer.cells import Shape
from psql_streamer.model import Relation, TransactionCounts, TransactionMarks, TransactionMetadata
from psql_streamer.pgoutput.block import Frames, Shapes
from psql_streamer.pgoutput.messages import TruncateMessage
from psql_streamer.pgoutput.rows import RowFrames
from psql_streamer.pgoutput.tuples import Index

_MESSAGES = 0
"""Stands for logical messages in place of a table's OID. No table has PostgreSQL's InvalidOid."""


@dataclass(frozen=True, slots=True)
class BlockMetadata:
    """What one block says of transactions.

    metadata: see Batch.transaction_metadata; None where nobody counts. table_seq: of each row, see Changes.table_seq;
    None where nobody counts. table_seq_by_truncate: of truncates, by frame and oid. table_seq_by_message: of messages,
    by frame.
    """

    metadata: TransactionMetadata | None = None
    table_seq: Index | None = None
    table_seq_by_truncate: Mapping[tuple[int, int], int] = field(default_factory=dict)
    table_seq_by_message: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Changes:
    """Changes of a block, of all tables: the frame, the table's oid, its shape's number (-1: a message)."""

    at: Index
    oid: Index
    shape: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class _Groups:
    """Changes of one table in one transaction: how many there are up to there, and the shape of the last one."""

    oid: Index
    tx: NDArray[np.int32]
    count: Index
    shape: NDArray[np.int32]


class TransactionReader:
    """Reads the blocks of a session, in order.

    Transactions are given by their index in the block; 0 is the one that was open when it began.
    """

    def __init__(self) -> None:
        self._carried: dict[int, tuple[int, Relation | None]] = {}

    def read(
        self,
        frames: Frames,
        keep: NDArray[np.bool_],
        shapes: Shapes,
        rows: RowFrames,
        truncates: Iterable[tuple[int, TruncateMessage]],
        in_transaction: bool,
    ) -> BlockMetadata:
        """keep: for each frame whether its changes are still to be delivered; those that are not count, too.

        truncates: each TRUNCATE's frame, and the message. in_transaction: whether the block ends inside a transaction.
        """
        truncated = [(index, oid) for index, message in truncates for oid in message.oids]
        emitted = np.flatnonzero((frames.tag == ord("M")) & (frames.weight > 0))
        changes = _join_changes(shapes, rows, truncated, emitted)
        numbers, groups = self._number(changes, frames.tx[changes.at])
        table_seq, rest = numbers[: len(rows.at)], numbers[len(rows.at) :].tolist()
        ends = _find_ends(frames, keep)
        counts = self._count_ended(groups, shapes.session.shapes, frames, ends, in_transaction)
        return BlockMetadata(
            TransactionMetadata(_find_begins(frames, keep), ends, counts),
            table_seq,
            dict(zip(truncated, rest, strict=False)),
            dict(zip(emitted.tolist(), rest[len(truncated) :], strict=True)),
        )

    def _number(self, changes: _Changes, tx: NDArray[np.int32]) -> tuple[Index, _Groups]:
        """Which change of its table in its transaction each is, from 0; and how many there are of each table in each.

        tx: the transaction of each change.
        """
        order = np.lexsort((changes.at, changes.oid))
        oid, of_tx = changes.oid[order], tx[order]
        first = np.ones(len(order), np.bool_)
        first[1:] = (oid[1:] != oid[:-1]) | (of_tx[1:] != of_tx[:-1])
        starts = np.flatnonzero(first)
        count = np.diff(np.append(starts, len(order)))
        before = np.zeros(len(starts), np.int64)
        if self._carried:
            open_ones = np.flatnonzero(of_tx[starts] == 0)
            before[open_ones] = [self._carried.get(table, (0,))[0] for table in oid[starts[open_ones]].tolist()]
        numbers = np.empty(len(order), np.int64)
        numbers[order] = np.arange(len(order)) - np.repeat(starts - before, count)
        last = starts + count - 1
        return numbers, _Groups(oid[starts], of_tx[starts], count + before, changes.shape[order][last])

    def _count_ended(
        self, groups: _Groups, shapes: Sequence[Shape], frames: Frames, ends: TransactionMarks, in_transaction: bool
    ) -> TransactionCounts:
        """The counts of the transactions that ended in the block, by transaction and then by OID; those of the one that
        it leaves open are kept for the next.
        """
        ended = np.zeros(len(frames.transactions), np.bool_)
        ended[ends.tx + frames.first] = True
        left_open = len(ended) - 1 if in_transaction else None
        if left_open == 0:  # it goes on through the whole block: what it changed before is not looked at again
            self._carry_on(groups, shapes)
            return TransactionCounts()
        absent = self._select_absent(groups)
        if left_open is not None or ended.any():
            counted = _Counted.from_groups(groups, shapes, absent)
            self._carried = counted.select_transaction(left_open)
            return counted.select_ended(ended, frames.first)
        self._carried = {}
        return TransactionCounts()

    def _carry_on(self, groups: _Groups, shapes: Sequence[Shape]) -> None:
        counted = zip(groups.oid.tolist(), groups.count.tolist(), groups.shape.tolist(), strict=True)
        for oid, count, shape in counted:
            self._carried[oid] = count, None if shape < 0 else shapes[shape].relation

    def _select_absent(self, groups: _Groups) -> dict[int, tuple[int, Relation | None]]:
        """Tables that the open transaction changed before the block, and not in it."""
        if not self._carried:
            return {}
        met = set(groups.oid[groups.tx == 0].tolist())
        return {oid: counted for oid, counted in self._carried.items() if oid not in met}


@dataclass(frozen=True, slots=True)
class _Counted:
    """How many changes transactions have of tables. table: index into tables, of which None stands for messages."""

    oid: Index
    tx: NDArray[np.int32]
    count: Index
    table: Index
    tables: tuple[Relation | None, ...]

    @classmethod
    def from_groups(
        cls, groups: _Groups, shapes: Sequence[Shape], absent: Mapping[int, tuple[int, Relation | None]]
    ) -> _Counted:
        """absent: of the transaction that was open when the block began, tables that are not in the block."""
        known, table = np.unique(groups.shape, return_inverse=True)
        tables = [None if number < 0 else shapes[number].relation for number in known.tolist()]
        nothing = np.zeros(len(absent), np.int32)
        return cls(
            np.concatenate((groups.oid, np.array(list(absent), np.int64))),
            np.concatenate((groups.tx, nothing)),
            np.concatenate((groups.count, np.array([count for count, _ in absent.values()], np.int64))),
            np.concatenate((table, len(tables) + np.arange(len(absent)))),
            (*tables, *(relation for _, relation in absent.values())),
        )

    def select_transaction(self, tx: int | None) -> dict[int, tuple[int, Relation | None]]:
        """oid -> changes of one transaction, and the table; none for None."""
        mine = np.flatnonzero(self.tx == (-1 if tx is None else tx))
        counts = zip(self.count[mine].tolist(), self.table[mine].tolist(), strict=True)
        return {
            oid: (count, self.tables[table])
            for oid, (count, table) in zip(self.oid[mine].tolist(), counts, strict=True)
        }

    def select_ended(self, ended: NDArray[np.bool_], first: int) -> TransactionCounts:
        """The counts of the transactions that ended, by transaction and then by OID.

        first: the transaction that has number 0 in the batch.
        """
        if not ended.any():
            return TransactionCounts()
        order = np.lexsort((self.oid, self.tx))
        order = order[ended[self.tx[order]]]
        return TransactionCounts(self.tx[order] - np.int32(first), self.table[order], self.count[order], self.tables)


def _join_changes(shapes: Shapes, rows: RowFrames, truncated: Sequence[tuple[int, int]], emitted: Index) -> _Changes:
    """Rows, then truncates of a table, then messages."""
    if not truncated and not len(emitted):
        return _Changes(rows.at, rows.oids, rows.shape)
    return _Changes(
        np.concatenate((rows.at, np.array([index for index, _ in truncated], np.int64), emitted)),
        np.concatenate(
            (rows.oids, np.array([oid for _, oid in truncated], np.int64), np.full(len(emitted), _MESSAGES))
        ),
        np.concatenate(
            (
                rows.shape,
                np.array([shapes.number_at(oid, index) for index, oid in truncated], np.int32),
                np.full(len(emitted), -1, np.int32),
            )
        ),
    )


def _find_begins(frames: Frames, keep: NDArray[np.bool_]) -> TransactionMarks:
    at = np.flatnonzero(frames.seq == 0)
    at = at[(frames.weight[at] > 0) & keep[at]]
    return TransactionMarks(frames.number_transactions(at), frames.batch_order[at])


def _find_ends(frames: Frames, keep: NDArray[np.bool_]) -> TransactionMarks:
    """At a Commit, `seq` is how many changes its transaction has."""
    at = np.flatnonzero(frames.tag == ord("C"))
    at = at[(frames.seq[at] > 0) & keep[at]]
    return TransactionMarks(frames.number_transactions(at), frames.batch_order[at])
