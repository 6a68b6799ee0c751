"""One block of the stream: its frames, and the shapes that tables have in it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from psql_streamer.cells import Shape
from psql_streamer.errors import ProtocolError
from psql_streamer.model import Relation, RowOp, Transactions
from psql_streamer.pgoutput.frames import HEADER
from psql_streamer.pgoutput.messages import parse_oid
from psql_streamer.pgoutput.tuples import Index, Wire

KEEPALIVE_FRAME = 23
"""Bytes of a keepalive: 'd', length, 'k', WAL end, send time, whether an answer is wanted."""

POSTGRES_EPOCH_US = 946_684_800_000_000
"""2000-01-01 in microseconds since 1970-01-01."""

_ROW_OPS = (RowOp.INSERT, RowOp.UPDATE, RowOp.DELETE)

_STREAM_ABORT = ord("A")
_STREAM_ABORT_FRAME = HEADER + 9
"""A transaction and a subtransaction of it, by their numbers."""

_KNOWN = np.isin(np.arange(256), np.frombuffer(b"ABCORYIUDTM", np.uint8))
_IS_ROW = np.isin(np.arange(256), _ROW_OPS)


@dataclass(frozen=True, slots=True)
class Frames:
    """The frames of one block, and for each its transaction and place in it."""

    wire: Wire
    start: Index
    end: Index
    tag: NDArray[np.uint8]  # pgoutput's message byte; 0 for a keepalive
    weight: Index  # how many changes it is
    tx: NDArray[np.int32]
    seq: Index
    batch_order: Index
    transactions: Transactions
    first: int  # 1 when transaction 0 is only a placeholder, since none was open when the block began

    def drop_placeholder(self) -> Transactions:
        """The transactions without the placeholder; rows point into these."""
        of, first = self.transactions, self.first
        origins = {tx - first: origin for tx, origin in of.origins.items()}
        ids = None if of.ids is None else of.ids[first:]
        return Transactions(of.commit[first:], of.commit_ts[first:], ids, origins)

    def number_transactions(self, at: Index) -> NDArray[np.int32]:
        return self.tx[at] - np.int32(self.first)

    def find_row_frames(self) -> Index:
        """The frames that are rows."""
        return np.flatnonzero(_IS_ROW[self.tag])

    def read_body(self, index: int) -> bytes:
        """The pgoutput message at `index`, without its type byte."""
        return bytes(self.view_body(index))

    def view_body(self, index: int) -> memoryview:
        """As read_body, where it lies: it may have 1 GB."""
        return memoryview(self.wire.data)[int(self.start[index]) + HEADER + 1 : int(self.end[index])]

    def read_lsns(self, at: Index) -> NDArray[np.uint64]:
        return self.wire.read_u64(self.start[at] + 6)

    def read_send_times(self, at: Index) -> NDArray[np.int64]:
        """Microseconds since 2000-01-01 UTC."""
        return self.wire.read_u64(self.start[at] + 22).view(np.int64)


class SessionShapes:
    """The shapes that relations have had in a session, numbered; a number stands for the same shape for ever."""

    def __init__(self) -> None:
        self.shapes: list[Shape] = []
        self.current: dict[int, Relation] = {}
        self._numbers: dict[int, int] = {}
        self._by_oid: tuple[Index, NDArray[np.int32]] | None = None

    def add(self, relation: Relation) -> int:
        """The number of a new shape of a relation, which holds from now on."""
        oid = parse_oid(relation)
        self._numbers[oid] = len(self.shapes)
        self.current[oid] = relation
        self.shapes.append(Shape(relation, relation.columns))
        self._by_oid = None
        return self._numbers[oid]

    def number(self, oid: int) -> int:
        """The number of the shape that a relation has now."""
        return self._numbers[oid]

    def look_up_numbers(self, oids: Index) -> NDArray[np.int32]:
        """The same of many; -1 for a relation that has none."""
        if len(oids) and not np.count_nonzero(oids != oids[0]):
            return np.full(len(oids), self._numbers.get(int(oids[0]), -1), np.int32)
        if self._by_oid is None:
            # Sorting all of them for a few rows would be the dearest part of a block.
            if len(oids) < len(self._numbers):
                return np.array([self._numbers.get(oid, -1) for oid in oids.tolist()], np.int32)
            known = np.array(sorted(self._numbers), np.int64)
            self._by_oid = known, np.array([self._numbers[oid] for oid in known.tolist()], np.int32)
        known, numbers = self._by_oid
        if not len(known):
            return np.full(len(oids), -1, np.int32)
        at = np.minimum(np.searchsorted(known, oids), len(known) - 1)
        return np.where(known[at] == oids, numbers[at], np.int32(-1))

    def forget_old(self) -> None:
        """Once they are many, go on with another list, of the shapes that hold. Batches keep theirs.

        Between blocks only, because a block may have rows in shapes that no longer hold at its end.
        """
        if len(self.shapes) > _MOST_OLD * (len(self.current) + _FEW_RELATIONS):
            self.shapes = [Shape(relation, relation.columns) for relation in self.current.values()]
            self._numbers = {oid: number for number, oid in enumerate(self.current)}
            self._by_oid = None


_MOST_OLD, _FEW_RELATIONS = 4, 64
"""Shapes for each relation, behind which those that no longer hold are forgotten."""


class Shapes:
    """The shapes that relations have within one block; keeps those of the session up to date for the next one."""

    def __init__(self, session: SessionShapes) -> None:
        session.forget_old()
        self.session = session
        self._changed: dict[int, list[tuple[int, Relation, int]]] = {}

    def change(self, index: int, shape: Relation) -> None:
        """From frame `index` on the relation has this shape."""
        oid = parse_oid(shape)
        history = self._changed.setdefault(oid, [])
        if not history and oid in self.session.current:
            history.append((-1, self.session.current[oid], self.session.number(oid)))
        history.append((index, shape, self.session.add(shape)))

    def list_changed_shapes(self) -> Mapping[int, Sequence[tuple[int, Relation, int]]]:
        """oid -> the shapes that it had before and since, with the frames from which they hold, and their numbers."""
        return self._changed

    def number_at(self, oid: int, index: int) -> int:
        """The number of the shape that a relation has at a frame. ProtocolError as require_shape."""
        self.require_shape(oid, index)
        return self._find_change(oid, index)[2] if oid in self._changed else self.session.number(oid)

    def shape_at(self, oid: int, index: int) -> Relation:
        """The shape that a relation has at a frame. ProtocolError as require_shape."""
        self.require_shape(oid, index)
        return self._find_change(oid, index)[1] if oid in self._changed else self.session.current[oid]

    def require_shape(self, oid: int, index: int) -> None:
        """ProtocolError when a relation has no shape at a frame."""
        known = self._changed[oid][0][0] <= index if oid in self._changed else oid in self.session.current
        if not known:
            raise ProtocolError(f"a change of relation {oid} arrived before its Relation message")

    def _find_change(self, oid: int, index: int) -> tuple[int, Relation, int]:
        """The last one before a frame."""
        history = self._changed[oid]
        return history[bisect_left(history, index, key=lambda change: change[0]) - 1]


def read_tags(wire: Wire, start: Index, end: Index) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """For each frame 'w' or 'k', and the pgoutput message byte (0 for a keepalive)."""
    size = end - start
    if np.count_nonzero(size < 6):
        raise ProtocolError("an empty CopyData message in the replication stream")
    kind = wire.u8[start + 5]
    data = kind == ord("w")
    alive = kind == ord("k")
    if np.count_nonzero(data | alive) < len(kind):
        raise ProtocolError(f"unknown message {chr(int(kind[~(data | alive)][0]))!r} in the replication stream")
    if np.count_nonzero((size <= HEADER) & data) or np.count_nonzero(size[alive] != KEEPALIVE_FRAME):
        raise ProtocolError("a message of the replication stream has an impossible length")
    if np.count_nonzero(alive):
        tag = np.zeros(len(start), np.uint8)
        tag[data] = wire.u8[start[data] + HEADER]
    else:
        tag = wire.u8[start + HEADER]
    strange = data & ~_KNOWN[tag]
    if np.count_nonzero(strange):
        raise ProtocolError(
            f"unknown pgoutput message {chr(int(tag[strange][0]))!r}",
            "this server speaks a newer protocol than version 1 asks for",
        )
    _check_stream_aborts(size[tag == _STREAM_ABORT])
    return kind, tag


def _check_stream_aborts(size: Index) -> None:
    """Since version 18 a walsender says of a large transaction, or a part of one, that was rolled back before it was
    decoded that what was streamed of it is void, though it streams nothing before a commit in version 1 of the protocol
    (PostgreSQL source, ReorderBufferCheckAndTruncateAbortedTXN). There is nothing to take back.
    """
    if np.count_nonzero(size != _STREAM_ABORT_FRAME):
        raise ProtocolError("a Stream Abort message does not have pgoutput's layout")


def count_changes(wire: Wire, start: Index, end: Index, tag: NDArray[np.uint8]) -> Index:
    """How many changes each frame is: a row 1, a TRUNCATE its relations, a transactional message 1."""
    weight = _IS_ROW[tag].astype(np.int64)
    for kind, least in ((ord("T"), 6), (ord("M"), 14)):
        found = np.flatnonzero(tag == kind)
        if len(found):
            if np.count_nonzero(end[found] - start[found] < HEADER + least):
                raise ProtocolError(f"a {chr(kind)!r} message is shorter than its header")
            at = start[found] + HEADER + 1
            weight[found] = wire.read_u32(at) if kind == ord("T") else wire.u8[at] & 1
    return weight
