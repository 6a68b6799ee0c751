"""The rows of one block as columns, a table in one shape at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from psql_streamer.errors import ProtocolError
from psql_streamer.model import Changes, Image, Relation, RowOp
from psql_streamer.pgoutput.block import Frames, Shapes
from psql_streamer.pgoutput.frames import HEADER
from psql_streamer.pgoutput.tuples import Index, Walked, walk

_NEW, _KEY, _OLD = ord("N"), ord("K"), ord("O")


def rows_by_table(frames: Frames) -> Mapping[int, Index]:
    """Relation oid -> the frames of its rows, in order."""
    rows = frames.rows()
    if not len(rows):
        return {}
    if np.count_nonzero(frames.end[rows] - frames.start[rows] < HEADER + 8):
        raise ProtocolError("a row message is shorter than its header")
    oids = frames.wire.u32(frames.start[rows] + HEADER + 1)
    if not np.count_nonzero(oids != oids[0]):
        return {int(oids[0]): rows}
    order = np.argsort(oids, kind="stable")
    distinct, first = np.unique(oids[order], return_index=True)
    return dict(zip(distinct.tolist(), np.split(rows[order], first[1:]), strict=True))


def read_rows(
    frames: Frames,
    keep: NDArray[np.bool_],
    shapes: Shapes,
    rows: Mapping[int, Index],
    table_seqs: Mapping[int, Index],
) -> Iterator[Changes]:
    """The changes of every table, in each of its shapes.

    keep: for each frame whether it is wanted. rows: as rows_by_table gives them. table_seqs: oid -> for each of its
    rows which change of the table in its transaction it is; empty where nobody counted.
    """
    everything = np.count_nonzero(keep) == len(keep)
    for oid, of_oid in rows.items():
        history = shapes.of_changes(oid, int(of_oid[0]))
        table_seq = table_seqs.get(oid)
        if not everything:
            kept = keep[of_oid]
            of_oid, table_seq = of_oid[kept], table_seq if table_seq is None else table_seq[kept]
        bounds = [0, *np.searchsorted(of_oid, [since for since, _ in history[1:]]).tolist(), len(of_oid)]
        for (_, relation), begin, end in zip(history, bounds, bounds[1:], strict=False):
            if begin < end:
                counted = None if table_seq is None else table_seq[begin:end]
                yield _decode_rows(frames, relation, of_oid[begin:end], counted)


def _decode_rows(frames: Frames, relation: Relation, rows: Index, table_seq: Index | None) -> Changes:
    wire, start, end, op = frames.wire, frames.start[rows], frames.end[rows], frames.tag[rows]
    table, width = str(relation), len(relation.columns)
    mark = wire.u8[start + HEADER + 5]
    old = (mark == _KEY) | (mark == _OLD)
    new_first = mark == _NEW
    misplaced = ~(old | new_first) | (old & (op == RowOp.INSERT)) | (new_first & (op == RowOp.DELETE))
    if np.count_nonzero(misplaced):
        raise ProtocolError(f"a row message of {table} has no tuple where one belongs")
    before_rows = np.flatnonzero(old)
    before = walk(wire, start[before_rows] + HEADER + 6, end[before_rows], width, table)

    after_at = start + HEADER + 5
    after_at[before_rows] = before.end
    has_after = op != RowOp.DELETE
    after_rows = np.flatnonzero(has_after)
    at = after_at[after_rows]
    if np.count_nonzero(at >= end[after_rows]) or np.count_nonzero(wire.u8[at] != _NEW):
        raise ProtocolError(f"an update of {table} has no new row")
    after = walk(wire, at + 1, end[after_rows], width, table)

    reached = after_at
    reached[after_rows] = after.end
    if np.count_nonzero(reached != end):
        raise ProtocolError(f"a row of {table} is shorter than its message")
    key_only = mark[before_rows] == _KEY
    return Changes(
        relation=relation,
        columns=relation.columns,
        ordinal=frames.ordinal[rows],
        op=op,
        seq=frames.seq[rows],
        tx=frames.tx_of(rows),
        after=_image(after, after_rows),
        before=_old_image(before, before_rows, key_only, relation),
        place=frames.lsn(rows),
        table_seq=table_seq,
    )


def _image(walked: Walked, rows: Index) -> Image:
    return Image(walked.columns, rows, walked.unchanged)


def _old_image(walked: Walked, rows: Index, key_only: NDArray[np.bool_], relation: Relation) -> Image:
    """A 'K' tuple has only the key; its other columns are sent as NULL and mean nothing."""
    if not key_only.any():
        return Image(walked.columns, rows, walked.unchanged)
    absent = dict(walked.unchanged)
    columns = list(walked.columns)
    blank = pa.nulls(len(rows), pa.binary())
    for index, column in enumerate(relation.columns):
        if not column.key:
            absent[index] = key_only | absent.get(index, np.zeros(len(rows), np.bool_))
            columns[index] = blank if key_only.all() else pa.compute.if_else(pa.array(key_only), None, columns[index])
    return Image(tuple(columns), rows, absent)
