"""The tracker: which position is durable."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psql_streamer.checkpoint.tracker import Tracker
from psql_streamer.model import Position


def _at(lsn: int) -> Position:
    return Position({"batch": lsn}, str(lsn))


def test_nothing_is_durable_before_the_first_batch_is() -> None:
    tracker = Tracker()
    tracker.add(_at(1), ["a"], now=0.0)
    assert tracker.durable is None


@pytest.mark.behaviour("K1")
def test_a_batch_is_durable_when_the_slowest_sink_has_it() -> None:
    tracker = Tracker()
    batch_number = tracker.add(_at(1), ["fast", "slow"], now=0.0)
    tracker.acknowledge(batch_number, "fast")
    assert tracker.durable is None
    tracker.acknowledge(batch_number, "slow")
    assert tracker.durable == _at(1)


def test_a_sink_is_owed_what_it_was_given_and_does_not_have() -> None:
    tracker = Tracker()
    first = tracker.add(_at(1), ["fast", "slow"], now=0.0)
    second = tracker.add(_at(2), ["fast", "slow"], now=0.0)
    tracker.acknowledge(second, "fast")
    tracker.acknowledge(second, "fast")
    assert (tracker.count_unacknowledged("fast"), tracker.count_unacknowledged("slow")) == (1, 2)
    tracker.acknowledge(first, "fast")
    assert (tracker.count_unacknowledged("fast"), tracker.count_unacknowledged("slow")) == (0, 2)


def test_a_batch_that_is_done_early_waits_for_those_before_it() -> None:
    tracker = Tracker()
    first = tracker.add(_at(1), ["a"], now=0.0)
    second = tracker.add(_at(2), ["a"], now=0.0)
    tracker.acknowledge(second, "a")
    assert tracker.durable is None
    tracker.acknowledge(first, "a")
    assert tracker.durable == _at(2)


def test_an_empty_batch_moves_the_position_only_behind_the_ones_in_flight() -> None:
    tracker = Tracker()
    batch_number = tracker.add(_at(1), ["a"], now=0.0)
    tracker.add(_at(5), [], now=0.0)
    assert tracker.durable is None
    tracker.acknowledge(batch_number, "a")
    assert tracker.durable == _at(5)
    assert len(tracker) == 0


def test_empty_batches_behind_one_that_waits_are_one() -> None:
    tracker = Tracker()
    first = tracker.add(_at(1), ["a"], now=0.0)
    for lsn in range(2, 1000):
        tracker.add(_at(lsn), [], now=float(lsn))
    assert len(tracker) == 2
    second = tracker.add(_at(1000), ["a"], now=1000.0)
    tracker.acknowledge(second, "a")
    tracker.add(_at(1001), [], now=1001.0)
    assert len(tracker) == 4
    tracker.acknowledge(first, "a")
    assert (tracker.durable, tracker.durable_batch_number, len(tracker)) == (_at(1001), 1001, 0)


def test_the_oldest_batch_says_since_when_and_for_whom_it_waits() -> None:
    tracker = Tracker()
    assert tracker.find_oldest() is None
    batch_number = tracker.add(_at(1), ["a", "b"], now=7.0)
    tracker.add(_at(2), ["a"], now=8.0)
    tracker.acknowledge(batch_number, "a")
    assert tracker.find_oldest() == (7.0, {"b"})


@pytest.mark.behaviour("K1")
@given(st.data(), st.integers(1, 3), st.integers(1, 12))
def test_durable_never_passes_a_batch_that_a_sink_lacks_and_never_goes_back(
    data: st.DataObject, sinks: int, batches: int
) -> None:
    tracker = Tracker()
    names = [f"sink{index}" for index in range(sinks)]
    batch_numbers = {tracker.add(_at(lsn), names, now=0.0): lsn for lsn in range(1, batches + 1)}
    open_work = [(batch_number, name) for batch_number in batch_numbers for name in names]
    last = 0
    while open_work:
        batch_number, name = open_work.pop(data.draw(st.integers(0, len(open_work) - 1)))
        tracker.acknowledge(batch_number, name)
        durable = 0 if tracker.durable is None else tracker.durable.data["batch"]
        lacking = {batch_numbers[batch_number] for batch_number, _ in open_work}
        assert durable == min(lacking, default=batches + 1) - 1
        assert durable >= last
        last = durable
