"""A TCP proxy on loopback that can cut, freeze, and lead elsewhere: the network between a service and a server."""

from __future__ import annotations

import select
import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

from psycopg2.extensions import make_dsn

_LOOK = 0.02


class TcpProxy:
    """Forwards connections to `target`, a port on loopback, which may be changed at any time."""

    def __init__(self, target: int) -> None:
        self.target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(_LOOK)
        self.port: int = self._listener.getsockname()[1]
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._frozen = threading.Event()
        self._refusing = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._accept, name="proxy", daemon=True)

    def dsn(self, dsn: str) -> str:
        """The same database, through the proxy."""
        return str(make_dsn(dsn, host="127.0.0.1", port=self.port))

    def cut(self) -> None:
        """End every connection that there is. New ones are forwarded."""
        with self._lock:
            sockets, self._sockets = self._sockets, set()
        for one in sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def freeze(self) -> None:
        """Forward nothing, and say nothing: connections stand, new ones are accepted."""
        self._frozen.set()

    def thaw(self) -> None:
        """Forward again."""
        self._frozen.clear()

    def refuse(self) -> None:
        """End every connection, and every new one at once."""
        self._refusing.set()
        self.cut()

    def accept(self) -> None:
        """Forward new connections again."""
        self._refusing.clear()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self.cut()
        self._thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while not self._ending.is_set():
            try:
                client, _ = self._listener.accept()
            except TimeoutError:
                continue
            if self._refusing.is_set():
                client.close()
                continue
            threading.Thread(target=self._serve, args=(client,), name="proxied", daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            while self._frozen.is_set() and not self._ending.is_set():
                self._ending.wait(_LOOK)
            try:
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                return
            with server:
                with self._lock:
                    self._sockets |= {client, server}
                with suppress(OSError):
                    self._pump(client, server)
                with self._lock:
                    self._sockets -= {client, server}

    def _pump(self, client: socket.socket, server: socket.socket) -> None:
        other = {client: server, server: client}
        while not self._ending.is_set():
            if self._frozen.is_set():
                self._ending.wait(_LOOK)
                continue
            for one in select.select([client, server], [], [], _LOOK)[0]:
                data = one.recv(1 << 16)
                if not data:
                    return
                other[one].sendall(data)
