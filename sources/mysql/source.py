"""The `mysql` source: the binary log of a MySQL or MariaDB server as micro-batches."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from psql_streamer.binlog.events import EventType
from psql_streamer.errors import QuietStreamEnded, SourceError, SourceUnavailable
from psql_streamer.interfaces import CaptureRequest, Finding, Severity, Source, Status
from psql_streamer.linger import Buffered, Linger
from psql_streamer.model import (
    MARIADB,
    MYSQL,
    Batch,
    Position,
    Relation,
    Stats,
)
from psql_streamer.options import SourceOptions
from psql_streamer.snapshots import SnapshotProgress, SnapshotRequest
from sources.mysql.batches import BatchReader, Origin
from sources.mysql.capturing import ExistingRows
from sources.mysql.check import check_source
from sources.mysql.connection import Connector
from sources.mysql.gtid_sets import Executed
from sources.mysql.log_identity import make_begin_reader
from sources.mysql.options import MysqlOptions, Wanted
from sources.mysql.places import LogPlace
from sources.mysql.positions import BinlogPosition, make_override_position, read_position
from sources.mysql.published_tables import list_published_tables, list_seen_tables
from sources.mysql.replication import Start, Stream, make_up_server_id
from sources.mysql.resuming import find_end_position, name_choices, resolve_resume_position
from sources.mysql.server import Session, describe_server, open_session
from sources.mysql.server_of_stream import Client, ServerOfStream, find_client
from sources.mysql.server_watch import ServerWatch
from sources.mysql.snapshot.snapshots import Snapshots
from sources.mysql.untold import UntoldWatch
from sources.snapshot.gap_remedies import accept_gap
from sources.snapshot.options import SnapshotMode

log = logging.getLogger(__name__)

_HEARTBEAT_SHARE, _HEARTBEAT_SECONDS = 1 / 3, 0.5
"""The share of receiveTimeout after which a server that has nothing to send sends a heartbeat, and the most seconds:
it says how far the stream is where the binary log ends with events that are not sent, and rows of a snapshot wait for
that.
"""

_LEAST_BLOCK_BYTES = 16 << 10

_HEARTBEATS = {EventType.HEARTBEAT, EventType.HEARTBEAT_V2}
_TRANSACTION_ENDS = {EventType.XID, *_HEARTBEATS, EventType.ROTATE}
_TYPE_AT = 4


class _Ready(NamedTuple):
    """What a session begins with. executed, before: as BatchReader takes them. end: of the binary log. client: the
    session of the stream.
    """

    origin: Origin
    resume: BinlogPosition
    executed: Executed | None
    before: Executed | None
    end: LogPlace
    client: Client


def _may_go_over(resume: BinlogPosition, asking: Session) -> bool:
    """Whether positions may become GTIDs, as MariaDB always has them. A transaction that is open is known again by what
    it was known by.
    """
    by_place = resume.open is not None and resume.open.gtid is None
    return asking.is_mariadb and resume.executed is None and not by_place


def _give_away(events: list[bytes]) -> Iterator[bytes]:
    """One after the other, so that none stays that was read: it may be large."""
    events.reverse()
    while events:
        yield events.pop()


class MysqlSource(Source):
    """Streams as a replica does. The source's own thread reads the socket: while it is busy, the server waits."""

    Options: ClassVar[type[SourceOptions]] = MysqlOptions
    also_called = ("mariadb", "maria", "percona", "binlog")
    gives_transaction_metadata = True
    override_key = "positionOverride"
    first_start = "at the end of the binary log"
    no_keys = (
        "its collations take several texts for one key, and nothing says which of them the binary log has; ask for all "
        "rows, and delete what has no event behind that (docs/snapshots.md)"
    )

    def __init__(self, name: str, options: MysqlOptions) -> None:
        super().__init__(name, options)
        self._settings = options
        self._connector = Connector(options.address, options.timeout, f"psql-streamer {name}")
        self._wanted = Wanted(options)
        # One that is made up is another one in every process: of two clients with the same the server ends the elder.
        self._server_id = options.server_id or make_up_server_id()
        self._untold = UntoldWatch(name, options, self._wanted)
        self._server = ServerOfStream(self._connector)
        self._watch = ServerWatch(self._server, self._untold.look)
        self._snapshots = Snapshots(name, options, self._server, self._wanted)
        self._linger = Linger(options.batch_size, options.batch_flush_interval)
        self._shapes: dict[str, Relation] = {}
        self._stream: Stream | None = None
        self._reader: BatchReader | None = None
        self._durable: BinlogPosition | None = None
        self._waiting: deque[Batch] = deque()
        self._wants_transactions = False
        self._buffered_since = 0.0
        self._is_quiet = False  # whether the last event was a heartbeat
        self._starts = 0
        self._status = Status(False, "not started")

    @property
    def position_override(self) -> Position | None:
        return make_override_position(self._settings.position_override)

    @property
    def gap_remedy(self) -> str:
        return accept_gap(self.name)

    def move_position(self, stored: Position, override: Position) -> Position:
        return Position({**stored.data, **override.data}, override.shown)  # what snapshots have given stays given

    def check(self) -> Iterable[Finding]:
        return check_source(self.name, self._settings, self._connector, self._wanted)

    def check_position(self, position: Position | None) -> Iterable[Finding]:
        try:
            with open_session(self._connector) as asking:
                asking.require_binary_log()
                self._resolve(position, asking)
        except SourceError as error:
            yield Finding(Severity.ERROR, error.what, error.remedy)

    def read_stream_identity(self) -> Mapping[str, str]:
        """With GTIDs a position goes with every server that has its transactions, which `start` finds out.

        Without them it goes with one server alone.
        """
        with open_session(self._connector) as asking:
            return {"kind of server": asking.product} | ({} if asking.has_gtids else {"server uuid": asking.uuid})

    def list_published(self) -> Sequence[Relation] | None:
        with self._server.open_session() as asking:
            # An account that may only replicate sees no tables.
            return list_published_tables(asking, self._wanted) or None

    def remember(self, relations: Iterable[Relation]) -> None:
        self._shapes = {relation.id: relation for relation in relations}

    def find_dropped(self, relations: Sequence[Relation]) -> tuple[Position, Sequence[Relation]] | None:
        with self._server.open_session() as asking:
            seen = list_seen_tables(asking)
            end = find_end_position(asking)
        # Of a schema in which it sees no table the account may have no right to see any.
        schemas = {schema for schema, _ in seen}
        gone = [one for one in relations if one.schema in schemas and (one.schema, one.table) not in seen]
        return end.position, gone

    def has_reached(self, position: Position, mark: Position) -> bool:
        return read_position(self.name, position).has_reached(read_position(self.name, mark))

    def provide_transaction_metadata(self) -> None:
        self._wants_transactions = True

    def start(self, position: Position | None) -> None:
        self._leave()
        try:
            heartbeat = min(self._settings.receive_timeout * _HEARTBEAT_SHARE, _HEARTBEAT_SECONDS)
            self._stream = Stream(self._connector, self._server_id, heartbeat)
            # Over the connection of the stream: another one may come to another server.
            asking = self._stream.connect()
            with self._connector.translate_errors():
                ready = self._prepare(position, asking)
            place = ready.resume.place
            self._stream.open(Start(ready.executed, place.file, place.offset, ready.before is not None))
        except SourceError as raised:
            self._leave()
            error = name_choices(raised, self.name)
            self._status = Status(False, str(error))
            raise error from None
        self._starts += 1
        self._is_quiet = False
        self._reader = BatchReader(
            *(ready.origin, ready.resume, ready.executed, ready.before),
            self._wanted,
            self._shapes,
            self._wants_transactions,
        )
        if position is None:
            # A stop before the first change would have the next start begin at a later end.
            self._waiting.append(self._reader.stand_still())
        self._status = Status(True, f"streaming from {self._connector.address} since {ready.resume}")
        self._server.client = ready.client
        self._watch.start()
        self._snapshots.start(position, ready.resume.position, ready.end, ready.client)

    def read(self, timeout: float) -> Batch | None:
        stream = self._stream
        if stream is None or self._reader is None:
            raise SourceUnavailable("the source is not started")
        try:
            return self._read_next(stream, self._reader, timeout)
        except SourceError as raised:
            error = name_choices(raised, self.name)
            # What the server itself says may be of a change; after a heartbeat it had none to send.
            if isinstance(error, SourceUnavailable) and self._is_quiet and stream.buffer.failure is None:
                error = QuietStreamEnded(error.what, error.remedy)
            self._status = Status(False, str(error))
            raise error from None

    def confirm(self, position: Position) -> None:
        """The server keeps its binary log for as long as it is set to, whatever was read: nothing is told."""
        self._durable = read_position(self.name, position)
        self._snapshots.note_stored(position)

    def review_snapshot(self, request: SnapshotRequest) -> None:
        self._snapshots.review(request)

    def set_snapshots(self, requests: Sequence[SnapshotRequest]) -> None:
        self._snapshots.set_requests(requests)

    def list_snapshots(self) -> Sequence[SnapshotProgress]:
        return self._snapshots.show()

    def make_capture(self, request: CaptureRequest) -> Source:
        """From the end of the binary log, or rows that are there."""
        if request.existing:
            return ExistingRows(self.name, self._settings, request, self.list_published, self._make_of_its_own)
        never = self._settings.snapshot.model_copy(update={"mode": SnapshotMode.NEVER})
        return self._make_of_its_own({"snapshot": never})

    def interrupt(self) -> None:
        self._connector.interrupt()
        self._snapshots.interrupt()

    def stop(self) -> None:
        self._leave()
        self._status = Status(False, "stopped")

    def status(self) -> Status:
        if not self._status.ok:
            return self._status
        elsewhere = self._watch.describe_trouble()
        told = [self._status.reason, elsewhere, self._describe_prepared(), self._snapshots.describe()]
        return Status(not elsewhere, "; ".join(filter(None, told)))

    def _describe_prepared(self) -> str:
        reader = self._reader
        prepared = 0 if reader is None else reader.prepared
        return f"rows wait for XA transactions that are prepared and not committed ({prepared})" if prepared else ""

    def stats(self) -> Stats:
        durable, reader = self._durable, self._reader
        received = durable if reader is None else reader.at
        behind = durable and received and self._watch.measure_lag(durable.place, received.place)
        return {
            **({} if reader is None else {"received_position": str(reader.at)}),
            **({} if behind is None else {"lag_bytes": behind}),
            **({} if self._untold.cascaded is None else {"cascaded_tables": self._untold.cascaded}),
            "server_id": self._server_id,
            "reconnects": max(0, self._starts - 1),
        }

    def _prepare(self, position: Position | None, asking: Session) -> _Ready:
        """Look at what streaming needs."""
        asking.require_binary_log()
        resume, server = self._resolve(position, asking), describe_server(asking)
        if self._durable is None or self._durable.server != server:
            # After a failover it has no place on this server; the next that is confirmed has one.
            self._durable = resume if resume.place.file else None
        end = asking.read_end()
        origin = Origin(
            MARIADB if asking.is_mariadb else MYSQL,
            self.name,
            self._connector.address.host,
            asking.uuid,
            int(asking.settings.get("server_id", 0)),
            end.file.rpartition(".")[0],
            asking.settings.get("lower_case_table_names", "0") != "0",
        )
        executed = None if resume.executed is None else type(asking.read_executed()).parse(resume.executed)
        before = asking.read_gtids_before(resume.place) if _may_go_over(resume, asking) else None
        return _Ready(origin, resume, executed, before, LogPlace.from_place(end), find_client(asking))

    def _resolve(self, position: Position | None, asking: Session) -> BinlogPosition:
        """Where to start: the position, or the end of the binary log."""
        if position is None:
            return find_end_position(asking)
        read_begin = make_begin_reader(self._connector, asking)
        return resolve_resume_position(self.name, position, asking, read_begin, self._wanted.choice)

    def _make_of_its_own(self, update: Mapping[str, Any]) -> MysqlSource:
        """Another client with the same server id would end this source's session."""
        options = {"position_override": "", "server_id": 0, **update}
        return MysqlSource(self.name, self._settings.model_copy(update=options))

    # At work.

    def _read_next(self, stream: Stream, reader: BatchReader, timeout: float) -> Batch | None:
        if not self._waiting and not self._snapshots.stream_is_next:
            batch = self._take_snapshot_batch(reader)
            if batch is not None:
                return batch
        if not self._waiting and self._gather(stream, reader, timeout):
            self._decode(stream, reader)
        if self._waiting:
            return self._give(reader)
        if (batch := self._take_snapshot_batch(reader)) is not None:
            return batch
        self._require_a_living_stream(stream)
        return None

    def _take_snapshot_batch(self, reader: BatchReader) -> Batch | None:
        """Where the stream stands: behind everything that was decoded."""
        chosen = self._settings
        batch = self._snapshots.take_next_batch(reader, chosen.batch_size, chosen.batch_bytes, self._wants_transactions)
        if batch is not None:
            self._note_shapes(batch)
        return batch

    def _gather(self, stream: Stream, reader: BatchReader, timeout: float) -> bool:
        """Whether there are events to be decoded. In a fast stream more are waited for: batches become large."""
        buffer = stream.buffer
        if not buffer.events and (
            buffer.failure is not None or not stream.wait(timeout, self._snapshots) or not buffer.events
        ):
            return False
        self._buffered_since = max(self._buffered_since, stream.heard_at)
        while buffer.failure is None:
            if stream.receive():
                if buffer.size >= self._compute_block_bytes(reader) or len(buffer.events) >= self._settings.batch_size:
                    break
                continue
            pause = self._linger.compute_wait_seconds(
                time.monotonic(), self._measure_buffered(stream), self._compute_block_bytes(reader)
            )
            if pause <= 0 or not stream.wait(pause):
                break
        return True

    def _compute_block_bytes(self, reader: BatchReader) -> int:
        """Bytes of events that have about batchSize rows, as large as those of the last batch: an event does not say
        how many it has.
        """
        rows = int(self._settings.batch_size * reader.row_bytes)
        return min(self._settings.batch_bytes, max(_LEAST_BLOCK_BYTES, rows))

    def _measure_buffered(self, stream: Stream) -> Buffered:
        buffer = stream.buffer
        complete = buffer.events[-1][_TYPE_AT] in _TRANSACTION_ENDS
        return Buffered(buffer.size, len(buffer.events), self._buffered_since, complete)

    def _decode(self, stream: Stream, reader: BatchReader) -> None:
        events = stream.buffer.take(self._settings.batch_size, self._compute_block_bytes(reader))
        self._is_quiet = events[-1][_TYPE_AT] in _HEARTBEATS
        self._buffered_since = time.monotonic()
        self._linger.note_block(self._buffered_since, sum(map(len, events)))
        self._waiting.extend(reader.read(_give_away(events), stream.heard_at))
        if reader.take_news_of_tables():
            self._watch.look_again()

    def _give(self, reader: BatchReader) -> Batch:
        batch = self._waiting.popleft()
        self._note_shapes(batch)
        return self._snapshots.stamp(batch, reader)

    def _note_shapes(self, batch: Batch) -> None:
        """Another session begins where this one ended."""
        self._shapes |= {change.relation.id: change.relation for change in batch.schema_changes}

    def _require_a_living_stream(self, stream: Stream) -> None:
        if stream.buffer.failure is not None:
            raise stream.buffer.failure
        silence = time.monotonic() - stream.heard_at
        if silence > self._settings.receive_timeout:
            raise SourceUnavailable(
                f"the server has sent nothing for {silence:.0f} s, not even a heartbeat: the connection counts as lost",
                "look at the network in between, or raise receiveTimeout",
            )

    def _leave(self) -> None:
        self._snapshots.stop()
        with contextlib.suppress(SourceError):
            self._watch.stop()
        self._server.client = None
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
        self._reader = None
        self._waiting.clear()
