"""Batches of a session share a list of shapes: one that has no rows in a batch does not stop it."""

from __future__ import annotations

import pytest

from psql_streamer.errors import SinkRefused
from psql_streamer.events.routing import Router
from psql_streamer.model import Batch
from tests import pgoutput_wire as wire
from tests.decoding import block, decoder
from tests.encoding import encoder_of

PLAIN = wire.WireRelation(16400, "public", "plain", (wire.WireColumn("id", 20, key=True),))
NOTES = wire.WireRelation(16401, "public", "notes", (wire.WireColumn("id", 20, key=True), wire.WireColumn("note")))
LONG = wire.WireRelation(16402, "public", "x" * 250, (wire.WireColumn("id", 20, key=True),))


def batches() -> list[Batch]:
    """Rows of the plain table, then of the one with notes, then of the one with a long name."""
    reader = decoder()
    found = []
    for number, (relation, row) in enumerate([(PLAIN, [b"1"]), (NOTES, [b"1", b"x"]), (LONG, [b"1"])]):
        lsn = 100 * (number + 1)
        messages = [
            wire.begin(lsn, 0, 7 + number),
            *(map(wire.relation, (PLAIN, NOTES, LONG)) if not number else ()),
            wire.insert(relation.oid, row),
            wire.commit(lsn, lsn + 8, 0),
        ]
        frames = block([wire.copy_data(wire.xlog_data(message, lsn, lsn)) for message in messages])
        found.append(reader.decode(frames.data, frames.offsets))
    return found


def test_a_key_that_a_table_does_not_have_is_refused_with_its_first_row_and_not_before() -> None:
    plain, notes, _ = batches()
    encoder = encoder_of("event", Router({}, "", "t"), {"*": ("note",)})
    assert len(encoder.encode(notes)) == 1
    with pytest.raises(SinkRefused, match=r'key of public\.plain names the column "note"'):
        encoder.encode(plain)
    assert len(encoder.encode(notes)) == 1


def test_a_name_that_makes_no_topic_is_refused_with_its_first_row_and_not_before() -> None:
    plain, notes, long = batches()
    encoder = encoder_of("event", Router({}, "p", ""), {})
    assert [len(encoder.encode(batch)) for batch in (plain, notes)] == [1, 1]
    with pytest.raises(SinkRefused, match="xxx"):
        encoder.encode(long)
