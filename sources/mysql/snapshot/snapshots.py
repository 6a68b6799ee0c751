"""The snapshots of a source beside its stream: rows that were there, between two batches of what changes."""

from __future__ import annotations

import time
from dataclasses import replace

import pyarrow as pa

from psql_streamer.model import NO_TRANSACTIONS, Batch, Position, SnapshotRows, TransactionMetadata
from psql_streamer.snapshot.batches import make_snapshot_batch
from psql_streamer.snapshots import SnapshotRequest
from sources.mysql.batches import BatchReader
from sources.mysql.options import MysqlOptions, Wanted
from sources.mysql.places import LogPlace
from sources.mysql.server_of_stream import Client, ServerOfStream
from sources.mysql.snapshot.line import GivenBatches, Latest
from sources.mysql.snapshot.readers import Readers
from sources.mysql.snapshot.requests import review
from sources.snapshot.beside import SnapshotsBesideStream, read_state

_FIRST_SEQ = 1_000_000_000
"""Of rows that are given behind a transaction: greater than that of any change of it."""


_XA_SECONDS = 10.0
"""For so long what is given counts for readings that begin later, where an XA transaction is among it: its end is in
the binary log before the engine commits it, and nothing says when others see that (MariaDB source, handler.cc,
ha_commit_or_rollback_by_xid).
"""


class Snapshots(SnapshotsBesideStream[Readers, GivenBatches]):
    """One thread, the source's, calls start, stamp, next_batch and stop; the others may be called from any thread."""

    def __init__(self, name: str, options: MysqlOptions, server: ServerOfStream, wanted: Wanted) -> None:
        super().__init__(name, options.snapshot, GivenBatches())
        self._server = server
        self._wanted = wanted
        self._readers = Readers(name, options, wanted, self._schedule)

    def start(self, position: Position | None, stands: Position, end: LogPlace, client: Client) -> None:
        """The stream goes on after a position, which is where it stands if there is none. end: of the binary log.

        client: the stream's session.
        """
        begins = self._own.begins(position, self._schedule)
        self._own.note_start()
        self._schedule.resume(read_state(position), False)
        self._schedule.ask_given(lambda given: given.begin(Latest(stands, end, False)))
        if begins:
            self._schedule.add(self._own.make())
        self._waker.open()
        self._readers.begin(client)

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
        return replace(batch, position=self._add_snapshot_state(batch.position))

    def take_next_batch(self, reader: BatchReader, most_rows: int, most_bytes: int, metadata: bool) -> Batch | None:
        """Rows that may be given where the stream stands, or a move of the position; None for neither."""
        self._take_turn()
        if reader.in_transaction:
            self._schedule.note_open_transaction()
            return None
        given = self._schedule.take_next_piece(reader.reached, most_rows, most_bytes)
        moment = time.monotonic()
        if given is None:
            if not self._schedule.has_news:
                return None
            return Batch(
                reader.source, self._add_snapshot_state(reader.at.position), NO_TRANSACTIONS, received_at=moment
            )
        self._waker.wake()  # there may be more
        relation, change = reader.learn(given.piece.relation)
        return make_snapshot_batch(
            reader.source_of_selects,
            self._add_snapshot_state(reader.at.position),
            replace(given.piece, relation=relation),
            SnapshotRows(given.run.id, given.run.on_demand),
            reader.commit,
            self._number(reader.commit, len(given.piece.keys), _FIRST_SEQ),
            given.fence.at_us,
            () if change is None else (change,),
            TransactionMetadata() if metadata else None,
            moment,
            pa.binary(),
            begun_anew=given.begun_anew,
        )

    def review(self, request: SnapshotRequest) -> None:
        """See Source.review_snapshot."""
        with self._server.open_session() as asking:
            review(asking, request, self._wanted)
