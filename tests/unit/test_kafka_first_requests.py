"""What is handed to librdkafka at once is one request for each partition."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.kafka.first_requests import select_first_requests
from sinks.kafka.outgoing import Outgoing

_REQUEST_BYTES = 300_000
_SIZES = st.sampled_from([0, 10, 40_000, 90_000, 150_000, 299_900, 400_000])
_BYTES = bytes(400_000)


def _outgoing(records: list[tuple[int, int, int]], header: str = "") -> Outgoing:
    """records: the topic, partition and size of the value of each."""
    topics, partitions, sizes = (list(column) for column in zip(*records, strict=True))
    values = pa.array([_BYTES[:size] for size in sizes], pa.binary())
    keys = pa.nulls(len(records), pa.binary())
    headers = {header: values} if header else {}
    return Outgoing(("a", "b"), np.array(topics, np.int32), keys, values, np.array(partitions, np.int32), headers)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(-1, 2), _SIZES), min_size=1, max_size=30))
def test_every_record_comes_in_its_turn_and_no_turn_has_two_requests_of_a_partition(
    given: list[tuple[int, int, int]],
) -> None:
    given.sort(key=lambda record: record[0])
    records = _outgoing(given)
    left, turns = np.arange(len(given)), list[list[int]]()
    while len(left):
        turns.append(select_first_requests(records, left, _REQUEST_BYTES).tolist())
        assert turns[-1], "a turn without a record"
        left = np.setdiff1d(left, turns[-1])
    for turn in turns:
        assert turn == sorted(turn)
        directed = sorted((given[at] for at in turn if given[at][1] >= 0), key=lambda record: record[:2])
        for _, group in groupby(directed, key=lambda record: record[:2]):
            sizes = [size for _, _, size in group]
            assert len(sizes) == 1 or sum(sizes) + 36 * len(sizes) <= _REQUEST_BYTES
    for place in {record[:2] for record in given}:
        assert [at for turn in turns for at in turn if given[at][:2] == place] == [
            at for at, record in enumerate(given) if record[:2] == place
        ]
    assert all(at in turns[0] for at, record in enumerate(given) if record[1] < 0)


def test_a_turn_takes_all_that_fits() -> None:
    records = _outgoing([(0, 0, 99_000)] * 7 + [(1, 0, 150_000)] * 3)
    assert select_first_requests(records, np.arange(10), _REQUEST_BYTES).tolist() == [0, 1, 2, 7]
    assert select_first_requests(records, np.arange(3, 10), _REQUEST_BYTES).tolist() == [3, 4, 5, 7]


def test_headers_count() -> None:
    records = _outgoing([(0, 0, 70_000)] * 4, header="h")
    assert select_first_requests(records, np.arange(4), _REQUEST_BYTES).tolist() == [0, 1]


@pytest.mark.parametrize("request_bytes", [100_000, 2_000_000])
def test_nothing_is_held_back_for_small_requests_or_where_one_takes_all(request_bytes: int) -> None:
    records = _outgoing([(0, 0, 90_000)] * 9)
    assert select_first_requests(records, np.arange(9), request_bytes).tolist() == list(range(9))
