"""Ports of embedded servers: free, and not among those that outgoing connections get."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from psql_streamer.embedded import ports
from psql_streamer.embedded.ports import LOOPBACK, free_ports

OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_ports_are_different_and_outgoing_connections_do_not_get_them() -> None:
    found = free_ports(50)
    assert len(set(found)) == 50
    first, last = (32_768, 60_999) if not OUTGOING.exists() else map(int, OUTGOING.read_text().split())
    if first < ports._PORTS.stop:
        pytest.skip(f"this machine gives ports from {first} on to outgoing connections")
    assert not [port for port in found if first <= port <= last]


def test_a_port_that_somebody_has_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    [taken, free] = free_ports(2)
    with socket.socket() as holder:
        holder.bind((LOOPBACK, taken))
        monkeypatch.setattr(ports, "_PORTS", [taken, free])
        assert free_ports(1) == [free]
        monkeypatch.setattr(ports, "_PORTS", [taken])
        assert free_ports(1) != [taken]
