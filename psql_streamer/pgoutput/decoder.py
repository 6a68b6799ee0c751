"""Frames in, micro-batches out: relation cache, transaction state, and where a restart may resume.

Resuming inside a transaction
-----------------------------
PostgreSQL gives a transaction when it has committed, as a whole: Begin, changes, Commit. A large one is delivered in
many batches, and the service may stop between two of them. The server knows nothing of that. A replication slot
resumes at commits alone: asked for a position inside of a transaction, it sends the whole transaction again.

So a position has two parts. `lsn` is the end of the last transaction that lies wholly behind; the server is asked for
what comes after it. `commit_lsn` and `changes` say of the transaction that comes next how many of its changes are
durable. When the server sends that transaction again, its first `changes` changes are left out of the batch; Relation
messages among them are read all the same, because later changes need the shapes. Until as many have come again, the
position stays what it was: it must never go back, also when a stop cuts the repeat short.

A change is counted by `seq`, its number in its transaction. The server gives the changes of a transaction in the same
order each time, so (commit LSN, seq) is the identity of a change: consumers tell a repeat by it, and the decoder
skips by it. Two messages differ: a TRUNCATE of several tables is one change for each of them, and a logical message
outside of any transaction is none, since nothing says when it is repeated.

Transaction 0
-------------
A block of frames may begin in the middle of a transaction. Arrays of transactions therefore have a place 0 for the
one that was open when the block began; a block that begins between two transactions has a placeholder there. Frames
point into these arrays by `np.cumsum(tag == "B")`, which is 0 before the block's first Begin. `Frames.drop_placeholder`
takes the placeholder away before anybody else sees the arrays, and `Frames.first` says whether there was one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.ma  # pyarrow and numpy.unique load it for their first array: the first rows would wait 24 ms for it
import pyarrow as pa
from numpy.typing import NDArray

from psql_streamer import batching
from psql_streamer.cells import NO_CELLS
from psql_streamer.errors import ProtocolError
from psql_streamer.few_rows import FewRows, FewTransaction
from psql_streamer.lsn import Lsn
from psql_streamer.model import (
    OUTSIDE,
    Batch,
    Column,
    ColumnType,
    LogicalMessage,
    Relation,
    ReplicaIdentity,
    ReplicationOrigin,
    SchemaChange,
    SourceInfo,
    Transactions,
    Truncate,
    measure_batch_overhead,
)
from psql_streamer.pgoutput import messages
from psql_streamer.pgoutput.block import POSTGRES_EPOCH_US, Frames, SessionShapes, Shapes, count_changes, read_tags
from psql_streamer.pgoutput.few_frames import FewFrames, read_few
from psql_streamer.pgoutput.frames import HEADER
from psql_streamer.pgoutput.full_identity import Asked, AskKeys, CatalogKey, apply_primary_key, find_no_keys
from psql_streamer.pgoutput.rows import find_rows, read_rows
from psql_streamer.pgoutput.transaction_metadata import BlockMetadata, TransactionReader
from psql_streamer.pgoutput.tuples import Index, Wire
from psql_streamer.pgoutput.wal_position import WalPosition
from psql_streamer.pgtype import PgType, PostgresType
from psql_streamer.pgtypes.builtin import BY_OID

Resolve: TypeAlias = Callable[[int], PgType | None]

_BEGIN_FRAME = HEADER + 21
_COMMIT_FRAME = HEADER + 26

_XID = pa.uint32()

_Truncated: TypeAlias = tuple[int, messages.TruncateMessage]
"""A TRUNCATE's frame, and the message."""


@dataclass(slots=True)
class _OpenTransaction:
    commit_lsn: int
    xid: int
    commit_ts: int
    changes: int  # how many of its changes have been seen
    origin: ReplicationOrigin | None = None


class Decoder:
    """Decodes the blocks of one replication session, in order.

    resume: where the session was started. Changes that it counts as durable are skipped when the server sends
    their transaction again. One block gives one Batch, whose position may be stored when the batch and all
    before it are durable.
    resolve: what a type's OID stands for, None where nobody knows; asked when a Relation message brings a new shape.
    ask_keys: the primary keys of tables with identity FULL, asked for every Relation message of theirs.
    remembered: oid -> the shape that a table had at `resume`; what differs from it is a schema change.
    transaction_metadata: whether to say where transactions begin and end, and to count their changes by table; it
    costs a tenth more.
    """

    def __init__(
        self,
        source: SourceInfo,
        resume: WalPosition,
        resolve: Resolve = BY_OID.get,
        ask_keys: AskKeys = find_no_keys,
        remembered: Mapping[int, Relation] | None = None,
        transaction_metadata: bool = False,
    ) -> None:
        self._source = source
        self._resume = resume
        self._resolve = resolve
        self._ask_keys = ask_keys
        self._lsn = resume.lsn
        self._open: _OpenTransaction | None = None
        self._commit_ts = 0  # of the last transaction; 0: the session has seen none
        self._shapes = SessionShapes()
        # Never what rows are decoded by: a session sends a table's shape before its first row.
        self._remembered = dict(remembered or {})
        self._learned: dict[int, Relation] = {}
        self._transactions = TransactionReader() if transaction_metadata else None
        self.keys_in_doubt: list[Relation] = []
        """Tables with identity FULL whose key at the time of their rows is not certain; the caller empties it."""

    @property
    def reached(self) -> Lsn:
        """Everything that commits before this has been given."""
        return self._lsn

    @property
    def in_transaction(self) -> bool:
        """Whether the blocks so far end inside a transaction."""
        return self._open is not None

    def learn(self, shape: Relation) -> tuple[Relation, SchemaChange | None]:
        """A table's shape where the stream has got, as the catalog has it; with its version, and what is new about it.

        The stream shows a table's shape with the next change of it. Rows of a snapshot may come before that.
        """
        oid = messages.parse_oid(shape)
        before = self._learned.get(oid) or self._shapes.current.get(oid) or self._remembered.get(oid)
        if before is not None and shape == replace(before, version=1):
            return replace(shape, version=before.version), None
        relation = replace(
            shape, version=before.version + 1 if before else 1, columns=self._resolve_types(shape.columns)
        )
        self._learned[oid] = relation
        return relation, SchemaChange(relation, before, 0, 0, 0)

    def decode(
        self,
        data: bytes | bytearray | memoryview,
        offsets: Sequence[int] | NDArray[np.uint32],
        received_at: float = 0.0,
    ) -> Batch:
        """One block of whole frames; received_at goes into the Batch.

        ProtocolError when a byte of it is not what the protocol says.
        """
        few = self._read_few(data, offsets)
        return (
            self._decode_any(data, offsets, received_at)
            if few is None
            else self._decode_few(few, len(data), received_at)
        )

    def _read_few(
        self, data: bytes | bytearray | memoryview, offsets: Sequence[int] | NDArray[np.uint32]
    ) -> FewFrames | None:
        """A small block whose transactions begin and end in it, if nothing of them is durable, and nobody counts."""
        if len(offsets) > batching.FEW_FRAMES or len(data) > batching.FEW_BYTES:
            return None
        if self._open is not None or self._transactions is not None:
            return None
        few = read_few(data, np.asarray(offsets).tolist(), self._shapes)
        if few is None or len(few.rows) > batching.FEW_ROWS:
            return None
        resume = self._resume
        commits = [one.commit for one in few.transactions]
        resuming = resume.changes and (self._lsn <= resume.commit_lsn or resume.commit_lsn in commits)
        return None if resuming or min(commits, default=resume.lsn) < resume.lsn else few

    def _decode_few(self, few: FewFrames, size: int, received_at: float) -> Batch:
        """As _decode_any, of what was read frame by frame."""
        self._lsn = Lsn(max(self._lsn, few.end, few.alive))
        self._commit_ts = few.transactions[-1].moment if few.transactions else self._commit_ts
        transactions = _as_arrays(few.transactions)
        changes = FewRows(self._shapes.shapes, few.rows, few.transactions, transactions) if few.rows else NO_CELLS
        return Batch(
            source=self._source,
            position=self.position.position,
            transactions=transactions,
            changes=changes,
            nbytes=measure_batch_overhead(changes) + 2 * size,
            received_at=received_at,
        )

    def _decode_any(
        self, data: bytes | bytearray | memoryview, offsets: Sequence[int] | NDArray[np.uint32], received_at: float
    ) -> Batch:
        frames = self._read_frames(Wire(data), np.asarray(offsets, dtype=np.int64))
        keep = self._select_undelivered(frames)
        shapes = Shapes(self._shapes)
        schema_changes = tuple(self._read_relations(frames, keep, shapes))
        rows, truncates = find_rows(frames, shapes), _read_truncates(frames)
        told = BlockMetadata()
        if self._transactions is not None:
            told = self._transactions.read(frames, keep, shapes, rows, truncates, self.in_transaction)
        batch = Batch(
            source=self._source,
            position=self.position.position,
            transactions=frames.drop_placeholder(),
            changes=read_rows(frames, keep, shapes, rows, told.table_seq),
            truncates=tuple(_make_truncates(frames, keep, shapes, truncates, told.table_seq_by_truncate)),
            messages=tuple(_read_messages(frames, keep, told.table_seq_by_message)),
            schema_changes=schema_changes,
            transaction_metadata=told.metadata,
            received_at=received_at,
        )
        return replace(batch, nbytes=batch.overhead + 2 * len(data))

    @property
    def position(self) -> WalPosition:
        """Where a session goes on when everything that was decoded is durable."""
        resume, held = self._resume, self._open
        partly = resume.changes and self._lsn <= resume.commit_lsn
        if partly and (held is None or held.commit_lsn == resume.commit_lsn):
            # The transaction that was partly durable has not come again as far as that.
            return WalPosition(Lsn(self._lsn), resume.commit_lsn, max(resume.changes, held.changes if held else 0))
        if held is None or not held.changes:
            return WalPosition(Lsn(self._lsn))
        return WalPosition(Lsn(self._lsn), Lsn(held.commit_lsn), held.changes)

    # Frames and transactions.

    def _read_frames(self, wire: Wire, start: Index) -> Frames:
        end = np.append(start[1:], len(wire)) if len(start) else start
        kind, tag = read_tags(wire, start, end)
        weight = count_changes(wire, start, end, tag)
        begins, commits = np.flatnonzero(tag == ord("B")), np.flatnonzero(tag == ord("C"))
        self._check_nesting(tag, weight)
        tx = np.cumsum(tag == ord("B"), dtype=np.int32)
        transactions = self._read_begins(
            wire, start[begins], end[begins], self._read_origins(wire, start, end, tag, tx)
        )
        counted = np.cumsum(weight)
        before = counted - weight
        carried = self._open.changes if self._open else 0
        base = np.concatenate(([-carried], before[begins]))
        batch_order = before
        if np.count_nonzero(emitted := tag == ord("M")):  # those outside of transactions are events, and no changes
            events = np.maximum(weight, emitted)
            batch_order = np.cumsum(events) - events
        first = 0 if self._open else 1
        frames = Frames(wire, start, end, tag, weight, tx, before - base[tx], batch_order, transactions, first)
        self._close_transactions(frames, begins, commits, kind)
        self._commit_ts = int(transactions.commit_ts[-1])
        if self._open is not None and len(start):
            self._open.changes = int(counted[-1] - base[-1])
            self._open.origin = transactions.origins.get(len(transactions) - 1)
        return frames

    def _check_nesting(self, tag: NDArray[np.uint8], weight: Index) -> None:
        """Begin and Commit alternate, and every change lies between them."""
        depth = np.cumsum((tag == ord("B")).astype(np.int8) - (tag == ord("C")).astype(np.int8), dtype=np.int64)
        depth += 1 if self._open else 0
        if len(depth) and (depth.min() < 0 or depth.max() > 1):
            raise ProtocolError("Begin and Commit messages do not alternate")
        outside = depth == 0
        if np.count_nonzero(weight[outside]):
            raise ProtocolError("a change arrived outside of a transaction")
        if np.count_nonzero(tag[outside] == ord("O")):
            raise ProtocolError("an Origin message arrived outside of a transaction")
        if np.count_nonzero(tag[~outside] == ord("A")):
            raise ProtocolError("a Stream Abort message arrived within a transaction")

    def _read_origins(
        self, wire: Wire, start: Index, end: Index, tag: NDArray[np.uint8], tx: NDArray[np.int32]
    ) -> Mapping[int, ReplicationOrigin]:
        """By transaction."""
        origins: dict[int, ReplicationOrigin] = {}
        if self._open and self._open.origin:
            origins[0] = self._open.origin
        for index in np.flatnonzero(tag == ord("O")).tolist():
            body = wire.data[int(start[index]) + HEADER + 1 : int(end[index])]
            origins[int(tx[index])] = messages.read_origin(bytes(body))
        return origins

    def _read_begins(
        self, wire: Wire, start: Index, end: Index, origins: Mapping[int, ReplicationOrigin]
    ) -> Transactions:
        if np.count_nonzero(end - start != _BEGIN_FRAME):
            raise ProtocolError("a Begin message does not have pgoutput's layout")
        # Transaction 0 is the one that was open when the block began; a placeholder when none was.
        held = self._open or _OpenTransaction(0, 0, self._commit_ts, 0)
        at = start + HEADER + 1
        times = wire.read_u64(at + 8).view(np.int64) + POSTGRES_EPOCH_US
        return Transactions(
            commit=np.concatenate((np.array([held.commit_lsn], np.uint64), wire.read_u64(at))),
            commit_ts=np.concatenate((np.array([held.commit_ts], np.int64), times)),
            ids=pa.array(np.concatenate((np.array([held.xid], np.uint32), wire.read_u32(at + 16).astype(np.uint32)))),
            origins=origins,
        )

    def _close_transactions(self, frames: Frames, begins: Index, commits: Index, kind: NDArray[np.uint8]) -> None:
        wire, start = frames.wire, frames.start
        if np.count_nonzero(frames.end[commits] - start[commits] != _COMMIT_FRAME):
            raise ProtocolError("a Commit message does not have pgoutput's layout")
        at = start[commits] + HEADER + 1
        if np.count_nonzero(wire.read_u64(at + 1) != frames.transactions.commit[frames.tx[commits]]):
            raise ProtocolError("a Commit message names another transaction than its Begin")
        if len(commits):
            self._lsn = Lsn(max(self._lsn, int(wire.read_u64(at[-1:] + 9)[0])))
        last_bound = max(int(begins[-1]) if len(begins) else -1, int(commits[-1]) if len(commits) else -1)
        if last_bound >= 0:
            self._open = None if frames.tag[last_bound] == ord("C") else self._make_open_transaction(frames)
        if self._open is None:
            self._advance_idle(frames, kind, last_bound)
        for index in np.flatnonzero(frames.tag == ord("M")).tolist():
            message = messages.read_emitted_message(frames.view_body(index))
            if not message.transactional:
                # The message's LSN is where its record ends (PostgreSQL source, logicalmsg_decode), which is where a
                # commit record may begin: from there on the server sends that commit, and not the message.
                self._lsn = Lsn(max(self._lsn, message.lsn))

    def _make_open_transaction(self, frames: Frames) -> _OpenTransaction:
        of = frames.transactions
        return _OpenTransaction(int(of.commit[-1]), int(of.find_id(-1) or 0), int(of.commit_ts[-1]), 0)

    def _advance_idle(self, frames: Frames, kind: NDArray[np.uint8], last_bound: int) -> None:
        """No transaction is open: all that commits before a keepalive's WAL end has been sent already."""
        alive = np.flatnonzero(kind == ord("k"))
        alive = alive[alive > last_bound]
        if len(alive):
            self._lsn = Lsn(max(self._lsn, int(frames.wire.read_u64(frames.start[alive] + 6).max())))

    def _select_undelivered(self, frames: Frames) -> NDArray[np.bool_]:
        """For each frame whether its changes are still to be delivered."""
        commit_lsn = frames.transactions.commit[frames.tx]
        keep = np.asarray(commit_lsn >= np.uint64(self._resume.lsn))
        if self._resume.changes:
            partly = commit_lsn == np.uint64(self._resume.commit_lsn)
            keep &= ~(partly & (frames.seq < self._resume.changes))
        return keep

    # Relations.

    def _read_relations(self, frames: Frames, keep: NDArray[np.bool_], shapes: Shapes) -> Iterator[SchemaChange]:
        at = np.flatnonzero(frames.tag == ord("R")).tolist()
        described = [messages.read_relation(frames.read_body(index)) for index in at]
        keys = self._look_up_keys(
            described, [int(frames.transactions.find_id(tx) or 0) for tx in frames.tx[at].tolist()]
        )
        for index, seen in zip(at, described, strict=True):
            oid = messages.parse_oid(seen)
            known = self._shapes.current.get(oid)
            before = known or self._remembered.get(oid)
            if seen.replica_identity is ReplicaIdentity.FULL:
                seen, certain = apply_primary_key(seen, next(keys), before, known is not None)
                if not certain:
                    self.keys_in_doubt.append(seen)
            if known is not None and seen == replace(known, version=1):
                continue
            changed = before is None or seen != replace(before, version=1)
            version = before.version + changed if before else 1
            learned = self._learned.pop(oid, None)
            if learned is not None:  # the shape that a snapshot showed first
                changed = changed and seen != replace(learned, version=1)
                version = learned.version + (seen != replace(learned, version=1))
            relation = replace(seen, version=version, columns=self._resolve_types(seen.columns))
            shapes.change(index, relation)
            if changed and keep[index]:
                batch_order, seq, tx = int(frames.batch_order[index]), int(frames.seq[index]), int(frames.tx[index])
                shown = before and replace(before, columns=self._resolve_types(before.columns))
                yield SchemaChange(relation, shown, batch_order, seq, tx - frames.first)

    def _look_up_keys(self, described: Sequence[Relation], xids: Sequence[int]) -> Iterator[CatalogKey]:
        """What the catalog says of the tables with identity FULL, in their order."""
        asked = [
            Asked(relation, xid)
            for relation, xid in zip(described, xids, strict=True)
            if relation.replica_identity is ReplicaIdentity.FULL
        ]
        return iter(self._ask_keys(asked) if asked else ())

    def _resolve_types(self, columns: tuple[Column, ...]) -> tuple[Column, ...]:
        return tuple(Column(column.name, self._resolve_type(column.type), column.key) for column in columns)

    def _resolve_type(self, kind: ColumnType) -> ColumnType:
        # Not `replace`, which takes five times as long: there may be ten thousand tables in a block.
        return PostgresType(kind.oid, kind.typmod, self._resolve(kind.oid)) if isinstance(kind, PostgresType) else kind


def _as_arrays(few: Sequence[FewTransaction]) -> Transactions:
    commits, moments, xids = zip(*few, strict=True) if few else ((), (), ())
    numbers = pa.py_buffer(np.array(xids, np.uint32))  # pa.array reads Python's numbers in 5 times the time
    ids = pa.Array.from_buffers(_XID, len(few), [None, numbers])
    return Transactions(np.array(commits, np.uint64), np.array(moments, np.int64), ids)


def _read_truncates(frames: Frames) -> list[_Truncated]:
    return [
        (index, messages.read_truncate(frames.read_body(index)))
        for index in np.flatnonzero(frames.tag == ord("T")).tolist()
    ]


def _make_truncates(
    frames: Frames,
    keep: NDArray[np.bool_],
    shapes: Shapes,
    truncates: Sequence[_Truncated],
    table_seqs: Mapping[tuple[int, int], int],
) -> Iterator[Truncate]:
    for index, message in truncates:
        for place, oid in enumerate(message.oids):
            shape = shapes.shape_at(oid, index)
            if keep[index]:
                yield Truncate(
                    shape,
                    int(frames.batch_order[index]) + place,
                    int(frames.seq[index]) + place,
                    int(frames.read_lsns(np.array([index]))[0]),
                    int(frames.tx[index]) - frames.first,
                    message.cascade,
                    message.restart_identity,
                    table_seqs.get((index, oid), 0),
                )


def _read_messages(frames: Frames, keep: NDArray[np.bool_], table_seqs: Mapping[int, int]) -> Iterator[LogicalMessage]:
    for index in np.flatnonzero(frames.tag == ord("M")).tolist():
        message = messages.read_emitted_message(frames.view_body(index))
        # One outside of a transaction that ends before the start point is not sent again.
        if keep[index] or not message.transactional:
            yield LogicalMessage(
                message.prefix,
                bytes(message.content),
                int(frames.batch_order[index]),
                int(frames.seq[index]) if message.transactional else OUTSIDE,
                message.lsn,
                int(frames.tx[index]) - frames.first if message.transactional else -1,
                _choose_moment(frames, index),
                table_seqs.get(index, 0),
            )


def _choose_moment(frames: Frames, index: int) -> int:
    """Of the commit of the transaction that a frame lies in, or of the last one before it."""
    committed = int(frames.transactions.commit_ts[frames.tx[index]])
    return committed or int(frames.read_send_times(np.array([index]))[0]) + POSTGRES_EPOCH_US
