"""Where a Spark master or a Spark Connect server listens, and whether somebody does."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeAlias

Address: TypeAlias = tuple[str, int]

_PORT_OF_MASTER = 7077
_PORT_OF_SERVER = 15002
_CONNECT_SECONDS = 2.0


def parse_addresses(url: str) -> list[Address]:
    """Of `spark://host:7077,host2:7077` and `sc://host:15002/;token=...`; empty for `yarn`, `k8s://...`, `local[*]`."""
    scheme, _, rest = url.partition("://")
    default = {"spark": _PORT_OF_MASTER, "sc": _PORT_OF_SERVER}.get(scheme)
    return [] if default is None else [_parse_address(each, default) for each in re.split("[/;]", rest)[0].split(",")]


def show_addresses(addresses: Sequence[Address]) -> str:
    """As messages have them: without the parameters of a URL, which may hold a token."""
    return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in addresses)


class Line:
    """A connection to one of these addresses that nothing is sent on. It ends with the process at the other end."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        self._addresses = addresses
        self._socket: socket.socket | None = None
        self.broken = 0
        """How often it was found broken."""

    def holds(self) -> bool:
        """Whether somebody listens there now. Takes up to two seconds an address."""
        if self._socket is not None and not _is_open(self._socket):
            self.close()
            self.broken += 1
        if self._socket is None:
            self._socket = next(filter(None, map(_open_connection, self._addresses)), None)
        return self._socket is not None

    def close(self) -> None:
        """Let go of it."""
        held, self._socket = self._socket, None
        if held is not None:
            held.close()


def _parse_address(text: str, default: int) -> Address:
    found = re.fullmatch(r"\[?(.*?)\]?(?::(\d+))?", text)
    return (found[1], int(found[2] or default)) if found else (text, default)


def _open_connection(address: Address) -> socket.socket | None:
    try:
        return socket.create_connection(address, _CONNECT_SECONDS)
    except OSError:
        return None


def _is_open(held: socket.socket) -> bool:
    """A server may speak first, as HTTP/2 does; what it says is taken and left alone."""
    held.setblocking(False)
    with suppress(BlockingIOError):
        try:
            while True:
                if not held.recv(1 << 16):
                    return False
        except BlockingIOError:
            raise
        except OSError:
            return False
    return True
