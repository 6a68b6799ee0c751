"""The reader process: takes a replication stream off the server and hands it on in blocks.

`python -m sources.reader FD` runs it, at the other end of a socket pair. It is a process of its own so that
answering keepalives and emptying the socket never wait for the interpreter that decodes and delivers; it imports no
numpy and no Arrow, and ends when its parent does.

Parent to reader: one JSON line (Settings), then commands of 9 bytes: a letter and a number.
Reader to parent: messages with a letter and an int64 length.
"""

from __future__ import annotations

import contextlib
import json
import select
import signal
import socket
import struct
import sys
import time
from dataclasses import asdict, dataclass

from psql_streamer.errors import ProtocolError, SourceError
from psql_streamer.pgoutput.frames import FrameBuffer
from sources.replication import Stream, connect, open_stream, start_command

COMMAND = struct.Struct(">cQ")
MESSAGE = struct.Struct(">cQ")
BLOCK = struct.Struct(">QI")

# Commands.
WANTED = b"W"  # one block, please; the number is the most bytes it should have
CONFIRM = b"F"  # the server may forget what is before this LSN
QUIT = b"Q"

# Messages.
STARTED = b"S"
BLOCK_READY = b"B"  # LSN received and the number of frames (BLOCK), the frames' offsets (uint32 each), the frames
FAILED = b"E"  # JSON: class name, what, remedy

_NAP = 0.0003
_SMALL = 1 << 16


@dataclass(frozen=True)
class Settings:
    """What a reader needs to know.

    lsn: where to start. status_interval: seconds between standby status updates.
    block_frames: most frames in a block. flush_interval: longest wait for the rest of a transaction. buffer_bytes:
    when as much is held, the socket is left alone, and the server waits.
    """

    dsn: str
    slot: str
    publications: list[str]
    lsn: int
    confirmed: int
    timeout: float
    status_interval: float
    block_frames: int
    flush_interval: float
    buffer_bytes: int
    application_name: str

    def to_line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"


def main(arguments: list[str]) -> int:
    """Run until the parent hangs up or asks to quit, or the stream fails (which is reported)."""
    # A terminal's Ctrl-C and a service manager's SIGTERM reach the whole group; the parent decides when we end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    parent = socket.socket(fileno=int(arguments[0]))
    settings = _read_settings(parent)
    try:
        connection = connect(settings.dsn, settings.timeout, settings.application_name)
        command = start_command(settings.slot, settings.lsn, settings.publications)
        stream = open_stream(connection, command, time.monotonic() + 60)
        _Reader(parent, stream, settings).run()
    except (SourceError, ProtocolError) as error:
        _report(parent, error)
        return 1
    except (BrokenPipeError, ConnectionResetError):
        return 0
    return 0


class _Reader:
    def __init__(self, parent: socket.socket, stream: Stream, settings: Settings) -> None:
        self._parent = parent
        self._stream = stream
        self._settings = settings
        self._frames = FrameBuffer()
        self._confirmed = settings.confirmed
        self._status_due = 0.0
        self._wanted = 0  # bytes that the parent asked for, 0: nothing
        self._output = memoryview(b"")
        self._commands = bytearray()
        self._first_at = 0.0  # when the oldest frame held came
        self._running = True

    def run(self) -> None:
        self._parent.setblocking(False)
        self._queue(MESSAGE.pack(STARTED, 0))
        while self._running:
            self._wait()
            self._read_commands()
            self._read_stream()
            self._send_status_when_due()
            self._answer()
        with contextlib.suppress(SourceError):
            self._stream.send_status(self._frames.received, self._confirmed)
        self._stream.close()

    def _wait(self) -> None:
        """Until there is something to read, something to write that can be written, or a status update is due."""
        reading: list[socket.socket | Stream] = [self._parent, self._stream] if self._has_room() else [self._parent]
        writing = [self._parent] if len(self._output) else []
        pause = max(0.0, self._status_due - time.monotonic())
        if self._wanted and len(self._frames) and not len(self._output):
            pause = min(pause, self._settings.flush_interval)
        before = time.monotonic()
        select.select(reading, writing, [], pause)
        now = time.monotonic()
        if now - before < _NAP:
            # Under load a wake-up for every few rows costs more than reading them: let some gather.
            time.sleep(_NAP)

    def _has_room(self) -> bool:
        return len(self._frames) < self._settings.buffer_bytes

    def _read_commands(self) -> None:
        try:
            data = self._parent.recv(4096)
        except BlockingIOError:
            return
        if not data:
            self._running = False
        self._commands += data
        while len(self._commands) >= COMMAND.size:
            kind, number = COMMAND.unpack_from(self._commands)
            del self._commands[: COMMAND.size]
            if kind == WANTED:
                self._wanted = number
            elif kind == CONFIRM:
                self._confirmed = max(self._confirmed, number)
                self._status_due = min(self._status_due, time.monotonic() + 0.1)
            elif kind == QUIT:
                self._running = False

    def _read_stream(self) -> None:
        held = len(self._frames)
        while self._has_room() and self._stream.receive(self._frames) >= _SMALL:
            pass
        if not held and len(self._frames):
            self._first_at = time.monotonic()

    def _send_status_when_due(self) -> None:
        now = time.monotonic()
        if self._frames.reply_requested or now >= self._status_due:
            self._frames.reply_requested = False
            self._status_due = now + self._settings.status_interval
            self._stream.send_status(self._frames.received, self._confirmed)

    def _answer(self) -> None:
        if self._wanted and not len(self._output) and self._worth_sending():
            block = self._frames.take(self._wanted, self._settings.block_frames)
            if block is not None:
                self._wanted = 0
                head = BLOCK.pack(self._frames.received, len(block.offsets))
                offsets = block.offsets.tobytes()
                size = len(head) + len(offsets) + len(block.data)
                self._queue(b"".join((MESSAGE.pack(BLOCK_READY, size), head, offsets, block.data)))
                self._first_at = time.monotonic()
        if len(self._output):
            with contextlib.suppress(BlockingIOError):
                self._output = self._output[self._parent.send(self._output) :]

    def _worth_sending(self) -> bool:
        """Not while the rest of a small transaction is on its way, unless that takes longer than a moment."""
        if self._frames.ends_transaction or len(self._frames) >= _SMALL:
            return True
        return time.monotonic() - self._first_at >= self._settings.flush_interval

    def _queue(self, data: bytes) -> None:
        self._output = memoryview(data)


def _read_settings(parent: socket.socket) -> Settings:
    line = bytearray()
    while not line.endswith(b"\n"):
        piece = parent.recv(1)
        if not piece:
            raise SystemExit(0)
        line += piece
    return Settings(**json.loads(line))


def _report(parent: socket.socket, error: SourceError) -> None:
    body = json.dumps([type(error).__name__, error.what, error.remedy]).encode()
    parent.setblocking(True)
    with contextlib.suppress(OSError):
        parent.sendall(MESSAGE.pack(FAILED, len(body)) + body)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
