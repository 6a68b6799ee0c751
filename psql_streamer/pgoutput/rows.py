"""The rows of one block as a table of cells, whatever relations they are of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from psql_streamer.cells import NO_CELLS, CellTable, Shape, Tuples, expand_ranges
from psql_streamer.errors import ProtocolError
from psql_streamer.model import RowOp
from psql_streamer.pgoutput.block import Frames, Shapes
from psql_streamer.pgoutput.frames import HEADER
from psql_streamer.pgoutput.tuples import Index, Walked, walk

NEW, KEY, OLD = ord("N"), ord("K"), ord("O")


@dataclass(frozen=True, slots=True)
class RowFrames:
    """The frames of a block that are rows, where each begins, the oid of its relation, and the number of its shape."""

    at: Index
    start: Index
    oids: Index
    shape: NDArray[np.int32]


def find_rows(frames: Frames, shapes: Shapes) -> RowFrames:
    """The rows of a block."""
    at = frames.find_row_frames()
    start = frames.start[at]
    if np.count_nonzero(frames.end[at] - start < HEADER + 8):
        raise ProtocolError("a row message is shorter than its header")
    oids = frames.wire.read_u32(start + HEADER + 1)
    return RowFrames(at, start, oids, _look_up_shapes(shapes, at, oids))


def read_rows(
    frames: Frames, keep: NDArray[np.bool_], shapes: Shapes, rows: RowFrames, table_seq: Index | None
) -> CellTable:
    """The changes of all tables.

    keep: for each frame whether it is wanted. table_seq: for each row which change of its table in its transaction it
    is; None where nobody counted.
    """
    at, start, which = rows.at, rows.start, rows.shape
    if np.count_nonzero(keep) < len(keep):
        kept = keep[at]
        at, start, which = at[kept], start[kept], which[kept]
        table_seq = table_seq if table_seq is None else table_seq[kept]
    return _Block(frames, shapes.session.shapes, which, at, start).read_cells(table_seq) if len(at) else NO_CELLS


def _look_up_shapes(shapes: Shapes, at: Index, oids: Index) -> NDArray[np.int32]:
    """The number of each row's shape. at: the frames of the rows."""
    which = shapes.session.look_up_numbers(oids)
    unknown = np.flatnonzero(which < 0)
    if len(unknown):
        shapes.require_shape(int(oids[unknown[0]]), int(at[unknown[0]]))  # which raises
    for oid, history in shapes.list_changed_shapes().items():
        mine = np.flatnonzero(oids == oid)
        if len(mine):
            shapes.require_shape(oid, int(at[mine[0]]))
            holds = np.searchsorted([since for since, *_ in history[1:]], at[mine])
            which[mine] = np.array([number for *_, number in history], np.int32)[holds]
    return which


class _Block:
    """Rows of one block. shapes: of the session; which: of each row; rows: their frames; start: where these begin."""

    def __init__(
        self, frames: Frames, shapes: Sequence[Shape], which: NDArray[np.int32], rows: Index, start: Index
    ) -> None:
        self._frames = frames
        self._shapes = shapes
        self._which = which
        self._rows = rows
        self._start = start
        self._end = frames.end[rows]
        self._width = self._count_columns()

    def _count_columns(self) -> Index:
        which, shapes = self._which, self._shapes
        if not np.count_nonzero(which != which[0]):
            return np.full(len(which), len(shapes[int(which[0])].columns), np.int64)
        there = np.flatnonzero(np.bincount(which))
        widths = np.zeros(int(there[-1]) + 1, np.int64)
        widths[there] = [len(shapes[at].columns) for at in there.tolist()]
        return widths[which]

    def read_cells(self, table_seq: Index | None) -> CellTable:
        """The rows as cells."""
        frames, rows = self._frames, self._rows
        op, at = frames.tag[rows], self._start + HEADER + 5
        mark = frames.wire.u8[at]
        old = (mark == KEY) | (mark == OLD)
        new_first = mark == NEW
        misplaced = ~(old | new_first) | (old & (op == RowOp.INSERT)) | (new_first & (op == RowOp.DELETE))
        self._refuse(misplaced, "a row message of {} has no tuple where one belongs")
        before_rows = np.flatnonzero(old)
        before = self._walk(at[before_rows] + 1, self._end[before_rows], self._width[before_rows], before_rows)
        if len(before_rows):
            after_rows = np.flatnonzero(op != RowOp.DELETE)
            at[before_rows] = before.end
            after = self._walk_behind(at[after_rows], after_rows)
            at[after_rows] = after.end
        else:
            after_rows = np.arange(len(rows))
            after = self._walk(at + 1, self._end, self._width, after_rows)
            at = after.end
        self._refuse(at != self._end, "a row of {} is shorter than its message")
        return CellTable(
            self._shapes,
            self._which,
            frames.batch_order[rows],
            op,
            frames.seq[rows],
            frames.number_transactions(rows),
            Tuples(after_rows, after.begins, after.values, after.unchanged),
            self._make_old_tuples(before, before_rows, mark[before_rows] == KEY),
            frames.wire.read_u64(self._start + 6),
            table_seq,
        )

    def _walk_behind(self, at: Index, rows: Index) -> Walked:
        """The new tuples of rows that may have old ones. at: behind these."""
        wire, end, missing = self._frames.wire, self._end[rows], np.zeros(len(self._rows), np.bool_)
        for is_missing in (lambda: at >= end, lambda: wire.u8[at] != NEW):
            missing[rows] = is_missing()
            self._refuse(missing, "an update of {} has no new row")
        return self._walk(at + 1, end, self._width[rows], rows)

    def _walk(self, at: Index, end: Index, widths: Index, rows: Index) -> Walked:
        return walk(self._frames.wire, at, end, widths, lambda tuples: self._name_relation(int(rows[tuples])))

    def _make_old_tuples(self, walked: Walked, rows: Index, key_only: NDArray[np.bool_]) -> Tuples:
        """A 'K' tuple has only the key; its other columns are sent as NULL and mean nothing."""
        if not key_only.any() or not len(walked.values):
            return Tuples(rows, walked.begins, walked.values, walked.unchanged)
        place = expand_ranges(np.zeros(len(rows), np.int64), walked.begins)
        shape = np.repeat(self._which[rows], np.diff(walked.begins))
        absent = ~self._flag_keys(shape)[shape, place]
        if not key_only.all():
            absent &= np.repeat(key_only, np.diff(walked.begins))
        values = pc.if_else(pa.array(absent), pa.scalar(None, pa.binary()), walked.values)
        if walked.unchanged is not None:
            absent |= walked.unchanged
        return Tuples(rows, walked.begins, values, absent if absent.any() else None)

    def _flag_keys(self, shape: NDArray[np.int32]) -> NDArray[np.bool_]:
        """By shape and column, whether it is of the key; of the shapes that are there."""
        there = np.flatnonzero(np.bincount(shape)).tolist()
        keys = np.zeros((there[-1] + 1, max(len(self._shapes[at].columns) for at in there)), np.bool_)
        for at in there:
            keys[at, list(self._shapes[at].relation.key_columns)] = True
        return keys

    def _refuse(self, wrong: NDArray[np.bool_], message: str) -> None:
        if np.count_nonzero(wrong):
            raise ProtocolError(message.format(self._name_relation(int(np.flatnonzero(wrong)[0]))))

    def _name_relation(self, row: int) -> str:
        return str(self._shapes[int(self._which[row])].relation)
