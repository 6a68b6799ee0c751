"""What the reader process does with sessions whose parent has left them."""

from __future__ import annotations

import json
import os
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import psutil
import pytest

from sources.postgres import reader_sessions
from sources.postgres.reader import FAILED, MESSAGE


@pytest.fixture
def control() -> Iterator[socket.socket]:
    """The parent's end. What runs behind the other one has ended at the end of the test."""
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=reader_sessions._run_sessions, args=(theirs,))
    thread.start()
    with theirs:
        with ours:
            yield ours
        thread.join(30)
    assert not thread.is_alive()


def begin(control: socket.socket) -> tuple[socket.socket, int]:
    """The parent's ends of a session."""
    ours, theirs = socket.socketpair()
    life, life_there = os.pipe()
    with theirs:
        socket.send_fds(control, [b"S"], [theirs.fileno(), life_there])
    os.close(life_there)
    return ours, life


def test_a_session_that_waits_for_its_server_is_cut_off_from_it_when_its_parent_has_left(
    control: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_sessions, "_HUNG_UP_SECONDS", 0.05)
    is_waiting, came = threading.Event(), []
    with ExitStack() as stack:
        server, connection = map(stack.enter_context, socket.socketpair())

        def wait_for_server(_: socket.socket, connected: Callable[[int], None]) -> None:
            connected(connection.fileno())
            is_waiting.set()
            came.append(connection.recv(1))  # a server that never answers

        monkeypatch.setattr(reader_sessions, "serve", wait_for_server)
        parent, life = begin(control)
        stack.callback(os.close, life)
        assert is_waiting.wait(30)
        assert select.select([life], [], [], 0.2)[0] == [], "its parent is there"
        parent.close()
        assert select.select([life], [], [], 30)[0] == [life]
        assert came == [b""]
        assert server.recv(1) == b""


def test_a_session_that_is_connected_too_late_is_cut_off_as_well(
    control: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_sessions, "_HUNG_UP_SECONDS", 0.05)
    is_connected, came = threading.Event(), []
    with ExitStack() as stack:
        _, connection = map(stack.enter_context, socket.socketpair())

        def connect_late(_: socket.socket, connected: Callable[[int], None]) -> None:
            is_connected.wait(30)
            connected(connection.fileno())
            came.append(connection.recv(1))

        monkeypatch.setattr(reader_sessions, "serve", connect_late)
        parent, life = begin(control)
        stack.callback(os.close, life)
        parent.close()
        assert select.select([life], [], [], 0.5)[0] == [], "it waits to be connected"
        is_connected.set()
        assert select.select([life], [], [], 30)[0] == [life]
        assert came == [b""]


def test_a_session_that_ends_by_itself_says_so_and_another_one_goes_on(
    control: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_sessions, "serve", lambda parent, _: parent.recv(1))
    with ExitStack() as stack:
        sessions = [begin(control) for _ in range(2)]
        for parent, life in sessions:
            stack.enter_context(parent)
            stack.callback(os.close, life)
        (one, life), (other, other_life) = sessions
        one.send(b"x")
        assert select.select([life, other_life], [], [], 30)[0] == [life]
        assert one.recv(1) == b""
        other.send(b"x")
        assert select.select([other_life], [], [], 30)[0] == [other_life]


def test_descriptors_of_sessions_that_are_over_are_closed(
    control: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_sessions, "serve", lambda parent, _: parent.recv(1))

    def run_one() -> None:
        parent, life = begin(control)
        parent.close()
        select.select([life], [], [], 30)
        os.close(life)

    run_one()
    before = psutil.Process().num_fds()
    for _ in range(20):
        run_one()
    # The last ones are closed by the thread that takes sessions, which looks again after a moment.
    parent, life = begin(control)
    parent.send(b"x")
    select.select([life], [], [], 30)
    parent.close()
    os.close(life)
    assert psutil.Process().num_fds() <= before + 4


def test_a_session_that_fails_in_a_way_that_nobody_knows_says_so_and_another_one_goes_on(
    control: socket.socket, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(parent: socket.socket, _: Callable[[int], None]) -> None:
        if parent.recv(1) == b"x":
            raise LookupError("a value")

    monkeypatch.setattr(reader_sessions, "serve", fail)
    with ExitStack() as stack:
        (one, life), (other, other_life) = begin(control), begin(control)
        for parent, descriptor in ((one, life), (other, other_life)):
            stack.enter_context(parent)
            stack.callback(os.close, descriptor)
        one.send(b"x")
        assert select.select([life, other_life], [], [], 30)[0] == [life]
        kind, size = MESSAGE.unpack(one.recv(MESSAGE.size))
        assert kind == FAILED
        assert json.loads(one.recv(size)) == [
            "SourceUnavailable",
            "the reader process met an unexpected LookupError",
            "please report it with the log",
        ]
        assert "LookupError" in capfd.readouterr().err
        other.send(b"y")
        assert select.select([other_life], [], [], 30)[0] == [other_life]
