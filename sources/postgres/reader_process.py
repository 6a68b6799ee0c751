"""The reader process (reader_program.py), as its parent has it. All sources of a service share it.

A process for each would take 26 MB each (decision 149). It is started with the first session, and ends with the last.
"""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from contextlib import suppress
from dataclasses import dataclass

from psql_streamer import launcher
from psql_streamer.errors import SourceUnavailable

_END_SECONDS = 1.0
"""The time that the process gets to end before it is killed, when no source is left."""

_LAST_SECONDS = 0.5
"""The time from the moment that a process that ends has hung up until it has ended."""

_ARENAS = "MALLOC_ARENA_MAX"
"""glibc makes arenas for each thread, which keep what was freed in them (mallopt(3))."""


@dataclass
class RunningProcess:
    """control: sessions are handed over here. sessions: how many have not been ended. killed: whether it was, by us."""

    popen: subprocess.Popen[bytes]
    control: socket.socket
    sessions: int = 0
    killed: bool = False


class ReaderProcess:
    """At most one that runs; one that was killed is replaced. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: RunningProcess | None = None

    def begin_session(self, *descriptors: int) -> RunningProcess:
        """Hand the descriptors over to the process; they may be closed then. Raises SourceUnavailable and OSError."""
        with self._lock:
            if self._running is None or self._running.popen.poll() is not None:
                self._running = _start()
            with suppress(BrokenPipeError, ConnectionResetError):  # it ended just now: so do the session's descriptors
                socket.send_fds(self._running.control, [b"S"], descriptors)
            self._running.sessions += 1
            return self._running

    def end_session(self, running: RunningProcess) -> None:
        """The process ends with the last one; waits for it."""
        with self._lock:
            running.sessions -= 1
            if running.sessions:
                return
            if self._running is running:
                self._running = None
        running.control.close()
        try:
            running.popen.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill(running)

    def has_ended(self, running: RunningProcess) -> bool:
        """Whether it has. One that ends hangs up a moment before its parent can know."""
        with suppress(subprocess.TimeoutExpired):
            running.popen.wait(_LAST_SECONDS)
            return True
        return False

    def kill(self, running: RunningProcess) -> None:
        """With all its sessions; those of other sources are begun anew."""
        with self._lock:
            if self._running is running:
                self._running = None
            running.killed = running.killed or running.popen.poll() is None
        running.popen.kill()
        running.popen.wait()


SHARED = ReaderProcess()
"""Sources know nothing of each other."""


def _start() -> RunningProcess:
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            return RunningProcess(_start_process(theirs.fileno()), ours)
        except BaseException:
            ours.close()
            raise


def _start_process(descriptor: int) -> subprocess.Popen[bytes]:
    command = launcher.make_command("sources.postgres.reader_program", str(descriptor))
    environment = {_ARENAS: "2", **os.environ}
    try:
        return subprocess.Popen(command, pass_fds=[descriptor], stdin=subprocess.DEVNULL, env=environment)  # noqa: S603 - our own module
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        what = f"the reader process cannot be started with {command[0]}: {(error.strerror or '').lower()}"
        raise SourceUnavailable(what, "put that Python back, or install the service anew and restart it") from None
