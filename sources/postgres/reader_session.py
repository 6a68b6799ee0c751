"""A session of the reader process (reader.py), as the source has it: started, asked for blocks, and ended."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import threading
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from psql_streamer import errors
from psql_streamer.errors import SourceError, SourceUnavailable
from psql_streamer.readable import wait_for_readable
from sources.postgres import server_errors
from sources.postgres.reader import BLOCK, COMMAND, FAILED, MESSAGE, QUIT, STARTED, TAKEN, Settings
from sources.postgres.reader_process import SHARED

_QUIT_SECONDS = 1.0
"""The time that a session gets to end: less than what a stop waits for a source, which would leave it behind with the
slot. A kill costs nothing but the last position that the server would have been told.
"""

_TAKE_SECONDS = 20.0
"""The time in which the process must have taken the session, its own start included."""

_MESSAGE_REST_SECONDS = 30.0
"""The time that the rest of a message may take."""

_START_SECONDS = 60.0
"""The time in which the session must have begun to stream."""


class SilentReader(SourceUnavailable):
    """The reader process sends nothing, and has not hung up."""


class ReceivedBlock(NamedTuple):
    """received: the LSN up to which the server has sent. offsets: of the frames in data. size: of the message, in
    bytes.
    """

    received: int
    offsets: npt.NDArray[np.uint32]
    data: memoryview
    size: int


class ReaderSession:
    """Begins to stream when it is made. `interrupt` and `send_command` are for any thread, the rest is for one."""

    def __init__(self, settings: Settings) -> None:
        self._sending = threading.Lock()
        self._is_interrupted = False
        self._is_streaming = False
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as unless_it_starts:
            self._socket, socket_there = socket.socketpair()
            unless_it_starts.enter_context(self._socket)
            theirs.enter_context(socket_there)
            self._life, life_there = os.pipe()
            unless_it_starts.callback(os.close, self._life)
            theirs.callback(os.close, life_there)
            self._process = SHARED.begin_session(socket_there.fileno(), life_there)
            unless_it_starts.pop_all()
        with contextlib.suppress(OSError):  # of a process that has ended already
            self._socket.sendall(settings.encode_line())

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process, as its parent has it."""
        return self._process.popen

    def fileno(self) -> int:
        """For select: readable when a block has come, or an error."""
        return self._socket.fileno()

    def wait_for_start(self) -> tuple[int, str]:
        """The walsender, once it streams: see describe_session. Raises the reader's SourceError."""
        try:
            self._require_process()
            self._socket.settimeout(_START_SECONDS)
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
        self._is_streaming = True
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
        """End the session, which tells the server what was confirmed last."""
        self._is_interrupted = True
        self.send_command(QUIT, 0)
        # One that is not connected has no slot, and the process ends it: it must not end those of other sources.
        if self._is_streaming and not wait_for_readable([self._life], _QUIT_SECONDS):
            SHARED.kill(self._process)
        with self._sending:
            self._socket.close()
        os.close(self._life)
        SHARED.end_session(self._process)

    def _require_process(self) -> None:
        """Wait until it has taken the session. One that is frozen would keep those of all sources waiting."""
        self._socket.settimeout(_TAKE_SECONDS)
        try:
            kind, size = MESSAGE.unpack(self._receive(MESSAGE.size))
        except SilentReader:
            SHARED.kill(self._process)
            raise
        except SourceUnavailable:
            # Without its descriptors it cannot say why. What ended with the process is told as before.
            if self._is_interrupted or SHARED.has_ended(self._process):
                raise
            what = "the reader process could not take the session, probably because no more files can be opened there"
            raise SourceUnavailable(what, "raise the limit: ulimit -n, or LimitNOFILE of systemd") from None
        if kind == FAILED:
            raise _decode_error(self._receive(size))
        if kind != TAKEN:
            raise SourceUnavailable(f"the reader process took a session with {kind!r}")

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
            raise SilentReader(f"the reader process sent nothing for {seconds:g} s") from None
        except OSError:  # it was killed with a command unread
            raise self._make_end_error() from None
        return data

    def _make_end_error(self) -> SourceUnavailable:
        """For a process that does not talk to this one any more."""
        if self._is_interrupted:
            return SourceUnavailable("interrupted while it read")
        if self._process.killed:
            return SourceUnavailable(
                "the reader process was killed, because it did not answer",
                "look whether the machine has enough CPU and memory",
            )
        return SourceUnavailable("the reader process ended unexpectedly")


def _decode_error(body: bytes | bytearray) -> SourceError:
    """The reader's error, as the class that it was there."""
    name, what, remedy = json.loads(bytes(body))
    kind = getattr(errors, name, None) or getattr(server_errors, name)
    error: SourceError = kind(what, remedy)
    return error
