"""What the server says beside the stream: how far its binary log has got, and what its tables are like."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from psql_streamer.errors import SourceError
from sources.mysql.places import Place
from sources.mysql.server import Session, measure_bytes_behind
from sources.mysql.server_of_stream import ServerOfStream
from sources.other_server import LOOKS_IN_VAIN, STREAM_IS_NOT_THERE, WATCH_SESSION_SECONDS, OtherServer
from sources.watch_thread import WatchThread

_SERVER_LOOK_SECONDS = 5.0
"""Between two questions, and before the next attempt to connect."""


class ServerWatch:
    """Asks every few seconds, in a thread of its own, over a connection of its own.

    A server that does not answer is the stream's problem to report; here the last answer stays. Of another server than
    that of the stream nothing is taken, and the last answer does not stay.
    look: at the tables, when it is started and when it is told to.
    """

    def __init__(self, server: ServerOfStream, look: Callable[[Session], None]) -> None:
        self._server = server
        self._look = look
        self._tables_due = threading.Event()
        self._files: Sequence[tuple[str, int]] = ()
        self._looks_in_vain = 0  # one after the other, at another server
        self._thread = WatchThread(self._run)

    def start(self) -> None:
        """Begin to ask. May be called again."""
        self._tables_due.set()
        self._thread.start()

    def look_again(self) -> None:
        """At the tables, soon."""
        self._tables_due.set()

    def stop(self) -> None:
        """End. May be called twice, and before start."""
        self._thread.stop()

    def measure_lag(self, place: Place, received: Place) -> int | None:
        """From a place to the end of the binary log, when last asked; None where nobody knows.

        received: how far the stream has got.
        """
        return measure_bytes_behind(place, received, self._files)

    def describe_trouble(self) -> str:
        """That the address leads elsewhere; the stream goes on, and does not show it. Empty for nothing."""
        if self._looks_in_vain < LOOKS_IN_VAIN:
            return ""
        return (
            f"{STREAM_IS_NOT_THERE} (a failover, a proxy, a name with several addresses). The lag is not known. The "
            "next session goes where the dsn leads"
        )

    def _run(self, stopping: threading.Event) -> None:
        self._files, self._looks_in_vain = (), 0
        while not stopping.is_set():
            try:
                with self._server.open_session() as asking:
                    self._ask(asking, stopping)
            except OtherServer:
                self._files, self._looks_in_vain = (), self._looks_in_vain + 1
                stopping.wait(_SERVER_LOOK_SECONDS)
            except SourceError:
                stopping.wait(_SERVER_LOOK_SECONDS)

    def _ask(self, asking: Session, stopping: threading.Event) -> None:
        self._looks_in_vain = 0
        until = time.monotonic() + WATCH_SESSION_SECONDS
        while time.monotonic() < until and not stopping.is_set():
            self._files = asking.list_files()
            self._look_at_tables(asking)
            stopping.wait(_SERVER_LOOK_SECONDS)

    def _look_at_tables(self, asking: Session) -> None:
        if not self._tables_due.is_set():
            return
        self._tables_due.clear()
        try:
            self._look(asking)
        except Exception:
            self._tables_due.set()
            raise
