"""Frames in, micro-batches out: relation cache, transaction state, and where a restart may resume."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from psql_streamer.errors import ProtocolError
from psql_streamer.model import (
    Batch,
    Bounds,
    Changes,
    Column,
    Image,
    LogicalMessage,
    Lsn,
    Op,
    Origin,
    Position,
    Relation,
    ReplicaIdentity,
    SchemaChange,
    Tallies,
    Transactions,
    Truncate,
)
from psql_streamer.pgoutput import messages
from psql_streamer.pgoutput.frames import HEADER
from psql_streamer.pgoutput.tallies import MESSAGES, TableCounts
from psql_streamer.pgoutput.tuples import Index, Walked, Wire, walk
from psql_streamer.pgoutput.types import BY_OID
from psql_streamer.pgtype import PgType

Resolve: TypeAlias = Callable[[int], PgType | None]
PrimaryKey: TypeAlias = Callable[[Relation], Collection[str]]

_POSTGRES_EPOCH_US = 946_684_800_000_000  # 2000-01-01 in microseconds since 1970-01-01
_BEGIN_FRAME = HEADER + 21
_COMMIT_FRAME = HEADER + 26
_KEEPALIVE_FRAME = 23
_ROW_OPS = (Op.INSERT, Op.UPDATE, Op.DELETE)
_NEW, _KEY, _OLD = ord("N"), ord("K"), ord("O")
_KNOWN = np.isin(np.arange(256), np.frombuffer(b"BCORYIUDTM", np.uint8))
_IS_ROW = np.isin(np.arange(256), _ROW_OPS)


@dataclass(slots=True)
class _OpenTransaction:
    commit_lsn: int
    xid: int
    commit_ts: int
    changes: int  # how many of its changes have been seen


@dataclass(frozen=True, slots=True)
class _Frames:
    """The frames of one block, and for each its transaction and place in it."""

    wire: Wire
    start: Index
    end: Index
    tag: NDArray[np.uint8]  # pgoutput's message byte; 0 for a keepalive
    weight: Index  # how many changes it is
    tx: NDArray[np.int32]
    seq: Index
    ordinal: Index
    transactions: Transactions
    first: int  # 1 when transaction 0 is only a placeholder, since none was open when the block began

    def shown(self) -> Transactions:
        """The transactions without the placeholder; rows point into these."""
        of, first = self.transactions, self.first
        return Transactions(of.commit_lsn[first:], of.xid[first:], of.commit_ts[first:])

    def tx_of(self, at: Index) -> NDArray[np.int32]:
        return self.tx[at] - np.int32(self.first)

    def body(self, index: int) -> bytes:
        """The pgoutput message at `index`, without its type byte."""
        return bytes(self.wire.data[int(self.start[index]) + HEADER + 1 : int(self.end[index])])

    def lsn(self, at: Index) -> NDArray[np.uint64]:
        return self.wire.u64(self.start[at] + 6)


_Truncated: TypeAlias = tuple[int, messages.TruncateMessage]
"""A TRUNCATE's frame, and the message."""


@dataclass(frozen=True, slots=True)
class _Numbers:
    """Which change of its table in its transaction each row is, by oid, and each truncate, by frame and oid."""

    of_rows: dict[int, Index]
    of_truncate: dict[tuple[int, int], int]


class _Shapes:
    """The shapes that relations have within one block; keeps `current` up to date for the next one."""

    def __init__(self, current: dict[int, Relation]) -> None:
        self._current = current
        self._changed: dict[int, list[tuple[int, Relation]]] = {}

    def change(self, index: int, shape: Relation) -> None:
        """From frame `index` on the relation has this shape."""
        self._changed.setdefault(shape.oid, self.history(shape.oid)).append((index, shape))
        self._current[shape.oid] = shape

    def history(self, oid: int) -> list[tuple[int, Relation]]:
        """The shapes in order, each with the frame index from which it holds; empty when none is known."""
        if oid in self._changed:
            return self._changed[oid]
        return [(-1, self._current[oid])] if oid in self._current else []


def _unknown_key(_: Relation) -> tuple[str, ...]:
    return ()


class Decoder:
    """Decodes the blocks of one replication session, in order.

    resume: where the session was started. Changes that it counts as durable are skipped when the server sends
    their transaction again. One block gives one Batch, whose position may be stored when the batch and all
    before it are durable.
    resolve: what a type's OID stands for, None where nobody knows; asked when a Relation message brings a new shape.
    primary_key: the names of a relation's primary key columns, asked for every Relation message of identity FULL.
    remembered: oid -> the shape that a table had at `resume`; what differs from it is a schema change.
    """

    def __init__(
        self,
        origin: Origin,
        resume: Position,
        resolve: Resolve = BY_OID.get,
        primary_key: PrimaryKey = _unknown_key,
        remembered: Mapping[int, Relation] | None = None,
    ) -> None:
        self._origin = origin
        self._resume = resume
        self._resolve = resolve
        self._primary_key = primary_key
        self._lsn = resume.lsn
        self._open: _OpenTransaction | None = None
        self._relations: dict[int, Relation] = {}
        # Never what rows are decoded by: a session sends a table's shape before its first row.
        self._remembered = dict(remembered or {})
        self._counts = TableCounts()

    @property
    def in_transaction(self) -> bool:
        """Whether the blocks so far end inside a transaction."""
        return self._open is not None

    def decode(
        self, data: bytes | bytearray, offsets: Sequence[int] | NDArray[np.uint32], received_at: float = 0.0
    ) -> Batch:
        """One block of whole frames; received_at goes into the Batch.

        ProtocolError when a byte of it is not what the protocol says.
        """
        frames = self._read_frames(Wire(data), np.asarray(offsets, dtype=np.int64))
        keep = self._not_yet_durable(frames)
        shapes = _Shapes(self._relations)
        schema_changes = tuple(self._read_relations(frames, keep, shapes))
        rows, truncates = _rows_by_table(frames), _read_truncates(frames)
        tallies = self._count(frames, shapes, rows, truncates)
        ends = _ends(frames, keep)
        return Batch(
            origin=self._origin,
            position=self._position(),
            transactions=frames.shown(),
            changes=tuple(_read_rows(frames, keep, shapes, rows, tallies)),
            truncates=tuple(_truncates(frames, keep, shapes, truncates, tallies)),
            messages=tuple(_read_messages(frames, keep, self._resume.lsn)),
            schema_changes=schema_changes,
            begins=_begins(frames, keep),
            ends=ends,
            tallies=self._tallies(frames, ends),
            nbytes=2 * len(data),
            received_at=received_at,
        )

    def _position(self) -> Position:
        resume, held = self._resume, self._open
        partly = resume.changes and self._lsn <= resume.commit_lsn
        if partly and (held is None or held.commit_lsn == resume.commit_lsn):
            # The transaction that was partly durable has not come again as far as that.
            return Position(Lsn(self._lsn), resume.commit_lsn, max(resume.changes, held.changes if held else 0))
        if held is None or not held.changes:
            return Position(Lsn(self._lsn))
        return Position(Lsn(self._lsn), Lsn(held.commit_lsn), held.changes)

    # Frames and transactions.

    def _read_frames(self, wire: Wire, start: Index) -> _Frames:
        end = np.append(start[1:], len(wire)) if len(start) else start
        kind, tag = _read_tags(wire, start, end)
        weight = _count_changes(wire, start, end, tag)
        begins, commits = np.flatnonzero(tag == ord("B")), np.flatnonzero(tag == ord("C"))
        self._check_nesting(tag, weight)
        transactions = self._read_begins(wire, start[begins], end[begins])
        tx = np.cumsum(tag == ord("B"), dtype=np.int32)
        counted = np.cumsum(weight)
        before = counted - weight
        events = np.maximum(weight, tag == ord("M"))
        carried = self._open.changes if self._open else 0
        base = np.concatenate(([-carried], before[begins]))
        ordinal = np.cumsum(events) - events
        first = 0 if self._open else 1
        frames = _Frames(wire, start, end, tag, weight, tx, before - base[tx], ordinal, transactions, first)
        self._close_transactions(frames, begins, commits, kind)
        if self._open is not None and len(start):
            self._open.changes = int(counted[-1] - base[-1])
        return frames

    def _check_nesting(self, tag: NDArray[np.uint8], weight: Index) -> None:
        """Begin and Commit alternate, and every change lies between them."""
        depth = np.cumsum((tag == ord("B")).astype(np.int8) - (tag == ord("C")).astype(np.int8), dtype=np.int64)
        depth += 1 if self._open else 0
        if len(depth) and (depth.min() < 0 or depth.max() > 1):
            raise ProtocolError("Begin and Commit messages do not alternate")
        if (weight[depth == 0] > 0).any():
            raise ProtocolError("a change arrived outside of a transaction")

    def _read_begins(self, wire: Wire, start: Index, end: Index) -> Transactions:
        if (end - start != _BEGIN_FRAME).any():
            raise ProtocolError("a Begin message does not have pgoutput's layout")
        # Transaction 0 is the one that was open when the block began; a placeholder when none was.
        held = self._open or _OpenTransaction(0, 0, 0, 0)
        at = start + HEADER + 1
        times = wire.u64(at + 8).view(np.int64) + _POSTGRES_EPOCH_US
        return Transactions(
            commit_lsn=np.concatenate((np.array([held.commit_lsn], np.uint64), wire.u64(at))),
            xid=np.concatenate((np.array([held.xid], np.uint32), wire.u32(at + 16).astype(np.uint32))),
            commit_ts=np.concatenate((np.array([held.commit_ts], np.int64), times)),
        )

    def _close_transactions(self, frames: _Frames, begins: Index, commits: Index, kind: NDArray[np.uint8]) -> None:
        wire, start = frames.wire, frames.start
        if (frames.end[commits] - start[commits] != _COMMIT_FRAME).any():
            raise ProtocolError("a Commit message does not have pgoutput's layout")
        at = start[commits] + HEADER + 1
        if (wire.u64(at + 1) != frames.transactions.commit_lsn[frames.tx[commits]]).any():
            raise ProtocolError("a Commit message names another transaction than its Begin")
        if len(commits):
            self._lsn = Lsn(max(self._lsn, int(wire.u64(at[-1:] + 9)[0])))
        last_bound = max(int(begins[-1]) if len(begins) else -1, int(commits[-1]) if len(commits) else -1)
        if last_bound >= 0:
            self._open = None if frames.tag[last_bound] == ord("C") else self._begun(frames)
        if self._open is None:
            self._advance_idle(frames, kind, last_bound)
        for index in np.flatnonzero(frames.tag == ord("M")).tolist():
            message = messages.emitted(frames.body(index))
            if not message.transactional:
                # The server skips a message that begins before the start point, so resume one byte past it.
                self._lsn = Lsn(max(self._lsn, message.lsn + 1))

    def _begun(self, frames: _Frames) -> _OpenTransaction:
        of = frames.transactions
        return _OpenTransaction(int(of.commit_lsn[-1]), int(of.xid[-1]), int(of.commit_ts[-1]), 0)

    def _advance_idle(self, frames: _Frames, kind: NDArray[np.uint8], last_bound: int) -> None:
        """No transaction is open: all that commits before a keepalive's WAL end has been sent already."""
        alive = np.flatnonzero(kind == ord("k"))
        alive = alive[alive > last_bound]
        if len(alive):
            self._lsn = Lsn(max(self._lsn, int(frames.wire.u64(frames.start[alive] + 6).max())))

    def _not_yet_durable(self, frames: _Frames) -> NDArray[np.bool_]:
        """For each frame whether its changes are still to be delivered."""
        commit_lsn = frames.transactions.commit_lsn[frames.tx]
        keep = np.asarray(commit_lsn >= np.uint64(self._resume.lsn))
        if self._resume.changes:
            partly = commit_lsn == np.uint64(self._resume.commit_lsn)
            keep &= ~(partly & (frames.seq < self._resume.changes))
        return keep

    # Relations.

    def _read_relations(self, frames: _Frames, keep: NDArray[np.bool_], shapes: _Shapes) -> Iterator[SchemaChange]:
        for index in np.flatnonzero(frames.tag == ord("R")).tolist():
            seen = self._keyed(messages.relation(frames.body(index)))
            known = self._relations.get(seen.oid)
            if known is not None and seen == replace(known, version=1):
                continue
            before = known or self._remembered.get(seen.oid)
            changed = before is None or seen != replace(before, version=1)
            version = before.version + changed if before else 1
            relation = replace(seen, version=version, columns=self._typed(seen.columns))
            shapes.change(index, relation)
            if changed and keep[index]:
                ordinal, seq, tx = int(frames.ordinal[index]), int(frames.seq[index]), int(frames.tx[index])
                shown = before and replace(before, columns=self._typed(before.columns))
                yield SchemaChange(relation, shown, ordinal, seq, tx - frames.first)

    def _keyed(self, seen: Relation) -> Relation:
        if seen.replica_identity is not ReplicaIdentity.FULL:
            return seen
        names = set(self._primary_key(seen))
        if not names or not names <= {column.name for column in seen.columns}:
            return seen
        return replace(
            seen, columns=tuple(replace(column, key=column.name in names) for column in seen.columns), keyed=True
        )

    def _typed(self, columns: tuple[Column, ...]) -> tuple[Column, ...]:
        return tuple(replace(column, type=self._resolve(column.type_oid)) for column in columns)

    # Counts by table. Also of changes that are durable already: those behind them keep their numbers.

    def _count(
        self, frames: _Frames, shapes: _Shapes, rows: Mapping[int, Index], truncates: Sequence[_Truncated]
    ) -> _Numbers:
        numbers = _Numbers({}, {})
        truncated: dict[int, list[int]] = {}
        for index, message in truncates:
            for oid in message.oids:
                truncated.setdefault(oid, []).append(index)
        for oid in dict.fromkeys((*rows, *truncated)):
            of_rows = rows.get(oid, np.empty(0, np.int64))
            at = np.union1d(of_rows, truncated[oid]) if oid in truncated else of_rows
            history = shapes.history(oid)
            if not history or int(at[0]) < history[0][0]:
                raise ProtocolError(f"a change of relation {oid} arrived before its Relation message")
            found = self._counts.number(oid, at, frames.tx[at], history)
            numbers.of_rows[oid] = found[np.searchsorted(at, of_rows)] if oid in truncated else found
            for index in truncated.get(oid, ()):
                numbers.of_truncate[index, oid] = int(found[np.searchsorted(at, index)])
        emitted = np.flatnonzero((frames.tag == ord("M")) & (frames.weight > 0))
        if len(emitted):
            self._counts.number(MESSAGES, emitted, frames.tx[emitted], [(-1, None)])
        return numbers

    def _tallies(self, frames: _Frames, ends: Bounds) -> Tallies:
        ended = np.zeros(len(frames.transactions), np.bool_)
        ended[ends.tx + frames.first] = True
        tallies = self._counts.finish(ended, None if self._open is None else len(ended) - 1)
        return replace(tallies, tx=tallies.tx - np.int32(frames.first))


def _read_tags(wire: Wire, start: Index, end: Index) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """For each frame 'w' or 'k', and the pgoutput message byte (0 for a keepalive)."""
    if (end - start < 6).any():
        raise ProtocolError("an empty CopyData message in the replication stream")
    kind = wire.u8[start + 5]
    data = kind == ord("w")
    alive = kind == ord("k")
    if not (data | alive).all():
        raise ProtocolError(f"unknown message {chr(int(kind[~(data | alive)][0]))!r} in the replication stream")
    size = end - start
    if (size[data] <= HEADER).any() or (size[alive] != _KEEPALIVE_FRAME).any():
        raise ProtocolError("a message of the replication stream has an impossible length")
    tag = np.zeros(len(start), np.uint8)
    tag[data] = wire.u8[start[data] + HEADER]
    strange = data & ~_KNOWN[tag]
    if strange.any():
        raise ProtocolError(
            f"unknown pgoutput message {chr(int(tag[strange][0]))!r}",
            "this server speaks a newer protocol than version 1 asks for",
        )
    return kind, tag


def _count_changes(wire: Wire, start: Index, end: Index, tag: NDArray[np.uint8]) -> Index:
    """How many changes each frame is: a row 1, a TRUNCATE its relations, a transactional message 1."""
    weight = _IS_ROW[tag].astype(np.int64)
    for kind, least in ((ord("T"), 6), (ord("M"), 14)):
        found = np.flatnonzero(tag == kind)
        if len(found):
            if (end[found] - start[found] < HEADER + least).any():
                raise ProtocolError(f"a {chr(kind)!r} message is shorter than its header")
            at = start[found] + HEADER + 1
            weight[found] = wire.u32(at) if kind == ord("T") else wire.u8[at] & 1
    return weight


def _begins(frames: _Frames, keep: NDArray[np.bool_]) -> Bounds:
    at = np.flatnonzero(frames.seq == 0)
    at = at[(frames.weight[at] > 0) & keep[at]]
    return Bounds(frames.tx_of(at), frames.ordinal[at])


def _ends(frames: _Frames, keep: NDArray[np.bool_]) -> Bounds:
    """At a Commit, `seq` is how many changes its transaction has."""
    at = np.flatnonzero(frames.tag == ord("C"))
    at = at[(frames.seq[at] > 0) & keep[at]]
    return Bounds(frames.tx_of(at), frames.ordinal[at])


def _rows_by_table(frames: _Frames) -> Mapping[int, Index]:
    """Relation oid -> the frames of its rows, in order."""
    rows = np.flatnonzero(_IS_ROW[frames.tag])
    if not len(rows):
        return {}
    if (frames.end[rows] - frames.start[rows] < HEADER + 8).any():
        raise ProtocolError("a row message is shorter than its header")
    oids = frames.wire.u32(frames.start[rows] + HEADER + 1)
    if (oids == oids[0]).all():
        return {int(oids[0]): rows}
    order = np.argsort(oids, kind="stable")
    distinct, first = np.unique(oids[order], return_index=True)
    return dict(zip(distinct.tolist(), np.split(rows[order], first[1:]), strict=True))


def _read_rows(
    frames: _Frames, keep: NDArray[np.bool_], shapes: _Shapes, rows: Mapping[int, Index], numbers: _Numbers
) -> Iterator[Changes]:
    everything = bool(keep.all())
    for oid, of_oid in rows.items():
        history, tally = shapes.history(oid), numbers.of_rows[oid]
        if not everything:
            kept = keep[of_oid]
            of_oid, tally = of_oid[kept], tally[kept]
        bounds = np.searchsorted(of_oid, [since for since, _ in history[1:]])
        parts = zip(history, np.split(of_oid, bounds), np.split(tally, bounds), strict=True)
        for (_, relation), of_shape, tally_of_shape in parts:
            if len(of_shape):
                yield _decode_rows(frames, relation, of_shape, tally_of_shape)


def _decode_rows(frames: _Frames, relation: Relation, rows: Index, tally: Index) -> Changes:
    wire, start, end, op = frames.wire, frames.start[rows], frames.end[rows], frames.tag[rows]
    table, width = str(relation), len(relation.columns)
    mark = wire.u8[start + HEADER + 5]
    old = (mark == _KEY) | (mark == _OLD)
    new_first = mark == _NEW
    if not (old | new_first).all() or (old & (op == Op.INSERT)).any() or (new_first & (op == Op.DELETE)).any():
        raise ProtocolError(f"a row message of {table} has no tuple where one belongs")
    before_rows = np.flatnonzero(old)
    before = walk(wire, start[before_rows] + HEADER + 6, end[before_rows], width, table)

    after_at = start + HEADER + 5
    after_at[before_rows] = before.end
    has_after = op != Op.DELETE
    after_rows = np.flatnonzero(has_after)
    at = after_at[after_rows]
    if (at >= end[after_rows]).any() or (wire.u8[at] != _NEW).any():
        raise ProtocolError(f"an update of {table} has no new row")
    after = walk(wire, at + 1, end[after_rows], width, table)

    reached = after_at
    reached[after_rows] = after.end
    if (reached != end).any():
        raise ProtocolError(f"a row of {table} is shorter than its message")
    key_only = mark[before_rows] == _KEY
    return Changes(
        relation=relation,
        columns=relation.columns,
        ordinal=frames.ordinal[rows],
        op=op,
        seq=frames.seq[rows],
        lsn=frames.lsn(rows),
        tx=frames.tx_of(rows),
        tally=tally,
        after=_image(after, after_rows),
        before=_old_image(before, before_rows, key_only, relation),
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


def _read_truncates(frames: _Frames) -> list[_Truncated]:
    return [(index, messages.truncate(frames.body(index))) for index in np.flatnonzero(frames.tag == ord("T")).tolist()]


def _truncates(
    frames: _Frames, keep: NDArray[np.bool_], shapes: _Shapes, truncates: Sequence[_Truncated], numbers: _Numbers
) -> Iterator[Truncate]:
    for index, message in truncates:
        for place, oid in enumerate(message.oids):
            if keep[index]:
                yield Truncate(
                    next(shape for since, shape in reversed(shapes.history(oid)) if since < index),
                    int(frames.ordinal[index]) + place,
                    int(frames.seq[index]) + place,
                    int(frames.lsn(np.array([index]))[0]),
                    int(frames.tx[index]) - frames.first,
                    message.cascade,
                    message.restart_identity,
                    numbers.of_truncate[index, oid],
                )


def _read_messages(frames: _Frames, keep: NDArray[np.bool_], resume: int) -> Iterator[LogicalMessage]:
    for index in np.flatnonzero(frames.tag == ord("M")).tolist():
        message = messages.emitted(frames.body(index))
        wanted = keep[index] if message.transactional else message.lsn >= resume
        if wanted:
            yield LogicalMessage(
                message.prefix,
                message.content,
                int(frames.ordinal[index]),
                int(frames.seq[index]) if message.transactional else 0,
                message.lsn,
                int(frames.tx[index]) - frames.first if message.transactional else -1,
            )
