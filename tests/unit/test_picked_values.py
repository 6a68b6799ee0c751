"""Values that stay where they lie: what is asked of them is what one array of them says."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from psql_streamer.picked_values import PickedValues

TEXTS = st.lists(st.none() | st.binary(max_size=6), max_size=8)


@st.composite
def picked_values(draw: st.DrawFn) -> tuple[PickedValues, list[bytes | None]]:
    """Some of the elements of one to three arrays, which may be slices of others; and the values."""
    parts = draw(st.lists(TEXTS, min_size=1, max_size=3))
    arrays = [pa.array([b"before", *part], pa.binary()).slice(1) for part in parts]
    if draw(st.booleans()):
        return PickedValues(arrays[:1]), parts[0]
    elements = [element for part in parts for element in part]
    which = draw(st.lists(st.integers(-1, len(elements) - 1), max_size=12))
    return PickedValues(arrays, np.array(which, np.int32)), [None if at < 0 else elements[at] for at in which]


@given(picked_values(), st.data())
def test_values_are_the_same_wherever_they_lie(
    of: tuple[PickedValues, list[bytes | None]], data: st.DataObject
) -> None:
    picked, values = of
    assert len(picked) == len(values)
    assert picked.make_array().to_pylist() == values
    assert picked.measure_each().tolist() == [len(value or b"") for value in values]
    nulls = picked.find_nulls()
    assert [value is None for value in values] == ([False] * len(values) if nulls is None else nulls.tolist())
    assert (nulls is None) == (None not in values)
    at = data.draw(st.lists(st.integers(0, len(values) - 1), max_size=12)) if values else []
    assert picked.take(np.array(at, np.int64)).to_pylist() == [values[one] for one in at]


@given(picked_values())
def test_elements_are_numbered_behind_others(of: tuple[PickedValues, list[bytes | None]]) -> None:
    picked, values = of
    pool = [b"x", b"y", *(element for array in picked.arrays for element in array.to_pylist())]
    assert len(pool) == 2 + picked.count_elements()
    numbered = picked.number_elements(2).tolist()
    assert all(pool[place] == value for place, value in zip(numbered, values, strict=True) if value is not None)
