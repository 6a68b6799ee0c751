"""Changes of a publication's tables without a trace: from a temporary slot, which ends with its session, or rows that
are there, read once.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import psycopg2
import pyarrow as pa
from psycopg2.extensions import connection as Connection  # noqa: N812 - a class
from psycopg2.extensions import parse_dsn

from psql_streamer.errors import SourceRefused
from psql_streamer.interfaces import CaptureRequest, Finding, Source
from psql_streamer.lsn import NO_LSN, Lsn
from psql_streamer.model import POSTGRESQL, Batch, Position, SnapshotRows, SourceInfo
from psql_streamer.pgoutput.decoder import Decoder
from psql_streamer.pgoutput.frames import FrameBuffer
from psql_streamer.pgoutput.wal_position import WalPosition
from psql_streamer.readable import wait_for_readable
from psql_streamer.snapshot.batches import make_snapshot_batch
from psql_streamer.snapshot.changed_keys import join_row_keys
from psql_streamer.snapshot.held import Piece
from sources.postgres.catalog import Catalog, Session
from sources.postgres.identifiers import quote_identifier
from sources.postgres.options import PostgresOptions
from sources.postgres.primary_keys import PrimaryKeys
from sources.postgres.replication import Stream, connect, identify, open_stream, start_command
from sources.postgres.server_errors import from_psycopg2
from sources.postgres.server_types import ServerTypes
from sources.postgres.slot_creation import wait_for_slot
from sources.postgres.snapshot.copying import Chunk, begin, connect_reader, end, read_chunk, read_pages
from sources.postgres.snapshot.tables import SnapshotTable, find_refusal, list_snapshot_tables

_CAPTURE_START_SECONDS = 60.0
_TABLE_LOCK_SECONDS = 10.0
_CAPTURE_CHUNK_BYTES = 64 << 20

_SNAPSHOT = SnapshotRows("capture", on_demand=True)


class PostgresCapture(Source):
    """The stream of the publications from now on, or, if that is wanted, rows of the tables as a snapshot reads them.

    The reader of a real source is a process of its own, so that it answers the server whatever its consumer does; here
    nobody keeps `read` waiting.
    """

    Options = PostgresOptions

    def __init__(self, name: str, options: PostgresOptions, request: CaptureRequest) -> None:
        super().__init__(name, options)
        self._settings = options
        self._request = request
        self._catalog = Catalog(options.connection_string, options.timeout)
        self._types = ServerTypes(self._catalog)
        self._session: Session | None = None
        self._stream: Stream | None = None
        self._decoder: Decoder | None = None
        self._frames = FrameBuffer()
        self._status_due = 0.0
        self._status_interval = 10.0
        self._ready: deque[Batch] = deque()

    def check(self) -> Iterable[Finding]:
        return ()

    def read_stream_identity(self) -> Mapping[str, str]:
        return {}

    def has_reached(self, position: Position, mark: Position) -> bool:
        return WalPosition.from_position(position) >= WalPosition.from_position(mark)

    def start(self, position: Position | None) -> None:  # noqa: ARG002 - there is none
        with self._catalog.open_session() as session:
            session.require_publications(self._settings.publications)
            if not self._request.existing:
                session.require_logical_wal()
                self._status_interval = session.compute_status_interval()
            self._types.load(session)
            if self._request.existing:
                self._ready.extend(self._read_existing(session))
                return
        self._open_stream()

    def read(self, timeout: float) -> Batch | None:
        if self._ready:
            return self._ready.popleft()
        stream, decoder, frames = self._stream, self._decoder, self._frames
        if stream is None or decoder is None:
            return None
        deadline = time.monotonic() + timeout
        while not len(frames) and (left := deadline - time.monotonic()) > 0:
            wait_for_readable([stream], min(left, stream.look_every or left))
            stream.receive(frames)
            self._answer(stream)
        block = frames.take(self._settings.batch_bytes, self._settings.batch_size)
        if block is None:
            return None
        return decoder.decode(block.data, np.frombuffer(block.offsets, np.uint32), time.monotonic())

    @property
    def is_exhausted(self) -> bool:
        return self._request.existing and not self._ready

    def interrupt(self) -> None:
        self._catalog.interrupt()

    def stop(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
        session, self._session = self._session, None
        if session is not None:
            session.close()

    # The stream.

    def _open_stream(self) -> None:
        dsn = self._settings.connection_string
        connection = connect(dsn, self._settings.timeout, self._application_name)
        self._session = Session(connection, None)
        name = f"psql_streamer_capture_{secrets.token_hex(6)}"
        try:
            identity = identify(connection)
            resume = self._create_slot(self._session, name)
            command = start_command(name, NO_LSN, list(self._settings.publications))
            self._stream = open_stream(connection, command, time.monotonic() + _CAPTURE_START_SECONDS)
        except psycopg2.Error as error:
            raise from_psycopg2(error, dsn) from None
        source = self._make_info(identity.database, identity.system_identifier)
        keys = PrimaryKeys(self._catalog)
        self._decoder = Decoder(source, resume, self._types.resolve, keys.ask, transaction_metadata=True)

    def _create_slot(self, maker: Session, name: str) -> WalPosition:
        """A slot that only this session can read, and that ends with it: where it begins."""
        command = f"CREATE_REPLICATION_SLOT {quote_identifier(name)} TEMPORARY LOGICAL pgoutput NOEXPORT_SNAPSHOT"
        [(_, begins, _, _)] = wait_for_slot(
            self._catalog, maker, lambda: maker.read_rows(command), name, self._request.on_wait
        )
        return WalPosition(Lsn.parse(begins))

    def _answer(self, stream: Stream) -> None:
        """The slot need not keep anything: what was received is done with."""
        now = time.monotonic()
        if now >= self._status_due or self._frames.reply_requested:
            self._status_due, self._frames.reply_requested = now + self._status_interval, False
            stream.send_status(self._frames.received, self._frames.received)

    # Rows that are there.

    def _read_existing(self, session: Session) -> Iterator[Batch]:
        source = self._make_info(session.database, session.system_identifier)
        tables = [
            table
            for table in list_snapshot_tables(session, self._settings.publications, self._types.resolve)
            if self._request.fits(table.relation.schema, table.relation.table)
        ]
        given = 0
        for table in tables:
            if (refused := find_refusal(session, table)) is not None:
                raise SourceRefused(*refused)
            batch = self._read_table(table, source, self._request.rows - given, given)
            given += batch.rows.rows
            yield batch
            if given >= self._request.rows:
                return

    def _read_table(self, table: SnapshotTable, source: SourceInfo, rows: int, first_seq: int) -> Batch:
        reader = connect_reader(self._settings.connection_string, self._settings.timeout, self._application_name)
        with contextlib.closing(reader):
            fence = begin(reader, table, _TABLE_LOCK_SECONDS)
            chunk = self._read_rows(reader, table, rows)
            end(reader)
        relation = table.relation
        keys = (
            join_row_keys([chunk.columns[one.column] for one in table.key]) if table.key else _number_rows(chunk.rows)
        )
        piece = Piece(relation, chunk.columns, keys, chunk.nbytes, None, ends_chunk=True)
        position = WalPosition(Lsn(fence.lsn)).position
        return make_snapshot_batch(source, position, piece, _SNAPSHOT, fence.lsn - 1, first_seq, fence.at_us)

    def _read_rows(self, reader: Connection, table: SnapshotTable, rows: int) -> Chunk:
        where = self._settings.snapshot.find_condition(table.relation.schema, table.relation.table)
        if table.key:
            return read_chunk(reader, table, None, where, rows, _CAPTURE_CHUNK_BYTES)
        chunks = (read_pages(reader, table, part, 0, None, where, rows, _CAPTURE_CHUNK_BYTES) for part in table.parts)
        nothing = Chunk([pa.array([], pa.binary())] * len(table.relation.columns), 0, 0, complete=True)
        return next((chunk for chunk in chunks if chunk.rows), nothing)

    def _make_info(self, database: str, system_identifier: str) -> SourceInfo:
        host = str(parse_dsn(self._settings.connection_string).get("host", "unknown"))
        return SourceInfo(POSTGRESQL, self.name, host, database, system_identifier)

    @property
    def _application_name(self) -> str:
        return f"psql-streamer capture {self.name}"


def _number_rows(rows: int) -> pa.Array:
    return pa.array([b"%d" % row for row in range(rows)], pa.binary())
