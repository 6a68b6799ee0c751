"""Packets of a stream of events, cut anywhere."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from psql_streamer.errors import PositionRefused, ProtocolError, SourceUnavailable
from sources.mysql.packets import EventBuffer
from sources.mysql.server_errors import SameServerId

FULL = (1 << 24) - 1


def packet(payload: bytes) -> bytes:
    """A payload as packets; one that fills a packet goes on in the next."""
    pieces = [payload[at : at + FULL] for at in range(0, len(payload) + 1, FULL)]
    return b"".join(len(piece).to_bytes(3, "little") + b"\0" + piece for piece in pieces)


def failure(payload: bytes) -> EventBuffer:
    buffer = EventBuffer()
    buffer.feed(packet(payload))
    return buffer


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=20), st.lists(st.integers(1, 30), min_size=1, max_size=9))
def test_events_come_out_as_they_went_in_wherever_they_are_cut(events: list[bytes], cuts: list[int]) -> None:
    data, buffer, at, turn = b"".join(packet(b"\0" + event) for event in events), EventBuffer(), 0, 0
    while at < len(data):
        length = cuts[turn % len(cuts)]
        buffer.feed(data[at : at + length])
        at, turn = at + length, turn + 1
    assert buffer.events == events
    assert buffer.size == sum(map(len, events))


def test_a_payload_of_several_packets_is_one_event() -> None:
    for length in (FULL - 2, FULL - 1, FULL, 2 * FULL - 1, 2 * FULL + 5):
        event = b"x" * length
        buffer = EventBuffer()
        buffer.feed(packet(b"\0" + event) + packet(b"\0next"))
        assert [len(found) for found in buffer.events] == [length, 4]


def test_events_are_taken_by_their_number_and_their_bytes() -> None:
    buffer = EventBuffer()
    buffer.feed(b"".join(packet(b"\0" + b"x" * 10) for _ in range(6)))
    assert len(buffer.take(2, 1000)) == 2
    assert len(buffer.take(100, 25)) == 2
    assert len(buffer.take(100, 1)) == 1
    assert (buffer.size, len(buffer.take(100, 1000)), buffer.take(1, 1)) == (10, 1, [])


def test_the_servers_errors_are_ours() -> None:
    error = b"\xff\xd4\x04#HY000"
    purged = error + b"Could not find first log file name in binary log index file"
    same = error + b"A slave with the same server_uuid/server_id as this slave has connected to the master;"
    assert isinstance(failure(purged).failure, PositionRefused)
    assert isinstance(failure(same).failure, SameServerId)
    assert isinstance(failure(b"\xff\x1d\x04#08S01Server shutdown in progress").failure, SourceUnavailable)
    assert isinstance(failure(b"\xfe").failure, SourceUnavailable)
    assert isinstance(failure(b"\x05").failure, ProtocolError)
