"""An array that grows has what was added, and what was given of it before stays as it is."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from psql_streamer.growing import GrowingArray


@given(parts=st.lists(st.lists(st.integers(-5, 5), max_size=40)))
def test_an_array_that_grows_has_all_that_was_added_and_earlier_views_stay(parts: list[list[int]]) -> None:
    growing, whole = GrowingArray(np.int32), list[int]()
    given_before = [growing.array]
    for part in parts:
        whole += part
        assert growing.extend(part).tolist() == whole
        given_before.append(growing.array)
    assert all(view.tolist() == whole[: len(view)] for view in given_before)
    assert growing.array.dtype == np.int32
