"""The rows of a lookup on disk, and the changes behind them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from psql_streamer.model import Relation
from psql_streamer.spark.lookups.table_state import RowChange, TableState
from psql_streamer.spark.lookups.table_store import Place, TableStore
from tests.columns import postgres_column

RELATION = Relation("1", "public", "customers", (postgres_column("id", 23, key=True), postgres_column("segment", 25)))
ROWS = {b"1": b"first", b"2": b"second"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TableStore]:
    """With two rows, and behind them a change at each of the commits 10, 20 and 30."""
    made = TableStore(tmp_path / "customers.lmdb", 1 << 20)
    arrays = [pa.array(list(values), pa.binary()) for values in (ROWS, ROWS.values())]
    made.replace(RELATION, TableState.from_arrays(RELATION.columns, arrays))
    for commit in (10, 20, 30):
        made.append([(Place(commit, 0), RowChange(0, b"1", None, (b"1", b"at %d" % commit)))])
    yield made
    made.close()


def rows(store: TableStore) -> dict[bytes, bytes]:
    keys, segments = (array.to_pylist() for array in store.load(RELATION).list_rows())
    return dict(zip(keys, segments, strict=True))


def test_rows_have_all_changes_that_are_there(store: TableStore) -> None:
    assert rows(store) == {b"1": b"at 30", b"2": b"second"}


@pytest.mark.parametrize(
    ("begins", "segment", "folded"),
    [(5, b"first", None), (20, b"at 10", Place(10, 0)), (30, b"at 20", Place(20, 0)), (99, b"at 30", Place(30, 0))],
)
def test_a_stream_goes_on_with_the_rows_as_they_were_where_it_goes_on(
    store: TableStore, begins: int, segment: bytes, folded: Place | None
) -> None:
    """Also where none of the changes comes again, as behind a clean stop."""
    store.settle(Place(begins, 0))
    assert rows(store) == {b"1": segment, b"2": b"second"}
    assert store.read_folded_place() == folded
    store.settle(Place(begins, 0))
    assert rows(store) == {b"1": segment, b"2": b"second"}


def test_changes_that_are_for_good_become_rows_and_those_behind_them_stay(store: TableStore) -> None:
    for before, folded in ((20, 10), (99, 30)):
        store.fold(Place(before, 0))
        assert rows(store) == {b"1": b"at 30", b"2": b"second"}
        assert store.read_folded_place() == Place(folded, 0)
