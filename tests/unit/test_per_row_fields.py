"""A new field of row changes is one line: whatever is done to rows, each keeps all that is said of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from psql_streamer.cells import CellTable, convert_to_cells
from psql_streamer.events.rows import Keys, Rows, split, take
from psql_streamer.events.unchanged import Unchanged
from psql_streamer.model import Batch, Changes, Shift
from psql_streamer.pipeline.coalescing import cut, cut_off, merge
from tests.per_row_fields import batch_with, filled_changes, per_row_fields, values_by_order

ORDERS, VISITS = filled_changes(range(0, 10, 2), 0), filled_changes(range(1, 9, 2), 1, "visits")
TABLE = CellTable.from_changes([ORDERS, VISITS])
BOTH = {**values_by_order(ORDERS), **values_by_order(VISITS)}
BATCH = batch_with(ORDERS, VISITS, transactions=2)
OPTIONAL = [name for name in per_row_fields(Changes) if name not in ("batch_order", "op", "seq", "tx")]


def some(expected: dict[int, Any], *orders: int) -> dict[int, Any]:
    return {order: expected[order] for order in orders}


def moved(expected: dict[int, Any], by: Shift) -> dict[int, Any]:
    """As a batch stands behind others."""
    return {
        order + by.rows: {**values, "batch_order": order + by.rows, "tx": values["tx"] + by.transactions}
        for order, values in expected.items()
    }


def values_of(*batches: Batch) -> dict[int, Any]:
    return {order: one for batch in batches for order, one in values_by_order(convert_to_cells(batch.changes)).items()}


def test_changes_a_table_of_cells_and_rows_have_the_same_fields() -> None:
    assert set(per_row_fields(CellTable)) == {*per_row_fields(Changes), "shape"}
    assert set(per_row_fields(Rows)) == {*per_row_fields(Changes), "shape"} - {"op"}


def test_rows_that_are_taken_of_changes_keep_their_fields() -> None:
    assert values_by_order(ORDERS.take(np.array([1, 3]))) == some(BOTH, 2, 6)
    assert values_by_order(ORDERS.slice(1, 3)) == some(BOTH, 2, 4)


def test_rows_of_a_table_of_cells_keep_their_fields() -> None:
    assert values_by_order(TABLE) == BOTH
    assert values_by_order(TABLE.take(np.array([1, 4]))) == some(BOTH, 1, 4)
    assert values_by_order(TABLE.select_between(2, 5)) == some(BOTH, 2, 3, 4)
    assert values_by_order(TABLE.drop_shapes(np.array([True, False]))) == some(BOTH, 1, 3, 5, 7)
    assert values_by_order(TABLE.shift_rows(Shift(10, 2))) == moved(BOTH, Shift(10, 2))
    assert [values_by_order(changes) for changes in TABLE] == [values_by_order(ORDERS), values_by_order(VISITS)]


def test_tables_that_are_put_together_keep_their_fields() -> None:
    apart = TABLE.drop_shapes(np.array([True, False])), TABLE.drop_shapes(np.array([False, True]))
    assert values_by_order(CellTable.merge(apart)) == BOTH
    assert values_by_order(CellTable.concat([TABLE.select_between(0, 4), TABLE.select_between(4, 9)])) == BOTH


@pytest.mark.parametrize("name", OPTIONAL)
def test_a_field_that_other_rows_lack_stays_with_those_that_have_it(name: str) -> None:
    joined = CellTable.concat([TABLE, replace(TABLE.shift_rows(Shift(10, 2)), **{name: None})])
    assert some(values_by_order(joined), *BOTH) == BOTH
    views = [values_by_order(changes) for changes in joined.select_between(0, 9)]
    assert views == [values_by_order(ORDERS), values_by_order(VISITS)]


def test_batches_that_are_merged_and_cut_keep_the_fields_of_their_rows() -> None:
    both = merge([BATCH, replace(BATCH, transactions=replace(BATCH.transactions))])
    assert values_of(both) == {**BOTH, **moved(BOTH, Shift(9, 2))}
    assert values_of(*cut(both, 4)) == values_of(both)
    head, rest = cut_off(both, 4)
    assert rest is not None
    assert values_of(head, rest) == values_of(both)


def test_rows_on_their_way_to_a_format_keep_their_fields() -> None:
    (rows,) = split(TABLE, Keys([(0,), (0,)]), Unchanged())
    without_op = {order: {name: one for name, one in values.items() if name != "op"} for order, values in BOTH.items()}
    assert values_by_order(rows) == without_op
    assert values_by_order(take(rows, np.array([0, 5]))) == some(without_op, 0, 5)
