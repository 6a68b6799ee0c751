"""Connections to a server, made by PyMySQL, which any thread may interrupt."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pymysql

from psql_streamer.bounded import Call
from psql_streamer.errors import SourceRefused, SourceUnavailable
from psql_streamer.shortage import find_limit
from sources.missing_library import explain_missing_library
from sources.mysql.dsn import Address
from sources.mysql.server_errors import PLUGINS, from_pymysql

ANSWER_SECONDS = 60.0
"""Seconds that the answer to a question may take."""

_LOOKUP_SECONDS = 10.0
_NO_ANSWER = "check host and port in the dsn"
_KEEPALIVE = (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 30_000))
"""A peer that is gone without a word: the kernel asks after 10 s of silence, and gives up 15 s later."""


class Connector:
    """Makes connections. `interrupt`, from any thread, makes whatever waits raise SourceUnavailable, for good.

    timeout: seconds for a connection to be made. name: of the source, which the server shows (program_name).
    """

    def __init__(self, address: Address, timeout: float, name: str) -> None:
        self.address = address
        self._timeout = timeout
        self._name = name
        self._open: set[Any] = set()
        self._lock = threading.Lock()
        self.interrupted = threading.Event()

    @contextmanager
    def open_connection(self) -> Iterator[Any]:
        """A connection for the length of a `with`; its errors are SourceErrors."""
        made = self.connect()
        try:
            with self.translate_errors():
                yield made
            with contextlib.suppress(pymysql.Error, OSError):
                made.close()  # says goodbye: without it the server logs an aborted connection
        finally:
            self.close(made)

    def connect(self) -> Any:
        """A pymysql Connection with autocommit, in utf8mb4; `close` it."""
        call = Call(self._connect, "connect")
        if not call.wait(self._timeout + _LOOKUP_SECONDS + ANSWER_SECONDS, self.interrupted):
            call.abandon(lambda connection: connection.close())
            raise self._make_wait_error()
        with self.translate_errors():
            try:
                made = call.require_result()
            except RuntimeError as error:
                raise explain_missing_library(error, str(self.address), PLUGINS) from None
        with self._lock:
            self._open.add(made)
        if self.interrupted.is_set():
            self.close(made)
            raise self._make_wait_error()
        return made

    def close(self, connection: Any) -> None:
        """Without a word to the server, which may not listen."""
        with self._lock:
            self._open.discard(connection)
        connection._force_close()

    def interrupt(self) -> None:
        """Give up every connection that is there or being made."""
        self.interrupted.set()
        with self._lock:
            sockets = [connection._sock for connection in self._open]
        for one in sockets:
            with contextlib.suppress(OSError, AttributeError):  # it may be closed
                one.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Errors of PyMySQL and of sockets as SourceErrors."""
        try:
            yield
        except pymysql.Error as error:
            if self.interrupted.is_set():
                raise self._make_wait_error() from None
            raise from_pymysql(error, str(self.address)) from None
        except (ssl.SSLError, FileNotFoundError, PermissionError) as error:
            raise SourceRefused(
                f"no TLS session with {self.address} ({error.strerror or error})",
                "check ssl-mode, ssl-ca, ssl-cert and ssl-key in the dsn",
            ) from None
        except OSError as error:
            remedy = find_limit(str(error)) or "check host and port in the dsn"
            raise SourceUnavailable(f"{self.address}: {error}", remedy) from None

    def _connect(self) -> Any:
        address = self.address
        made = pymysql.connect(
            host=address.host,
            port=address.port,
            user=address.user,
            # A text would be sent as latin-1.
            password=address.password.encode(),
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=self._timeout,
            read_timeout=ANSWER_SECONDS,
            write_timeout=ANSWER_SECONDS,
            program_name=self._name,
            **address.make_tls_arguments(),
        )
        for option, value in _KEEPALIVE:
            with contextlib.suppress(OSError, AttributeError):  # not every system has all of them
                made._sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        return made

    def _make_wait_error(self) -> SourceUnavailable:
        if self.interrupted.is_set():
            return SourceUnavailable(f"{self.address} had not answered when waiting for it was given up", _NO_ANSWER)
        return SourceUnavailable(f"{self.address} does not answer", _NO_ANSWER)
