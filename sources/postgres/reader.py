"""A session of the reader process: takes a replication stream off the server and hands it on in blocks.

It is in a process of its own so that answering keepalives and emptying the socket never wait for the interpreter that
decodes and delivers; it imports no numpy and no Arrow. Sources of one service share the process (reader_sessions.py).

Parent to reader: one JSON line (Settings), then commands of 9 bytes: a letter and a number.
Reader to parent: messages with a letter and an int64 length.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psycopg2

from psql_streamer.batching import CONFIRM_SECONDS, LINGER_BYTES, READER_NAP_SECONDS, SOCKET_READ_ON_BYTES
from psql_streamer.errors import ProtocolError, SourceError, SourceUnavailable
from psql_streamer.gathering import Gathering
from psql_streamer.linger import Buffered, Linger
from psql_streamer.lsn import Lsn
from psql_streamer.pgoutput.frames import Block, FrameBuffer
from psql_streamer.readable import wait_for_readable
from psql_streamer.shown_commands import remember_file
from sources.postgres.replication import (
    Identity,
    Stream,
    Walsender,
    connect,
    describe_session,
    identify,
    open_stream,
    require_slot_behind,
    start_command,
)
from sources.postgres.server_errors import from_psycopg2

COMMAND = struct.Struct(">cQ")
MESSAGE = struct.Struct(">cQ")
BLOCK = struct.Struct(">QI")

# Commands.
REQUEST_BLOCK = b"W"  # one block, please; the number is the most bytes it should have
CONFIRM = b"F"  # the server may forget what is before this LSN
DISCONNECT_IF_FULL = b"L"  # end the session if the socket is left alone: a server that shuts down waits for that
DISCONNECT_IF_UNREAD = b"R"  # the same if it was for so many ms: a server that removes WAL of the slot waits for that
QUIT = b"Q"

# Messages.
TAKEN = b"T"  # the process has taken the session; the length is 0
STARTED = b"S"  # JSON: the process ID of the walsender, and when it began
BLOCK_READY = b"B"  # LSN received and the number of frames (BLOCK), the frames' offsets (uint32 each), the frames
FAILED = b"E"  # JSON: class name, what, remedy


@dataclass(frozen=True)
class Settings:
    """What a reader needs to know.

    lsn: where to start. identity: what the stream must come from, the fields of Identity.
    status_interval: seconds between standby status updates; a server that was silent for as long is asked to answer.
    block_frames: most frames in a block. flush_interval: longest wait for the rest of a transaction. buffer_bytes:
    when as much is held, or a whole block, the socket is left alone, and the server waits. source: its name, for
    messages. config_file: what the service was started with, likewise.
    """

    dsn: str = field(repr=False)
    slot: str
    publications: list[str]
    identity: tuple[str, int, str, str]
    lsn: int
    confirmed: int
    timeout: float
    status_interval: float
    block_frames: int
    flush_interval: float
    buffer_bytes: int
    application_name: str
    source: str
    config_file: str | None = None

    def encode_line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"


def serve(parent: socket.socket, connected: Callable[[int], None]) -> None:
    """Run until the parent hangs up or asks to quit, or the stream fails (which is reported).

    connected: gets the file descriptor of the connection to the server, as soon as there is one.
    """
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        parent.sendall(MESSAGE.pack(TAKEN, 0))
        try:
            settings = _read_settings(parent)
            remember_file(None if settings.config_file is None else Path(settings.config_file))
            connection = connect(settings.dsn, settings.timeout, settings.application_name, connected)
            with contextlib.closing(connection):
                _serve_connection(parent, connection, settings)
        except (SourceError, ProtocolError) as error:
            report(parent, error)


def _serve_connection(parent: socket.socket, connection: Walsender, settings: Settings) -> None:
    walsender = _look_at_server(connection, settings)
    command = start_command(settings.slot, settings.lsn, settings.publications)
    _require_parent(parent)
    stream = open_stream(connection, command, time.monotonic() + 60)
    _Reader(parent, stream, settings, walsender).run()


def _require_parent(parent: socket.socket) -> None:
    """BrokenPipeError when it has hung up: the slot is for whoever comes next."""
    hung_up = select.poll()
    hung_up.register(parent, 0)  # poll(2) tells of POLLHUP whatever is asked for
    if hung_up.poll(0):
        raise BrokenPipeError


def _look_at_server(connection: Walsender, settings: Settings) -> tuple[int, str]:
    """The walsender, see describe_session. SourceError when it is not the one with what comes next."""
    try:
        identify(connection).refuse_other_than(Identity(*settings.identity), settings.source)
        require_slot_behind(connection, settings.slot, Lsn(settings.lsn))
        return describe_session(connection)
    except psycopg2.Error as error:
        raise from_psycopg2(error, settings.dsn) from None


class _Reader:
    def __init__(self, parent: socket.socket, stream: Stream, settings: Settings, walsender: tuple[int, str]) -> None:
        self._parent = parent
        self._stream = stream
        self._settings = settings
        self._frames = FrameBuffer()
        self._linger = Linger(settings.block_frames, settings.flush_interval)
        self._gathering = Gathering(stream.gather_bytes, settings.flush_interval)
        self._confirmed = settings.confirmed
        self._status_due = 0.0
        self._heard_at = time.monotonic()
        self._wanted = 0  # bytes that the parent asked for, 0: nothing
        started = json.dumps(walsender).encode()
        self._output = [memoryview(MESSAGE.pack(STARTED, len(started)) + started)]  # what is not sent yet
        self._block: Block | None = None  # that is among it
        self._commands = bytearray()
        self._buffered_since = 0.0
        self._unread = True  # whether more may wait than was read
        self._running = True

    def run(self) -> None:
        self._parent.setblocking(False)
        try:
            while self._running:
                self._turn()
        except Exception:  # also one that nobody knows is reported
            self._stream.close()
            # Half a message must not stand before the report of what happened.
            self._parent.setblocking(True)
            for piece in self._output:
                self._parent.sendall(piece)
            raise
        with contextlib.suppress(SourceError):
            self._stream.send_status(self._frames.received, self._confirmed)
        self._stream.close()

    def _turn(self) -> None:
        before = time.monotonic()
        readable = self._wait(before)
        if self._parent in readable:
            self._read_commands()
        if self._stream in readable or self._unread or self._has_unseen():
            self._read_stream()
        now = time.monotonic()
        self._send_status_when_due(now)
        self._answer(now)
        nap = READER_NAP_SECONDS if now - before < READER_NAP_SECONDS else 0.0
        if (pause := max(nap, self._compute_pause(now))) > 0:
            time.sleep(pause)  # let some rows gather

    def _compute_pause(self, now: float) -> float:
        """How long the stream may be left alone, because no block may go and little of one is there."""
        if self._output or len(self._frames) >= SOCKET_READ_ON_BYTES:
            return 0.0
        return self._linger.compute_pause_seconds(now, self._measure_buffered(), self._wanted or LINGER_BYTES)

    def _wait(self, now: float) -> Sequence[socket.socket | Stream]:
        """Wait until something can be read or written, a status update is due, or what is buffered should go."""
        reading: list[socket.socket | Stream] = [self._parent]
        writing = [self._parent] if self._output else []
        pause = self._status_due - now
        if not self._is_full():
            if self._unread:
                pause = 0.0
            elif (gathers := self._gathering.compute_pause_seconds(now)) > 0:
                pause = min(pause, gathers)
            else:
                reading.append(self._stream)
        if self._wanted and len(self._frames) and not self._output:
            pause = min(pause, self._linger.compute_wait_seconds(now, self._measure_buffered(), self._wanted))
        if self._stream.look_every is not None and self._has_unseen():
            pause = min(pause, self._stream.look_every)
        return wait_for_readable(reading, max(0.0, pause), writing)

    def _has_unseen(self) -> bool:
        """Whether the stream may have something that select knows nothing of, and there is room for it."""
        return self._stream.look_every is not None and not self._is_full()

    def _is_full(self) -> bool:
        """Whether there is a whole block: what is behind it can wait at the server."""
        size, count = len(self._frames), self._frames.count
        return size >= self._settings.buffer_bytes or (size >= LINGER_BYTES and count >= self._settings.block_frames)

    def _is_unread(self, seconds: float) -> bool:
        """Whether the socket was left alone for so long."""
        return self._is_full() and time.monotonic() - self._heard_at >= seconds

    def _measure_buffered(self) -> Buffered:
        frames = self._frames
        return Buffered(len(frames), frames.count, self._buffered_since, frames.ends_transaction)

    def _read_commands(self) -> None:
        data = self._parent.recv(4096)
        if not data:
            self._running = False
        self._commands += data
        while len(self._commands) >= COMMAND.size:
            kind, number = COMMAND.unpack_from(self._commands)
            del self._commands[: COMMAND.size]
            if kind == REQUEST_BLOCK:
                self._wanted = number
            elif kind == CONFIRM:
                self._confirmed = max(self._confirmed, number)
                self._status_due = min(self._status_due, time.monotonic() + CONFIRM_SECONDS)
            elif kind == DISCONNECT_IF_FULL and self._is_full():
                raise SourceUnavailable(
                    "the server accepts no new sessions, and its stream is not being read: the stream was ended so "
                    "that it can shut down"
                )
            elif kind == DISCONNECT_IF_UNREAD and self._is_unread(number / 1000):
                raise SourceUnavailable(
                    "the slot keeps more WAL than max_slot_wal_keep_size, and its stream is not being read: the stream "
                    "was ended so that the server's checkpoints go on"
                )
            elif kind == QUIT:
                self._running = False

    def _read_stream(self) -> None:
        held, total, self._unread = len(self._frames), 0, True
        # A message may have 1 GB, and be sent as fast as it is read: commands and status updates come in between.
        while self._unread and total < LINGER_BYTES and not self._is_full():
            received = self._stream.receive(self._frames)
            total += received
            # What waits beyond the window of TCP comes in pieces of that size, and nobody wakes us up between them.
            gathers = self._stream.gather_bytes and self._gathering.is_fast
            self._unread = received > 0 if gathers else received >= SOCKET_READ_ON_BYTES
        if total:
            self._heard_at = time.monotonic()
            self._gathering.note_read(self._heard_at, total, self._unread)
        if not held and len(self._frames):
            self._buffered_since = time.monotonic()

    def _send_status_when_due(self, now: float) -> None:
        if now >= self._status_due:
            self._status_due = now + self._settings.status_interval
            # A server that has nothing to send may keep silent for ever, and so does a network that is broken.
            silent = now - self._heard_at >= self._settings.status_interval
            self._stream.send_status(self._frames.received, self._confirmed, reply=silent)
        if self._frames.reply_requested:
            # A server that shuts down asks, and waits until the flushed position, or without one the written, is the
            # end of its WAL (PostgreSQL source, WalSndDone). Confirming late must not keep it from shutting down.
            self._frames.reply_requested = False
            self._stream.send_status(self._frames.received, 0)

    def _answer(self, now: float) -> None:
        if not self._output and self._wanted and len(self._frames):
            if self._linger.compute_wait_seconds(now, self._measure_buffered(), self._wanted) > 0:
                return
            self._output = self._take_message(now)
        if self._output:
            with contextlib.suppress(BlockingIOError):
                self._drop(self._parent.sendmsg(self._output))

    def _drop(self, sent: int) -> None:
        """So many bytes are sent."""
        while self._output and sent >= len(self._output[0]):
            sent -= len(self._output.pop(0))
        if sent:
            self._output[0] = self._output[0][sent:]
        if not self._output and self._block is not None:
            self._frames.give_back(self._block)
            self._block = None

    def _take_message(self, now: float) -> list[memoryview]:
        self._block = block = self._frames.take(self._wanted, self._settings.block_frames)
        assert block is not None  # noqa: S101 - the caller saw that there are frames
        self._wanted = 0
        self._buffered_since = now
        self._linger.note_block(now, len(block.data))
        head = BLOCK.pack(self._frames.received, len(block.offsets))
        offsets = block.offsets.tobytes()
        size = len(head) + len(offsets) + len(block.data)
        return [memoryview(MESSAGE.pack(BLOCK_READY, size) + head + offsets), memoryview(block.data)]


def _read_settings(parent: socket.socket) -> Settings:
    line = bytearray()
    while not line.endswith(b"\n"):
        piece = parent.recv(1)
        if not piece:
            raise BrokenPipeError
        line += piece
    return Settings(**json.loads(line))


def report(parent: socket.socket, error: SourceError | ProtocolError) -> None:
    """Tell the parent of what ended its session."""
    body = json.dumps([type(error).__name__, error.what, error.remedy]).encode()
    parent.setblocking(True)
    with contextlib.suppress(OSError):
        parent.sendall(MESSAGE.pack(FAILED, len(body)) + body)
