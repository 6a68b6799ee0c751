"""Keys of rows, and those that changes touch where images lack columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from psql_streamer.model import Changes, Column, Image, Relation, RowOp, TextType, Transactions
from psql_streamer.pgtype import PostgresType
from psql_streamer.snapshot.changed_keys import (
    collect_changed_keys,
    decode_key,
    find_moved_without_values,
    join_row_keys,
)

INT = TextType("int", PostgresType(23))
RELATION = Relation(
    "s.t", "s", "t", (Column("a", INT, key=True), Column("b", INT, key=True), Column("v", INT)), version=1
)
ONE = Transactions(np.array([7], np.uint64), np.array([0]))


def texts(*values: str | None) -> pa.Array:
    return pa.array([None if value is None else value.encode() for value in values], pa.binary())


def updated(before: tuple[str | None, ...], after: tuple[str | None, ...]) -> Changes:
    """An update of one row with MINIMAL images; None is what they lack."""
    images = [
        Image(
            tuple(texts(value) for value in values),
            np.array([0]),
            {place: np.array([True]) for place, value in enumerate(values) if value is None},
        )
        for values in (after, before)
    ]
    rows = np.zeros(1, np.int64)
    return Changes(
        RELATION, RELATION.columns, rows, np.array([RowOp.UPDATE], np.uint8), rows, np.zeros(1, np.int32), *images
    )


@given(st.lists(st.tuples(st.binary(), st.binary()), min_size=1))
def test_keys_of_several_columns_are_told_apart_whatever_bytes_they_have(rows: list[tuple[bytes, bytes]]) -> None:
    columns = [pa.array(values, pa.binary()) for values in zip(*rows, strict=True)]
    keys = join_row_keys(columns).to_pylist()
    assert len(set(keys)) == len(set(rows))
    told = [tuple(part.encode("utf-8", "surrogateescape") for part in decode_key(key, 2)) for key in keys]
    assert told == rows


def test_a_key_that_the_new_image_lacks_is_the_old_ones_and_the_value_that_it_lacks_is_noted() -> None:
    found = collect_changed_keys(updated(("1", "2", None), (None, None, None)), ONE)
    assert found.keys.to_pylist() == [b"1\0002", b"1\0002"]
    assert found.lacks.tolist() == [True, False]


def test_a_key_of_which_one_column_is_in_the_new_image_is_put_together() -> None:
    changes = updated(("1", "2", None), (None, "3", None))
    assert set(collect_changed_keys(changes, ONE).keys.to_pylist()) == {b"1\0002", b"1\0003"}
    assert find_moved_without_values(changes) == [b"1\0003"]
