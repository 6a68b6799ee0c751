"""FrameBuffer: bytes in pieces of any size, whole frames out."""

from __future__ import annotations

from itertools import chain, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psql_streamer.errors import ProtocolError
from psql_streamer.pgoutput.frames import FrameBuffer
from tests import pgoutput_wire as wire

UNLIMITED = 1 << 30

KEEPALIVE = wire.copy_data(wire.keepalive(0x16_B374_D848))
ROW = wire.copy_data(wire.xlog_data(wire.insert(16400, [b"1", None]), 100, 160))

frame_lists = st.lists(
    st.one_of(st.just(KEEPALIVE), st.just(ROW), st.binary(min_size=1, max_size=40).map(wire.copy_data))
)


def taken_frames(buffer: FrameBuffer, max_bytes: int = UNLIMITED, max_frames: int = UNLIMITED) -> list[list[bytes]]:
    """Everything that is there: the frames of each block."""
    found = []
    while (block := buffer.take(max_bytes, max_frames)) is not None:
        bounds = [*block.offsets, len(block.data)]
        found.append([block.data[start:end] for start, end in pairwise(bounds)])
    return found


def test_nothing_fed_gives_no_block() -> None:
    assert FrameBuffer().take(UNLIMITED, UNLIMITED) is None


@given(frames=frame_lists)
def test_a_stream_fed_whole_comes_out_frame_by_frame(frames: list[bytes]) -> None:
    buffer = FrameBuffer()
    buffer.feed(b"".join(frames))
    assert taken_frames(buffer) == ([frames] if frames else [])


def test_a_stream_split_at_every_byte_gives_the_same_frames() -> None:
    frames = [ROW, KEEPALIVE, ROW]
    stream = b"".join(frames)
    for cut in range(len(stream) + 1):
        buffer = FrameBuffer()
        buffer.feed(stream[:cut])
        before = taken_frames(buffer)
        buffer.feed(stream[cut:])
        assert [*chain(*before, *taken_frames(buffer))] == frames, f"cut after {cut} bytes"


def test_a_stream_fed_byte_by_byte_gives_each_frame_as_soon_as_it_is_whole() -> None:
    buffer = FrameBuffer()
    ends = []
    stream = ROW + KEEPALIVE + ROW
    for at in range(len(stream)):
        buffer.feed(memoryview(stream)[at : at + 1])
        if taken_frames(buffer):
            ends.append(at + 1)
    assert ends == [len(ROW), len(ROW + KEEPALIVE), len(stream)]


def test_what_is_fed_may_change_afterwards() -> None:
    memory = bytearray(ROW)
    buffer = FrameBuffer()
    buffer.feed(memoryview(memory))
    memory[:] = bytes(len(memory))
    assert taken_frames(buffer) == [[ROW]]


def long_row(value: int) -> bytes:
    """A frame that is too long for its block to be copied out of the buffer."""
    return wire.copy_data(wire.xlog_data(wire.insert(16400, [bytes([value]) * 100_000])))


def test_the_memory_of_blocks_that_are_given_back_is_used_again() -> None:
    buffer = FrameBuffer()
    memories = set()
    for value in range(6):
        buffer.feed(long_row(value))
        buffer.feed(KEEPALIVE[:7])  # the rest comes with the next turn
        block = buffer.take(UNLIMITED, UNLIMITED)
        assert block is not None
        assert isinstance(block.data, memoryview)
        memories.add(id(block.data.obj))
        assert bytes(block.data) == (KEEPALIVE if value else b"") + long_row(value)
        buffer.give_back(block)
        buffer.feed(KEEPALIVE[7:])
    assert len(memories) == 2


@given(
    frames=st.lists(st.one_of(st.just(KEEPALIVE), st.integers(0, 255).map(long_row)), min_size=1, max_size=12),
    piece=st.integers(1, 250_000),
    max_frames=st.integers(1, 4),
    data=st.data(),
)
def test_blocks_that_are_given_back_late_or_never_keep_their_frames(
    frames: list[bytes], piece: int, max_frames: int, data: st.DataObject
) -> None:
    stream = memoryview(b"".join(frames))
    buffer, held, found = FrameBuffer(), [], []
    for at in range(0, len(stream), piece):
        buffer.feed(stream[at : at + piece])
        if (block := buffer.take(UNLIMITED, max_frames)) is not None:
            held.append(block)
        if held and data.draw(st.booleans()):
            block = held.pop(0)
            found.append(bytes(block.data))
            buffer.give_back(block)
    found += (bytes(block.data) for block in held)
    found += chain(*taken_frames(buffer))
    assert b"".join(found) == stream


@given(frames=frame_lists, max_frames=st.integers(1, 5))
def test_a_block_holds_as_many_frames_as_asked_for(frames: list[bytes], max_frames: int) -> None:
    buffer = FrameBuffer()
    buffer.feed(b"".join(frames))
    assert taken_frames(buffer, max_frames=max_frames) == [
        frames[start : start + max_frames] for start in range(0, len(frames), max_frames)
    ]


@given(frames=frame_lists, max_bytes=st.integers(1, 150))
def test_a_block_holds_as_many_bytes_as_fit_and_at_least_one_frame(frames: list[bytes], max_bytes: int) -> None:
    buffer = FrameBuffer()
    buffer.feed(b"".join(frames))
    blocks = taken_frames(buffer, max_bytes=max_bytes)
    assert [*chain(*blocks)] == frames
    for block, following in pairwise(blocks):
        assert len(block) == 1 or sum(map(len, block)) <= max_bytes
        assert sum(map(len, block)) + len(following[0]) > max_bytes, "one more frame would have fitted"


def test_frames_fed_between_two_takes_follow_those_left_over() -> None:
    buffer = FrameBuffer()
    buffer.feed(ROW + KEEPALIVE + ROW[:7])
    first = buffer.take(UNLIMITED, 1)
    buffer.feed(ROW[7:] + KEEPALIVE)
    assert first is not None
    assert first.data == ROW
    assert taken_frames(buffer) == [[KEEPALIVE, ROW, KEEPALIVE]]


@pytest.mark.parametrize("kind", [bytes([kind]) for kind in b"\x00wkBDX!\xff"])
def test_bytes_that_are_no_backend_message_are_refused(kind: bytes) -> None:
    with pytest.raises(ProtocolError):
        FrameBuffer().feed(ROW + kind + ROW[1:])


@pytest.mark.parametrize("length", [0, 1, 3, 2**31, 2**32 - 1])
def test_an_impossible_length_is_refused_at_once(length: int) -> None:
    with pytest.raises(ProtocolError):
        FrameBuffer().feed(b"d" + length.to_bytes(4) + b"w")
