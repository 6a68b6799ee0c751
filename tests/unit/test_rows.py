"""Rows by kind: every row of a batch is of one, or the batch is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from psql_streamer.events.json.nested import LOOKS
from psql_streamer.events.json.values import FORMS
from psql_streamer.events.routing import Router
from psql_streamer.model import Batch, Marker, RowOp
from psql_streamer.pgtype import JsonForm
from tests.decoding import decode
from tests.encoding import FORMATS, encoder_of
from tests.few import both_ways  # noqa: F401 - a fixture for all tests here
from tests.pgoutput_wire import WireColumn, WireRelation
from tests.strategies import History, RowChange, Transaction

NOTES = WireRelation(16400, "public", "notes", (WireColumn("id", 20, key=True),))
STEPS = (
    RowChange(NOTES, 990, (b"1",), None, ""),
    RowChange(NOTES, 990, (b"1",), None),
    RowChange(NOTES, 990, None, (b"1",)),
)
OPS = (RowOp.INSERT, RowOp.UPDATE, RowOp.DELETE)


def batch_with(op: int, at: int) -> Batch:
    """The three steps as one batch, in which the row at this place has another op."""
    frames = History([Transaction(7, 1000, 1008, 0, STEPS)]).session()
    (batch,) = decode(frames, len(frames))
    (changes,) = batch.changes
    ops = changes.op.copy()
    ops[at] = op
    return replace(batch, changes=(replace(changes, op=ops),))


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("op", [Marker.TRUNCATE, Marker.MESSAGE, ord("x"), 0])
@pytest.mark.parametrize("at", range(3))
def test_a_row_whose_op_is_no_rows_is_refused_and_does_not_vanish(form: str, op: int, at: int) -> None:
    encoder = encoder_of(form, Router({}, "", "t"), {})
    assert len(encoder.encode(batch_with(OPS[at], at))) >= len(STEPS)
    with pytest.raises(ValueError, match=rf"public\.notes .* op {op}\b"):
        encoder.encode(batch_with(op, at))


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("event", {"Action": "read", "Columns": {"id": 1}}),
        ("envelope", {"op": "READ", "before": None, "after": {"id": 1}}),
        ("debezium", {"op": "r", "before": None, "after": {"id": 1}}),
        ("flat", {"id": 1}),
    ],
)
def test_a_row_of_a_snapshot_is_an_event_in_every_format(form: str, said: dict[str, Any]) -> None:
    records = encoder_of(form, Router({}, "", "t"), {}, headers=True).encode(batch_with(RowOp.READ, 0))
    event = json.loads(records.values[0].as_py())
    assert event.items() >= said.items()
    assert "source" not in event or event["source"].get("snapshot", "true") == "true"
    assert records.headers["op"][0].as_py() == b"read"


def test_every_form_of_a_type_has_its_json_and_its_look() -> None:
    nested = {JsonForm.ARRAY, JsonForm.OBJECT}
    assert FORMS.keys() == set(JsonForm) - nested
    assert LOOKS.keys() == set(JsonForm)
