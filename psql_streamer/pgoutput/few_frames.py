"""A small block read frame by frame: whole transactions of rows in known shapes, which is what a quiet stream brings.

A block that holds anything else (another message, a transaction that goes on, a byte that is not as it should be) is
read as blocks of any size are: that code has the words for what is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from struct import Struct, error

from psql_streamer.few_rows import ABSENT, Cell, FewRow, FewTransaction, RowCells
from psql_streamer.model import RowOp
from psql_streamer.pgoutput.block import KEEPALIVE_FRAME, POSTGRES_EPOCH_US, SessionShapes
from psql_streamer.pgoutput.frames import HEADER
from psql_streamer.pgoutput.rows import KEY, NEW, OLD
from psql_streamer.pgoutput.tuples import NULL, TEXT, UNCHANGED

_BEGIN, _COMMIT = Struct(">QqI"), Struct(">BQQq")
_U16, _U32, _U64 = Struct(">H"), Struct(">I"), Struct(">Q")

_XLOG_DATA_KIND, _KEEPALIVE_KIND = ord("w"), ord("k")
_BEGIN_TAG, _COMMIT_TAG = ord("B"), ord("C")

_KIND, _LSN = 5, 6
"""Where in a frame CopyData's payload begins, which says what it is; and behind that, an LSN."""

_MESSAGE = HEADER + 1
"""Where pgoutput's message begins, behind the byte that says which it is."""

_LAST_MOMENT = 2**63 - 1 - POSTGRES_EPOCH_US
"""Behind it, microseconds since 1970 do not fit into 64 bits."""

_OPS: Mapping[int | None, RowOp] = {int(op): op for op in (RowOp.INSERT, RowOp.UPDATE, RowOp.DELETE)}


@dataclass(slots=True)
class FewFrames:
    """Transactions, and their rows.

    end: of the last commit; alive: the highest WAL end of keepalives behind it. 0: there is none.
    """

    transactions: list[FewTransaction] = field(default_factory=list)
    rows: list[FewRow] = field(default_factory=list)
    end: int = 0
    alive: int = 0


def read_few(data: bytes | bytearray | memoryview, starts: Sequence[int], shapes: SessionShapes) -> FewFrames | None:
    """The frames that begin at these places; None when they are not such a block. No transaction may be open."""
    try:
        return _Reading(bytes(data), shapes).read(starts)
    except (_Unusual, IndexError, KeyError, error):
        return None


class _Unusual(Exception):
    """The block holds something else."""


class _Reading:
    def __init__(self, data: bytes, shapes: SessionShapes) -> None:
        self._data = data
        self._shapes = shapes
        self._found = FewFrames()
        self._open = False
        self._seq = 0

    def read(self, starts: Sequence[int]) -> FewFrames:
        data, found = self._data, self._found
        for start, end in pairwise([*starts, len(data)]):
            if data[start + _KIND] != _KEEPALIVE_KIND:
                self._read_message(start, end)
            elif end - start == KEEPALIVE_FRAME and not self._open:
                # A server whose changes are confirmed late sends one or two behind every transaction (PostgreSQL
                # source, WalSndWaitForWal).
                found.alive = max(found.alive, *_U64.unpack_from(data, start + _LSN))
            else:
                raise _Unusual
        if self._open:
            raise _Unusual
        return self._found

    def _read_message(self, start: int, end: int) -> None:
        data = self._data
        tag = data[start + HEADER] if data[start + _KIND] == _XLOG_DATA_KIND and end - start > HEADER else None
        if tag in _OPS and self._open:
            self._read_row(_OPS[tag], start, end)
        elif tag == _BEGIN_TAG and end - start == _MESSAGE + _BEGIN.size and not self._open:
            self._begin(*_BEGIN.unpack_from(data, start + _MESSAGE))
        elif tag == _COMMIT_TAG and end - start == _MESSAGE + _COMMIT.size and self._open:
            self._commit(*_COMMIT.unpack_from(data, start + _MESSAGE))
        else:
            raise _Unusual

    def _begin(self, commit_lsn: int, moment: int, xid: int) -> None:
        if moment > _LAST_MOMENT:
            raise _Unusual
        self._found.transactions.append(FewTransaction(commit_lsn, moment + POSTGRES_EPOCH_US, xid))
        self._found.alive, self._open, self._seq = 0, True, 0

    def _commit(self, _flags: int, commit_lsn: int, end: int, _moment: int) -> None:
        if commit_lsn != self._found.transactions[-1].commit:
            raise _Unusual
        self._found.end, self._open = end, False

    def _read_row(self, op: RowOp, start: int, end: int) -> None:
        if end - start < _MESSAGE + 5:
            raise _Unusual
        [oid] = _U32.unpack_from(self._data, start + _MESSAGE)
        shape = self._shapes.number(oid)
        mark, at = self._data[start + _MESSAGE + 4], start + _MESSAGE + 5
        before, after = None, None
        if mark != NEW:
            before, at = self._read_old(op, mark, shape, at, end)
            if op is RowOp.UPDATE:
                mark, at = self._data[at], at + 1
        if op is not RowOp.DELETE:
            if mark != NEW:
                raise _Unusual
            after, at = self._read_tuple(shape, at, end)
        if at != end or (after is None and before is None):
            raise _Unusual
        [place] = _U64.unpack_from(self._data, start + _LSN)
        rows, tx = self._found.rows, len(self._found.transactions) - 1
        rows.append(FewRow(shape, len(rows), op, self._seq, tx, place, after, before))
        self._seq += 1

    def _read_old(self, op: RowOp, mark: int, shape: int, at: int, end: int) -> tuple[RowCells, int]:
        """A 'K' tuple has only the key; its other columns are sent as NULL and mean nothing."""
        if op is RowOp.INSERT or mark not in (KEY, OLD):
            raise _Unusual
        cells, at = self._read_tuple(shape, at, end)
        if mark == KEY:
            key = self._shapes.shapes[shape].relation.key_columns
            cells = tuple(cell if place in key else ABSENT for place, cell in enumerate(cells))
        return cells, at

    def _read_tuple(self, shape: int, at: int, end: int) -> tuple[RowCells, int]:
        """The cells, and where they end. Not beyond the frame: a broken row must not take bytes of its neighbour."""
        data = self._data
        width = len(self._shapes.shapes[shape].columns)
        if at + 2 > end or _U16.unpack_from(data, at)[0] != width:
            raise _Unusual
        at += 2
        cells: list[Cell] = []
        for _ in range(width):
            kind, at = data[at], at + 1
            if kind == TEXT:
                value = at + 4
                at = value + int.from_bytes(data[value - 4 : value], "big")
                cells.append(data[value:at])
            elif kind == NULL:
                cells.append(None)
            elif kind == UNCHANGED:
                cells.append(ABSENT)
            else:
                raise _Unusual
            if at > end:
                raise _Unusual
        return tuple(cells), at
