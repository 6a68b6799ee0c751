"""A batch as one table of cells: views by relation, pieces and unions of it hold the same rows, and few rows are
written as many are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from psql_streamer.cells import CellTable, convert_to_cells
from psql_streamer.columns import Columns, list_held_arrays
from psql_streamer.events import column_numbers
from psql_streamer.events.records import Records
from psql_streamer.events.routing import Route, Router
from psql_streamer.events.unchanged import Unchanged
from psql_streamer.model import (
    POSTGRESQL,
    ArrowType,
    Batch,
    Changes,
    Column,
    Image,
    Relation,
    RowOp,
    Shift,
)
from psql_streamer.pipeline.coalescing import merge
from psql_streamer.testing.batches import SOURCE, make_mixed_batch
from tests.decoding import decode
from tests.encoding import FORMATS, encoder_of
from tests.few import nothing_counts_as_few
from tests.strategies import History, histories

POLICIES = (None, Unchanged({"*": "marker"}), Unchanged({"*": "omit"}))


@given(history=histories(), size=st.integers(1, 40))
def test_a_table_of_cells_made_of_its_views_is_the_same(history: History, size: int) -> None:
    for batch in decode(history.session(), size):
        assert contents(CellTable.from_changes(tuple(batch.changes))) == contents(convert_to_cells(batch.changes))


@given(history=histories(), size=st.integers(1, 40))
def test_columns_that_were_asked_for_and_those_that_were_not_make_the_same_table(history: History, size: int) -> None:
    for batch in decode(history.session(), size):
        views = tuple(
            replace(view, after=half_made(view.after), before=half_made(view.before)) for view in batch.changes
        )
        assert contents(CellTable.from_changes(views)) == contents(convert_to_cells(batch.changes))


@given(history=histories(), size=st.integers(1, 40), cut=st.integers(0, 40))
def test_pieces_of_a_table_put_together_are_the_table(history: History, size: int, cut: int) -> None:
    for batch in decode(history.session(), size):
        table = convert_to_cells(batch.changes)
        pieces = [table.select_between(0, cut), table.select_between(cut, 1 << 40)]
        assert contents(CellTable.concat(pieces)) == contents(table)
        assert contents(CellTable.merge(pieces[::-1])) == contents(table)


@given(history=histories(), size=st.integers(1, 40))
def test_tables_without_and_with_some_relations_are_the_whole(history: History, size: int) -> None:
    for batch in decode(history.session(), size):
        table = convert_to_cells(batch.changes)
        some = np.arange(len(table.shapes)) % 2 == 0
        assert contents(
            CellTable.merge([table.drop_shapes(some), CellTable.from_changes(table.select_views(some))])
        ) == contents(table)


def test_cells_of_arrow_types_survive_every_step() -> None:
    batch = make_mixed_batch()
    table = convert_to_cells(batch.changes)
    assert len(table.after.typed) == 2
    (view,) = table
    for image, original in ((view.after, batch.changes[0].after), (view.before, batch.changes[0].before)):
        assert [column.to_pylist() for column in image.columns] == [column.to_pylist() for column in original.columns]
    twice = CellTable.concat([table, table.shift_rows(Shift(10, 1))])
    (both,) = twice
    assert both.after.columns[0].to_pylist() == [1, 2, 3, 40] * 2
    assert twice.select_between(10, 11).after.typed[0].values.to_pylist() == [1]


@pytest.mark.parametrize("form", FORMATS)
@given(history=histories(), size=st.integers(1, 40), policy=st.sampled_from(POLICIES), headers=st.booleans())
def test_few_rows_are_written_as_many_are(
    form: str, history: History, size: int, policy: Unchanged | None, headers: bool
) -> None:
    def encoded() -> list[Any]:
        router = Router({"/.*a.*/": [Route("one"), Route("two")]}, "t", "")
        encoder = encoder_of(form, router, {"*": ()} if form == "event" else {}, headers=headers, unchanged=policy)
        return [attempt(encoder, batch) for batch in batches]

    batches = decode(history.session(), size)
    batches = [*batches, merge(batches)] if batches else []
    few = encoded()
    with nothing_counts_as_few():
        assert encoded() == few


@pytest.mark.parametrize("form", ["event", "envelope", "debezium"])
def test_few_rows_of_arrow_types_are_written_as_many_are(form: str) -> None:
    few = lines(encoder_of(form, Router({}, "", "t", "m"), {}, headers=True).encode(make_mixed_batch()))
    with nothing_counts_as_few():
        assert lines(encoder_of(form, Router({}, "", "t", "m"), {}, headers=True).encode(make_mixed_batch())) == few


@given(history=histories(), size=st.integers(1, 40))
def test_events_do_not_depend_on_what_else_is_in_their_batch(history: History, size: int) -> None:
    batches = decode(history.session(), size)
    encoder = encoder_of("event", Router({}, "", "t"), {})
    alone = [line for batch in batches for line in lines(encoder.encode(batch))]
    assert not batches or lines(encoder.encode(merge(batches))) == alone


def attempt(encoder: Any, batch: Batch) -> Any:
    try:
        return lines(encoder.encode(batch))
    except Exception as error:
        return str(error)


def lines(records: Records) -> list[tuple[Any, ...]]:
    columns = [records.keys, records.values, *records.headers.values()]
    texts = zip(*(column.to_pylist() for column in columns), strict=True)
    names = [[records.look_up_topic(at), records.look_up_table(at)] for at in range(len(records))]
    numbers = zip(records.commit.tolist(), records.seq.tolist(), records.op.tolist(), strict=True)
    return [(*name, *of, *text) for name, of, text in zip(names, numbers, texts, strict=True)]


def half_made(image: Image) -> Image:
    """Every other column as an array of its own."""
    held = list_held_arrays(image.columns)
    return replace(image, columns=Columns(one if at % 2 else image.columns[at] for at, one in enumerate(held)))


def contents(table: CellTable) -> list[tuple[Any, ...]]:
    """Row by row, whatever the numbers of its shapes are."""
    images = [dict(zip(image.rows.tolist(), tuples_of(image), strict=True)) for image in (table.after, table.before)]
    return [
        (table.shapes[shape], batch_order, op, seq, tx, *(image.get(row) for image in images))
        for row, (shape, batch_order, op, seq, tx) in enumerate(
            zip(
                *(array.tolist() for array in (table.shape, table.batch_order, table.op, table.seq, table.tx)),
                strict=True,
            )
        )
    ]


def tuples_of(image: Any) -> Iterator[tuple[Any, ...]]:
    values = image.values.to_pylist()
    absent = [False] * len(values) if image.absent is None else image.absent.tolist()
    cells = list(zip(values, absent, strict=True))
    for begin, end in zip(image.begins.tolist(), image.begins.tolist()[1:], strict=False):
        yield tuple(cells[begin:end])


@pytest.mark.parametrize("form", FORMATS)
def test_values_of_arrow_types_that_an_update_left_alone_come_from_the_old_row(form: str) -> None:
    columns = (Column("id", ArrowType(pa.string()), key=True), Column("doc", ArrowType(pa.string())))
    relation = Relation("docs", "public", "docs", columns)
    gone = {0: np.array([True]), 1: np.array([True])}
    after = Image((pa.array([None], pa.string()), pa.array([None], pa.string())), np.arange(1), gone)
    before = Image((pa.array(["a key"]), pa.array(["a document"])), np.arange(1))
    one = np.zeros(1, np.int64)
    changes = Changes(
        relation, columns, one, np.array([RowOp.UPDATE], np.uint8), one, one.astype(np.int32), after, before
    )
    records = encoder_of(form, Router({}, "", "t"), {}).encode(replace(make_mixed_batch(), changes=(changes,)))
    assert b"a document" in records.values[0].as_py()
    assert b"a key" in records.keys[0].as_py()
    assert len([op for op in records.op.tolist() if op in list(RowOp)]) == 1


def test_rows_whose_place_is_unknown_lie_beside_others() -> None:
    known, unknown = (replace(one, place=place) for one, place in zip(two_tables(), (np.array([7]), None), strict=True))
    for order in ((known, unknown), (unknown, known)):
        source = replace(SOURCE, kind=POSTGRESQL)
        batch = replace(make_mixed_batch(), changes=order, truncates=(), messages=(), source=source)
        values = encoder_of("event", Router({}, "", "t"), {}).encode(batch).values.to_pylist()
        events = [json.loads(value) for value in values]
        assert [event.get("WALPosition") for event in events] == [7, None]
        assert [view.place for view in CellTable.from_changes(order)][order.index(unknown)] is None


@pytest.mark.parametrize("form", ["event", "debezium-avro"])
def test_columns_in_use_are_not_forgotten_again_and_again(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_numbers, "_MOST_COLUMNS", 1)
    forgotten: list[object] = []
    forget = column_numbers.ColumnNumbers._forget
    monkeypatch.setattr(column_numbers.ColumnNumbers, "_forget", lambda self: (forgotten.append(self), forget(self)))
    encoder = encoder_of(form, Router({}, "", "t"), {})
    batch = replace(make_mixed_batch(), changes=two_tables(), truncates=(), messages=())
    cells = replace(batch, changes=convert_to_cells(batch.changes))
    assert len({str(lines(encoder.encode(cells))) for _ in range(5)}) == 1
    assert forgotten
    assert len(forgotten) <= 2


def two_tables() -> tuple[Changes, Changes]:
    """A row of each."""
    found = []
    for number, table in enumerate(("one", "two")):
        columns = (Column("id", ArrowType(pa.int64()), key=True), Column("note", ArrowType(pa.string())))
        arrays = (pa.array([number]), pa.array(["x"]))
        relation = Relation(table, "public", table, columns)
        changes = Changes.from_new_rows(relation, arrays, np.zeros(1, np.int32))
        found.append(replace(changes, batch_order=np.array([number]), seq=np.array([number])))
    return found[0], found[1]
