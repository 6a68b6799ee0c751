"""The snapshots of a source beside its stream: rows that were there, between two batches of what changes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from psql_streamer.errors import SourceUnavailable
from psql_streamer.model import (
    NO_TRANSACTIONS,
    Batch,
    LogicalMessage,
    Position,
    SnapshotRows,
    SourceInfo,
    TransactionMetadata,
)
from psql_streamer.pgoutput.decoder import Decoder
from psql_streamer.snapshot.batches import make_snapshot_batch
from psql_streamer.snapshot.delivered import Delivered
from psql_streamer.snapshot.progress import decode_runs
from psql_streamer.snapshots import SnapshotRequest, TableRequest
from sources.postgres.catalog import Catalog, Session
from sources.postgres.options import PostgresOptions
from sources.postgres.server_types import ServerTypes
from sources.postgres.snapshot.keyless import KeylessTables
from sources.postgres.snapshot.readers import MESSAGE_PREFIX, Readers
from sources.postgres.snapshot.requests import describe_keyless, find_keyless, review
from sources.postgres.snapshot.tables import SnapshotTable
from sources.snapshot.beside import SnapshotsBesideStream, read_state


class Snapshots(SnapshotsBesideStream[Readers, Delivered]):
    """One thread, the source's, calls start, stamp, next_batch and stop; the others may be called from any thread."""

    def __init__(self, name: str, options: PostgresOptions, catalog: Catalog, types: ServerTypes) -> None:
        super().__init__(name, options.snapshot, Delivered(), look_last=True)
        self._options = options
        self._catalog = catalog
        self._types = types
        self._readers = Readers(name, options, catalog, types, self._schedule)
        self._keyless: KeylessTables | None = None
        self._keyless_unfinished = False

    def must_begin_anew(self, position: Position | None) -> bool:
        """Whether a stop came while tables without a key were read: that goes on with another slot alone."""
        runs = decode_runs(read_state(position))
        return any(run.has_keyless_left for run in runs) or (position is None and self._keyless_unfinished)

    def follow_gap(self, position: Position | None) -> bool:
        """Whether there is nothing to go on from, but the operator's request for all tables."""
        return bool(self._own.of_all) and (position is None or self.must_begin_anew(position))

    def find_keyless(self, session: Session, position: Position | None) -> KeylessTables | None:
        """The tables without a key that are to be read where a new slot begins; None for none."""
        if self.follow_gap(position):
            requested: Sequence[TableRequest] = ()
        elif self._begins_own(position):
            requested = self._own.requested
        else:
            return None

        def find(asked: Session) -> Sequence[SnapshotTable]:
            return find_keyless(asked, requested, self._options.publications, self._types)

        def describe(asked: Session, oid: int) -> SnapshotTable | None:
            return describe_keyless(asked, oid, self._options.publications, self._types)

        return KeylessTables(self._catalog, self._options, find, describe) if find(session) else None

    def start(
        self, position: Position | None, since: int, keyless: KeylessTables | None, walsender: tuple[int, str]
    ) -> None:
        """The stream goes on after a position. since: the xid that comes next on the server, 64 bits. keyless: of a
        slot that was made just now. walsender: of the stream, see describe_session.
        """
        begins_own = self._begins_own(position)
        self._own.note_start()
        self._schedule.resume(read_state(position), self.must_begin_anew(position))
        if begins_own:
            self._schedule.add(own := self._own.make())
        if keyless is not None:
            self._schedule.put_first(own.id if begins_own else self._own.of_all)
        self._keyless = keyless
        self._keyless_unfinished = keyless is not None
        self._waker.open()
        self._readers.begin(0 if position is None else since, keyless, walsender)

    @property
    def come_first(self) -> bool:
        """Whether nothing of the stream may be given yet. SourceUnavailable when that will never end."""
        if self._keyless is None:
            return False
        if self._schedule.broken_off:
            raise SourceUnavailable(self._schedule.broken_off)
        if self._schedule.comes_first:
            return True
        self._keyless.close()
        self._keyless, self._keyless_unfinished = None, False
        return False

    def watch(self, batch: Batch) -> tuple[Batch, Position]:
        """A batch of the stream, which is given next; and its position, with how far the snapshots are."""
        self._schedule.watch(batch)
        if any(message.prefix == MESSAGE_PREFIX for message in batch.messages):
            batch = replace(batch, messages=tuple(filter(_is_others, batch.messages)))
        self._stream_is_next = False
        return batch, self._add_snapshot_state(batch.position)

    def take_next_batch(self, source: SourceInfo, decoder: Decoder, metadata: bool) -> Batch | None:
        """Rows that may be given where the stream stands, or a move of the position; None for neither."""
        self._take_turn()
        if decoder.in_transaction:
            self._schedule.note_open_transaction()
            return None
        given = self._schedule.take_next_piece(decoder.reached, self._options.batch_size, self._options.batch_bytes)
        moment = time.monotonic()
        if given is None:
            if not self._schedule.has_news:
                return None
            position = self._add_snapshot_state(decoder.position.position)
            return Batch(source, position, NO_TRANSACTIONS, received_at=moment)
        self._waker.wake()  # there may be more
        relation, change = decoder.learn(given.piece.relation)
        return make_snapshot_batch(
            source,
            self._add_snapshot_state(decoder.position.position),
            replace(given.piece, relation=relation),
            SnapshotRows(given.run.id, given.run.on_demand),
            # No commit record lies at the number before it, because WAL records are aligned.
            decoder.reached - 1,
            self._number(decoder.reached, len(given.piece.keys)),
            given.fence.at_us,
            () if change is None else (change,),
            TransactionMetadata() if metadata else None,
            moment,
            begun_anew=given.begun_anew,
        )

    def stop(self) -> None:
        """Leave the server."""
        super().stop()
        if self._keyless is not None:
            self._keyless.close()
            self._keyless = None

    def review(self, request: SnapshotRequest) -> None:
        """See Source.review_snapshot."""
        with self._catalog.open_session() as session:
            review(session, request, self._options.publications, self._types)

    def _begins_own(self, position: Position | None) -> bool:
        """Whether a start at a position begins a snapshot that nobody has to ask for."""
        return self._own.begins(position, self._schedule, self.must_begin_anew(position))


def _is_others(message: LogicalMessage) -> bool:
    return message.prefix != MESSAGE_PREFIX
