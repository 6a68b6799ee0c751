"""The sessions of the reader process, each in a thread.

The argument is the number of the file descriptor of the process's end of a socket pair. A byte over it comes with two
more: the session's end of a socket pair, and that of a pipe, which is closed when the session has ended. The process
ends when its parent hangs up. A session whose parent hangs up while it waits for the server is cut off from that. What
the machine does not give to one session (recvmsg(2) leaves descriptors out without an error) ends no other one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback

from psql_streamer.errors import SourceUnavailable
from psql_streamer.shortage import explain_shortage
from sources.postgres.reader import report, serve

DESCRIPTORS = 2
"""That come with a session."""

_OPENED_BY_SESSION = 4
"""The most descriptors that a session opens at a time, for its connection: libpq's, two copies, and one for names."""

_HUNG_UP_SECONDS = 1.0
"""The time that a session gets to end by itself when its parent has hung up."""


def main(arguments: list[str]) -> int:
    """Run until the parent hangs up."""
    # A terminal's Ctrl-C and a service manager's SIGTERM reach the whole group; the parent decides when we end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _run_sessions(socket.socket(fileno=int(arguments[0])))
    # A thread that connects to a server waits for it, and is not waited for.
    sys.stderr.flush()
    os._exit(0)


class _Session:
    """In a thread of its own. Its descriptors are closed by `close`, when that has ended."""

    def __init__(self, parent: socket.socket, life: int) -> None:
        self._parent = parent
        self._life = life
        self._server: socket.socket | None = None
        self.cut_off_at: float | None = None  # when it is, by time.monotonic; None while its parent is there
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def fileno(self) -> int:
        return self._parent.fileno()

    @property
    def has_ended(self) -> bool:
        return not self._thread.is_alive()

    @property
    def is_connected(self) -> bool:
        return self._server is not None

    def cut_off(self) -> None:
        """From the server, so that no wait for that goes on."""
        if self._server is not None:
            with contextlib.suppress(OSError):
                self._server.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._parent.close()
        if self._server is not None:
            self._server.close()

    def _run(self) -> None:
        try:
            _require_descriptors()
            serve(self._parent, self._note_connection)
        except Exception as error:  # whatever it is, the parent is to know that its session has ended, and why
            _report_unexpected(self._parent, error)
        finally:
            self.cut_off()  # the copy of its descriptor would keep the connection open
            with contextlib.suppress(OSError):
                self._parent.shutdown(socket.SHUT_RDWR)
            os.close(self._life)

    def _note_connection(self, descriptor: int) -> None:
        self._server = socket.socket(fileno=os.dup(descriptor))


def _run_sessions(control: socket.socket) -> None:
    sessions: dict[int, _Session] = {}
    poll = select.poll()
    poll.register(control, select.POLLIN)
    is_over = False
    while not is_over or sessions:
        wait = _compute_wait(sessions)
        for descriptor, _ in poll.poll(None if wait is None else wait * 1000):
            if descriptor != control.fileno():
                sessions[descriptor].cut_off_at = time.monotonic() + _HUNG_UP_SECONDS
                poll.unregister(descriptor)
            elif (descriptors := _receive_descriptors(control)) is None:
                poll.unregister(control)
                is_over = True
            elif (session := _begin_session(descriptors)) is not None:
                sessions[session.fileno()] = session
                poll.register(session, 0)  # poll(2) tells of POLLHUP whatever is asked for
        _end_sessions(sessions, is_over)


def _compute_wait(sessions: dict[int, _Session]) -> float | None:
    """Seconds until some session is to be looked at; None: until something comes. Those that leave end at once, but for
    one that waits for a server.
    """
    times = [session.cut_off_at for session in sessions.values() if session.cut_off_at is not None]
    return None if not times else 0.01 if max(times) > time.monotonic() else 0.25


def _end_sessions(sessions: dict[int, _Session], is_over: bool) -> None:
    """Close those whose parent has hung up, once they have ended, and cut off those that have not in time. When the
    process is over, those that wait to be connected are left behind.
    """
    now = time.monotonic()
    leaving = [(at, one) for at, one in sessions.items() if one.cut_off_at is not None]
    for at, session in leaving:
        if session.has_ended:
            session.close()
            del sessions[at]
        elif now >= (session.cut_off_at or now):
            session.cut_off()
            if is_over and not session.is_connected:
                del sessions[at]


def _receive_descriptors(control: socket.socket) -> list[int] | None:
    """Those of a session, or the first of them. None when the parent has hung up."""
    try:
        data, descriptors, _, _ = socket.recv_fds(control, 1, DESCRIPTORS)
    except ConnectionResetError:
        return None
    return descriptors if data else None


def _begin_session(descriptors: list[int]) -> _Session | None:
    """None when the machine does not give what it needs, which the parent is told."""
    if not descriptors:
        return None  # nobody can be told; the parent sees that its session has ended
    with contextlib.ExitStack() as unless_it_begins:
        parent = unless_it_begins.enter_context(socket.socket(fileno=descriptors[0]))
        for life in descriptors[1:]:
            unless_it_begins.callback(os.close, life)
        try:
            if len(descriptors) < DESCRIPTORS:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            session = _Session(parent, life)
        except (OSError, RuntimeError) as error:  # the latter is of a thread
            _report_unexpected(parent, error)
            return None
        unless_it_begins.pop_all()
        return session


def _require_descriptors() -> None:
    """OSError when a session cannot have what it opens. Where libpq gets none, its error has no text."""
    with contextlib.ExitStack() as opened:
        for _ in range(_OPENED_BY_SESSION):
            opened.callback(os.close, os.open(os.devnull, os.O_RDONLY))


def _report_unexpected(parent: socket.socket, error: Exception) -> None:
    shortage = explain_shortage(error)
    if shortage is None:
        traceback.print_exception(error)
        what, remedy = f"the reader process met an unexpected {type(error).__name__}", "please report it with the log"
    else:
        what, remedy = f"in the reader process, {shortage.what}", shortage.remedy
    report(parent, SourceUnavailable(what, remedy))
