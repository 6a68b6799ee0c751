"""Columns that lie in a table of cells are made when they are asked for, and only then."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from psql_streamer.columns import ChosenCells, Columns, list_held_arrays

CELLS = pa.array([b"a", None, b"c", b"d", b"e", b"f"], pa.binary())
FIRSTS = np.array([0, 3])
ARRAY = pa.array([1, 2])


@pytest.fixture
def columns() -> Columns:
    return Columns([ChosenCells(CELLS, FIRSTS, 1), ARRAY, ChosenCells(CELLS, FIRSTS, 2)])


def test_columns_are_what_a_tuple_of_their_arrays_is(columns: Columns) -> None:
    arrays = (pa.array([None, b"e"], pa.binary()), ARRAY, pa.array([b"c", b"f"], pa.binary()))
    assert len(columns) == 3
    assert tuple(columns) == arrays
    assert columns == arrays
    assert arrays == columns
    assert columns != arrays[:2]
    assert columns[-1] == arrays[-1]
    assert columns[1:] == arrays[1:]
    assert columns + (ARRAY,) == (*arrays, ARRAY)  # noqa: RUF005 - what a handler may write
    assert (ARRAY,) + columns == (ARRAY, *arrays)  # noqa: RUF005
    with pytest.raises(IndexError):
        columns[3]


def test_a_column_is_made_once_and_stays_where_it_lies(columns: Columns) -> None:
    assert columns[0] is columns[0]
    assert isinstance(list_held_arrays(columns)[0], ChosenCells)
    assert list_held_arrays(columns)[1] is ARRAY
    assert list_held_arrays((ARRAY,)) == (ARRAY,)
