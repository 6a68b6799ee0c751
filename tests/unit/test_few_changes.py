"""What a handler makes of few rows becomes few rows again: the same rows, and the same records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from psql_streamer.cells import CellTable, convert_to_cells
from psql_streamer.events.routing import Router
from psql_streamer.few_changes import replace_shapes
from psql_streamer.few_rows import FewRows
from psql_streamer.model import ADDRESS, PART, ArrowType, Changes, Column
from psql_streamer.testing.few_sample import make_few_rows_batch
from tests.decoding import BEGINNING
from tests.encoding import encoder_of
from tests.few import nothing_counts_as_few
from tests.strategies import History, histories
from tests.unit.test_cells import contents
from tests.unit.test_few_rows import cut_at_commits, decoded


def by_relation(few: FewRows, gone: list[bool]) -> tuple[Changes, ...]:
    return convert_to_cells(few).select_views(np.array(gone, np.bool_))


@given(history=histories(), at_most=st.integers(1, 6), chosen=st.integers(0, 255))
def test_rows_that_a_handler_leaves_as_they_are_stay_the_same(history: History, at_most: int, chosen: int) -> None:
    for batch in decoded(list(cut_at_commits(history.session(), at_most)), BEGINNING):
        few = batch.changes
        if not isinstance(few, FewRows):
            continue
        gone = [bool(chosen >> (shape % 8) & 1) for shape in range(len(few.shapes))]
        made = by_relation(few, gone)
        again = replace_shapes(few, gone, made)
        assert again is not None
        assert contents(again.cells) == contents(few.cells)
        assert [row.place for row in again.each] == [row.place for row in few.each]
        joined = replace_shapes(few, gone, list(CellTable.from_changes(made)))
        assert joined is not None
        assert contents(joined.cells) == contents(few.cells)


@pytest.mark.parametrize("form", ["event", "envelope"])
def test_the_records_of_changes_are_those_that_cells_give(form: str) -> None:
    batch = make_few_rows_batch()
    few = batch.changes
    assert isinstance(few, FewRows)
    (orders,) = by_relation(few, [True, False])
    named = replace(orders, columns=(*orders.columns[:2], replace(orders.columns[2], name="is_paid")))

    def encoded(changes: Any) -> list[Any]:
        found = encoder_of(form, Router({}, "", "t"), {}, headers=True).encode(replace(batch, changes=changes))
        return [found.keys.to_pylist(), found.values.to_pylist(), found.seq.tolist(), found.op.tolist()]

    one_by_one = replace_shapes(few, [True, False], [named])
    assert one_by_one is not None
    others = few.cells.drop_shapes(np.array([True, False]))
    with nothing_counts_as_few():
        by_cells = encoded(CellTable.merge([others, CellTable.from_changes([named])]))
    assert encoded(one_by_one) == by_cells
    assert "cells" not in one_by_one.__dict__
    assert b'"is_paid"' in by_cells[1][0]


def test_rows_of_a_rule_that_leaves_nothing_are_gone() -> None:
    few = make_few_rows_batch().changes
    assert isinstance(few, FewRows)
    left = replace_shapes(few, [True, False], [])
    assert left is not None
    assert [(row.batch_order, left.shapes[row.shape].relation.table) for row in left.each] == [
        (1, "visits"),
        (4, "visits"),
    ]


def in_parts(changes: Changes) -> Changes:
    return replace(changes, part=np.zeros(len(changes), PART))


def with_an_address(changes: Changes) -> Changes:
    return replace(changes, after=replace(changes.after, addresses=pa.nulls(len(changes.after), ADDRESS)))


def of_an_arrow_type(changes: Changes) -> Changes:
    return replace(changes, columns=(Column("id", ArrowType(pa.int64()), key=True), *changes.columns[1:]))


def without_places(changes: Changes) -> Changes:
    return replace(changes, place=None)


@pytest.mark.parametrize("change", [in_parts, with_an_address, of_an_arrow_type, without_places])
def test_what_a_single_row_cannot_say_stays_with_cells(change: Any) -> None:
    few = make_few_rows_batch().changes
    assert isinstance(few, FewRows)
    (orders,) = by_relation(few, [True, False])
    assert replace_shapes(few, [True, False], [orders]) is not None
    assert replace_shapes(few, [True, False], [change(orders)]) is None
