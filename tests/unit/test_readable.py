"""Connections are waited for also where select(2) does not take their descriptors."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from psql_streamer.readable import wait_for_readable
from tests.open_files import more_open_files_than_select_takes


@pytest.fixture(params=[False, True], ids=["few", "many"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends, with few open files, and with more than select(2) takes."""
    with ExitStack() as stack:
        if request.param:
            stack.enter_context(more_open_files_than_select_takes())
        one, other = map(stack.enter_context, socket.socketpair())
        yield one, other


def test_what_can_be_read_is_found(pair: tuple[socket.socket, socket.socket]) -> None:
    one, other = pair
    assert wait_for_readable([one, other], 0.001) == []
    other.send(b"x")
    assert wait_for_readable([one, other], 30) == [one]
    assert wait_for_readable([one.fileno()], 30) == [one.fileno()]


def test_what_comes_later_ends_the_wait(pair: tuple[socket.socket, socket.socket]) -> None:
    one, other = pair
    later = threading.Timer(0.05, other.send, [b"x"])
    later.start()
    assert wait_for_readable([one], 30) == [one]
    later.join()


def test_what_can_be_written_ends_the_wait_and_is_not_named(pair: tuple[socket.socket, socket.socket]) -> None:
    one, other = pair
    assert wait_for_readable([one], 30, [one]) == []
    assert wait_for_readable([one], 30, [other]) == []
    other.send(b"x")
    assert wait_for_readable([one], 30, [one]) == [one]


def test_what_has_hung_up_can_be_read(pair: tuple[socket.socket, socket.socket]) -> None:
    one, other = pair
    other.close()
    assert wait_for_readable([one], 30) == [one]


def test_what_is_closed_is_refused(pair: tuple[socket.socket, socket.socket]) -> None:
    one, _ = pair
    one.close()
    with pytest.raises(ValueError, match="negative"):
        wait_for_readable([one], 30)
