"""Clients' connections: so many at once. Each takes a file descriptor, and sources and sinks need some, too."""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

log = logging.getLogger("psql_streamer.api")

MOST_CONNECTIONS = 100
"""Of clients, and of those that wait to be accepted."""

_TELL_AGAIN_SECONDS = 60.0

_NOTHING_LEFT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class BoundedConnection(H11Protocol):
    """One more than there may be ends that which has been silent for longest: whoever comes is served, also beside
    clients that ask for nothing, never end what they send, or do not read their answers.
    """

    _heard_at = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in H11Protocol
        super().connection_made(transport)
        self._heard_at = time.monotonic()
        open_ones = [one for one in self.connections if isinstance(one, BoundedConnection)]
        if len(open_ones) > MOST_CONNECTIONS:
            silent = min(open_ones, key=lambda one: one._heard_at)
            self.connections.discard(silent)
            silent.transport.abort()

    def data_received(self, data: bytes) -> None:
        self._heard_at = time.monotonic()
        super().data_received(data)

    def send_400_response(self, msg: str) -> None:
        """The bytes may be the body of a request that is being answered: its answer would come behind this one, and h11
        refuses either then.
        """
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        try:
            super().send_400_response(msg)
        except h11.LocalProtocolError:
            self.transport.close()

    def _unsupported_upgrade_warning(self) -> None:
        """Whoever asks for a WebSocket gets the answer without one. uvicorn names packages to install."""


class UnacceptedConnections:
    """Tells once a minute that no connection can be accepted. asyncio tells it of each that waits, each second."""

    def __init__(self) -> None:
        self._told_at = -_TELL_AGAIN_SECONDS

    def tell(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An event loop's handler of exceptions."""
        error = context.get("exception")
        if "socket" not in context or not isinstance(error, OSError) or error.errno not in _NOTHING_LEFT:
            loop.default_exception_handler(context)
            return
        if time.monotonic() - self._told_at >= _TELL_AGAIN_SECONDS:
            self._told_at = time.monotonic()
            what = "http: clients cannot be answered: %s: look at what has so many files open, or raise the limit"
            log.error(what + " (ulimit -n, LimitNOFILE)", error.strerror)
