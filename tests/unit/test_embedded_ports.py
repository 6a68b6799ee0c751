"""Ports of embedded servers: free, and not among those that outgoing connections get."""

from __future__ import annotations

import socket
import subprocess
import sys
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
    with socket.socket() as holder:
        with socket.socket() as closed:
            holder.bind((LOOPBACK, 0))
            closed.bind((LOOPBACK, 0))
            [taken, free] = holder.getsockname()[1], closed.getsockname()[1]
        monkeypatch.setattr(ports, "_PORTS", [taken, free])
        assert free_ports(1) == [free]
        monkeypatch.setattr(ports, "_PORTS", [taken])
        assert free_ports(1) != [taken]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems let no server listen beside a socket that is bound")
def test_a_port_that_was_given_is_given_to_nobody_else_until_and_after_a_server_listens() -> None:
    [port] = free_ports(1)
    assert _port_of_another_process(port) != port
    for _ in range(2):  # a server, and the same one restarted
        with socket.create_server((LOOPBACK, port)), socket.create_connection((LOOPBACK, port)):
            pass
        assert _port_of_another_process(port) != port


def test_the_ports_that_are_kept_are_bounded() -> None:
    free_ports(2 * ports._PORTS_KEPT)
    assert len(ports._kept) <= ports._PORTS_KEPT


def _port_of_another_process(wanted: int) -> int:
    """What another process is given, which would take the port that is wanted."""
    asking = f"from psql_streamer.embedded import ports; ports._PORTS = [{wanted}]; print(ports.free_ports(1)[0])"
    return int(subprocess.run([sys.executable, "-c", asking], check=True, capture_output=True, text=True).stdout)
