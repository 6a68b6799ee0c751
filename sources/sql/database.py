"""The database of a source: looks at it that take no longer than `timeout`, each a transaction of its own."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine

from psql_streamer.bounded import Call
from psql_streamer.errors import SourceRefused, SourceUnavailable
from sources.missing_library import explain_missing_library
from sources.sql.engines.kinds import make_engine
from sources.sql.server_errors import from_sqlalchemy, is_about_a_lock, is_about_columns, is_about_time

Result = TypeVar("Result")

_GRACE_SECONDS = 1.0
"""A server that keeps the time limit itself says better what it waited for, and gets this much longer."""


_MOST_GIVEN_UP = 3
"""Looks that were given up and have not ended. Each may hold a connection, and the rows of a batch."""


_SLOW_REMEDY = "look for locks and a missing index in the database, or raise timeout"


class ColumnsDiffer(SourceRefused):
    """A statement names a column that is not there, or not of that type."""


class StatementGivenUp(SourceUnavailable):
    """The server gave up a statement about a table, and does others."""


class TableLocked(StatementGivenUp):
    """Because it waited for the table."""


class StatementTooSlow(StatementGivenUp):
    """Because it took too long, whatever the reason."""


class TookTooLong(SourceUnavailable):
    """A look did not end in time."""


class Database:
    """Opened when it is looked at. For one thread; `interrupt` may be called from any.

    timeout: seconds for each look. lock_timeout: for the lock of a table, where the server ends such a wait.
    """

    def __init__(self, url: URL, timeout: float, lock_timeout: float) -> None:
        self.kind = make_engine(url, timeout, lock_timeout)
        self._url = url
        self._timeout = timeout
        self._engine: Engine | None = None
        self._driver: Any = None
        self._identity: Mapping[str, str] = {}
        self._identified: Any = None
        self._interrupted = threading.Event()
        self._given_up: list[Call[Any]] = []

    @property
    def interrupted(self) -> bool:
        """Whether nobody wants to wait any more."""
        return self._interrupted.is_set()

    def read_identity(self) -> Mapping[str, str]:
        """What tells it from another database under the same address, which later looks must not come to."""
        self._identity = {}
        found = self.look(self.kind.read_identity, "asking which database it is")
        if self.kind.has_server:
            self._identity = found
        return found

    def look(self, work: Callable[[Connection], Result], doing: str | Callable[[], str]) -> Result:
        """What `work` gives, in a transaction that ends with it. doing: what is done, for messages, or says it then.

        SourceUnavailable when it takes too long, or the server is away; SourceRefused when it will not do it.
        """
        return self._look(work, doing if callable(doing) else lambda: doing)

    def _look(self, work: Callable[[Connection], Result], tell: Callable[[], str]) -> Result:
        if self.interrupted:
            raise SourceUnavailable(f"interrupted while {tell()}")
        self._require_few_given_up(tell)
        call = Call(lambda: self._transact(work), tell())
        if not call.wait(self._timeout + _GRACE_SECONDS, self._interrupted):
            self._cancel()
            call.abandon(lambda _: None)
            self._given_up.append(call)
            self.close()
            if self.interrupted:
                raise SourceUnavailable(f"interrupted while {tell()}")
            raise TookTooLong(f"{tell()} took longer than {self._timeout:g} s", _SLOW_REMEDY)
        try:
            return call.require_result()
        except sa.exc.SQLAlchemyError as error:
            if self.interrupted:
                raise SourceUnavailable(f"interrupted while {tell()}") from None
            refused = from_sqlalchemy(error, self._url, tell())
            if is_about_columns(error):
                raise ColumnsDiffer(refused.what, refused.remedy) from None
            if is_about_time(error):
                raise StatementTooSlow(refused.what, refused.remedy or _SLOW_REMEDY) from None
            raise (TableLocked(refused.what, refused.remedy) if is_about_a_lock(error) else refused) from None

    def _require_few_given_up(self, tell: Callable[[], str]) -> None:
        """A driver may go on with what nobody waits for, however it is told to end. The same is not begun too often."""
        deadline = time.monotonic() + self._timeout
        while len(self._given_up) >= _MOST_GIVEN_UP:
            self._given_up[0].wait(max(0.0, deadline - time.monotonic()), self._interrupted)
            self._given_up = [call for call in self._given_up if not call.ended]
            if time.monotonic() >= deadline or self.interrupted:
                break
        if len(self._given_up) >= _MOST_GIVEN_UP:
            raise SourceUnavailable(
                f"{tell()}: {len(self._given_up)} earlier looks at the database took too long and have not ended yet",
                "look for what the sessions of this user wait for in the database; a restart of the service ends them",
            )

    def interrupt(self) -> None:
        """End the look that is under way, and every later one."""
        self._interrupted.set()
        self._cancel()

    def close(self) -> None:
        """Give up the connection. It is made anew by the next look."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.dispose()

    def _transact(self, work: Callable[[Connection], Result]) -> Result:
        engine = self._engine = self._engine or self.kind.create()
        dbapi = engine.dialect.loaded_dbapi
        driver: Any = None
        try:
            with self._connect(engine) as connection:
                if self._engine is not engine:
                    raise SourceUnavailable("given up while the server was waited for")
                driver = self._driver = connection.connection.driver_connection
                self._require_the_same_server(connection, driver)
                return work(connection)  # what is left open is rolled back
        except dbapi.Error as error:
            # From a cursor that is read without SQLAlchemy.
            raise sa.exc.DBAPIError(None, None, error, hide_parameters=True) from None
        finally:
            if self._driver is driver:  # and not that of a later look
                self._driver = None

    def _require_the_same_server(self, connection: Connection, driver: Any) -> None:
        """A connection that was lost is made anew, and may come to another server; a start says what follows of it."""
        if not self._identity or driver is self._identified:
            return
        if self.kind.read_identity(connection) != self._identity:
            raise SourceUnavailable("another server answers under the same address")
        connection.rollback()
        self._identified = driver

    def _connect(self, engine: Engine) -> Connection:
        try:
            return engine.connect()
        except RuntimeError as error:
            instead = "give the account another way to log in (mysql_native_password)"
            raise explain_missing_library(error, "the server", instead) from None

    def _cancel(self) -> None:
        driver = self._driver
        if driver is not None:
            with contextlib.suppress(Exception):  # whatever the driver says, nobody waits for it
                self.kind.cancel(driver)
