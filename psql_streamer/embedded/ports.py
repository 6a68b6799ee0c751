"""Loopback ports for embedded servers."""

from __future__ import annotations

import socket

LOOPBACK = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """TCP ports of the loopback interface that nobody listens on now; all held at once, so no two are equal."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for held in sockets:
            held.bind((LOOPBACK, 0))
        return [held.getsockname()[1] for held in sockets]
    finally:
        for held in sockets:
            held.close()


def listening(port: int) -> bool:
    """True when something accepts connections on this loopback port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((LOOPBACK, port)) == 0


def greeting(port: int) -> bytes:
    """What a server sends of itself to who connects to this loopback port; b"" when nobody listens or says a word."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=1) as connection:
            return connection.recv(128)
    except OSError:
        return b""
