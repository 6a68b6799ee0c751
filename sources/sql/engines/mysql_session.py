"""A session at MySQL or MariaDB that can be ended from elsewhere, with the statement that runs in it."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL

from psql_streamer.bounded import Call
from sources.sql.server_errors import from_sqlalchemy

END_SECONDS = 1.0
"""How long it may take to end a session: who is interrupted waits for it."""

_SESSION = "SELECT CONNECTION_ID(), @@hostname, @@server_id"

_NO_SUCH_THREAD = 1094

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MysqlSession:
    """number: at its server, which KILL takes. server: what tells it from others that answer at the same address."""

    number: int
    server: tuple[str, str]


def read_session(cursor: Any) -> MysqlSession:
    """The session of a cursor of the driver."""
    cursor.execute(_SESSION)
    return _make_session(cursor.fetchone())


def end_session(session: MysqlSession, url: URL, connect_arguments: Mapping[str, Any]) -> None:
    """End it from another session, and say in the log when it may still be there. It takes END_SECONDS at most.

    At MySQL a statement that waits for a lock goes on waiting when its client is gone; MariaDB notices that. A user may
    end sessions of its own without any privilege (MySQL documentation, "KILL Statement").
    """
    call = Call(lambda: _kill(session, url, connect_arguments), "ending a session")
    if not call.wait(END_SECONDS, threading.Event()):
        call.abandon(lambda _: None)
        left = f"no answer for {END_SECONDS:g} s"
    else:
        try:
            left = call.require_result()
        except sa.exc.SQLAlchemyError as error:
            left = str(from_sqlalchemy(error, url, "KILL"))
    if left:
        what = "sql: session %d may still wait at %s for what the source gave up: %s"
        log.warning(what, session.number, session.server[0], left)


def wake_reader(driver: Any) -> None:
    """Make a thread that reads from the server find the end of the stream. For PyMySQL.

    PyMySQL's own way closes the file that the thread reads, and waits for the thread with that. TLS would say goodbye
    to the server, so the socket below it is shut down.
    """
    connection = getattr(driver, "_sock", None)
    if isinstance(connection, socket.socket):
        with contextlib.suppress(OSError):
            socket.socket.shutdown(connection, socket.SHUT_RDWR)


def forget_result(driver: Any) -> None:
    """A result whose rows are not fetched one by one to the end, when it is closed or deleted. For PyMySQL."""
    result = getattr(driver, "_result", None)
    if result is not None:
        result.unbuffered_active, result.connection = False, None


def _kill(session: MysqlSession, url: URL, connect_arguments: Mapping[str, Any]) -> str:
    """Why it was not ended; empty when it is gone."""
    engine = sa.create_engine(url, poolclass=sa.NullPool, connect_args=dict(connect_arguments), hide_parameters=True)
    with engine.connect() as connection:
        server = _make_session(connection.exec_driver_sql(_SESSION).one()).server
        if server != session.server:
            return f"the url leads to {server[0]} now"
        try:
            connection.exec_driver_sql(f"KILL {session.number}")
        except sa.exc.DBAPIError as error:
            if getattr(error.orig, "args", (0,))[0] != _NO_SUCH_THREAD:
                raise
    return ""


def _make_session(row: Sequence[Any]) -> MysqlSession:
    number, host, server = row
    return MysqlSession(int(number), (str(host), str(server)))
