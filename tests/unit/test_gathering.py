"""How long the socket of a fast stream is left alone."""

from __future__ import annotations

import pytest

from psql_streamer.batching import FAST_STREAM_BYTES_PER_SECOND, SOCKET_GATHER_BYTES, SOCKET_GATHER_SECONDS
from psql_streamer.gathering import Gathering

FAST = 2 * FAST_STREAM_BYTES_PER_SECOND
AS_MANY_AS_MAY_WAIT = SOCKET_GATHER_BYTES / SOCKET_GATHER_SECONDS
"""The rate, in bytes a second, at which as many bytes gather as may."""


def _read_for_a_second(gathering: Gathering, rate: float) -> None:
    gathering.note_read(9.0, 1, unread=False)
    gathering.note_read(10.0, int(rate), unread=False)


def test_a_fast_stream_is_left_alone_for_a_moment() -> None:
    gathering = Gathering(SOCKET_GATHER_BYTES, longest=1.0)
    _read_for_a_second(gathering, FAST)
    assert gathering.compute_pause_seconds(10.0) == pytest.approx(SOCKET_GATHER_SECONDS)
    assert gathering.compute_pause_seconds(10.004) == pytest.approx(SOCKET_GATHER_SECONDS - 0.004)
    assert gathering.compute_pause_seconds(10.0 + SOCKET_GATHER_SECONDS) <= 0


def test_a_slow_stream_is_read_as_it_comes() -> None:
    gathering = Gathering(SOCKET_GATHER_BYTES, longest=1.0)
    _read_for_a_second(gathering, FAST)
    assert gathering.is_fast
    gathering.note_read(11.0, FAST_STREAM_BYTES_PER_SECOND, unread=False)
    assert gathering.compute_pause_seconds(11.0) <= 0
    assert not gathering.is_fast


def test_the_first_bytes_say_nothing_of_the_speed() -> None:
    gathering = Gathering(SOCKET_GATHER_BYTES, longest=1.0)
    assert gathering.compute_pause_seconds(10.0) <= 0
    gathering.note_read(10.0, 1 << 30, unread=False)
    assert gathering.compute_pause_seconds(10.0) <= 0


@pytest.mark.parametrize("times", [1, 2, 10])
def test_no_more_bytes_wait_than_may(times: int) -> None:
    gathering = Gathering(SOCKET_GATHER_BYTES, longest=1.0)
    _read_for_a_second(gathering, times * AS_MANY_AS_MAY_WAIT)
    assert gathering.compute_pause_seconds(10.0) == pytest.approx(SOCKET_GATHER_SECONDS / times, rel=1e-3)


def test_no_longer_than_rows_may_be_held_back() -> None:
    gathering = Gathering(SOCKET_GATHER_BYTES, longest=0.001)
    _read_for_a_second(gathering, FAST)
    assert gathering.compute_pause_seconds(10.0) == pytest.approx(0.001)


def test_where_nothing_may_wait_no_stream_is_left_alone() -> None:
    gathering = Gathering(0, longest=1.0)
    _read_for_a_second(gathering, FAST)
    assert gathering.compute_pause_seconds(10.0) <= 0


def test_a_clock_that_stands_still_is_no_error() -> None:
    gathering = Gathering(SOCKET_GATHER_BYTES, longest=1.0)
    gathering.note_read(10.0, 100, unread=False)
    gathering.note_read(10.0, 1 << 20, unread=False)
    assert 0 < gathering.compute_pause_seconds(10.0) <= SOCKET_GATHER_SECONDS


def test_a_transaction_that_is_read_in_parts_makes_no_fast_stream() -> None:
    gathering = Gathering(SOCKET_GATHER_BYTES, longest=1.0)
    for second in range(10):
        for part in range(4):
            now = second + part * 0.0002
            gathering.note_read(now, 8_000, unread=False)  # 40 MB/s, for less than a millisecond
            assert gathering.compute_pause_seconds(now) <= 0


@pytest.mark.parametrize("apart", [0.0002, 0.001, 0.005])
def test_a_stream_that_is_read_as_it_comes_is_fast_when_it_has_been_for_a_moment(apart: float) -> None:
    gathering = Gathering(SOCKET_GATHER_BYTES, longest=1.0)
    gathering.note_read(10.0, 1, unread=False)
    now, size = 10.0, int(1.1 * FAST_STREAM_BYTES_PER_SECOND * apart)
    while gathering.compute_pause_seconds(now) <= 0:
        assert now < 10.0 + SOCKET_GATHER_SECONDS
        now += apart
        gathering.note_read(now, size, unread=False)


@pytest.mark.parametrize("times", [2, 10])
def test_a_stream_stays_fast_however_short_its_pauses_are(times: int) -> None:
    gathering = Gathering(SOCKET_GATHER_BYTES, longest=1.0)
    now = 10.0
    gathering.note_read(now, 1, unread=False)
    for _ in range(100):
        now += SOCKET_GATHER_SECONDS / times
        gathering.note_read(now, SOCKET_GATHER_BYTES, unread=False)
        assert gathering.compute_pause_seconds(now) == pytest.approx(SOCKET_GATHER_SECONDS / times)


def test_what_waits_already_is_read_first() -> None:
    gathering = Gathering(SOCKET_GATHER_BYTES, longest=1.0)
    gathering.note_read(9.0, 1, unread=False)
    gathering.note_read(10.0, FAST, unread=True)
    assert gathering.compute_pause_seconds(10.0) <= 0
    gathering.note_read(10.001, 1 << 20, unread=False)
    assert gathering.compute_pause_seconds(10.001) > 0
