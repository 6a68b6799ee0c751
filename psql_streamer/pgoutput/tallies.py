"""Counts changes by table within their transactions, over the blocks of a session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from psql_streamer.model import Relation, Tallies

Index = NDArray[np.int64]

MESSAGES = 0
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

    def finish(self, ended: NDArray[np.bool_], left_open: int | None) -> Tallies:
        """The counts of the transactions that ended in the block, by transaction and then by OID.

        ended: for each transaction. left_open: the one that is open at the block's end.
        """
        block = [*self._block, *self._not_met()]
        self._block = []
        self._carried = {}
        if not block:
            return Tallies()
        if left_open is not None:
            self._carried = {one.oid: _last(one) for one in block if one.tx[-1] == left_open}
        return _tallies(block, ended) if ended.any() else Tallies()

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


def _tallies(block: Sequence[_Counted], ended: NDArray[np.bool_]) -> Tallies:
    if len(block) == 1:
        (one,) = block
        there = ended[one.tx]
        return Tallies(one.tx[there], one.which[there], one.count[there], one.tables)
    before = np.cumsum([0, *(len(one.tables) for one in block)])
    tx = np.concatenate([one.tx for one in block])
    count = np.concatenate([one.count for one in block])
    table = np.concatenate([one.which + first for one, first in zip(block, before.tolist(), strict=False)])
    oid = np.repeat([one.oid for one in block], [len(one.tx) for one in block])
    order = np.lexsort((oid, tx))
    order = order[ended[tx[order]]]
    return Tallies(tx[order], table[order], count[order], tuple(name for one in block for name in one.tables))
