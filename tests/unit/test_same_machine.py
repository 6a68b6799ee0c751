"""Which connections let messages gather in the server's send buffer."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from psql_streamer.batching import SOCKET_GATHER_BYTES, SOCKET_WINDOW_BYTES
from sources.postgres import same_machine
from sources.postgres.same_machine import let_messages_gather

USUAL = "4096\t16384\t4194304\n"


@pytest.fixture(autouse=True)
def send_buffers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the kernel says of send buffers, as it does by default."""
    file = tmp_path / "tcp_wmem"
    file.write_text(USUAL)
    monkeypatch.setattr(same_machine, "_SEND_BUFFERS", file)
    return file


@pytest.fixture(params=["127.0.0.1", "::1"])
def connected(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    """A TCP connection of this machine to itself."""
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    try:
        server = socket.create_server((request.param, 0), family=family)
    except OSError:
        pytest.skip(f"this machine has no address {request.param}")
    with server, socket.create_connection(server.getsockname()[:2]) as client:
        yield client


def _window(connected: socket.socket) -> int:
    return connected.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


def test_over_tcp_on_one_machine_they_do_and_the_window_is_small(connected: socket.socket) -> None:
    assert let_messages_gather(connected) == SOCKET_GATHER_BYTES
    assert _window(connected) in (SOCKET_WINDOW_BYTES, 2 * SOCKET_WINDOW_BYTES)  # Linux doubles it: socket(7)


def test_over_a_unix_socket_they_do_not() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        before = _window(ours)
        assert let_messages_gather(ours) == 0
        assert _window(ours) == before


@pytest.mark.parametrize("said", ["4096 16384 524288", "", "4096", "many"])
def test_where_send_buffers_are_small_or_unknown_they_do_not(
    connected: socket.socket, send_buffers: Path, said: str
) -> None:
    send_buffers.write_text(said)
    before = _window(connected)
    assert let_messages_gather(connected) == 0
    assert _window(connected) == before


def test_on_systems_that_say_nothing_of_send_buffers_they_do_not(connected: socket.socket, send_buffers: Path) -> None:
    send_buffers.unlink()
    assert let_messages_gather(connected) == 0


def test_where_segments_are_small_they_do_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1460)  # as with an MTU of 1,500 bytes
        client.connect(server.getsockname())
        assert let_messages_gather(client) == 0


def test_to_another_machine_they_do_not() -> None:
    class Remote:
        family = socket.AF_INET

        def getsockname(self) -> tuple[str, int]:
            return "10.0.0.1", 40000

        def getpeername(self) -> tuple[str, int]:
            return "10.0.0.2", 5432

        def setsockopt(self, *_: object) -> None:
            raise AssertionError("the window was changed")

    assert let_messages_gather(Remote()) == 0  # type: ignore[arg-type]  # what is asked of a socket


def test_where_the_kernel_gives_a_smaller_window_they_do_not(
    connected: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(same_machine, "SOCKET_WINDOW_BYTES", 1 << 30)  # more than net.core.rmem_max of any machine
    before = _window(connected)
    assert let_messages_gather(connected) == 0
    assert _window(connected) == before


def test_where_the_system_refuses_to_set_a_window_they_do_not(
    connected: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing(socket.socket):
        def setsockopt(self, *_: object) -> None:
            raise PermissionError("by the rules of the container")

    monkeypatch.setattr(socket, "socket", Refusing)
    with Refusing(fileno=os.dup(connected.fileno())) as refusing:
        assert let_messages_gather(refusing) == 0
