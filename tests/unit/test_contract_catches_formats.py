"""The contract's tests of formats fail for one that breaks its promise."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from psql_streamer import model
from psql_streamer.events.format import BatchFormat, BoundaryRecords, Format, FormatOptions, OneRow, RowTexts
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


class GivesOneKeyToAll(Plain):
    class Batches(PlainBatch):
        def render_keys(self, rows: Rows, texts: RowTexts) -> pa.Array:  # noqa: ARG002
            return pc.if_else(texts.key.is_valid(), pa.scalar(b"a key"), None)

    batches = Batches


class KeysByTheAction(Plain):
    class Batches(PlainBatch):
        def render_keys(self, rows: Rows, texts: RowTexts) -> pa.Array:
            return join(rows.op.action.encode(), texts.key, nulls=None)

    batches = Batches


class KeysTablesWithoutAKey(Plain):
    class Batches(PlainBatch):
        def render_keys(self, rows: Rows, texts: RowTexts) -> pa.Array:  # noqa: ARG002
            return texts.image

    batches = Batches


class NeedsAKeyAndTakesNone(Plain):
    needs_key = True


class WritesItsPlace(Plain):
    class Batches(PlainBatch):
        def render_rows(self, rows: Rows, texts: RowTexts) -> pa.Array:
            places = pa.array([str(order).encode() for order in rows.batch_order.tolist()], pa.binary())
            return join(places, super().render_rows(rows, texts))

    batches = Batches


class NumbersPartsAnew(Plain):
    class Batches(PlainBatch):
        def render_extra_headers(self, rows: Rows) -> Mapping[str, pa.Array]:
            numbers = [str(at).encode() for at in range(len(rows))]
            return {} if rows.part is None else {"part": pa.array(numbers, pa.binary())}

    batches = Batches


class SaysNoAction(Plain):
    class Batches(PlainBatch):
        def render_rows(self, rows: Rows, texts: RowTexts) -> pa.Array:  # noqa: ARG002
            return texts.image

    batches = Batches


class HasAnOpOfItsOwn(Plain):
    class Batches(PlainBatch):
        def render_extra_headers(self, rows: Rows) -> Mapping[str, pa.Array]:
            return {"op": pa.array([b"mine"] * len(rows), pa.binary())}

    batches = Batches


class HasTombstones(Plain):
    tombstones = True


class HasNothingButTombstones(HasTombstones):
    class Batches(PlainBatch):
        def render_rows(self, rows: Rows, texts: RowTexts) -> pa.Array:
            written = super().render_rows(rows, texts)
            return pa.nulls(len(rows), pa.binary()) if rows.op is model.RowOp.DELETE else written

    batches = Batches


class WritesMessagesAlike(Plain):
    class Batches(PlainBatch):
        def render_message(self, message: model.LogicalMessage) -> bytes:  # noqa: ARG002
            return b"message"

    batches = Batches


class TellsTransactions(Plain):
    class Batches(PlainBatch):
        op_of_begins = model.Marker.BEGIN

        def render_boundaries(self) -> Iterable[BoundaryRecords]:
            metadata = self.batch.transaction_metadata
            if metadata is None:
                return
            for op, marks in ((model.Marker.COMMIT, metadata.ends), (self.op_of_begins, metadata.begins)):
                none, values = pa.nulls(len(marks), pa.binary()), pa.array([b"x"] * len(marks), pa.binary())
                yield BoundaryRecords(op, marks, np.zeros(len(marks), np.int64), none, values)

    batches = Batches

    @classmethod
    def tells_transactions(cls, options: FormatOptions, **section: bool) -> bool:  # noqa: ARG003
        return True


class SaysThatItTellsTransactions(TellsTransactions):
    batches = PlainBatch


class MarksBeginsAsEnds(TellsTransactions):
    class Batches(TellsTransactions.Batches):
        op_of_begins = model.Marker.COMMIT

    batches = Batches


class OpensAFileWhenItIsMade(Plain):
    def __init__(self, options: FormatOptions) -> None:
        super().__init__(options)
        self._held = os.open(__file__, os.O_RDONLY)


SOUND = (Plain, PlainByRow, HasTombstones, TellsTransactions)
KEYS = FormatContract.test_rows_of_one_key_have_one_key_whatever_happened_to_them_and_others_another
KEYLESS = FormatContract.test_a_table_without_a_key_has_events_without_one_or_is_refused
STANDS_BEFORE = FormatContract.test_what_stands_before_rows_does_not_change_them
TRANSACTIONS = FormatContract.test_transactions_begin_and_end_once_where_it_has_records_of_them
DIFFERENT_VALUES = FormatContract.test_rows_that_differ_have_values_that_differ
ROW_BY_ROW = FormatContract.test_few_rows_are_written_as_they_are_by_columns
FORMATS: dict[type[Format], Callable[[Any], None]] = {
    SaysNoPart: FormatContract.test_parts_of_a_change_are_told_apart,
    WritesTheAction: DIFFERENT_VALUES,
    WritesTheKey: DIFFERENT_VALUES,
    WritesSingleRowsInAnotherWay: ROW_BY_ROW,
    WritesOldRowsOneByOne: ROW_BY_ROW,
    GivesOneKeyToAll: KEYS,
    KeysByTheAction: KEYS,
    KeysTablesWithoutAKey: KEYLESS,
    NeedsAKeyAndTakesNone: KEYLESS,
    WritesItsPlace: STANDS_BEFORE,
    NumbersPartsAnew: STANDS_BEFORE,
    SaysNoAction: FormatContract.test_an_event_says_what_happened,
    HasAnOpOfItsOwn: FormatContract.test_headers_of_the_service_are_the_services,
    HasNothingButTombstones: FormatContract.test_a_delete_has_one_record_without_a_value_where_tombstones_follow,
    WritesMessagesAlike: FormatContract.test_messages_of_other_prefixes_have_other_values,
    SaysThatItTellsTransactions: TRANSACTIONS,
    MarksBeginsAsEnds: TRANSACTIONS,
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
