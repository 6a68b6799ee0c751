"""What the server says beside the stream: how far its binary log has got, and what its tables are like."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from psql_streamer.errors import SourceError
from sources.mysql.connection import Connector
from sources.mysql.places import Place
from sources.mysql.server import Session, measure_bytes_behind, open_session
from sources.watch_thread import WatchThread

_SERVER_LOOK_SECONDS = 5.0
"""Between two questions, and before the next attempt to connect."""


class ServerWatch:
    """Asks every few seconds, in a thread of its own, over a connection of its own.

    A server that does not answer is the stream's problem to report; here the last answer stays.
    look: at the tables, when it is started and when it is told to.
    """

    def __init__(self, connector: Connector, look: Callable[[Session], None]) -> None:
        self._connector = connector
        self._look = look
        self._tables_due = threading.Event()
        self._files: Sequence[tuple[str, int]] = ()
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

    def _run(self, stopping: threading.Event) -> None:
        self._files = ()
        while not stopping.is_set():
            try:
                with open_session(self._connector) as asking:
                    while not stopping.is_set():
                        self._files = asking.list_files()
                        self._look_at_tables(asking)
                        stopping.wait(_SERVER_LOOK_SECONDS)
            except SourceError:
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
