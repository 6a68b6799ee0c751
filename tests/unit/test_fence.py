"""Which transactions a chunk's own transaction has seen."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from psql_streamer.snapshot.fence import Fence

EPOCH = 1 << 32


def fence(xmin: int, xmax: int, *running: int) -> Fence:
    return Fence(xmin, xmax, running, lsn=0, at_us=0)


@pytest.mark.parametrize("epochs", [0, 3])
def test_a_transaction_is_visible_if_it_had_ended_when_the_snapshot_was_taken(epochs: int) -> None:
    base = epochs * EPOCH
    taken = fence(base + 10, base + 20, base + 10, base + 14)
    xids = [base + xid for xid in (3, 9, 10, 11, 14, 19, 20, 21)]
    expected = [True, True, False, True, False, True, False, False]
    assert taken.select_visible(np.array(xids, np.uint64)).tolist() == expected


def test_a_snapshot_without_running_transactions_sees_all_before_xmax() -> None:
    assert fence(7, 7).select_visible(np.array([6, 7], np.uint64)).tolist() == [True, False]


@given(st.integers(3, 1 << 60), st.integers(-(1 << 31), (1 << 31) - 1))
def test_32_bits_are_widened_to_the_nearest_transaction(xmax: int, distance: int) -> None:
    xid = xmax + distance
    if xid < 0:
        xid += EPOCH
    assert fence(xmax, xmax).widen(np.array([xid % EPOCH], np.uint32)).tolist() == [xid]
