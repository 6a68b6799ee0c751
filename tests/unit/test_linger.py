"""How long a reader lingers before it hands over what it has buffered."""

from __future__ import annotations

import pytest

from psql_streamer.batching import (
    FAST_STREAM_BYTES_PER_SECOND,
    LINGER_BYTES,
    LINGER_SECONDS,
    SLOW_STREAM_BLOCK_SECONDS,
    TRANSACTION_REST_SECONDS,
)
from psql_streamer.linger import Buffered, Linger

WANTED_BYTES = 8 << 20


def _buffered(size: int, *, since: float = 0.0, complete: bool = True, frames: int = 3) -> Buffered:
    return Buffered(size, frames, since, complete)


def _make_fast(linger: Linger, now: float) -> None:
    linger.note_block(now - 1.0, 1)
    linger.note_block(now, FAST_STREAM_BYTES_PER_SECOND + 1)


def test_a_whole_transaction_goes_at_once_while_the_stream_is_slow() -> None:
    assert Linger(1000, longest=1.0).compute_wait_seconds(now=0.0, buffered=_buffered(200), wanted=WANTED_BYTES) == 0.0


def test_a_part_of_a_transaction_waits_a_moment_for_the_rest() -> None:
    linger = Linger(1000, longest=1.0)
    begun = _buffered(200, since=10.0, complete=False)
    assert linger.compute_wait_seconds(now=10.0, buffered=begun, wanted=WANTED_BYTES) == pytest.approx(
        TRANSACTION_REST_SECONDS
    )
    assert linger.compute_wait_seconds(
        now=10.0 + TRANSACTION_REST_SECONDS, buffered=begun, wanted=WANTED_BYTES
    ) == pytest.approx(0.0)


def test_blocks_of_a_slow_stream_keep_a_distance() -> None:
    linger = Linger(1000, longest=1.0)
    linger.note_block(10.0, 200)
    for whole in (True, False):
        buffered = _buffered(200, since=10.0005, complete=whole)
        assert linger.compute_wait_seconds(now=10.001, buffered=buffered, wanted=WANTED_BYTES) == pytest.approx(
            SLOW_STREAM_BLOCK_SECONDS - 0.001
        )
    assert linger.compute_pause_seconds(10.001, _buffered(200), WANTED_BYTES) == pytest.approx(
        SLOW_STREAM_BLOCK_SECONDS - 0.001
    )


def test_the_first_rows_after_a_pause_go_at_once() -> None:
    linger = Linger(1000, longest=1.0)
    linger.note_block(10.0, 200)
    assert linger.compute_wait_seconds(now=11.0, buffered=_buffered(200, since=11.0), wanted=WANTED_BYTES) <= 0.0
    assert linger.compute_pause_seconds(11.0, _buffered(200), WANTED_BYTES) <= 0.0


def test_a_fast_stream_is_not_left_alone() -> None:
    linger = Linger(1000, longest=1.0)
    _make_fast(linger, now=5.0)
    assert linger.compute_pause_seconds(5.0, _buffered(200), WANTED_BYTES) == 0.0


def test_a_small_transaction_in_several_blocks_is_no_fast_stream() -> None:
    linger = Linger(10_000, longest=1.0)
    linger.note_block(10.0, 20_000)
    linger.note_block(10.0 + SLOW_STREAM_BLOCK_SECONDS, 20_000)
    rest = _buffered(20_000, since=10.004)
    assert linger.compute_wait_seconds(now=10.01, buffered=rest, wanted=WANTED_BYTES) <= 0.0


def test_a_stream_is_fast_as_soon_as_it_has_sent_what_a_fast_one_sends_in_the_time_it_is_measured() -> None:
    linger = Linger(10_000, longest=1.0)
    linger.note_block(10.0, 20_000)
    linger.note_block(10.0 + SLOW_STREAM_BLOCK_SECONDS, int(FAST_STREAM_BYTES_PER_SECOND * LINGER_SECONDS) + 1)
    more = _buffered(20_000, since=10.004)
    assert linger.compute_wait_seconds(now=10.01, buffered=more, wanted=WANTED_BYTES) > 0.0


def test_a_fast_stream_gathers_larger_blocks() -> None:
    linger = Linger(10_000, longest=1.0)
    _make_fast(linger, now=5.0)
    assert (
        0
        < linger.compute_wait_seconds(now=5.0, buffered=_buffered(50_000, since=5.0), wanted=WANTED_BYTES)
        <= LINGER_SECONDS
    )
    assert linger.compute_wait_seconds(now=5.0, buffered=_buffered(LINGER_BYTES, since=5.0), wanted=WANTED_BYTES) == 0.0


def test_a_stream_that_became_slow_again_does_not_gather() -> None:
    linger = Linger(10_000, longest=1.0)
    _make_fast(linger, now=5.0)
    linger.note_block(6.0, 1000)
    assert linger.compute_wait_seconds(now=6.1, buffered=_buffered(500, since=6.1), wanted=WANTED_BYTES) <= 0.0


def test_the_first_rows_after_a_burst_and_a_pause_go_at_once() -> None:
    linger = Linger(10_000, longest=1.0)
    _make_fast(linger, now=5.0)
    late = _buffered(200, since=8.0)
    assert linger.compute_wait_seconds(now=8.0, buffered=late, wanted=WANTED_BYTES) <= 0.0


def test_a_slow_stream_is_not_left_alone_while_a_block_is_full() -> None:
    linger = Linger(3, longest=1.0)
    linger.note_block(10.0, 200)
    assert linger.compute_pause_seconds(10.001, _buffered(200, frames=3), WANTED_BYTES) == 0.0
    assert linger.compute_pause_seconds(10.001, _buffered(200, frames=2), 200) == 0.0
    assert linger.compute_pause_seconds(10.001, _buffered(200, frames=2), WANTED_BYTES) > 0.0


def test_nothing_waits_longer_than_batch_flush_interval() -> None:
    linger = Linger(10_000, longest=0.001)
    _make_fast(linger, now=5.0)
    assert linger.compute_wait_seconds(
        now=5.0, buffered=_buffered(500, since=5.0), wanted=WANTED_BYTES
    ) == pytest.approx(0.001)


def test_a_block_that_has_all_the_frames_or_bytes_it_may_have_goes_at_once() -> None:
    linger = Linger(100, longest=1.0)
    _make_fast(linger, now=5.0)
    assert (
        linger.compute_wait_seconds(now=5.0, buffered=_buffered(500, since=5.0, frames=100), wanted=WANTED_BYTES) == 0.0
    )
    assert linger.compute_wait_seconds(now=5.0, buffered=_buffered(500, since=5.0), wanted=500) == 0.0
