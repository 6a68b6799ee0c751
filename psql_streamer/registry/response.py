"""The answer of a schema registry, all of which comes before one deadline."""

from __future__ import annotations

import io
import socket
import time
from http.client import HTTPResponse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class Response(HTTPResponse):
    """The timeout of the socket is that of the whole answer: a server that sends a byte now and then is as good as
    silent.
    """

    def __init__(
        self, sock: socket.socket, debuglevel: int = 0, method: str | None = None, url: str | None = None
    ) -> None:
        super().__init__(sock, debuglevel, method, url)
        self.fp.close()
        self.fp = io.BufferedReader(_Incoming(sock))

    def begin(self) -> None:
        """Up to the headers of the final answer. An interim one (RFC 9110, 15.2) would else be taken for the answer,
        and the answer for that of the next question.
        """
        super().begin()
        while 100 <= self.status < 200:
            self.headers = self.msg = None  # type: ignore[assignment]  # with headers it does not begin
            super().begin()


class _Incoming(io.RawIOBase):
    """What comes over a socket until its timeout, counted from now, is over."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._stream = sock.makefile("rb", buffering=0)
        self._deadline = time.monotonic() + (sock.gettimeout() or 0.0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("its answer takes too long")
        self._sock.settimeout(left)
        return self._stream.readinto(buffer)

    def close(self) -> None:
        self._stream.close()
        super().close()
