"""The rows of one block as a table of cells, whatever relations they are of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from psql_streamer.cells import NO_CELLS, CellTable, Shape, Tuples, ragged
from psql_streamer.errors import ProtocolError
from psql_streamer.model import Relation, RowOp
from psql_streamer.pgoutput.block import Frames, Shapes
from psql_streamer.pgoutput.frames import HEADER
from psql_streamer.pgoutput.tuples import Index, Walked, walk

_NEW, _KEY, _OLD = ord("N"), ord("K"), ord("O")


@dataclass(frozen=True, slots=True)
class RowFrames:
    """The frames of a block that are rows. oids: the relations of the block; which: index into these, by frame."""

    at: Index
    oids: Index
    which: Index

    def by_table(self) -> Mapping[int, Index]:
        """Relation oid -> the frames of its rows, in order."""
        if len(self.oids) < 2:
            return {int(oid): self.at for oid in self.oids}
        order = np.argsort(self.which, kind="stable")
        bounds = np.searchsorted(self.which[order], np.arange(1, len(self.oids)))
        return dict(zip(self.oids.tolist(), np.split(self.at[order], bounds), strict=True))


def find_rows(frames: Frames) -> RowFrames:
    """The rows of a block."""
    at = frames.rows()
    if np.count_nonzero(frames.end[at] - frames.start[at] < HEADER + 8):
        raise ProtocolError("a row message is shorter than its header")
    oids = frames.wire.u32(frames.start[at] + HEADER + 1)
    if not np.count_nonzero(oids != oids[:1]):
        return RowFrames(at, oids[:1], np.zeros(len(at), np.int64))
    distinct, which = np.unique(oids, return_inverse=True)
    return RowFrames(at, distinct, which)


def read_rows(
    frames: Frames, keep: NDArray[np.bool_], shapes: Shapes, rows: RowFrames, table_seqs: Mapping[int, Index]
) -> CellTable:
    """The changes of all tables.

    keep: for each frame whether it is wanted. table_seqs: oid -> for each of its rows which change of the table in its
    transaction it is; empty where nobody counted.
    """
    if not len(rows.at):
        return NO_CELLS
    relations, which = _relations(shapes, rows)
    table_seq = _in_order(rows, table_seqs) if table_seqs else None
    at = rows.at
    if np.count_nonzero(keep) < len(keep):
        kept = keep[at]
        at, which = at[kept], which[kept]
        table_seq = table_seq if table_seq is None else table_seq[kept]
        if not len(at):
            return NO_CELLS
    return _Block(frames, relations, which, at).table(table_seq)


def _relations(shapes: Shapes, rows: RowFrames) -> tuple[Sequence[Relation], NDArray[np.int32]]:
    """The relations of the rows, in each of their shapes, and which of them each row is of."""
    firsts = np.zeros(len(rows.oids), np.int64)
    if len(rows.oids) > 1:
        firsts[rows.which[::-1]] = np.arange(len(rows.at))[::-1]
    relations: list[Relation] = []
    base = np.empty(len(rows.oids), np.int32)
    changed: list[tuple[int, Sequence[int]]] = []
    for number, (oid, first) in enumerate(zip(rows.oids.tolist(), rows.at[firsts].tolist(), strict=True)):
        history = shapes.of_changes(oid, first)
        base[number] = len(relations)
        relations += [relation for _, relation in history]
        if len(history) > 1:
            changed.append((number, [since for since, _ in history[1:]]))
    which = base[rows.which]
    for number, since in changed:
        mine = rows.which == number
        which[mine] += np.searchsorted(since, rows.at[mine]).astype(np.int32)
    return relations, which


def _in_order(rows: RowFrames, table_seqs: Mapping[int, Index]) -> Index:
    """By row, what is known by table."""
    found = np.empty(len(rows.at), np.int64)
    order = np.argsort(rows.which, kind="stable") if len(rows.oids) > 1 else slice(None)
    found[order] = np.concatenate([table_seqs[oid] for oid in rows.oids.tolist()])
    return found


class _Block:
    """Rows of one block. relations: all that there are; which: of each row; rows: their frames."""

    def __init__(self, frames: Frames, relations: Sequence[Relation], which: NDArray[np.int32], rows: Index) -> None:
        self._frames = frames
        self._relations = relations
        self._which = which
        self._rows = rows
        widths = [len(relation.columns) for relation in relations]
        self._width = np.array(widths, np.int64)[which]

    def table(self, table_seq: Index | None) -> CellTable:
        """The rows as cells."""
        frames, rows = self._frames, self._rows
        wire, start, end, op = frames.wire, frames.start[rows], frames.end[rows], frames.tag[rows]
        mark = wire.u8[start + HEADER + 5]
        old = (mark == _KEY) | (mark == _OLD)
        new_first = mark == _NEW
        misplaced = ~(old | new_first) | (old & (op == RowOp.INSERT)) | (new_first & (op == RowOp.DELETE))
        self._refuse(misplaced, "a row message of {} has no tuple where one belongs")
        before_rows = np.flatnonzero(old)
        before = self._walk(start[before_rows] + HEADER + 6, end, before_rows)

        after_at = start + HEADER + 5
        after_at[before_rows] = before.end
        after_rows = np.flatnonzero(op != RowOp.DELETE)
        at = after_at[after_rows]
        missing = np.zeros(len(rows), np.bool_)
        missing[after_rows] = at >= end[after_rows]
        self._refuse(missing, "an update of {} has no new row")
        missing[after_rows] = wire.u8[at] != _NEW
        self._refuse(missing, "an update of {} has no new row")
        after = self._walk(at + 1, end, after_rows)

        after_at[after_rows] = after.end
        self._refuse(after_at != end, "a row of {} is shorter than its message")
        return CellTable(
            tuple(Shape(relation, relation.columns) for relation in self._relations),
            self._which,
            frames.ordinal[rows],
            op,
            frames.seq[rows],
            frames.tx_of(rows),
            Tuples(after_rows, after.begins, after.values, after.unchanged),
            self._old_tuples(before, before_rows, mark[before_rows] == _KEY),
            frames.lsn(rows),
            table_seq,
        )

    def _walk(self, at: Index, end: Index, rows: Index) -> Walked:
        return walk(self._frames.wire, at, end[rows], self._width[rows], lambda tuples: self._name(int(rows[tuples])))

    def _old_tuples(self, walked: Walked, rows: Index, key_only: NDArray[np.bool_]) -> Tuples:
        """A 'K' tuple has only the key; its other columns are sent as NULL and mean nothing."""
        if not key_only.any():
            return Tuples(rows, walked.begins, walked.values, walked.unchanged)
        firsts = np.cumsum([0, *(len(relation.columns) for relation in self._relations)])[:-1]
        is_key = np.array([column.key for relation in self._relations for column in relation.columns], np.bool_)
        absent = ~is_key[ragged(firsts[self._which[rows]], walked.begins)]
        if not key_only.all():
            absent &= np.repeat(key_only, np.diff(walked.begins))
        values = pc.if_else(pa.array(absent), pa.scalar(None, pa.binary()), walked.values)
        if walked.unchanged is not None:
            absent |= walked.unchanged
        return Tuples(rows, walked.begins, values, absent if absent.any() else None)

    def _refuse(self, wrong: NDArray[np.bool_], message: str) -> None:
        if np.count_nonzero(wrong):
            raise ProtocolError(message.format(self._name(int(np.flatnonzero(wrong)[0]))))

    def _name(self, row: int) -> str:
        return str(self._relations[int(self._which[row])])
