"""How long the socket of a fast stream is left alone."""

from __future__ import annotations

import pytest

from psql_streamer.batching import FAST_STREAM_BYTES_PER_SECOND, SOCKET_GATHER_BYTES, SOCKET_GATHER_SECONDS
from psql_streamer.gathering import Gathering

FAST = 2 * FAST_STREAM_BYTES_PER_SECOND
AS_MANY_AS_MAY_WAIT = SOCKET_GATHER_BYTES / SOCKET_GATHER_SECONDS
"""The rate, in bytes a second, at which as many bytes gather as may."""


def _read_for_a_second(gathering: Gathering, rate: float) -> None:
    gathering.note_read(9.0, 1)
    gathering.note_read(10.0, int(rate))


def test_a_fast_stream_is_left_alone_for_a_moment() -> None:
    gathering = Gathering(SOCKET_GATHER_BYTES, longest=1.0)
    _read_for_a_second(gathering, FAST)
    assert gathering.compute_pause_seconds(10.0) == pytest.approx(SOCKET_GATHER_SECONDS)
    assert gathering.compute_pause_seconds(10.004) == pytest.approx(SOCKET_GATHER_SECONDS - 0.004)
    assert gathering.compute_pause_seconds(10.0 + SOCKET_GATHER_SECONDS) <= 0


def test_a_slow_stream_is_read_as_it_comes() -> None:
    gathering = Gathering(SOCKET_GATHER_BYTES, longest=1.0)
    _read_for_a_second(gathering, FAST_STREAM_BYTES_PER_SECOND)
    assert gathering.compute_pause_seconds(10.0) <= 0


def test_the_first_bytes_say_nothing_of_the_speed() -> None:
    gathering = Gathering(SOCKET_GATHER_BYTES, longest=1.0)
    assert gathering.compute_pause_seconds(10.0) <= 0
    gathering.note_read(10.0, 1 << 30)
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
    gathering.note_read(10.0, 100)
    gathering.note_read(10.0, 100)
    assert 0 < gathering.compute_pause_seconds(10.0) <= SOCKET_GATHER_SECONDS
