"""What the reader process does between two reads of the stream, however much there is to read."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator

import pytest

from psql_streamer.batching import (
    READER_NAP_SECONDS,
    SLOW_STREAM_BLOCK_SECONDS,
    SOCKET_GATHER_BYTES,
    SOCKET_WINDOW_BYTES,
)
from psql_streamer.pgoutput.block import KEEPALIVE_FRAME
from psql_streamer.pgoutput.frames import FrameBuffer
from sources.postgres.reader import COMMAND, QUIT, REQUEST_BLOCK, Settings, _Reader
from tests.pgoutput_wire import copy_data, keepalive

MESSAGE_BYTES = 50 << 20
A_FEW_READS_BYTES = 2 << 20


class _OneLargeMessage:
    """A server that has always sent the next piece before the reader has taken the one before.

    between_updates: bytes that were read between two status updates. When the message is over, the parent says quit.
    """

    def __init__(self, parent: socket.socket, gather_bytes: int, look_every: float | None) -> None:
        self.gather_bytes, self.look_every = gather_bytes, look_every
        self._parent = parent
        self._ours, self._theirs = socket.socketpair()
        self._theirs.send(b"always readable")
        self._left = MESSAGE_BYTES
        self.between_updates = [0]

    def fileno(self) -> int:
        return self._ours.fileno()

    def receive(self, frames: FrameBuffer) -> int:
        if self._left == MESSAGE_BYTES:
            frames.feed(b"d" + struct.pack(">I", MESSAGE_BYTES + 100))
        size = min(self._left, SOCKET_WINDOW_BYTES)
        frames.feed(bytes(size))
        self._left -= size
        self.between_updates[-1] += size
        if not self._left:
            self._parent.send(COMMAND.pack(QUIT, 0))
        return size

    def send_status(self, received: int, confirmed: int, reply: bool = False) -> None:  # noqa: ARG002 - its signature
        self.between_updates.append(0)

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The ends of the parent and of the reader."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.mark.parametrize(
    ("gather_bytes", "look_every"), [(SOCKET_GATHER_BYTES, None), (0, None), (0, 60.0)], ids=["gathers", "plain", "tls"]
)
def test_a_message_larger_than_all_buffers_keeps_neither_status_updates_nor_commands_waiting(
    ends: tuple[socket.socket, socket.socket], gather_bytes: int, look_every: float | None
) -> None:
    settings = Settings("dsn", "s", ["p"], ("1", 1, "d"), 0, 0, 1.0, 0.0, 10_000, 1.0, 4 << 20, "a", "db1")
    stream = _OneLargeMessage(ends[0], gather_bytes, look_every)
    _Reader(ends[1], stream, settings, walsender=1).run()
    assert sum(stream.between_updates) == MESSAGE_BYTES
    assert max(stream.between_updates) <= A_FEW_READS_BYTES


class _SlowStream:
    """A server that sends a keepalive whenever it is looked at. reads: when it was read. pause: seconds of a read."""

    gather_bytes, look_every = SOCKET_GATHER_BYTES, None

    def __init__(self, parent: socket.socket, pause: float, reads: int) -> None:
        self._parent = parent
        self._pause = pause
        self._most = reads
        self._ours, self._theirs = socket.socketpair()
        self._theirs.send(b"always readable")
        self.reads: list[float] = []

    def fileno(self) -> int:
        return self._ours.fileno()

    def receive(self, frames: FrameBuffer) -> int:
        self.reads.append(time.monotonic())
        time.sleep(self._pause)
        frames.feed(copy_data(keepalive(0)))
        if len(self.reads) == self._most:
            self._parent.send(COMMAND.pack(QUIT, 0))
        return KEEPALIVE_FRAME

    def send_status(self, received: int, confirmed: int, reply: bool = False) -> None:
        pass

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()


def test_the_socket_of_a_slow_stream_is_left_alone_until_its_next_block_may_go_also_where_a_turn_takes_long(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ends[0].send(COMMAND.pack(REQUEST_BLOCK, 1 << 20))
    settings = Settings("dsn", "s", ["p"], ("1", 1, "d"), 0, 0, 1.0, 10.0, 10_000, 1.0, 4 << 20, "a", "db1")
    stream = _SlowStream(ends[0], pause=2 * READER_NAP_SECONDS, reads=4)
    _Reader(ends[1], stream, settings, walsender=(1, "")).run()
    _, before_the_block, behind_it, *_ = stream.reads  # the first turn says that it has started
    assert behind_it - before_the_block >= SLOW_STREAM_BLOCK_SECONDS
