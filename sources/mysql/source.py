"""The `mysql` source: the binary log of a MySQL or MariaDB server as micro-batches."""

from __future__ import annotations

import contextlib
import logging
import secrets
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar

from psql_streamer.binlog.decoded import Decoded
from psql_streamer.binlog.decoder import Decoder
from psql_streamer.binlog.events import EventType
from psql_streamer.cells import CellTable
from psql_streamer.errors import SourceError, SourceUnavailable
from psql_streamer.interfaces import Finding, Severity, Source, Status
from psql_streamer.linger import Buffered, Linger
from psql_streamer.model import (
    MARIADB,
    MYSQL,
    NO_TRANSACTIONS,
    Batch,
    Position,
    Relation,
    SourceInfo,
    Stats,
    TransactionMetadata,
    Truncate,
    batch_overhead,
)
from psql_streamer.options import SourceOptions
from sources.mysql.check import findings
from sources.mysql.connection import Connector
from sources.mysql.gtid_sets import Executed
from sources.mysql.options import MysqlOptions, Wanted
from sources.mysql.positions import BinlogPosition, read_position, resume_position
from sources.mysql.published_tables import published_tables, tables_seen
from sources.mysql.replication import Start, Stream
from sources.mysql.server import Session, session
from sources.mysql.server_watch import ServerWatch
from sources.mysql.transaction_metadata import TransactionReader

log = logging.getLogger(__name__)

_HEARTBEAT_SHARE = 1 / 3
"""The share of receiveTimeout after which a server that has nothing to send sends a heartbeat."""

_LEAST_SERVER_ID, _MOST_SERVER_ID = 1 << 31, (1 << 32) - 1
"""Of ids that are made up: people number their servers from 1 on."""

_FIRST_ROW_BYTES = 64.0
"""What a row is taken to have before the first batch has said."""

_LEAST_BLOCK_BYTES = 16 << 10

_TRANSACTION_ENDS = {EventType.XID, EventType.HEARTBEAT, EventType.HEARTBEAT_V2, EventType.ROTATE}
_TYPE_AT = 4


class MysqlSource(Source):
    """Streams as a replica does. The source's own thread reads the socket: while it is busy, the server waits."""

    Options: ClassVar[type[SourceOptions]] = MysqlOptions

    def __init__(self, name: str, options: MysqlOptions) -> None:
        super().__init__(name, options)
        self._settings = options
        self._connector = Connector(options.address, options.timeout, f"psql-streamer {name}")
        self._wanted = Wanted(options)
        # One that is made up is another one in every process: of two clients with the same the server ends the elder.
        self._server_id = options.server_id or _LEAST_SERVER_ID + secrets.randbelow(_MOST_SERVER_ID - _LEAST_SERVER_ID)
        self._server = ServerWatch(self._connector)
        self._linger = Linger(options.batch_size, options.batch_flush_interval)
        self._shapes: dict[str, Relation] = {}
        self._stream: Stream | None = None
        self._decoder: Decoder | None = None
        self._executed: Executed | None = None
        self._executed_text: str | None = None
        self._at: BinlogPosition | None = None
        self._durable: BinlogPosition | None = None
        self._waiting: deque[Batch] = deque()
        self._info: dict[str, SourceInfo] = {}
        self._kind, self._own_server, self._log_name = MYSQL, ("", 0), ""
        self._wants_transactions = False
        self._transactions: TransactionReader | None = None
        self._row_bytes = _FIRST_ROW_BYTES
        self._buffered_since = 0.0
        self._starts = 0
        self._status = Status(False, "not started")

    def check(self) -> Iterable[Finding]:
        return findings(self._settings, self._connector, self._wanted, self._server_id)

    def check_position(self, position: Position | None) -> Iterable[Finding]:
        try:
            with session(self._connector) as asking:
                asking.require_binary_log()
                resume_position(self.name, position, asking)
        except SourceError as error:
            yield Finding(Severity.ERROR, error.what, error.remedy)

    def stream_identity(self) -> Mapping[str, str]:
        """With GTIDs a position goes with every server that has its transactions, which `start` finds out.

        Without them it goes with one server alone.
        """
        with session(self._connector) as asking:
            return {"kind of server": asking.product} | ({} if asking.has_gtids else {"server uuid": asking.uuid})

    def published(self) -> Sequence[Relation] | None:
        with session(self._connector) as asking:
            # An account that may only replicate sees no tables.
            return published_tables(asking, self._wanted) or None

    def remember(self, relations: Iterable[Relation]) -> None:
        self._shapes = {relation.id: relation for relation in relations}

    def find_dropped(self, relations: Sequence[Relation]) -> tuple[Position, Sequence[Relation]] | None:
        with session(self._connector) as asking:
            seen = tables_seen(asking)
            end = resume_position(self.name, None, asking)
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
            resume = self._prepare(position)
            stream = self._stream = Stream(
                self._connector, self._server_id, self._settings.receive_timeout * _HEARTBEAT_SHARE
            )
            stream.open(Start(self._executed, resume.place.file, resume.place.offset))
        except SourceError as error:
            self._leave()
            self._status = Status(False, str(error))
            raise
        self._starts += 1
        self._at = resume
        self._durable = self._durable or resume
        self._decoder = Decoder(
            self._describe,
            "mariadb" if self._kind == MARIADB else "mysql",
            self._wanted,
            "" if self._executed is not None else resume.place.file,
            resume.place.offset,
            resume.open,
            self._shapes,
        )
        self._transactions = TransactionReader(dict(resume.counts)) if self._wants_transactions else None
        if position is None:
            # A stop before the first change would have the next start begin at a later end.
            self._waiting.append(Batch(self._describe(""), resume.position, NO_TRANSACTIONS))
        self._status = Status(True, f"streaming from {self._connector.address} since {resume}")
        self._server.start()

    def read(self, timeout: float) -> Batch | None:
        stream = self._stream
        if stream is None:
            raise SourceUnavailable("the source is not started")
        if self._waiting:
            return self._waiting.popleft()
        try:
            if self._gather(stream, timeout):
                events = stream.buffer.take(self._settings.batch_size, self._block_bytes())
                self._linger.note_block(time.monotonic(), sum(map(len, events)))
                self._buffered_since = time.monotonic()
                self._waiting.extend(self._decode(events, stream.heard_at))
                return self._waiting.popleft() if self._waiting else None
            if stream.buffer.failure is not None:
                raise stream.buffer.failure
            self._require_a_living_stream(stream)
            return None
        except SourceError as error:
            self._status = Status(False, str(error))
            raise

    def confirm(self, position: Position) -> None:
        """The server keeps its binary log for as long as it is set to, whatever was read: nothing is told."""
        self._durable = read_position(self.name, position)

    def interrupt(self) -> None:
        self._connector.interrupt()

    def stop(self) -> None:
        self._leave()
        self._status = Status(False, "stopped")

    def status(self) -> Status:
        return self._status

    def stats(self) -> Stats:
        durable = self._durable
        behind = None if durable is None else self._server.bytes_behind(durable.place)
        return {
            **({} if self._at is None else {"received_position": str(self._at)}),
            **({} if behind is None else {"lag_bytes": behind}),
            "server_id": self._server_id,
            "reconnects": max(0, self._starts - 1),
        }

    # Before streaming.

    def _prepare(self, position: Position | None) -> BinlogPosition:
        with session(self._connector) as asking:
            asking.require_binary_log()
            resume = resume_position(self.name, position, asking)
            self._kind = MARIADB if asking.is_mariadb else MYSQL
            self._own_server = asking.uuid, int(asking.settings.get("server_id", 0))
            self._log_name = asking.end().file.rpartition(".")[0]
            self._info.clear()
            self._executed = self._parse(resume.executed, asking)
        self._executed_text = resume.executed
        return resume

    def _parse(self, executed: str | None, asking: Session) -> Executed | None:
        if executed is None:
            return None
        return type(asking.executed()).parse(executed)

    def _describe(self, identity: str) -> SourceInfo:
        """What events say of their source, by what the numbers of its transactions count in: a server's uuid, or a
        domain.
        """
        found = self._info.get(identity)
        if found is None:
            uuid, server_id = self._own_server
            server_id = server_id if identity in ("", uuid) else 0
            found = self._info[identity] = SourceInfo(
                *(self._kind, self.name, self._connector.address.host, ""),
                identity=identity or uuid,
                server_id=server_id,
                log_name=self._log_name,
            )
        return found

    # At work.

    def _gather(self, stream: Stream, timeout: float) -> bool:
        """Whether there are events to be decoded. In a fast stream more are waited for: batches become large."""
        buffer = stream.buffer
        if not buffer.events and (buffer.failure is not None or not stream.wait(timeout) or not buffer.events):
            return False
        self._buffered_since = max(self._buffered_since, stream.heard_at)
        while buffer.failure is None:
            if stream.receive():
                if self._is_full(stream):
                    break
                continue
            pause = self._linger.seconds_to_wait(time.monotonic(), self._buffered(stream), self._block_bytes())
            if pause <= 0 or not stream.wait(pause):
                break
        return True

    def _block_bytes(self) -> int:
        """Bytes of events that have about batchSize rows, as large as those of the last batch: an event does not say
        how many it has.
        """
        return min(
            self._settings.batch_bytes, max(_LEAST_BLOCK_BYTES, int(self._settings.batch_size * self._row_bytes))
        )

    def _is_full(self, stream: Stream) -> bool:
        buffer = stream.buffer
        return buffer.size >= self._block_bytes() or len(buffer.events) >= self._settings.batch_size

    def _buffered(self, stream: Stream) -> Buffered:
        buffer = stream.buffer
        complete = buffer.events[-1][_TYPE_AT] in _TRANSACTION_ENDS
        return Buffered(buffer.size, len(buffer.events), self._buffered_since, complete)

    def _decode(self, events: Sequence[bytes], received_at: float) -> Iterator[Batch]:
        assert self._decoder is not None  # noqa: S101 - `read` looked
        for decoded in self._decoder.decode(events):
            if (batch := self._batch(decoded, received_at)) is not None:
                yield batch

    def _batch(self, decoded: Decoded, received_at: float) -> Batch | None:
        """None where nothing has moved."""
        assert self._at is not None  # noqa: S101 - it was started
        for ddl in decoded.ddl:
            statement = ddl.statement
            table = f" {statement.schema}.{statement.table}" if statement.table else ""
            log.info("source %s: %s%s", self.name, statement.words, table)
        if self._executed is not None and decoded.completed:
            for gtid in decoded.completed:
                self._executed.add(*gtid)
            self._executed_text = str(self._executed)
        changes, truncates, metadata = self._read_transactions(decoded)
        counts = self._transactions.open_counts if self._transactions else {}
        before, self._at = self._at, self._at.moved(decoded.standing, self._executed_text, counts)
        if not changes.rows and not truncates and not decoded.schema_changes and not metadata and self._at == before:
            return None
        if changes.rows:
            self._row_bytes = decoded.nbytes / changes.rows
        # Another session begins where this one ended.
        self._shapes |= {change.relation.id: change.relation for change in decoded.schema_changes}
        return Batch(
            decoded.source,
            self._at.position,
            decoded.transactions,
            changes,
            truncates,
            schema_changes=decoded.schema_changes,
            transaction_metadata=metadata,
            nbytes=batch_overhead(changes) + 2 * decoded.nbytes,
            received_at=received_at,
        )

    def _read_transactions(
        self, decoded: Decoded
    ) -> tuple[CellTable, tuple[Truncate, ...], TransactionMetadata | None]:
        if self._transactions is None:
            return decoded.changes, decoded.truncates, None
        assert self._decoder is not None  # noqa: S101 - it gave what was decoded
        return self._transactions.read(decoded, self._decoder.in_transaction)

    def _require_a_living_stream(self, stream: Stream) -> None:
        silence = time.monotonic() - stream.heard_at
        if silence > self._settings.receive_timeout:
            raise SourceUnavailable(
                f"the server has sent nothing for {silence:.0f} s, not even a heartbeat: the connection counts as lost",
                "look at the network in between, or raise receiveTimeout",
            )

    def _leave(self) -> None:
        with contextlib.suppress(SourceError):
            self._server.stop()
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
        self._decoder = None
        self._waiting.clear()
