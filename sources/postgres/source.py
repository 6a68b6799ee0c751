"""The `postgres` source: a logical replication slot as micro-batches."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, replace
from functools import partial
from typing import ClassVar, TypeVar

import psycopg2
import psycopg2.extensions

from psql_streamer.batching import BLOCK_ANSWER_SECONDS, READ_AHEAD_BYTES, SLOW_STREAM_BLOCK_SECONDS
from psql_streamer.bounded import Call
from psql_streamer.errors import PositionRefused, QuietStreamEnded, SourceError, SourceUnavailable
from psql_streamer.interfaces import CaptureRequest, Finding, Source, Status
from psql_streamer.lsn import Lsn
from psql_streamer.model import POSTGRESQL, Batch, Position, Relation, SourceInfo, Stats
from psql_streamer.options import SourceOptions
from psql_streamer.pgoutput.decoder import Decoder
from psql_streamer.pgoutput.messages import parse_oid
from psql_streamer.pgoutput.wal_position import WalPosition
from psql_streamer.readable import wait_for_readable
from psql_streamer.shortage import explain_shortage
from psql_streamer.shown_commands import get_file
from psql_streamer.snapshots import PostedKeys, SnapshotProgress, SnapshotRequest
from psql_streamer.table_rows import TableReader
from sources.postgres.accepted_gaps import drop_unreadable_slot
from sources.postgres.capturing import PostgresCapture
from sources.postgres.catalog import Catalog, Session, Slot
from sources.postgres.check import check_source
from sources.postgres.given import find_given, read_given, stamp_given
from sources.postgres.options import PostgresOptions, require_dsn
from sources.postgres.positions import check_position, make_gap_error, require_never_read, resolve_resume_position
from sources.postgres.primary_keys import PrimaryKeys
from sources.postgres.published_tables import list_published_tables
from sources.postgres.reader import CONFIRM, DISCONNECT_IF_FULL, DISCONNECT_IF_UNREAD, REQUEST_BLOCK, Settings
from sources.postgres.reader_session import ReaderSession
from sources.postgres.replication import Identity, Walsender, connect, set_failover
from sources.postgres.server_errors import ObjectMissing, WalMissing, from_psycopg2
from sources.postgres.server_of_stream import ServerOfStream
from sources.postgres.server_types import ServerTypes
from sources.postgres.server_watch import ServerWatch
from sources.postgres.slot_creation import create_slot
from sources.postgres.snapshot.hidden import read_next_xid
from sources.postgres.snapshot.keyless import KeylessTables
from sources.postgres.snapshot.snapshots import Snapshots
from sources.postgres.standby_slots import require_readable
from sources.postgres.table_reader import PostgresTableReader
from sources.postgres.timelines import describe_branches, follow_timeline, identify_with_role, move_to_timeline
from sources.snapshot.gap_remedies import accept_gap

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

_REPLY_REQUEST_SHARE = 1 / 3
"""The share of receiveTimeout after which a silent server is asked to answer; silence is noticed that much later."""

_UNREAD_SECONDS = 30.0
"""The time after which a stream that is not read is ended, when the server is about to remove WAL of the slot. A sink
that is slow reads sooner, and may still save the slot."""

_URL_TIMEOUT_SECONDS = 10.0
"""For a connection to a server that is none of a source's."""

_WALSENDER_SECONDS = 60.0
"""The time that a walsender gets to answer, the connection to it included."""


class PostgresSource(Source):
    """Streams from one slot. Reading happens in a process of its own (sources.postgres.reader), decoding here."""

    Options: ClassVar[type[SourceOptions]] = PostgresOptions
    also_called = ("postgresql", "pg", "pgsql", "psql", "pgoutput", "wal")
    gives_transaction_metadata = True
    override_key = "walPositionOverride"
    first_start = "where its slot is"
    when_left_alone = "its slot is left alone and keeps WAL on the server"

    def __init__(self, name: str, options: PostgresOptions) -> None:
        super().__init__(name, options)
        self._settings = options
        self._catalog = Catalog(options.connection_string, options.timeout)
        self._server = ServerWatch(self._catalog, self._disconnect_if_full, self._disconnect_if_unread)
        self._of_stream = ServerOfStream(self._catalog)
        self._types = ServerTypes(self._of_stream)
        self._primary_keys = PrimaryKeys(self._of_stream)
        self._snapshots = Snapshots(name, options, self._catalog, self._types)
        self._keyless: KeylessTables | None = None
        self._shapes: dict[int, Relation] = {}
        self._reader: ReaderSession | None = None
        self._decoder: Decoder | None = None
        self._identity, self._was_standby = Identity("", 0, ""), False
        self._given, self._read_to = Lsn(0), Lsn(0)  # of the last batch with changes, and of the last one
        self._received = 0
        self._durable = 0
        self._stored: int | None = None
        self._confirmed = 0
        self._floor = 0  # the slot's confirmed_flush_lsn when streaming began: never confirm less
        self._starts = 0
        self._transaction_metadata = False
        self._keys_in_doubt = 0
        self._stream_goes_on = False  # whether it had a block in its last turn
        self.least_interval = min(SLOW_STREAM_BLOCK_SECONDS, options.batch_flush_interval)
        self._asked_at: float | None = None  # when the reader was asked for the next block
        self._silence = 0.0  # seconds, as long as somebody listens
        self._moved_at = 0.0  # when the stream last got on
        self._status = Status(False, "not started")

    @property
    def position_override(self) -> Position | None:
        override = self._settings.wal_position_override
        return WalPosition(override).position if override else None

    @property
    def gap_remedy(self) -> str:
        return accept_gap(self.name)

    def move_position(self, stored: Position, override: Position) -> Position:
        return Position({**stored.data, **override.data}, override.shown)  # what snapshots have given stays given

    def check(self) -> Iterable[Finding]:
        return check_source(self._settings, self._catalog, self.name, self._application_name)

    def check_position(self, position: Position | None) -> Iterable[Finding]:
        return check_position(self._settings, self._catalog, self.name, position)

    def read_stream_identity(self) -> Mapping[str, str]:
        self._identity, self._was_standby = self._ask_walsender(identify_with_role)
        return {
            "system identifier": self._identity.system_identifier,
            "timeline": str(self._identity.timeline),
            **describe_branches(self._identity),
            "database": self._identity.database,
            "slot": self._settings.replication_slot,
            "publication": ",".join(self._settings.publications),
        }

    def follow_stream(self, position: Position, before: Mapping[str, str]) -> tuple[Position, Mapping[str, str]]:
        """A server that was promoted, or recovered, and has everything that was given: see timelines.py.

        Positions that lie behind the new place are not to be stored once it is known.
        """
        if self._server.timeline:  # on which the session of before ended, whatever it began on
            before = move_to_timeline(before, self._server.timeline)
        found = follow_timeline(self._identity, position, before, self.name, is_standby=self._was_standby)
        if found[0] != position and self._read_to and self._stored != self._read_to:
            raise SourceUnavailable(
                f"the stream goes on at {found[0]}, on timeline {self._identity.timeline}, when all that was read up "
                f"to {position} is stored"
            )
        if found[1] != before:  # what was received behind that is of the other timeline
            self._received = min(self._received, WalPosition.from_position(found[0]).lsn)
        return found

    def list_published(self) -> Sequence[Relation]:
        with self._catalog.open_session() as session:
            session.require_publications(self._settings.publications)
            self._types.load(session)
            return list_published_tables(session, self._settings.publications, self._types.resolve)

    def remember(self, relations: Iterable[Relation]) -> None:
        self._shapes = {parse_oid(relation): relation for relation in relations}

    def find_dropped(self, relations: Sequence[Relation]) -> tuple[Position, Sequence[Relation]]:
        with self._catalog.open_session() as session:
            existing = session.find_existing_tables([parse_oid(relation) for relation in relations])
            # What was written before a table was dropped lies before the end of the WAL at any time after that.
            end = session.read_wal_end()
        return WalPosition(end).position, [relation for relation in relations if parse_oid(relation) not in existing]

    def has_reached(self, position: Position, mark: Position) -> bool:
        return WalPosition.from_position(position) >= WalPosition.from_position(mark)

    def provide_transaction_metadata(self) -> None:
        self._transaction_metadata = True

    def start(self, position: Position | None) -> None:
        self._leave()
        try:
            slot, resume = self._prepare(position)
            self._confirmed = self._floor = slot.confirmed_flush_lsn
            self._given = resume.lsn if position is None else read_given(position)
            if not self._starts:  # a later start is where reading got to
                self._durable = self._received = resume.lsn
                self._stored = None if position is None else resume.lsn
            self._reader = self._spawn(resume, slot)
            walsender = self._reader.wait_for_start()
        except SourceError as error:
            self._leave()
            error = self._explain(error)
            self._status = Status(False, str(error))
            raise error from None
        except OSError as error:  # of a process, a socket or a file that the machine does not give
            self._leave()
            if (shortage := explain_shortage(error)) is None:
                raise
            self._status = Status(False, str(shortage))
            raise SourceUnavailable(shortage.what, shortage.remedy) from None
        self._starts += 1
        self._of_stream.walsender = walsender
        info = SourceInfo(POSTGRESQL, self.name, self._host, self._identity.database, self._identity.system_identifier)
        self._decoder = Decoder(
            info, resume, self._types.resolve, self._primary_keys.ask, self._shapes, self._transaction_metadata
        )
        self._info = info
        self._status = Status(True, f'streaming from slot "{slot.name}" since {resume.lsn}')
        self._asked_at, self._silence, self._moved_at = None, 0.0, time.monotonic()
        self._server.start(walsender, self._identity.system_identifier, slot.name)
        self._snapshots.start(position, self._next_xid, self._keyless, walsender)

    def read(self, timeout: float) -> Batch | None:
        if self._reader is None or self._decoder is None:
            raise SourceUnavailable("the source is not started")
        try:
            self._require_the_same_timeline()
            if self._snapshots.come_first:
                batch = self._take_before_stream(self._decoder, timeout)
                return None if batch is None else self._stamp_given(batch, batch.position, self._decoder)
            if not self._snapshots.stream_is_next and (batch := self._take_snapshot_batch(self._decoder)) is not None:
                return self._stamp_given(batch, batch.position, self._decoder)
            self._ask()
            if self._wait_for_stream(self._reader, timeout):
                self._silence = 0.0
                batch, position = self._snapshots.watch(self._read_next(self._reader, self._decoder))
                return self._stamp_given(batch, position, self._decoder)
            if (batch := self._take_snapshot_batch(self._decoder)) is not None:
                return self._stamp_given(batch, batch.position, self._decoder)
            self._require_a_living_stream()
            return None
        except SourceError as error:
            error = self._explain(error)
            if isinstance(error, SourceUnavailable) and self._server.sent_all:
                error = QuietStreamEnded(error.what, error.remedy)
            self._status = Status(False, str(error))
            raise error from None

    def interrupt(self) -> None:
        self._catalog.interrupt()
        self._snapshots.interrupt()
        if (reader := self._reader) is not None:
            reader.interrupt()

    def confirm(self, position: Position) -> None:
        self._snapshots.note_stored(position)
        self._durable = WalPosition.from_position(position).lsn
        lsn = max(self._durable - self._settings.wal_retain, self._floor, self._confirmed)
        if lsn > self._confirmed:
            self._confirmed = lsn
            self._send_command(CONFIRM, lsn)
        self._stored = self._durable

    def review_snapshot(self, request: SnapshotRequest) -> None:
        self._snapshots.review(request)

    def take_keys(self, name: str, posted: PostedKeys) -> None:
        self._snapshots.take_keys(name, posted)

    def set_snapshots(self, requests: Sequence[SnapshotRequest]) -> None:
        self._snapshots.set_requests(requests)

    def make_capture(self, request: CaptureRequest) -> Source:
        return PostgresCapture(self.name, self._settings, request)

    def list_snapshots(self) -> Sequence[SnapshotProgress]:
        return self._snapshots.show()

    def make_table_reader(self) -> TableReader:
        return PostgresTableReader(
            self._settings.connection_string, self._settings.timeout, self._settings.publications
        )

    @classmethod
    def make_table_reader_at(cls, url: str) -> TableReader:
        require_dsn(url)
        return PostgresTableReader(url, _URL_TIMEOUT_SECONDS)

    def stop(self) -> None:
        self._leave()
        self._status = Status(False, "stopped")

    def status(self) -> Status:
        missing, silence = self._server.wal_end - self._received, self._silence
        if self._server.holds_changes_back:
            silence = max(silence, time.monotonic() - self._moved_at)
        if self._status.ok and missing > 0 and silence > self._settings.receive_timeout:
            return Status(
                False,
                f"the server has {missing} more bytes of WAL, but has sent nothing for {silence:.0f} s"
                f"{self._describe_work()}",
            )
        if self._status.ok and (trouble := self._server.describe_trouble()):
            return Status(False, f"{self._status.reason}; {trouble}")
        if self._status.ok and (snapshot := self._snapshots.describe()):
            return Status(True, f"{self._status.reason}; {snapshot}")
        return self._status

    def stats(self) -> Stats:
        return {
            "server_lsn": Lsn(max(self._server.wal_end, self._received)),
            "received_lsn": Lsn(self._received),
            "confirmed_lsn": Lsn(self._confirmed),
            **({} if self._stored is None else {"stored_lsn": Lsn(self._stored)}),
            "lag_bytes": max(0, max(self._server.wal_end, self._received) - self._durable),
            "reconnects": max(0, self._starts - 1),
            "keys_in_doubt": self._keys_in_doubt,
        }

    def _read_next(self, reader: ReaderSession, decoder: Decoder) -> Batch:
        block = reader.receive_block()
        received_at, self._asked_at = time.monotonic(), None
        if block.received > self._received:
            self._received, self._moved_at = block.received, received_at
        if block.size >= READ_AHEAD_BYTES:
            # The reader puts the next block together while this one is decoded.
            self._ask()
        batch = decoder.decode(block.data, block.offsets, received_at)
        self._tell_of_doubtful_keys(decoder)
        # Another session begins where this one ended.
        self._shapes |= {parse_oid(change.relation): change.relation for change in batch.schema_changes}
        return batch

    def _stamp_given(self, batch: Batch, position: Position, decoder: Decoder) -> Batch:
        """The batch with this position, and how far what was given has come."""
        there = decoder.position
        self._given, self._read_to = self._given if batch.idle else find_given(there), there.lsn
        return replace(batch, position=stamp_given(position, self._given))

    def _wait_for_stream(self, reader: ReaderSession, timeout: float) -> bool:
        """Whether a block is there. Rows of a snapshot end the wait, but not at once where the stream goes on: the
        reader was asked just now, so that its block has all that came while the sink wrote.
        """
        streams: list[ReaderSession | Snapshots] = [reader, self._snapshots]
        ready = wait_for_readable(streams, timeout)
        is_there = reader in ready
        if ready and not is_there and self._stream_goes_on:
            is_there = bool(wait_for_readable([reader], min(timeout, BLOCK_ANSWER_SECONDS)))
        self._stream_goes_on = is_there
        return is_there

    def _take_before_stream(self, decoder: Decoder, timeout: float) -> Batch | None:
        batch = self._take_snapshot_batch(decoder)
        if batch is None and wait_for_readable([self._snapshots], timeout):
            batch = self._take_snapshot_batch(decoder)
        return batch

    def _take_snapshot_batch(self, decoder: Decoder) -> Batch | None:
        batch = self._snapshots.take_next_batch(self._info, decoder, self._transaction_metadata)
        if batch is not None:
            self._shapes |= {parse_oid(change.relation): change.relation for change in batch.schema_changes}
        return batch

    def _tell_of_doubtful_keys(self, decoder: Decoder) -> None:
        for relation in decoder.keys_in_doubt:
            key = ", ".join(relation.columns[at].name for at in relation.key_columns) or "nothing"
            log.warning(
                "source %s: the primary key of %s was changed, or the table was dropped. It is not certain whether its "
                "next rows in the WAL are older or newer: the key of their events is %s",
                *(self.name, relation, key),
            )
        self._keys_in_doubt += len(decoder.keys_in_doubt)
        decoder.keys_in_doubt.clear()

    def _disconnect_if_full(self) -> None:
        """A server that shuts down waits for a walsender that cannot send, and the sinks may stand still for hours."""
        self._send_command(DISCONNECT_IF_FULL, 0)

    def _disconnect_if_unread(self) -> None:
        """A checkpoint that removes WAL of the slot waits for the walsender likewise, and other WAL piles up then."""
        self._send_command(DISCONNECT_IF_UNREAD, round(_UNREAD_SECONDS * 1000))

    def _ask(self) -> None:
        """Ask for a block, once."""
        if self._asked_at is None:
            self._asked_at = time.monotonic()
            self._send_command(REQUEST_BLOCK, self._settings.batch_bytes)

    # A server that keeps silent.

    def _require_a_living_stream(self) -> None:
        """SourceUnavailable when the server does not answer, though the reader asks it to whenever it is silent.

        A walsender that decodes a large transaction may answer late. Whether it does is asked over another connection:
        a stream that was cut off then would begin the transaction anew, and be cut off again.
        """
        self._silence = 0.0 if self._asked_at is None else time.monotonic() - self._asked_at
        if self._silence > self._settings.receive_timeout and not self._server.describe_walsender_work():
            raise SourceUnavailable(
                f"the server has sent nothing for {self._silence:.0f} s, not even an answer: the connection counts as "
                "lost",
                "look at the network in between, or raise receiveTimeout",
            )

    def _require_the_same_timeline(self) -> None:
        """SourceUnavailable when the standby that the stream comes from was promoted, or follows one that was. And when
        another server was, and the stream of the primary of before goes on.

        Its walsender goes on, and positions behind the branch are stored with the new timeline behind the next start.
        """
        if self._server.other_timeline > self._identity.timeline:
            raise SourceUnavailable(
                f"the dsn leads to a primary on timeline {self._server.other_timeline} now, and the stream came from a "
                f"server on timeline {self._identity.timeline}: the stream is begun anew there"
            )
        if self._server.timeline > self._identity.timeline:
            raise SourceUnavailable(
                f"the standby went on from timeline {self._identity.timeline} to {self._server.timeline}: the stream "
                "is begun anew there"
            )

    def _describe_work(self) -> str:
        work = self._server.describe_walsender_work()
        return f" (its walsender {work})" if work else ""

    def _explain(self, error: SourceError) -> SourceError:
        """What the server calls missing and the catalog has is a publication that was made anew behind the position."""
        if isinstance(error, WalMissing):
            return PositionRefused(error.what, f"{error.remedy}; if changes are lost, {accept_gap(self.name)}")
        if not isinstance(error, ObjectMissing):
            return error
        with self._catalog.open_session() as session:
            if set(self._settings.publications) - session.list_publications():
                return error
            end = session.read_wal_end()
        return make_gap_error(
            f"{error.what}; the publication exists now, but not at the position of the stream: it was dropped and "
            "created again, and changes that were committed in between are lost to this source",
            self.name,
            end,
        )

    # Before streaming.

    def _ask_walsender(self, question: Callable[[Walsender], Answer]) -> Answer:
        """What it answers over a connection of its own. SourceError."""

        def ask() -> Answer:
            connection = connect(self._settings.connection_string, self._settings.timeout, self._application_name)
            with contextlib.closing(connection):
                return question(connection)

        call = Call(ask, "ask walsender")
        if not call.wait(_WALSENDER_SECONDS, self._catalog.interrupted):
            call.abandon(lambda _: None)
            raise SourceUnavailable("the server did not answer in time", "check host and port in the dsn")
        try:
            return call.require_result()
        except psycopg2.Error as error:
            raise from_psycopg2(error, self._settings.connection_string) from None

    def _prepare(self, position: Position | None) -> tuple[Slot, WalPosition]:
        """Look at what streaming needs; create the slot if none was read from. The slot, and where to start in it."""
        self._keyless = None
        with self._catalog.open_session() as session:
            expected = self._identity
            found = replace(expected, system_identifier=session.system_identifier or expected.system_identifier)
            found.refuse_other_than(expected, self.name)
            session.require_logical_wal()
            session.require_publications(self._settings.publications)
            slot = self._provide_slot(session, position)
            self._status_interval = min(
                session.compute_status_interval(), self._settings.receive_timeout * _REPLY_REQUEST_SHARE
            )
            begins = None if self._snapshots.must_begin_anew(position) else position
            resume = resolve_resume_position(self._settings, self.name, begins, slot, session)
            self._types.load(session)
            self._next_xid = read_next_xid(session)
        return slot, resume

    def _provide_slot(self, session: Session, position: Position | None) -> Slot:
        """The slot. A new one takes the place of one that cannot be read on; standbys keep it if they kept that one."""
        name, failover = self._settings.replication_slot, self._settings.slot_failover
        if failover:
            session.require_failover_slots()
        slot = session.find_slot(name)
        require_readable(session, name, slot, was_read=position is not None, failover=failover)
        failover = failover or (slot is not None and slot.failover)
        if slot is not None and self._snapshots.follow_gap(position):
            dropped = drop_unreadable_slot(session, slot, self._settings.publications, self.name)
            slot = None if dropped else slot
        if slot is None:
            if not self._snapshots.must_begin_anew(position):
                require_never_read(self._settings, self.name, position)
            return self._create_slot(session, position, failover)
        slot.require_usable(session.database, self.name)
        if self._snapshots.must_begin_anew(position):
            self._drop_unfinished(session, slot)
            return self._create_slot(session, position, failover)
        if failover and not slot.failover:
            self._ask_walsender(partial(set_failover, slot=name))
            log.info('source.%s: standbys keep slot "%s" from now on (failover)', self.name, name)
        return slot

    def _create_slot(self, session: Session, position: Position | None, failover: bool) -> Slot:
        name = self._settings.replication_slot
        self._types.load(session)
        self._keyless = self._snapshots.find_keyless(session, position)
        if self._keyless is None:
            return create_slot(self._catalog, name, self._wait_for_slot, failover=failover)
        return self._keyless.create_slot(name, self._application_name, self._wait_for_slot, failover=failover)

    def _drop_unfinished(self, session: Session, slot: Slot) -> None:
        """Nothing of the slot's stream was given yet, because tables without a key come first."""
        log.warning(
            'source %s: the snapshot of tables without a key was not finished: slot "%s" is made anew, and they are '
            "read from their beginning",
            *(self.name, slot.name),
        )
        session.drop_slot(slot.name)

    def _wait_for_slot(self, reason: str) -> None:
        self._status = Status(False, reason)
        log.warning("%s", reason)

    # The reader process.

    def _spawn(self, resume: WalPosition, slot: Slot) -> ReaderSession:
        return ReaderSession(
            Settings(
                dsn=self._settings.connection_string,
                slot=slot.name,
                publications=list(self._settings.publications),
                identity=astuple(self._identity),
                lsn=resume.lsn,
                confirmed=slot.confirmed_flush_lsn,
                timeout=self._settings.timeout,
                status_interval=self._status_interval,
                block_frames=self._settings.batch_size,
                flush_interval=self._settings.batch_flush_interval,
                buffer_bytes=self._settings.batch_bytes,
                application_name=self._application_name,
                source=self.name,
                config_file=None if (file := get_file()) is None else str(file),
            )
        )

    def _send_command(self, kind: bytes, number: int) -> None:
        if (reader := self._reader) is not None:
            reader.send_command(kind, number)

    def _leave(self) -> None:
        """End the session. Snapshots are told before: what they ask for the stream's walsender would find none."""
        self._snapshots.prepare_stop()
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
        self._decoder = self._of_stream.walsender = None
        self._snapshots.stop()
        self._server.stop()

    # Names.

    @property
    def _application_name(self) -> str:
        return f"psql-streamer {self.name}"

    @property
    def _host(self) -> str:
        return str(psycopg2.extensions.parse_dsn(self._settings.connection_string).get("host", "unknown"))
