"""The `postgres` source: a logical replication slot as micro-batches."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

import numpy as np
import psycopg2.extensions

from psql_streamer import errors, launcher
from psql_streamer.errors import PositionRefused, SourceError, SourceUnavailable
from psql_streamer.interfaces import Finding, Source, Status
from psql_streamer.model import Batch, Origin, Position, Relation, Stats
from psql_streamer.options import SourceOptions
from psql_streamer.pgoutput.decoder import Decoder
from sources import server_errors
from sources.catalog import Catalog, Slot
from sources.postgres_check import findings
from sources.postgres_options import PostgresOptions
from sources.primary_keys import PrimaryKeys
from sources.published_tables import published_tables
from sources.reader import (
    BLOCK,
    COMMAND,
    CONFIRM,
    FAILED,
    LET_GO_IF_FULL,
    MESSAGE,
    QUIT,
    STARTED,
    WANTED,
    Settings,
)
from sources.replication import connect, identify
from sources.server_types import ServerTypes
from sources.server_wal import ServerWal

_QUIT_TIMEOUT = 3.0

_LARGE = 64 << 10
"""Bytes of a block from which on the stream counts as fast."""

_SILENT_AFTER = 60.0
"""Seconds without a message, while the server has WAL to send, that are more than a long transaction's pause."""


class PostgresSource(Source):
    """Streams from one slot. Reading happens in a process of its own (sources.reader), decoding here."""

    Options: ClassVar[type[SourceOptions]] = PostgresOptions

    def __init__(self, name: str, options: PostgresOptions) -> None:
        super().__init__(name, options)
        self._settings = options
        self._catalog = Catalog(options.dsn, options.timeout)
        self._server_wal = ServerWal(self._catalog, self._let_go_if_full)
        self._types = ServerTypes(self._catalog)
        self._primary_keys = PrimaryKeys(self._catalog)
        self._shapes: dict[int, Relation] = {}
        self._reader: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._sending = threading.Lock()
        self._decoder: Decoder | None = None
        self._given: Position | None = None  # what `start` was given first
        self._started = False
        self._system_identifier = ""
        self._received = 0
        self._received_at = 0.0
        self._waited_until = 0.0  # when `read` last found nothing
        self._durable = 0
        self._confirmed = 0
        self._floor = 0  # the slot's confirmed_flush_lsn when streaming began: never confirm less
        self._starts = 0
        self._transaction_metadata = False
        self._asked = False
        self._status = Status(False, "not started")

    def check(self) -> Iterable[Finding]:
        return findings(self._settings, self._catalog)

    def fence(self) -> Mapping[str, str]:
        connection = connect(self._settings.dsn, self._settings.timeout, self._application_name)
        with contextlib.closing(connection):
            self._system_identifier, timeline = identify(connection)
        return {
            "system identifier": self._system_identifier,
            "timeline": str(timeline),
            "database": self._database,
            "slot": self._settings.replication_slot,
            "publication": ",".join(self._settings.publications),
        }

    def published(self) -> Sequence[Relation]:
        with self._catalog.session() as session:
            session.require_publications(self._settings.publications)
            self._types.load(session)
            return published_tables(session, self._settings.publications, self._types.resolve)

    def remember(self, relations: Iterable[Relation]) -> None:
        self._shapes = {relation.oid: relation for relation in relations}

    def provide_transaction_metadata(self) -> None:
        self._transaction_metadata = True

    def start(self, position: Position | None) -> None:
        self.stop()
        try:
            slot = self._prepare(position)
            resume = self._resume(position, slot)
            self._confirmed = self._floor = slot.confirmed_flush_lsn
            self._durable = max(self._durable, resume.lsn)
            self._spawn(resume, slot)
            self._wait_for_start()
        except SourceError as error:
            self.stop()
            self._status = Status(False, str(error))
            raise
        self._given = position if not self._started else self._given
        self._started = True
        self._starts += 1
        origin = Origin(self.name, self._host, self._database, self._system_identifier)
        self._decoder = Decoder(
            origin, resume, self._types.resolve, self._primary_keys.of, self._shapes, self._transaction_metadata
        )
        self._status = Status(True, f'streaming from slot "{slot.name}" since {resume.lsn}')
        self._received_at = self._waited_until = time.monotonic()
        self._asked = False
        self._server_wal.start()

    def read(self, timeout: float) -> Batch | None:
        if self._socket is None or self._decoder is None:
            raise SourceUnavailable("the source is not started")
        self._ask()
        if not select.select([self._socket], [], [], timeout)[0]:
            self._waited_until = time.monotonic()
            return None
        try:
            return self._next()
        except SourceError as error:
            self._status = Status(False, str(error))
            raise

    def confirm(self, position: Position) -> None:
        self._durable = position.lsn
        lsn = max(position.lsn - self._settings.wal_retain, self._floor, self._confirmed)
        if lsn > self._confirmed:
            self._confirmed = lsn
            with contextlib.suppress(SourceUnavailable):
                self._command(CONFIRM, lsn)

    def stop(self) -> None:
        reader, self._reader = self._reader, None
        if self._socket is not None:
            with contextlib.suppress(SourceUnavailable):
                self._command(QUIT, 0)
            if reader is not None:
                _end(reader)
            with self._sending:
                self._socket.close()
                self._socket = None
        self._decoder = None
        self._server_wal.stop()
        self._status = Status(False, "stopped")

    def status(self) -> Status:
        # While nobody reads, because the sinks are at work, nothing can be said of the server.
        silence = self._waited_until - self._received_at
        missing = self._server_wal.end - self._received
        if self._status.ok and missing > 0 and silence > _SILENT_AFTER:
            return Status(
                False, f"the server has {missing} bytes of WAL more, but has sent nothing for {silence:.0f} s"
            )
        return self._status

    def stats(self) -> Stats:
        return {
            "server_lsn": max(self._server_wal.end, self._received),
            "received_lsn": self._received,
            "confirmed_lsn": self._confirmed,
            "lag_bytes": max(0, max(self._server_wal.end, self._received) - self._durable),
            "reconnects": max(0, self._starts - 1),
        }

    def _next(self) -> Batch:
        assert self._decoder is not None  # noqa: S101 - `read` looked
        kind, size = MESSAGE.unpack(self._receive(MESSAGE.size))
        if kind == FAILED:
            raise _reported(self._receive(size))
        self._received, frames = BLOCK.unpack(self._receive(BLOCK.size))
        offsets = np.frombuffer(self._receive(4 * frames), np.uint32)
        data = self._receive(size - BLOCK.size - offsets.nbytes)
        self._received_at = time.monotonic()
        self._asked = False
        if size >= _LARGE:
            # The reader puts the next block together while this one is decoded.
            self._ask()
        batch = self._decoder.decode(data, offsets, self._received_at)
        # Another session begins where this one ended.
        self._shapes |= {change.relation.oid: change.relation for change in batch.schema_changes}
        return batch

    def _let_go_if_full(self) -> None:
        """A server that shuts down waits for a walsender that cannot send, and the sinks may stand still for hours."""
        with contextlib.suppress(SourceUnavailable):
            self._command(LET_GO_IF_FULL, 0)

    def _ask(self) -> None:
        """For a block, once. If the reader has ended, what it sent before says why."""
        if not self._asked:
            self._asked = True
            with contextlib.suppress(SourceUnavailable):
                self._command(WANTED, self._settings.batch_bytes)

    # Before streaming.

    def _prepare(self, position: Position | None) -> Slot:
        """Look at everything that streaming needs, and create the slot if nothing was ever read from it."""
        name = self._settings.replication_slot
        with self._catalog.session() as session:
            session.require_logical_wal()
            session.require_publications(self._settings.publications)
            slot = session.slot(name)
            if slot is None:
                if position is not None:
                    raise PositionRefused(
                        f'slot "{name}" does not exist, but changes up to {position.lsn} were delivered from it: what '
                        "was committed since is lost to this source",
                        "take a new copy of the tables, then forget the position "
                        f"(psql-streamer position forget {self.name}) to start a new slot",
                    )
                slot = session.create_slot(name)
            slot.require_usable(session.database)
            self._status_interval = session.status_interval()
            self._wal_end = session.wal_end()
            self._types.load(session)
            self._primary_keys.load(session)
        return slot

    def _resume(self, position: Position | None, slot: Slot) -> Position:
        """Where to start: the override (until something was read), the stored position, or the slot's own.

        The server silently starts at confirmed_flush_lsn when it is asked for less: that would hide a gap.
        """
        override = self._settings.wal_position_override
        if override and (not self._started or position == self._given):
            resume, what, remedy = Position(override), "walPositionOverride", "use a later one, or 0"
        elif position is not None:
            resume, what = position, "the stored position"
            remedy = (
                "take a new copy of the tables, then set walPositionOverride to where to go on, or forget the position "
                f"(psql-streamer position forget {self.name})"
            )
        else:
            return Position(slot.confirmed_flush_lsn)
        if resume.lsn < slot.confirmed_flush_lsn:
            gap = slot.confirmed_flush_lsn - resume.lsn
            raise PositionRefused(
                f"{what} {resume.lsn} is {gap} bytes before {slot.confirmed_flush_lsn}, the first that slot "
                f'"{slot.name}" can still give',
                remedy,
            )
        if resume.lsn > self._wal_end:
            raise PositionRefused(
                f"{what} {resume.lsn} is {resume.lsn - self._wal_end} bytes after the end of the server's WAL "
                f"{self._wal_end}: this is not the server, or not the state of it, that it belongs to",
                remedy,
            )
        return resume

    # The reader process.

    def _spawn(self, resume: Position, slot: Slot) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._socket = ours
            self._reader = subprocess.Popen(  # noqa: S603 - our own module, our own interpreter
                launcher.command("sources.reader", str(theirs.fileno())),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        settings = Settings(
            dsn=self._settings.dsn,
            slot=slot.name,
            publications=list(self._settings.publications),
            lsn=resume.lsn,
            confirmed=slot.confirmed_flush_lsn,
            timeout=self._settings.timeout,
            status_interval=self._status_interval,
            block_frames=self._settings.batch_size,
            flush_interval=self._settings.batch_flush_interval,
            buffer_bytes=self._settings.batch_bytes,
            application_name=self._application_name,
        )
        ours.sendall(settings.to_line())

    def _wait_for_start(self) -> None:
        kind, size = MESSAGE.unpack(self._receive(MESSAGE.size))
        body = self._receive(size)
        if kind == FAILED:
            raise _reported(body)
        if kind != STARTED:
            raise SourceUnavailable(f"the reader process began with {kind!r}")

    def _receive(self, size: int) -> bytearray:
        assert self._socket is not None  # noqa: S101 - callers hold a started source
        data = bytearray(size)
        view = memoryview(data)
        while len(view):
            count = self._socket.recv_into(view)
            if not count:
                raise SourceUnavailable("the reader process ended unexpectedly")
            view = view[count:]
        return data

    def _command(self, kind: bytes, number: int) -> None:
        with self._sending:
            if self._socket is None:
                raise SourceUnavailable("the source is not started")
            try:
                self._socket.sendall(COMMAND.pack(kind, number))
            except OSError:
                raise SourceUnavailable("the reader process ended unexpectedly") from None

    # Names.

    @property
    def _application_name(self) -> str:
        return f"psql-streamer {self.name}"

    @property
    def _host(self) -> str:
        return str(psycopg2.extensions.parse_dsn(self._settings.dsn).get("host", "unknown"))

    @property
    def _database(self) -> str:
        return self._catalog.database


def _reported(body: bytes | bytearray) -> SourceError:
    """The reader's error, as the class that it was there."""
    name, what, remedy = json.loads(bytes(body))
    kind = getattr(errors, name, None) or getattr(server_errors, name)
    error: SourceError = kind(what, remedy)
    return error


def _end(reader: subprocess.Popen[bytes]) -> None:
    try:
        reader.wait(_QUIT_TIMEOUT)
    except subprocess.TimeoutExpired:
        reader.kill()
        reader.wait()
