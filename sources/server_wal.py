"""How far the server's WAL has got, asked beside the stream: what it has not sent yet is lag as well."""

from __future__ import annotations

import threading
from collections.abc import Callable

from psql_streamer.errors import SourceError
from sources.catalog import Catalog, Session

_INTERVAL = 5.0
_SOON = 0.5


class ServerWal:
    """Asks every few seconds, in a thread of its own, over a connection of its own.

    end: the WAL's end when it was last asked for, 0 before. A server that does not answer is the stream's problem to
    report; here the last answer stays, and on_refused is called, since a server that shuts down ends and refuses
    sessions before it ends its walsenders.
    """

    def __init__(self, catalog: Catalog, on_refused: Callable[[], None]) -> None:
        self.end = 0
        self._catalog = catalog
        self._on_refused = on_refused
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to ask. May be called again."""
        if self._thread is None:
            self._stopping.clear()
            self._thread = threading.Thread(target=self._run, name="server WAL", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End. May be called twice, and before start."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while not self._stopping.is_set():
            connected = False
            try:
                with self._catalog.session() as session:
                    connected = True
                    self._ask(session, self._stopping.wait)
            except SourceError:
                if not connected:
                    self._on_refused()
                self._stopping.wait(_SOON if connected else _INTERVAL)

    def _ask(self, session: Session, pause: Callable[[float], bool]) -> None:
        while not pause(_INTERVAL if self.end else 0.0):
            self.end = int(session.wal_end())
