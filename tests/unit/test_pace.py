"""When a reader hands over what it holds."""

from __future__ import annotations

import pytest

from psql_streamer.batching import FAST_STREAM_BYTES_PER_SECOND, LINGER_BYTES, LINGER_SECONDS, TRANSACTION_REST_SECONDS
from sources.postgres.pace import Held, Pace

REQUEST_BLOCK = 8 << 20


def _held(size: int, *, since: float = 0.0, complete: bool = True, frames: int = 3) -> Held:
    return Held(size, frames, since, complete)


def _busy(pace: Pace, now: float) -> None:
    pace.block_sent(now - 1.0, 1)
    pace.block_sent(now, FAST_STREAM_BYTES_PER_SECOND + 1)


def test_a_whole_transaction_goes_at_once_while_the_stream_is_slow() -> None:
    assert Pace(1000, longest=1.0).wait(now=0.0, held=_held(200), wanted=REQUEST_BLOCK) == 0.0


def test_a_part_of_a_transaction_waits_a_moment_for_the_rest() -> None:
    pace = Pace(1000, longest=1.0)
    part = _held(200, since=10.0, complete=False)
    assert pace.wait(now=10.0, held=part, wanted=REQUEST_BLOCK) == pytest.approx(TRANSACTION_REST_SECONDS)
    assert pace.wait(now=10.0 + TRANSACTION_REST_SECONDS, held=part, wanted=REQUEST_BLOCK) == pytest.approx(0.0)


def test_a_fast_stream_gathers_larger_blocks() -> None:
    pace = Pace(10_000, longest=1.0)
    _busy(pace, now=5.0)
    assert 0 < pace.wait(now=5.0, held=_held(50_000, since=5.0), wanted=REQUEST_BLOCK) <= LINGER_SECONDS
    assert pace.wait(now=5.0, held=_held(LINGER_BYTES, since=5.0), wanted=REQUEST_BLOCK) == 0.0


def test_a_stream_that_became_slow_again_does_not_gather() -> None:
    pace = Pace(10_000, longest=1.0)
    _busy(pace, now=5.0)
    pace.block_sent(6.0, 1000)
    assert pace.wait(now=6.0, held=_held(500, since=6.0), wanted=REQUEST_BLOCK) == 0.0


def test_nothing_waits_longer_than_batch_flush_interval() -> None:
    pace = Pace(10_000, longest=0.001)
    _busy(pace, now=5.0)
    assert pace.wait(now=5.0, held=_held(500, since=5.0), wanted=REQUEST_BLOCK) == pytest.approx(0.001)


def test_a_block_that_has_all_the_frames_or_bytes_it_may_have_goes_at_once() -> None:
    pace = Pace(100, longest=1.0)
    _busy(pace, now=5.0)
    assert pace.wait(now=5.0, held=_held(500, since=5.0, frames=100), wanted=REQUEST_BLOCK) == 0.0
    assert pace.wait(now=5.0, held=_held(500, since=5.0), wanted=500) == 0.0
