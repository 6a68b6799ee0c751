"""Rows by kind: every row of a batch is of one, or the batch is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from psql_streamer.events import FORMATS, Encoder
from psql_streamer.events.nested import LOOKS
from psql_streamer.events.values import FORMS
from psql_streamer.model import Batch, Op
from psql_streamer.pgtype import JsonForm
from psql_streamer.routing import Router
from tests.decoding import decode
from tests.pgoutput_wire import WireColumn, WireRelation
from tests.strategies import History, RowChange, Transaction

NOTES = WireRelation(16400, "public", "notes", (WireColumn("id", 20, key=True),))
STEPS = (
    RowChange(NOTES, 990, (b"1",), None, ""),
    RowChange(NOTES, 990, (b"1",), None),
    RowChange(NOTES, 990, None, (b"1",)),
)
OPS = (Op.INSERT, Op.UPDATE, Op.DELETE)


def batch_with(op: int, at: int) -> Batch:
    """The three steps as one batch, in which the row at this place has another op."""
    frames = History([Transaction(7, 1000, 1008, 0, STEPS)]).session()
    (batch,) = decode(frames, len(frames))
    (changes,) = batch.changes
    ops = changes.op.copy()
    ops[at] = op
    return replace(batch, changes=(replace(changes, op=ops),))


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("op", [Op.TRUNCATE, Op.MESSAGE, ord("x"), 0])
@pytest.mark.parametrize("at", range(3))
def test_a_row_whose_op_is_no_rows_is_refused_and_does_not_vanish(form: str, op: int, at: int) -> None:
    encoder = Encoder(form, Router({}, "", "t"), {})
    assert len(encoder.encode(batch_with(OPS[at], at))) >= len(STEPS)
    with pytest.raises(ValueError, match=rf"public\.notes .* op {op}\b"):
        encoder.encode(batch_with(op, at))


def test_every_form_of_a_type_has_its_json_and_its_look() -> None:
    nested = {JsonForm.ARRAY, JsonForm.OBJECT}
    assert FORMS.keys() == set(JsonForm) - nested
    assert LOOKS.keys() == set(JsonForm)
