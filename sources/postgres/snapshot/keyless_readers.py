"""Sessions that read tables without a key in the snapshot of a new slot, under locks that are older than that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import NamedTuple

from psycopg2.extensions import connection as Connection  # noqa: N812 - a class

from psql_streamer.errors import SourceUnavailable
from sources.postgres.catalog import Session
from sources.postgres.snapshot.copying import LockNotFree, TableRefused, begin_under_locks, see_snapshot

STATE_LOST = "the session that held the state of tables without a key has ended"


class StateLost(SourceUnavailable):
    """Nobody can read the tables any more as they were where the slot began."""


class _Reader(NamedTuple):
    """session: ends it from any thread."""

    connection: Connection
    session: Session


class KeylessReaders:
    """Each keeps its locks from before the slot is made until it is closed. A session that asked for them later would
    stand behind whoever waits for a stronger lock (PostgreSQL source, ProcSleep in proc.c), and that one waits for the
    locks that the tables have until they are read: neither would ever go on.

    connect: a session that reads. names: of the tables, as LOCK TABLE has them. lock_timeout: seconds.
    """

    def __init__(self, connect: Callable[[], Connection], names: str, lock_timeout: float) -> None:
        self._connect = connect
        self._names = names
        self._lock_timeout = lock_timeout
        self._free: SimpleQueue[_Reader] = SimpleQueue()
        self._all: set[_Reader] = set()

    def open(self, count: int) -> None:
        """Before the slot is made: so many, which have the locks and see nothing yet."""
        for _ in range(count):
            self._free.put(self._begin())

    def see(self, snapshot: str) -> None:
        """Those that are open read in this snapshot."""
        for reader in self._all:
            see_snapshot(reader.connection, snapshot)

    @contextmanager
    def lend(self, snapshot: str, require_locks: Callable[[], None]) -> Iterator[Connection]:
        """One that reads in this snapshot, from any thread; another one where one has failed. require_locks: raises
        StateLost unless the tables have been locked all the time. StateLost.
        """
        try:
            reader = self._free.get_nowait()
        except Empty:
            reader = self._replace(snapshot, require_locks)
        try:
            yield reader.connection
        except BaseException:
            self._end(reader)
            raise
        self._free.put(reader)

    def close(self) -> None:
        """End them all, also those that read."""
        for reader in list(self._all):
            reader.session.abort("the source was stopped")
            self._end(reader)

    def _replace(self, snapshot: str, require_locks: Callable[[], None]) -> _Reader:
        try:
            reader = self._begin()
        except LockNotFree:
            raise StateLost(
                "a session that read tables without a key has ended, and another one waits for a lock behind somebody "
                "who waits for the end of this snapshot"
            ) from None
        try:
            require_locks()
            see_snapshot(reader.connection, snapshot)
        except TableRefused:
            self._end(reader)
            raise StateLost(STATE_LOST) from None
        except BaseException:
            self._end(reader)
            raise
        return reader

    def _begin(self) -> _Reader:
        connection = self._connect()
        reader = _Reader(connection, Session(connection, None))
        self._all.add(reader)
        try:
            begin_under_locks(connection, self._names, self._lock_timeout)
        except BaseException:
            self._end(reader)
            raise
        return reader

    def _end(self, reader: _Reader) -> None:
        self._all.discard(reader)
        reader.session.close()
