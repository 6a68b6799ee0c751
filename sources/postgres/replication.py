"""The COPY BOTH session with a walsender, over psycopg2's logical replication connection.

Two ways to take the stream off the connection, with the same bytes as result:
- RawStream reads the socket itself, in large pieces, when the connection is not encrypted. libpq would hand over one
  message a call, which costs ten times as much as finding the messages in a piece of the stream.
- LibpqStream goes through libpq where TLS or GSSAPI stands between the socket and the protocol.

Protocol: PostgreSQL documentation, "Streaming Replication Protocol" and "Message Formats".
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass, fields, replace
from typing import Protocol

import psycopg2
import psycopg2.errors
import psycopg2.extensions
from psycopg2.extras import LogicalReplicationConnection, ReplicationCursor

from psql_streamer.batching import ENCRYPTED_LOOK_SECONDS, SOCKET_RECEIVE_BYTES
from psql_streamer.errors import PositionRefused, SourceUnavailable
from psql_streamer.lsn import Lsn
from psql_streamer.pgoutput.frames import Control, FrameBuffer
from psql_streamer.readable import wait_for_readable
from sources.postgres.dsn import build_session_dsn
from sources.postgres.identifiers import quote_identifier
from sources.postgres.libpq import CopyBoth, CopyEnded
from sources.postgres.same_machine import let_messages_gather
from sources.postgres.server_errors import find_gap, from_fields, from_psycopg2, from_stream
from sources.postgres.session_settings import TEXT_FORMS, settle
from sources.snapshot.gap_remedies import accept_gap

_POSTGRES_EPOCH_SECONDS = 946_684_800
_FRAME_HEAD = struct.Struct(">cI")
_STATUS = struct.Struct(">cIcQQQqB")

_PINNED = {
    **TEXT_FORMS,
    # A session that only streams must not be ended by limits made for queries.
    "statement_timeout": "0",
    "idle_session_timeout": "0",
}


Walsender = LogicalReplicationConnection
"""A connection that takes replication commands."""


def connect(
    dsn: str, timeout: float, application_name: str, connected: Callable[[int], None] | None = None
) -> Walsender:
    """A connection with every setting pinned that the text form of values depends on.

    timeout: seconds for the connection to be made to each address of the host. connected: gets its file descriptor
    before the first question, to which a server may keep silent.
    """
    try:
        given = psycopg2.extensions.parse_dsn(dsn)
        connection = psycopg2.connect(
            # idle_session_timeout came with PostgreSQL 14, the oldest release that is supported.
            build_session_dsn(
                dsn,
                timeout,
                _PINNED,
                application_name=given.get("application_name", application_name),
                # With GSSAPI encryption left to chance the socket's bytes may not be the protocol's.
                gssencmode=given.get("gssencmode", "disable"),
            ),
            connection_factory=LogicalReplicationConnection,
        )
        if connected is not None:
            connected(connection.fileno())
        settle(connection)
        return connection
    except psycopg2.Error as error:
        raise from_psycopg2(error, dsn) from None


@dataclass(frozen=True, slots=True)
class Identity:
    """Which stream of WAL a session reads from (IDENTIFY_SYSTEM): the cluster, its timeline, the database. history: the
    history file of the timeline; empty for the first one, and where the server does not have it.
    """

    system_identifier: str
    timeline: int
    database: str
    history: str = ""

    def refuse_other_than(self, expected: Identity, source: str) -> None:
        """PositionRefused when the session has come to another cluster or database. SourceUnavailable when it has come
        to another timeline: the next session looks whether that goes on where this one was. source: for messages.
        """
        if self != expected and self == replace(expected, timeline=self.timeline, history=self.history):
            which = "another timeline" if self.timeline == expected.timeline else "timeline"
            raise SourceUnavailable(
                f"the server is on {which} {self.timeline} now, and was on {expected.timeline} a moment ago"
            )
        expected = replace(expected, history=self.history)
        pairs = zip(fields(self), astuple(self), astuple(expected), strict=True)
        differing = [
            f'{field.name.replace("_", " ")} "{was}", now "{found}"' for field, found, was in pairs if found != was
        ]
        if differing:
            raise PositionRefused(
                f"the server is not the one with which the stream began: {', '.join(differing)}",
                f"set the dsn to the server of the position; if the new server is right, {accept_gap(source)}",
            )


def identify(connection: Walsender) -> Identity:
    """Which stream of WAL the session reads from."""
    with connection.cursor() as cursor:
        cursor.execute("IDENTIFY_SYSTEM")
        [(system_identifier, timeline, _, database)] = cursor.fetchall()
    history = read_timeline_history(connection, int(timeline)) if int(timeline) > 1 else ""
    return Identity(str(system_identifier), int(timeline), str(database), history)


def describe_session(connection: Walsender) -> tuple[int, str]:
    """The process ID of its server process, and when that began: no other one of any server has both. The latter is
    empty where this role may not see it. libpq may have another process ID, of a pooler.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid, coalesce(extract(epoch FROM backend_start)::text, '') FROM pg_stat_activity "
            "WHERE pid = pg_backend_pid()"
        )
        [(pid, began)] = cursor.fetchall()
    return int(pid), str(began)


def is_standby(connection: Walsender) -> bool:
    """Whether the server is in recovery now."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_is_in_recovery()")
        [(found,)] = cursor.fetchall()
    return bool(found)


def read_timeline_history(connection: Walsender, timeline: int) -> str:
    """The history file of a timeline that is not the first; empty where the server has none."""
    with connection.cursor() as cursor:
        try:
            cursor.execute(f"TIMELINE_HISTORY {timeline}")
        except psycopg2.errors.UndefinedFile:
            return ""
        [(_, content)] = cursor.fetchall()
    return content if isinstance(content, str) else bytes(content).decode()  # bytea on older servers


def require_slot_behind(connection: Walsender, slot: str, lsn: Lsn) -> None:
    """SourceUnavailable when the slot gives no more what comes after an LSN: the server would begin later, and say
    nothing. Asked in the session that streams: any other one is older, and may have led to another server.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s", (slot,))
        confirmed = [Lsn.parse(found) for (found,) in cursor.fetchall() if found]
    if confirmed and confirmed[0] > lsn:
        raise SourceUnavailable(
            f'slot "{slot}" begins at {confirmed[0]} now, behind {lsn}, where the stream was to go on: somebody else '
            "read from it a moment ago, or the connection leads to another server"
        )


def set_failover(connection: Walsender, slot: str) -> None:
    """Have standbys keep the slot, which nobody may read from meanwhile. Raises psycopg2.Error."""
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER_REPLICATION_SLOT {quote_identifier(slot)} (FAILOVER true)")


def start_command(slot: str, lsn: int, publications: list[str]) -> str:
    """START_REPLICATION for pgoutput's protocol version 1, with logical messages."""
    names = ",".join(map(quote_identifier, publications))
    options = {"proto_version": "1", "publication_names": names, "messages": "true"}
    quoted = ", ".join(f'"{name}" ' + "'" + value.replace("'", "''") + "'" for name, value in options.items())
    return f"START_REPLICATION SLOT {quote_identifier(slot)} LOGICAL {lsn >> 32:X}/{lsn & 0xFFFFFFFF:X} ({quoted})"


class Stream(Protocol):
    """A started replication stream.

    look_every: seconds after which `receive` may have something to do though select says no; None: select knows.
    gather_bytes: so many may wait on their way while the stream is fast, at less cost than if they were read one after
    the other; 0: they should be read as they come.
    """

    look_every: float | None
    gather_bytes: int

    def fileno(self) -> int:
        """For select: readable when `receive` has something to do."""

    def receive(self, frames: FrameBuffer) -> int:
        """Feed what has arrived without waiting; the number of bytes, 0 when there was nothing.

        SourceError when the server ended the stream.
        """

    def send_status(self, received: int, confirmed: int, reply: bool = False) -> None:
        """Tell the server what was received and what it may forget (Standby status update).

        reply: it is to answer at once, with a keepalive.
        """

    def close(self) -> None:
        """End the session."""


def open_stream(connection: LogicalReplicationConnection, command: str, deadline: float) -> Stream:
    """Start replication on a connection; `deadline` (time.monotonic) bounds the wait for the server's answer."""
    info = connection.info
    encrypted = info.ssl_in_use or info.dsn_parameters.get("gssencmode", "disable") != "disable"
    return LibpqStream(connection, command) if encrypted else RawStream(connection, command, deadline)


class RawStream:
    """Reads and writes the connection's socket itself; libpq made the connection and is not used after that.

    Safe because libpq holds nothing back: the server sends nothing between the end of one command and the next.
    """

    look_every: float | None = None

    def __init__(self, connection: LogicalReplicationConnection, command: str, deadline: float) -> None:
        self._connection = connection
        self._socket = socket.socket(fileno=os.dup(connection.fileno()))
        self._socket.setblocking(False)
        self.gather_bytes = let_messages_gather(self._socket)
        self._unsent = bytearray()
        query = command.encode() + b"\0"
        self._send(b"Q" + struct.pack(">I", 4 + len(query)) + query)
        self._surplus = self._wait_for_copy(deadline)

    def fileno(self) -> int:
        return self._socket.fileno()

    def receive(self, frames: FrameBuffer) -> int:
        if self._surplus:
            frames.feed(self._surplus)
            count, self._surplus = len(self._surplus), b""
        else:
            count = self._receive_into(frames)
        for control in frames.controls:
            _raise_if_over(control)
        frames.controls.clear()
        return count

    def send_status(self, received: int, confirmed: int, reply: bool = False) -> None:
        self._send(_render_status(received, confirmed, reply))

    def close(self) -> None:
        self._socket.close()
        self._connection.close()

    def _receive_into(self, frames: FrameBuffer) -> int:
        try:
            with frames.make_room(SOCKET_RECEIVE_BYTES) as room:
                count = self._socket.recv_into(room)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise SourceUnavailable(f"the connection to the server was lost ({error.strerror})") from None
        if count == 0:
            raise SourceUnavailable("the server closed the connection")
        frames.note_fed(count)
        return count

    def _send(self, data: bytes) -> None:
        """Send without waiting; what the socket does not take now goes first next time."""
        self._unsent += data
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            return
        except OSError as error:
            raise SourceUnavailable(f"the connection to the server was lost ({error.strerror})") from None
        del self._unsent[:sent]

    def _wait_for_copy(self, deadline: float) -> bytes:
        """Read up to CopyBothResponse ('W'); the bytes behind it belong to the stream."""
        held = bytearray()
        while True:
            while len(held) >= 5 and len(held) >= 1 + int.from_bytes(held[1:5], "big"):
                end = 1 + int.from_bytes(held[1:5], "big")
                control = Control(chr(held[0]), bytes(held[5:end]))
                del held[:end]
                if control.kind == "W":
                    return bytes(held)
                if control.kind == "E":
                    raise from_fields(_decode_fields(control.body))
                _raise_if_over(control)
            if not wait_for_readable([self._socket], max(0.0, deadline - time.monotonic())):
                raise SourceUnavailable("the server did not start replication in time")
            try:
                piece = self._socket.recv(SOCKET_RECEIVE_BYTES)
            except OSError as error:
                raise SourceUnavailable(f"the connection to the server was lost ({error.strerror})") from None
            if not piece:
                raise SourceUnavailable("the server closed the connection")
            held += piece


class LibpqStream:
    """Takes messages from libpq one by one and puts the frames back around them."""

    # TLS is read in whole records: what libpq has no room for stays inside of it, where select does not see it.
    look_every: float | None = ENCRYPTED_LOOK_SECONDS
    gather_bytes = 0

    def __init__(self, connection: LogicalReplicationConnection, command: str) -> None:
        self._connection = connection
        try:
            cursor = connection.cursor(cursor_factory=ReplicationCursor)
            cursor.start_replication_expert(command, decode=False)  # type: ignore[no-untyped-call]  # not in the stubs
        except psycopg2.Error as error:
            raise from_psycopg2(error, connection.dsn) from None
        self._copy = CopyBoth(connection)

    def fileno(self) -> int:
        return int(self._connection.fileno())

    def receive(self, frames: FrameBuffer) -> int:
        pieces: list[bytes] = []
        try:
            count = self._take(pieces)
        except CopyEnded as ended:
            frames.feed(b"".join(pieces))
            raise from_stream(ended.fields) from None
        frames.feed(b"".join(pieces))
        for notice in self._copy.take_notices():
            if (error := find_gap(notice)) is not None:
                raise error
        return count

    def send_status(self, received: int, confirmed: int, reply: bool = False) -> None:
        try:
            self._copy.put(_render_status(received, confirmed, reply)[_FRAME_HEAD.size :])
        except CopyEnded as error:
            raise from_stream(error.fields) from None

    def close(self) -> None:
        self._connection.close()

    def _take(self, pieces: list[bytes]) -> int:
        """Messages until there is nothing more; the server makes a TLS record of each, and a call reads one record."""
        count, asked = 0, False
        while count < SOCKET_RECEIVE_BYTES:
            content = self._copy.get()
            if content is not None:
                pieces += (_FRAME_HEAD.pack(b"d", 4 + len(content)), content)
                count += _FRAME_HEAD.size + len(content)
                asked = False
            elif asked:
                break
            else:
                self._copy.receive()
                asked = True
        return count


def _render_status(received: int, confirmed: int, reply: bool) -> bytes:
    """A Standby status update, as a frame."""
    now = int((time.time() - _POSTGRES_EPOCH_SECONDS) * 1_000_000)
    return _STATUS.pack(b"d", _STATUS.size - 1, b"r", received, confirmed, confirmed, now, reply)


def _raise_if_over(control: Control) -> None:
    """Errors, ends of the stream and the warning of a gap raise; other notices and parameters are nothing to us."""
    if control.kind == "E":
        raise from_stream(_decode_fields(control.body))
    if control.kind == "N" and (error := find_gap(_decode_fields(control.body))) is not None:
        raise error
    if control.kind in "cCZ":
        raise SourceUnavailable("the server ended the replication stream")


def _decode_fields(body: bytes) -> dict[str, str]:
    """The fields of an ErrorResponse or a NoticeResponse."""
    return {chr(field[0]): field[1:].decode("utf-8", "replace") for field in body.split(b"\0") if field}
