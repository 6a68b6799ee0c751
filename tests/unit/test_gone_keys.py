"""Keys that no row has, as DELETE rows of a snapshot: their events in every format, and read back from Kafka."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from psql_streamer.cells import convert_to_cells
from psql_streamer.events.routing import Router
from psql_streamer.model import Batch, ReplicaIdentity, RowOp
from psql_streamer.pipeline.coalescing import merge
from psql_streamer.testing import check_batch
from tests.encoding import FORMATS, encoder_of
from tests.snapshots import MOMENT, NOTES, ON_DEMAND, chunk, gone
from tests.unit.test_snapshot_events import COMMIT, encode, events, headers, hopped, messages, read, uuids

KEYS = [(b"1",), (b"2",)]


def test_a_delete_of_a_gone_key_has_the_key_alone_whatever_the_replica_identity_is() -> None:
    for identity in (ReplicaIdentity.DEFAULT, ReplicaIdentity.FULL, ReplicaIdentity.INDEX):
        batch = gone(KEYS, relation=replace(NOTES, replica_identity=identity))
        check_batch(batch)
        (changes,) = batch.changes
        assert set(changes.op.tolist()) == {RowOp.DELETE}
        assert not changes.relation.old_rows_are_whole
        assert [column.to_pylist() for column in changes.before.columns] == [[b"1", b"2"], [None] * 2, [None] * 2]
        assert all(changes.before.absent[column].all() for column in (1, 2))
        assert 0 not in changes.before.absent


def test_an_event_names_its_snapshot_and_the_key() -> None:
    batch = gone(KEYS)
    found = events("event", batch)
    assert found[0] == {
        "Host": "localhost",
        "Database": "postgres",
        "Schema": "public",
        "Table": "notes",
        "Action": "delete",
        "Timestamp": "2026-11-21T11:27:56.028123Z",
        "CommitLSN": COMMIT,
        "Snapshot": ON_DEMAND.id,
        "OnDemand": True,
        "Seq": 0,
        "UUID": uuids(batch)[0],
        "Checksum": found[0]["Checksum"],
        "Columns": {"id": 1},
    }


def test_an_envelope_names_its_snapshot_and_the_key() -> None:
    batch = gone(KEYS)
    found = events("envelope", batch)[1]
    assert (found["op"], found["before"], found["after"]) == ("DELETE", {"id": 2}, None)
    expected = {"xid": None, "snapshot": "incremental", "snapshot_id": ON_DEMAND.id, "uuid": uuids(batch)[1]}
    assert found["source"].items() >= expected.items()
    assert "lsn" not in found["source"]


def test_debezium_has_a_tombstone_behind_it_and_no_transaction() -> None:
    records = encode("debezium", gone(KEYS), transaction_topic="transactions", headers=True)
    values = [None if value is None else json.loads(value) for value in records.values.to_pylist()]
    assert [value is None for value in values] == [False, True, False, True]
    value = values[0]
    assert value is not None
    assert (value["op"], value["before"], value["after"]) == ("d", {"id": 1, "note": None, "amount": None}, None)
    assert value["transaction"] is None
    source = value["source"]
    assert (source["snapshot"], source["txId"], source["lsn"]) == ("incremental", None, None)
    assert source["ts_us"] == MOMENT
    assert headers(records)[0]["snapshot"] == ON_DEMAND.id.encode()


def test_flat_has_a_tombstone_that_names_the_snapshot() -> None:
    records = encode("flat", gone(KEYS))
    assert records.values.to_pylist() == [None, None]
    found = headers(records)[0]
    assert (found["op"], found["snapshot"], found["uuid"]) == (
        b"delete",
        ON_DEMAND.id.encode(),
        uuids(gone(KEYS))[0].encode(),
    )


@pytest.mark.parametrize("form", FORMATS)
def test_its_key_is_that_of_the_row_that_it_was(form: str) -> None:
    def keys(batch: Batch) -> list[Any]:
        return list(dict.fromkeys(encoder_of(form, Router({}, "", "t"), {}).encode(batch).keys.to_pylist()))

    assert keys(gone([(b"1",), (b"2",), (b"30",)])) == keys(chunk())


def test_beside_deletes_of_transactions_each_keeps_what_it_says() -> None:
    of_row = chunk()
    merged = merge([gone(KEYS), of_row, gone(KEYS, commit=COMMIT, seq=3)])
    said = events("event", merged)
    assert [event["Action"] for event in said] == ["delete"] * 2 + ["read"] * 3 + ["delete"] * 2
    assert [event["UUID"] for event in events("event", merged)] == [
        *uuids(gone(KEYS)),
        *uuids(of_row),
        *uuids(gone(KEYS)),
    ]


@pytest.mark.parametrize("form", ["event", "envelope", "debezium"])
def test_they_keep_their_identity_on_a_hop(form: str) -> None:
    batch = gone(KEYS)
    again = hopped(form, batch, headers=True) if form != "debezium" else _without_tombstones(batch)
    assert uuids(again) == uuids(batch)
    assert again.transactions.snapshots == {0: ON_DEMAND}
    assert set(convert_to_cells(again.changes).op.tolist()) == {RowOp.DELETE}


def _without_tombstones(batch: Batch) -> Batch:
    (again,) = read([one for one in messages("debezium", batch, headers=True) if one.value_bytes]).batches
    return again
