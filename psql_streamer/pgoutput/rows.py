"""The rows of one block as a table of cells, whatever relations they are of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from psql_streamer.cells import NO_CELLS, CellTable, Shape, Tuples, ragged
from psql_streamer.errors import ProtocolError
from psql_streamer.model import RowOp
from psql_streamer.pgoutput.block import Frames, Shapes
from psql_streamer.pgoutput.frames import HEADER
from psql_streamer.pgoutput.tuples import Index, Walked, walk

NEW, KEY, OLD = ord("N"), ord("K"), ord("O")


@dataclass(frozen=True, slots=True)
class RowFrames:
    """The frames of a block that are rows, the oid of the relation of each, and the number of its shape."""

    at: Index
    oids: Index
    shape: NDArray[np.int32]


def find_rows(frames: Frames, shapes: Shapes) -> RowFrames:
    """The rows of a block."""
    at = frames.rows()
    if np.count_nonzero(frames.end[at] - frames.start[at] < HEADER + 8):
        raise ProtocolError("a row message is shorter than its header")
    oids = frames.wire.u32(frames.start[at] + HEADER + 1)
    return RowFrames(at, oids, _shapes_of(shapes, at, oids))


def read_rows(
    frames: Frames, keep: NDArray[np.bool_], shapes: Shapes, rows: RowFrames, table_seq: Index | None
) -> CellTable:
    """The changes of all tables.

    keep: for each frame whether it is wanted. table_seq: for each row which change of its table in its transaction it
    is; None where nobody counted.
    """
    at, which = rows.at, rows.shape
    if np.count_nonzero(keep) < len(keep):
        kept = keep[at]
        at, which = at[kept], which[kept]
        table_seq = table_seq if table_seq is None else table_seq[kept]
    return _Block(frames, shapes.session.shapes, which, at).table(table_seq) if len(at) else NO_CELLS


def _shapes_of(shapes: Shapes, at: Index, oids: Index) -> NDArray[np.int32]:
    """The number of each row's shape. at: the frames of the rows."""
    which = shapes.session.numbers_of(oids)
    unknown = np.flatnonzero(which < 0)
    if len(unknown):
        shapes.select_changes(int(oids[unknown[0]]), int(at[unknown[0]]))  # which raises
    for oid, history in shapes.changed().items():
        mine = np.flatnonzero(oids == oid)
        if len(mine):
            shapes.select_changes(oid, int(at[mine[0]]))
            holds = np.searchsorted([since for since, *_ in history[1:]], at[mine])
            which[mine] = np.array([number for *_, number in history], np.int32)[holds]
    return which


class _Block:
    """Rows of one block. shapes: of the session; which: of each row; rows: their frames."""

    def __init__(self, frames: Frames, shapes: Sequence[Shape], which: NDArray[np.int32], rows: Index) -> None:
        self._frames = frames
        self._shapes = shapes
        self._which = which
        self._rows = rows
        there = np.flatnonzero(np.bincount(which))
        widths = np.zeros(int(there[-1]) + 1, np.int64)
        widths[there] = [len(shapes[at].columns) for at in there.tolist()]
        self._width = widths[which]

    def table(self, table_seq: Index | None) -> CellTable:
        """The rows as cells."""
        frames, rows = self._frames, self._rows
        wire, start, end, op = frames.wire, frames.start[rows], frames.end[rows], frames.tag[rows]
        mark = wire.u8[start + HEADER + 5]
        old = (mark == KEY) | (mark == OLD)
        new_first = mark == NEW
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
        missing[after_rows] = wire.u8[at] != NEW
        self._refuse(missing, "an update of {} has no new row")
        after = self._walk(at + 1, end, after_rows)

        after_at[after_rows] = after.end
        self._refuse(after_at != end, "a row of {} is shorter than its message")
        return CellTable(
            self._shapes,
            self._which,
            frames.batch_order[rows],
            op,
            frames.seq[rows],
            frames.tx_of(rows),
            Tuples(after_rows, after.begins, after.values, after.unchanged),
            self._old_tuples(before, before_rows, mark[before_rows] == KEY),
            frames.lsn(rows),
            table_seq,
        )

    def _walk(self, at: Index, end: Index, rows: Index) -> Walked:
        return walk(self._frames.wire, at, end[rows], self._width[rows], lambda tuples: self._name(int(rows[tuples])))

    def _old_tuples(self, walked: Walked, rows: Index, key_only: NDArray[np.bool_]) -> Tuples:
        """A 'K' tuple has only the key; its other columns are sent as NULL and mean nothing."""
        if not key_only.any():
            return Tuples(rows, walked.begins, walked.values, walked.unchanged)
        place = ragged(np.zeros(len(rows), np.int64), walked.begins)
        shape = np.repeat(self._which[rows], np.diff(walked.begins))
        absent = ~self._flags_of_keys(shape)[shape, place]
        if not key_only.all():
            absent &= np.repeat(key_only, np.diff(walked.begins))
        values = pc.if_else(pa.array(absent), pa.scalar(None, pa.binary()), walked.values)
        if walked.unchanged is not None:
            absent |= walked.unchanged
        return Tuples(rows, walked.begins, values, absent if absent.any() else None)

    def _flags_of_keys(self, shape: NDArray[np.int32]) -> NDArray[np.bool_]:
        """By shape and column, whether it is of the key; of the shapes that are there."""
        there = np.flatnonzero(np.bincount(shape)).tolist()
        keys = np.zeros((there[-1] + 1, max(len(self._shapes[at].columns) for at in there)), np.bool_)
        for at in there:
            keys[at, list(self._shapes[at].relation.key_columns)] = True
        return keys

    def _refuse(self, wrong: NDArray[np.bool_], message: str) -> None:
        if np.count_nonzero(wrong):
            raise ProtocolError(message.format(self._name(int(np.flatnonzero(wrong)[0]))))

    def _name(self, row: int) -> str:
        return str(self._shapes[int(self._which[row])].relation)
