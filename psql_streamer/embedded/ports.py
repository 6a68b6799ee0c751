"""Loopback ports for embedded servers."""

from __future__ import annotations

import os
import random
import socket
import sys
from collections import deque
from contextlib import suppress

LOOPBACK = "127.0.0.1"

_PORTS = range(15_000, 32_000)
"""Below those that Linux gives to outgoing connections (ip_local_port_range, 32768 and above): one of them could take
the port before the server does.
"""

_PORT_ATTEMPTS = 100
_CHANCE = random.SystemRandom()

_PORTS_KEPT = 64
_kept: deque[int] = deque()
"""File descriptors, which end with the process: sockets would complain of not being closed."""


def free_ports(count: int) -> list[int]:
    """TCP ports of the loopback interface that nobody listens on now, and that nobody else is given.

    No two are equal. On Linux the last 64 of this process stay bound, so that no other process is given one before the
    server listens, or while it is restarted. The server needs SO_REUSEADDR, which PostgreSQL, Java, Go and asyncio set.
    """
    sockets = [socket.socket() for _ in range(count)]
    ports = [_bind(held) for held in sockets]
    for held in sockets:
        _keep(held)
    return ports


def is_listening(port: int) -> bool:
    """True when something accepts connections on this loopback port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((LOOPBACK, port)) == 0


def read_greeting(port: int) -> bytes:
    """What a server sends of itself to who connects to this loopback port; b"" when nobody listens or says a word."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=1) as connection:
            return connection.recv(128)
    except OSError:
        return b""


def _keep(held: socket.socket) -> None:
    """Leave it bound where a server may still have its port: Linux lets one listen beside sockets that only are bound,
    if all of them have SO_REUSEADDR (socket(7)). The option is set behind the bind, which was to fail for a port that
    another process keeps.
    """
    if sys.platform != "linux":
        held.close()
        return
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if len(_kept) == _PORTS_KEPT:
        os.close(_kept.popleft())
    _kept.append(held.detach())


def _bind(held: socket.socket) -> int:
    """Bind it to a port by chance; to any that is free, where all that were tried are taken."""
    for _ in range(_PORT_ATTEMPTS):
        with suppress(OSError):
            held.bind((LOOPBACK, _CHANCE.choice(_PORTS)))
            break
    else:
        held.bind((LOOPBACK, 0))
    return int(held.getsockname()[1])
