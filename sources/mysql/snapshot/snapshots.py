"""The snapshots of a source beside its stream: rows that were there, between two batches of what changes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from psql_streamer.model import NO_TRANSACTIONS, Batch, Position, SnapshotRows, TransactionMetadata
from psql_streamer.snapshot.batches import read_batch
from psql_streamer.snapshots import SnapshotProgress, SnapshotRequest
from sources.mysql.batches import BatchReader
from sources.mysql.connection import Connector
from sources.mysql.options import MysqlOptions, Wanted
from sources.mysql.places import LogPlace
from sources.mysql.server import session
from sources.mysql.snapshot.line import GivenBatches, Latest
from sources.mysql.snapshot.readers import Readers
from sources.mysql.snapshot.requests import review
from sources.snapshot.news import News
from sources.snapshot.own import OwnSnapshots
from sources.snapshot.schedule import Schedule
from sources.snapshot.waker import Waker

_STATE = "snapshots"
"""The name of the state in positions, beside those of BinlogPosition."""

_FIRST_SEQ = 1_000_000_000
"""Of rows that are given behind a transaction: greater than that of any change of it."""


_XA_SECONDS = 10.0
"""For so long what is given counts for readings that begin later, where an XA transaction is among it: its end is in
the binary log before the engine commits it, and nothing says when others see that (MariaDB source, handler.cc,
ha_commit_or_rollback_by_xid).
"""


class Snapshots:
    """One thread, the source's, calls start, stamp, next_batch and stop; the others may be called from any thread."""

    def __init__(self, name: str, options: MysqlOptions, connector: Connector, wanted: Wanted) -> None:
        self._connector = connector
        self._wanted = wanted
        self._waker = Waker()
        self._news = News(name)
        chosen = options.snapshot
        self._schedule = Schedule(chosen.chunk_bytes, chosen.parallel, self._waker.wake, self._news, GivenBatches())
        self._readers = Readers(name, options, wanted, self._schedule)
        self._own = OwnSnapshots(chosen)
        self._stream_is_next = True
        self._given_at = 0, 0

    def start(self, position: Position | None, stands: Position, end: LogPlace, server: str) -> None:
        """The stream goes on after a position, which is where it stands if there is none. end: of the binary log.

        server: of whom the stream is, as describe_server has it.
        """
        begins = self._own.begins(position, self._schedule)
        self._schedule.resume(() if position is None else state_of(position), False)
        self._schedule.ask_given(lambda given: given.begin(Latest(stands, end, False)))
        if begins:
            self._schedule.add(self._own.make())
        self._waker.open()
        self._readers.begin(server)

    def fileno(self) -> int:
        """Readable when rows may be there to be given."""
        return self._waker.fileno()

    def stamp(self, batch: Batch, reader: BatchReader) -> Batch:
        """A batch of the stream, which is given next; its position says how far the snapshots are."""
        if reader.altered:
            # What was looked up goes first: a chunk that is begun behind this must not be read by it.
            self._readers.forget(reader.altered)
            self._schedule.note_altered(reader.altered)
            reader.altered.clear()
        self._schedule.ask_given(lambda given: given.stand(reader.reached, reader.in_transaction))
        self._schedule.watch(batch, late=reader.xa_at is not None and time.monotonic() - reader.xa_at < _XA_SECONDS)
        self._stream_is_next = False
        return replace(batch, position=self._position(batch.position))

    @property
    def stream_is_next(self) -> bool:
        """Whether the stream goes first: batches of both take turns while both have some."""
        return self._stream_is_next

    def next_batch(self, reader: BatchReader, most_rows: int, most_bytes: int, metadata: bool) -> Batch | None:
        """Rows that may be given where the stream stands, or a move of the position; None for neither."""
        self._stream_is_next = True
        self._waker.rest()
        self._news.tell()
        if reader.in_transaction:
            self._schedule.note_open_transaction()
            return None
        given = self._schedule.next_piece(reader.reached, most_rows, most_bytes)
        moment = time.monotonic()
        if given is None:
            if not self._schedule.has_news:
                return None
            return Batch(reader.source, self._position(reader.at.position), NO_TRANSACTIONS, received_at=moment)
        self._waker.wake()  # there may be more
        relation, change = reader.learn(given.piece.relation)
        return read_batch(
            reader.source_of_selects,
            self._position(reader.at.position),
            replace(given.piece, relation=relation),
            SnapshotRows(given.run.id, given.run.on_demand),
            reader.commit,
            self._first_seq(reader.commit, len(given.piece.keys)),
            given.fence.at_us,
            () if change is None else (change,),
            TransactionMetadata() if metadata else None,
            moment,
            pa.binary(),
        )

    def stop(self) -> None:
        """Leave the server."""
        self._readers.stop()
        self._news.tell()
        self._waker.close()

    def interrupt(self) -> None:
        """Give up what a reader waits for."""
        self._readers.interrupt()

    def note_stored(self, position: Position) -> None:
        """The position has been stored."""
        self._schedule.note_durable(state_of(position))

    def set_requests(self, requests: Sequence[SnapshotRequest]) -> None:
        """See Source.set_snapshots."""
        self._own.note_requests(requests)
        self._schedule.set_requests(requests)

    def review(self, request: SnapshotRequest) -> None:
        """See Source.review_snapshot."""
        with session(self._connector) as asking:
            review(asking, request, self._wanted)

    def describe(self) -> str:
        """How far they are, as part of a status; empty for nothing."""
        return self._schedule.describe()

    def show(self) -> Sequence[SnapshotProgress]:
        """See Source.snapshots."""
        return self._schedule.show()

    def _first_seq(self, commit: int, rows: int) -> int:
        """Rows that are given behind one transaction are numbered on."""
        last, count = self._given_at
        first = count if last == commit else _FIRST_SEQ
        self._given_at = commit, first + rows
        return first

    def _position(self, position: Position) -> Position:
        return Position({**position.data, _STATE: self._schedule.state()}, position.shown)


def state_of(position: Position) -> Sequence[Mapping[str, Any]]:
    """How far snapshots were at a position."""
    found: Sequence[Mapping[str, Any]] = position.data.get(_STATE, ())
    return found
