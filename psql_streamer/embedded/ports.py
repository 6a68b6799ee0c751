"""Loopback ports for embedded servers."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

LOOPBACK = "127.0.0.1"

_PORTS = range(15_000, 32_000)
"""Below those that Linux gives to outgoing connections (ip_local_port_range, 32768 and above): one of them could take
the port before the server does.
"""

_PORT_ATTEMPTS = 100
_CHANCE = random.SystemRandom()


def free_ports(count: int) -> list[int]:
    """TCP ports of the loopback interface that nobody listens on now; all held at once, so no two are equal."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        return [_bind(held) for held in sockets]
    finally:
        for held in sockets:
            held.close()


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


def _bind(held: socket.socket) -> int:
    """Bind it to a port by chance; to any that is free, where all that were tried are taken."""
    for _ in range(_PORT_ATTEMPTS):
        with suppress(OSError):
            held.bind((LOOPBACK, _CHANCE.choice(_PORTS)))
            break
    else:
        held.bind((LOOPBACK, 0))
    return int(held.getsockname()[1])
