"""The `flat` format: what a compacted topic needs, and nothing that it cannot take."""

from __future__ import annotations

import json

import pytest

from psql_streamer.errors import SinkRefused
from psql_streamer.events.routing import Router
from tests.decoding import decode
from tests.encoding import encoder_of
from tests.golden import read
from tests.pgoutput_wire import WireColumn, WireRelation, begin, commit, copy_data, insert, relation, xlog_data


def test_every_record_has_a_key_and_says_in_its_headers_what_happened() -> None:
    for record in map(json.loads, read("flat")):
        assert record["key"] is not None
        assert {"commit_lsn", "seq", "op"} <= record["headers"].keys()
        assert (record["value"] is None) == (record["headers"]["op"] in ("delete", "truncate"))


def test_a_truncate_is_a_tombstone_under_a_key_that_no_row_has() -> None:
    truncates = [record for record in map(json.loads, read("flat")) if record["headers"]["op"] == "truncate"]
    assert truncates
    assert all(record["key"] == {} and record["value"] is None for record in truncates)


@pytest.mark.behaviour("D5")
def test_d5_a_table_without_a_key_is_refused_by_name() -> None:
    shape = WireRelation(16400, "public", "keyless", (WireColumn("note"),), "n")
    messages = [begin(100, 0, 7), relation(shape), insert(shape.oid, (b"x",)), commit(100, 120, 0)]
    (batch,) = decode([copy_data(xlog_data(message)) for message in messages], 10)
    with pytest.raises(SinkRefused, match=r"public\.keyless.*no key"):
        encoder_of("flat", Router({}, "t", ""), {}).encode(batch)
    keys = encoder_of("flat", Router({}, "t", ""), {"keyless": ("note",)}).encode(batch).keys
    assert keys.to_pylist() == [b'{"note":"x"}']
