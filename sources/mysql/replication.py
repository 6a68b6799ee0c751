"""A stream of binlog events: as a replica asks for it, and read in large pieces.

MySQL source, rpl_source.cc and rpl_binlog_sender.cc; MariaDB Knowledge Base, "Replication Protocol".
"""

from __future__ import annotations

import secrets
import socket
import ssl
import time
from dataclasses import dataclass
from struct import pack
from typing import Any, Protocol

from psql_streamer.batching import SOCKET_RECEIVE_BYTES
from psql_streamer.errors import SourceUnavailable
from psql_streamer.readable import wait_for_readable
from sources.mysql.connection import Connector
from sources.mysql.gtid_sets import DomainPositions, Executed, GtidSet
from sources.mysql.packets import EventBuffer
from sources.mysql.server import Session

_COM_BINLOG_DUMP = 0x12
_COM_REGISTER_SLAVE = 0x15
_COM_BINLOG_DUMP_GTID = 0x1E
_THROUGH_GTID = 0x04
_FIRST_EVENT = 4
_LEAST_SERVER_ID, _MOST_SERVER_ID = 1 << 31, (1 << 32) - 1
"""Of ids that are made up: people number their servers from 1 on."""

_NEVER_SECONDS = 31_536_000
"""The greatest net_write_timeout: a source whose sinks stand still leaves the socket alone for as long as they do."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where a stream begins: behind the executed transactions, or (None) at a place in a file.

    mariadb_gtids: whether MariaDB is to say the GTIDs of transactions where it is asked by a place.
    """

    executed: Executed | None
    file: str = ""
    place: int = _FIRST_EVENT
    mariadb_gtids: bool = False


class HasFileno(Protocol):
    """What can be selected on."""

    def fileno(self) -> int:
        """Its number."""


class Stream:
    """Events of one session. heartbeat: seconds after which a server that has nothing to send sends a heartbeat."""

    def __init__(self, connector: Connector, server_id: int, heartbeat: float) -> None:
        self._connector = connector
        self._server_id = server_id
        self._heartbeat = heartbeat
        self._connection: Any = None
        self._socket: Any = None
        self._piece = bytearray(SOCKET_RECEIVE_BYTES)
        self.buffer = EventBuffer()
        self.heard_at = time.monotonic()

    def connect(self) -> Session:
        """Begin a session, which may be asked questions until `open`: of the server that the events will come from."""
        self._connection = self._connector.connect()
        return Session(self._connection)

    def open(self, start: Start) -> None:
        """Register as a replica and ask for events. What the server has against it comes with the first read."""
        connection = self._connection
        with self._connector.translate_errors():
            self._set_up(connection, start)
            register(connection, self._server_id)
            self._dump(connection, start)
            # From here on packets are taken off the socket itself: the library reads them one by one.
            self._socket = connection._sock
            self._socket.setblocking(False)
        self.heard_at = time.monotonic()

    def close(self) -> None:
        """May be called twice, and before `connect`."""
        connection, self._connection, self._socket = self._connection, None, None
        if connection is not None:
            self._connector.close(connection)

    def wait(self, seconds: float, also: HasFileno | None = None) -> bool:
        """Whether something has come within so many seconds; it is then in the buffer. also: what ends the waiting."""
        if self.receive():
            return True
        try:
            readable = wait_for_readable([self._socket, *([] if also is None else [also])], seconds)
        except (OSError, ValueError):
            raise self._make_lost_error("it was closed") from None
        return self._socket in readable and self.receive() > 0

    def receive(self) -> int:
        """Take what is there off the socket, at most one piece; the bytes that came. Waits for nothing."""
        if self._socket is None:
            raise SourceUnavailable("the source is not started")
        try:
            count: int = self._socket.recv_into(self._piece)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0
        except (OSError, ValueError) as error:
            raise self._make_lost_error(getattr(error, "strerror", None) or "it was closed") from None
        if not count:
            raise self._make_lost_error("the server closed it")
        self.heard_at = time.monotonic()
        self.buffer.feed(memoryview(self._piece)[:count])
        return count

    def _make_lost_error(self, why: str) -> SourceUnavailable:
        if self._connector.interrupted.is_set():
            return SourceUnavailable(f"reading from {self._connector.address} was given up")
        return SourceUnavailable(f"the connection to {self._connector.address} was lost: {why}")

    def _set_up(self, connection: Any, start: Start) -> None:
        nanoseconds = int(self._heartbeat * 1e9)
        settings = [
            f"@master_heartbeat_period = {nanoseconds}",
            f"@source_heartbeat_period = {nanoseconds}",
            # Whoever does not name an algorithm is taken for a replica that knows no checksums.
            "@master_binlog_checksum = @@GLOBAL.binlog_checksum",
            "@source_binlog_checksum = @@GLOBAL.binlog_checksum",
            f"SESSION net_write_timeout = {_NEVER_SECONDS}",
        ]
        if start.mariadb_gtids or isinstance(start.executed, DomainPositions):
            # 4: it understands MariaDB's GTID events. To others the server sends BEGIN in their place.
            settings.append("@mariadb_slave_capability = 4")
        if isinstance(start.executed, DomainPositions):
            settings += [
                f"@slave_connect_state = '{start.executed}'",
                "@slave_gtid_strict_mode = 1",
                "@slave_gtid_ignore_duplicates = 0",
            ]
        with connection.cursor() as cursor:
            cursor.execute("SET " + ", ".join(settings))

    def _dump(self, connection: Any, start: Start) -> None:
        if isinstance(start.executed, GtidSet):
            executed = start.executed.encode()
            head = pack("<HIIQI", _THROUGH_GTID, self._server_id, 0, _FIRST_EVENT, len(executed))
            connection._execute_command(_COM_BINLOG_DUMP_GTID, head + executed)
            return
        file, place = (start.file, start.place) if start.executed is None else ("", _FIRST_EVENT)
        # Without a flag MariaDB leaves out ANNOTATE_ROWS events, which hold the statements.
        connection._execute_command(_COM_BINLOG_DUMP, pack("<IHI", place, 0, self._server_id) + file.encode())


def make_up_server_id() -> int:
    """One that nobody else has."""
    return _LEAST_SERVER_ID + secrets.randbelow(_MOST_SERVER_ID - _LEAST_SERVER_ID)


def register(connection: Any, server_id: int) -> None:
    """Tell the server that a replica with this id is there; SHOW REPLICAS shows the host's name."""
    host = socket.gethostname().encode()[:60]
    body = pack("<I", server_id) + bytes([len(host)]) + host + b"\0\0" + pack("<HII", 0, 0, 0)
    connection._execute_command(_COM_REGISTER_SLAVE, body)
    connection._read_packet()
