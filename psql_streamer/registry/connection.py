"""The connection to a schema registry. It stays open from one question to the next, which may follow at once."""

from __future__ import annotations

import errno
import http.client
import os
import select
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, cast
from urllib.parse import SplitResult

from psql_streamer.registry.response import Response

_IDLE_SECONDS = 10.0
"""The time for which a connection may be idle and used again. Routers forget idle ones, and a question on such a one
would wait for its answer in vain. Servers close them, which is noticed.
"""

_MOST_ANSWER_BYTES = 32 << 20
"""Of an answer."""

_PIECE_BYTES = 1 << 16

_CONNECTING_SECONDS = 0.1
"""How often a wait for a server that is away looks for an interrupt."""


class AnswerTooLargeError(Exception):
    """The text says how large it may be."""


class Question(NamedTuple):
    """Over HTTP. path: behind that of the server."""

    method: str
    path: str
    content: bytes | None
    headers: Mapping[str, str]


class RegistryConnection:
    """To one server at a time. For one thread, except `interrupt`."""

    def __init__(self, timeout: float, tls: ssl.SSLContext | None) -> None:
        self._timeout = timeout
        self._tls = tls
        self._address: SplitResult | None = None
        self._connection: _Connection | None = None
        self._idle_since = 0.0
        self._interrupted = False

    def ask(self, address: SplitResult, question: Question) -> tuple[int, bytes]:
        """The status and the body. Raises OSError, http.client.HTTPException and AnswerTooLargeError."""
        connection, is_used = self._open(address)
        try:
            response = self._send(connection, is_used, address.path, question)
            answer = response.status, _read(response)
        except BaseException:
            self.close()
            raise
        self._idle_since = time.monotonic()
        return answer

    def close(self) -> None:
        """The next question opens it again."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def interrupt(self) -> None:
        """Make what is being asked, and all that is asked later, raise OSError. From any thread."""
        self._interrupted = True
        sock = getattr(self._connection, "wire", None)
        if sock is not None:
            with suppress(OSError):  # it may be closed meanwhile
                socket.socket.shutdown(sock, socket.SHUT_RDWR)  # that of a TLS socket would end TLS in this thread

    def _open(self, address: SplitResult) -> tuple[_Connection, bool]:
        """With whether an answer has come over it already."""
        is_old = time.monotonic() - self._idle_since > _IDLE_SECONDS
        if address != self._address or is_old or (self._connection is not None and not self._connection.is_silent()):
            self.close()
        is_used = self._connection is not None and self._connection.sock is not None
        if self._connection is None:
            self._connection = self._make(address)
            self._address = address
        return self._connection, is_used

    def _make(self, address: SplitResult) -> _Connection:
        host = address.hostname or ""
        if address.scheme == "https" and self._tls is not None:
            return _TlsConnection(host, address.port, self._timeout, self._require_uninterrupted, self._tls)
        return _Connection(host, address.port, self._timeout, self._require_uninterrupted)

    def _send(self, connection: _Connection, is_used: bool, path: str, question: Question) -> http.client.HTTPResponse:
        """A server closes a connection that is idle when it likes, perhaps while it is asked: then it has not looked at
        the question, and gets it again over a new one (RFC 9112, 9.3.1). Whatever is posted may be posted twice.
        """
        try:
            return self._send_once(connection, path, question)
        except TimeoutError:
            raise
        except OSError:
            if not is_used or self._interrupted:
                raise
            connection.close()
            return self._send_once(connection, path, question)

    def _send_once(self, connection: _Connection, path: str, question: Question) -> http.client.HTTPResponse:
        self._require_uninterrupted()
        if connection.sock is not None:
            connection.sock.settimeout(self._timeout)  # Response has shortened it
        connection.request(question.method, path + question.path, question.content, dict(question.headers))
        return connection.getresponse()

    def _require_uninterrupted(self) -> None:
        if self._interrupted:
            raise InterruptedError("interrupted")


class _Connection(http.client.HTTPConnection):
    """Has its socket before that is connected, so that `interrupt` ends the wait for a server that is away.

    wire: the socket, also while the last answer of a connection is read, when http.client has let it go.
    """

    response_class = Response

    def __init__(self, host: str, port: int | None, timeout: float, require_uninterrupted: Callable[[], None]) -> None:
        super().__init__(host, port or self.default_port, timeout=timeout)  # it would look for a port in an IPv6 host
        self.wire: socket.socket | None = None
        self._require_uninterrupted = require_uninterrupted

    def connect(self) -> None:
        error: OSError = OSError("the name has no address")
        for family, kind, protocol, _, address in socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM):
            self.sock = self.wire = sock = socket.socket(family, kind, protocol)
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._connect_socket(sock, address)
            except InterruptedError:
                sock.close()
                raise
            except OSError as problem:
                sock.close()
                error = problem
            else:
                return
        raise error

    def is_silent(self) -> bool:
        """Whether nothing has come since the last answer: neither its end nor what would be taken for the next one."""
        return self.sock is None or not _wait(self.sock, select.POLLIN, 0.0)

    def _connect_socket(self, sock: socket.socket, address: Any) -> None:
        """A shutdown of a socket that is not connecting yet has no effect, so the interrupt is looked for as well."""
        deadline = time.monotonic() + cast(float, self.timeout)
        sock.setblocking(False)
        problem = sock.connect_ex(address)
        if problem in (errno.EINPROGRESS, errno.EAGAIN):
            while not _wait(sock, select.POLLOUT, _CONNECTING_SECONDS):
                self._require_uninterrupted()
                if time.monotonic() > deadline:
                    raise TimeoutError("it does not accept the connection in time")
            problem = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        self._require_uninterrupted()
        if problem:
            raise OSError(problem, os.strerror(problem))
        sock.settimeout(self.timeout)


class _TlsConnection(_Connection):
    default_port = http.client.HTTPS_PORT

    def __init__(
        self,
        host: str,
        port: int | None,
        timeout: float,
        require_uninterrupted: Callable[[], None],
        tls: ssl.SSLContext,
    ) -> None:
        super().__init__(host, port, timeout, require_uninterrupted)
        self._tls = tls

    def connect(self) -> None:
        super().connect()
        shaking = self._tls.wrap_socket(self.sock, server_hostname=self.host, do_handshake_on_connect=False)
        self.sock = self.wire = shaking
        self._require_uninterrupted()
        shaking.do_handshake()

    def is_silent(self) -> bool:
        return super().is_silent() and not (isinstance(self.sock, ssl.SSLSocket) and self.sock.pending())


def _wait(sock: socket.socket, event: int, seconds: float) -> bool:
    """Whether a socket can be read or written, or has failed, before that time is over."""
    poll = select.poll()
    poll.register(sock, event)
    return bool(poll.poll(seconds * 1000))


def _read(response: http.client.HTTPResponse) -> bytes:
    """All of the answer."""
    pieces = []
    size = 0
    while piece := response.read1(_PIECE_BYTES):
        pieces.append(piece)
        size += len(piece)
        if size > _MOST_ANSWER_BYTES:
            raise AnswerTooLargeError(f"its answer has more than {_MOST_ANSWER_BYTES >> 20} MB")
    if response.length:
        raise http.client.IncompleteRead(b"", response.length)
    response.close()  # the connection stays open, and takes the next question
    return b"".join(pieces)
