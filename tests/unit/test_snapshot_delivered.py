"""What of the stream was given before a chunk was begun, and is not visible to it."""

from __future__ import annotations

import numpy as np

from psql_streamer.batching import FEW_ROWS
from psql_streamer.snapshot.delivered import Delivered
from psql_streamer.snapshot.fence import Fence


def fence(xmin: int, xmax: int, *xip: int) -> Fence:
    return Fence(xmin, xmax, xip, lsn=0, at_us=0)


def xids(*values: int) -> np.ndarray:
    return np.array([value % 2**32 for value in values], np.uint32)


def test_what_was_given_and_is_in_progress_for_others_is_hidden() -> None:
    given = Delivered()
    given.note(xids(101, 103))
    turn, latest = given.turn, given.latest
    given.note(xids(104))
    assert given.find_hidden_since(fence(101, 105, 101, 104), turn, latest) == {101}
    assert given.find_hidden_since(fence(104, 105, 104), turn, latest) == set()


def test_what_was_given_and_lies_behind_the_fence_is_hidden() -> None:
    given = Delivered()
    given.note(xids(120, 110))
    assert given.find_hidden_since(fence(105, 115), given.turn, given.latest) == {120}


def test_a_transaction_counts_from_its_first_change_on() -> None:
    given = Delivered()
    given.note(xids(101))
    turn = given.turn
    given.note(xids(101))
    assert given.find_hidden_since(fence(101, 102, 101), turn, 101) == {101}


def test_xids_go_in_circles() -> None:
    given = Delivered()
    wrapped = 2**32 + 5
    given.note(xids(2**32 - 3, wrapped))
    assert given.latest == 5
    given.note(xids(2**32 - 2))
    assert given.latest == 5
    assert given.find_hidden_since(fence(2**32 - 3, wrapped + 1, 2**32 - 3, wrapped), 1, 5) == {2**32 - 3, wrapped}
    assert given.find_hidden_since(fence(2**32 - 3, wrapped), given.turn, 5) == {wrapped}


def test_of_what_was_in_progress_before_the_stream_was_watched_nobody_knows() -> None:
    given = Delivered()
    assert given.find_unknown(fence(90, 110, 90, 105), since=100) == {90}
    assert given.find_unknown(fence(90, 110, 90, 105), since=0) == set()
    given.note(xids(90))
    assert given.find_unknown(fence(90, 110, 90, 105), since=100) == set()


def test_of_what_is_long_forgotten_nobody_knows() -> None:
    given = Delivered()
    given.note(xids(1000, 1000 + 2**18))
    assert given.find_unknown(fence(1000, 2**20, 1000), since=1) == {1000}
    assert given.find_unknown(fence(1000, 2**20, 1000 + 2**18), since=1) == set()


def test_at_a_first_start_nobody_knows_of_what_is_long_forgotten_either() -> None:
    given = Delivered()
    given.note(xids(1000, 1000 + 2**18))
    assert given.find_hidden_since(fence(1000, 2**20, 1000), 1, 1000 + 2**18) == set()
    assert given.find_unknown(fence(1000, 2**20, 1000), since=0) == {1000}
    assert given.find_unknown(fence(1000, 2**20, 1000 + 2**18), since=0) == set()


def test_a_few_transactions_are_remembered_as_many_are() -> None:
    """The first are taken one by one, the others together; the numbers go round, and come again."""
    few, many = Delivered(), Delivered()
    rng = np.random.default_rng(1)
    for start in range(2**32 - 300, 2**32 + 600, 29):
        batch = rng.permutation(np.arange(start, start + rng.integers(1, 30))).astype(np.uint32)
        few.note(batch)
        many.note(np.concatenate([batch, np.full(FEW_ROWS, batch[0])]))
        assert (few.turn, few.latest) == (many.turn, many.latest)
    everything = fence(2**32 - 400, 2**32 + 700, *range(2**32 - 400, 2**32), *range(2**32 + 3, 2**32 + 700))
    found = [few.find_hidden_since(everything, turn, None) for turn in range(few.turn + 1)]
    assert found == [many.find_hidden_since(everything, turn, None) for turn in range(many.turn + 1)]
    assert len(found[-1]) > len(found[1]) > len(found[0]) == 0
