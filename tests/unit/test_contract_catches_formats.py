"""The contract's tests of formats fail for one that breaks its promise."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pytest

from psql_streamer import model
from psql_streamer.events.format import BatchFormat, Format, FormatOptions, OneRow, RowTexts
from psql_streamer.events.json.json_text import join
from psql_streamer.events.rows import Rows
from psql_streamer.testing import FormatContract


class PlainBatch(BatchFormat):
    """The row as it is."""

    def render_rows(self, rows: Rows, texts: RowTexts) -> pa.Array:
        return join(rows.op.action.encode(), b" ", texts.image)

    def render_row(self, row: OneRow) -> bytes:
        return b"%s %s" % (row.op.action.encode(), row.image)

    def render_truncate(self, truncate: model.Truncate) -> bytes:
        return b"truncate %s" % truncate.relation.table.encode()

    def render_message(self, message: model.LogicalMessage) -> bytes:
        return b"message %s" % message.prefix.encode()

    def render_extra_headers(self, rows: Rows) -> Mapping[str, pa.Array]:
        return self.render_headers_of_parts(rows)


class Plain(Format):
    batches: type[BatchFormat] = PlainBatch

    def prepare(self, batch: model.Batch) -> BatchFormat:
        return self.batches(batch)


class PlainByRow(Plain):
    row_by_row = True


class SaysNoPart(Plain):
    class Batches(PlainBatch):
        def render_extra_headers(self, rows: Rows) -> Mapping[str, pa.Array]:  # noqa: ARG002
            return {}

    batches = Batches


class WritesTheAction(Plain):
    class Batches(PlainBatch):
        def render_rows(self, rows: Rows, texts: RowTexts) -> pa.Array:  # noqa: ARG002
            return pa.array([rows.op.action.encode()] * len(rows), pa.binary())

    batches = Batches


class WritesTheKey(Plain):
    class Batches(PlainBatch):
        def render_rows(self, rows: Rows, texts: RowTexts) -> pa.Array:  # noqa: ARG002
            return texts.key

    batches = Batches


class WritesSingleRowsInAnotherWay(Plain):
    row_by_row = True

    class Batches(PlainBatch):
        def render_row(self, row: OneRow) -> bytes:
            return row.image

    batches = Batches


class WritesOldRowsOneByOne(Plain):
    """Of updates, where the source gave them."""

    row_by_row = True

    class Batches(PlainBatch):
        def render_row(self, row: OneRow) -> bytes:
            return b"%s %s" % (row.op.action.encode(), row.old or row.image)

    batches = Batches


class OpensAFileWhenItIsMade(Plain):
    def __init__(self, options: FormatOptions) -> None:
        super().__init__(options)
        self._held = os.open(__file__, os.O_RDONLY)


SOUND = (Plain, PlainByRow)
DIFFERENT_VALUES = FormatContract.test_rows_that_differ_have_values_that_differ
ROW_BY_ROW = FormatContract.test_few_rows_are_written_as_they_are_by_columns
FORMATS: dict[type[Format], Callable[[Any], None]] = {
    SaysNoPart: FormatContract.test_parts_of_a_change_are_told_apart,
    WritesTheAction: DIFFERENT_VALUES,
    WritesTheKey: DIFFERENT_VALUES,
    WritesSingleRowsInAnotherWay: ROW_BY_ROW,
    WritesOldRowsOneByOne: ROW_BY_ROW,
    OpensAFileWhenItIsMade: FormatContract.test_making_one_does_no_io,
}


class FormatTests(FormatContract):
    def __init__(self, form: type[Format]) -> None:
        self._form = form

    def make_format(self) -> Format:
        return self._form(FormatOptions())


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.__name__)
def test_a_format_that_breaks_its_promise_is_caught(form: type[Format]) -> None:
    for sound in SOUND:
        FORMATS[form](FormatTests(sound))
    with pytest.raises(AssertionError):
        FORMATS[form](FormatTests(form))
