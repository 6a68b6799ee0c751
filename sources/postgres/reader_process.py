"""The reader process (reader.py), as the source has it: started, asked for blocks, and ended."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import threading
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from psql_streamer import errors, launcher
from psql_streamer.errors import SourceError, SourceUnavailable
from sources.postgres import server_errors
from sources.postgres.reader import BLOCK, COMMAND, FAILED, MESSAGE, QUIT, STARTED, Settings

_QUIT_SECONDS = 1.0
"""The time that the process gets to end before it is killed: less than what a stop waits for a source, which would
leave it behind with the slot. A kill costs nothing but the last position that the server would have been told."""

_MESSAGE_REST_SECONDS = 30.0
"""The time that the rest of a message may take."""

_START_SECONDS = 60.0
"""The time in which the process must have begun to stream."""


class ReceivedBlock(NamedTuple):
    """received: the LSN up to which the server has sent. offsets: of the frames in data. size: of the message, in
    bytes.
    """

    received: int
    offsets: npt.NDArray[np.uint32]
    data: memoryview
    size: int


def _start_process(descriptor: int) -> subprocess.Popen[bytes]:
    command = launcher.make_command("sources.postgres.reader_program", str(descriptor))
    try:
        return subprocess.Popen(command, pass_fds=[descriptor], stdin=subprocess.DEVNULL)  # noqa: S603 - our own module
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        what = f"the reader process cannot be started with {command[0]}: {(error.strerror or '').lower()}"
        raise SourceUnavailable(what, "put that Python back, or install the service anew and restart it") from None


class ReaderProcess:
    """Begins to stream when it is made. `interrupt` and `send_command` are for any thread, the rest is for one.

    process: the process, as its parent has it.
    """

    def __init__(self, settings: Settings) -> None:
        self._socket, theirs = socket.socketpair()
        self._sending = threading.Lock()
        self._is_interrupted = False
        with theirs, contextlib.ExitStack() as unless_it_starts:
            unless_it_starts.enter_context(self._socket)
            self.process = _start_process(theirs.fileno())
            unless_it_starts.pop_all()
        with contextlib.suppress(OSError):  # of a process that has ended already
            self._socket.sendall(settings.encode_line())

    def fileno(self) -> int:
        """For select: readable when a block has come, or an error."""
        return self._socket.fileno()

    def wait_for_start(self) -> tuple[int, str]:
        """The walsender, once it streams: see describe_session. Raises the reader's SourceError."""
        self._socket.settimeout(_START_SECONDS)
        try:
            kind, size = MESSAGE.unpack(self._receive(MESSAGE.size))
        except SourceUnavailable:
            if not self._is_interrupted:
                raise
            raise SourceUnavailable(
                "the server did not start replication in time", "check its load, or raise startTimeout"
            ) from None
        self._socket.settimeout(_MESSAGE_REST_SECONDS)
        body = self._receive(size)
        if kind == FAILED:
            raise _decode_error(body)
        if kind != STARTED:
            raise SourceUnavailable(f"the reader process began with {kind!r}")
        pid, began = json.loads(bytes(body))
        return int(pid), str(began)

    def receive_block(self) -> ReceivedBlock:
        """The next one; waits for it. Raises the reader's SourceError."""
        kind, size = MESSAGE.unpack(self._receive(MESSAGE.size))
        body = self._receive(size)
        if kind == FAILED:
            raise _decode_error(body)
        received, frames = BLOCK.unpack_from(body)
        behind = BLOCK.size + 4 * frames
        offsets = np.frombuffer(body, np.uint32, frames, BLOCK.size)
        return ReceivedBlock(received, offsets, memoryview(body)[behind:], size)

    def send_command(self, kind: bytes, number: int) -> None:
        """If the reader has ended, nobody gets it: what it sent before says why."""
        command = COMMAND.pack(kind, number)
        with self._sending:
            try:  # noqa: SIM105 - for every block of a stream, and contextlib.suppress takes three calls
                self._socket.sendall(command)
            except OSError:
                pass

    def interrupt(self) -> None:
        """Make whoever waits for a message raise SourceUnavailable."""
        self._is_interrupted = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the process, which tells the server what was confirmed last."""
        self._is_interrupted = True
        self.send_command(QUIT, 0)
        try:
            self.process.wait(_QUIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        with self._sending:
            self._socket.close()

    def _receive(self, size: int) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        try:
            while len(view):
                if not (count := self._socket.recv_into(view)):
                    raise self._make_end_error()
                view = view[count:]
        except TimeoutError:
            seconds = self._socket.gettimeout()
            raise SourceUnavailable(f"the reader process sent nothing for {seconds:g} s") from None
        except OSError:  # it was killed with a command unread
            raise self._make_end_error() from None
        return data

    def _make_end_error(self) -> SourceUnavailable:
        """For a process that does not talk to this one any more."""
        return SourceUnavailable(
            "interrupted while it read" if self._is_interrupted else "the reader process ended unexpectedly"
        )


def _decode_error(body: bytes | bytearray) -> SourceError:
    """The reader's error, as the class that it was there."""
    name, what, remedy = json.loads(bytes(body))
    kind = getattr(errors, name, None) or getattr(server_errors, name)
    error: SourceError = kind(what, remedy)
    return error
