"""READ rows of snapshots: their events in every format, beside those of other changes, and read back from Kafka."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psql_streamer.cells import convert_to_cells
from psql_streamer.event_reader.reader import EventReader, Read
from psql_streamer.events.identity import make_uuid
from psql_streamer.events.records import Records
from psql_streamer.events.routing import Router
from psql_streamer.model import NO_PLACE, Batch, Position, ReplicaIdentity, RowOp, SchemaChange, SnapshotRows
from psql_streamer.pipeline.coalescing import cut, merge
from psql_streamer.testing import check_batch
from tests.columns import postgres_column, postgres_table
from tests.connect_schema import misfits
from tests.decoding import SOURCE, decode
from tests.encoding import FORMATS, JSON_FORMATS, encoder_of
from tests.few import nothing_counts_as_few
from tests.pgoutput_wire import WireColumn, WireRelation
from tests.snapshots import INITIAL, MOMENT, NOTES, ON_DEMAND, ROWS, among_chunks, chunk
from tests.strategies import History, RowChange, Transaction, histories

COMMIT = 28_267_135
OTHER = WireRelation(16500, "public", "orders", (WireColumn("id", 20, key=True),))


def inserts(commit: int = 28_268_000, count: int = 1) -> Batch:
    """An ordinary transaction."""
    steps = tuple(RowChange(OTHER, commit - 10, (b"%d" % number,), None, "") for number in range(count))
    frames = History([Transaction(7, commit, commit + 8, MOMENT, steps)]).session()
    (batch,) = decode(frames, len(frames))
    return batch


def encode(form: str, batch: Batch, **options: Any) -> Records:
    return encoder_of(form, Router({}, "", "t", "messages"), {}, **options).encode(batch)


def events(form: str, batch: Batch, **options: Any) -> list[Any]:
    return [json.loads(value) for value in encode(form, batch, **options).values.to_pylist()]


def headers(records: Records) -> list[dict[str, bytes]]:
    return [
        {name: texts[at].as_py() for name, texts in records.headers.items() if texts[at].is_valid}
        for at in range(len(records))
    ]


def uuids(batch: Batch) -> list[str]:
    found = convert_to_cells(batch.changes).uuid
    assert found is not None
    return [uuid.decode() for uuid in found.tolist()]


@pytest.mark.parametrize("snapshot", [INITIAL, ON_DEMAND])
def test_an_event_names_its_snapshot_and_no_transaction(snapshot: SnapshotRows) -> None:
    batch = chunk(snapshot=snapshot)
    found = events("event", batch)
    assert found[0] == {
        "Host": "localhost",
        "Database": "postgres",
        "Schema": "public",
        "Table": "notes",
        "Action": "read",
        "Timestamp": "2026-11-21T11:27:56.028123Z",
        "CommitLSN": COMMIT,
        "Snapshot": snapshot.id,
        **({"OnDemand": True} if snapshot.on_demand else {}),
        "Seq": 0,
        "UUID": uuids(batch)[0],
        "Checksum": found[0]["Checksum"],
        "Columns": {"id": 1, "note": 'żółć "é"\n', "amount": 12.5},
    }
    assert [(event["Seq"], event["UUID"]) for event in found] == list(enumerate(uuids(batch)))


@pytest.mark.parametrize("snapshot", [INITIAL, ON_DEMAND])
def test_an_envelope_names_its_snapshot_and_no_transaction(snapshot: SnapshotRows) -> None:
    batch = chunk(snapshot=snapshot)
    found = events("envelope", batch)
    assert found[1]["op"] == "READ"
    assert (found[1]["before"], found[1]["after"]) == (None, {"id": 2, "note": None, "amount": "NaN"})
    source = found[1]["source"]
    assert list(source)[-8:] == ["table", "ts_ms", "xid", "commit_lsn", "snapshot", "snapshot_id", "seq", "uuid"]
    assert (
        source.items()
        >= {
            "ts_ms": MOMENT // 1000,
            "xid": None,
            "commit_lsn": "0/1AF527F",
            "snapshot": "incremental" if snapshot.on_demand else "true",
            "snapshot_id": snapshot.id,
            "seq": 1,
            "uuid": uuids(batch)[1],
        }.items()
    )


@pytest.mark.parametrize("snapshot", [INITIAL, ON_DEMAND])
@pytest.mark.parametrize("transactions", [False, True])
def test_an_event_of_debezium_has_neither_lsn_nor_transaction(snapshot: SnapshotRows, transactions: bool) -> None:
    topic = "transactions" if transactions else ""
    (event, *_) = events("debezium", chunk(snapshot=snapshot), schemas=True, transaction_topic=topic)
    assert misfits(event["schema"], event["payload"]) == []
    payload, source = event["payload"], event["payload"]["source"]
    assert (payload["op"], payload["before"], payload["transaction"]) == ("r", None, None)
    assert payload["ts_us"] == source["ts_us"] == MOMENT
    assert source["snapshot"] == ("incremental" if snapshot.on_demand else "true")
    assert (source["lsn"], source["txId"]) == (None, None)
    assert json.loads(source["sequence"]) == [str(COMMIT), None]


def test_debezium_says_that_rows_are_in_no_transaction_also_beside_transactions() -> None:
    batches = [chunk(), inserts(count=2), chunk(snapshot=ON_DEMAND, commit=28_268_007)]
    found = events("debezium", merge(batches), transaction_topic="transactions")
    said = [
        (event.get("op") or event["status"], (event.get("transaction") or {}).get("total_order")) for event in found
    ]
    reads: list[tuple[str, int | None]] = [("r", None)] * len(ROWS)
    assert said == [*reads, ("BEGIN", None), ("c", 1), ("c", 2), ("END", None), *reads]


@pytest.mark.parametrize("form", FORMATS)
def test_headers_name_the_snapshot_of_its_rows_alone(form: str) -> None:
    batch = merge([chunk(), inserts()])
    (first, second, _, ordinary) = headers(encode(form, batch, headers=True))
    assert (first["op"], first["snapshot"], first["uuid"]) == (b"read", b"initial", uuids(batch)[0].encode())
    assert second["commit_lsn"] == b"0/1AF527F"
    assert "xid" not in second
    assert ordinary["xid"] == b"7"
    assert ordinary.keys().isdisjoint({"snapshot", "uuid"})


@pytest.mark.parametrize("form", FORMATS)
def test_keys_topics_and_checksums_are_those_of_inserts(form: str) -> None:
    batch = chunk()
    inserted = replace(batch, changes=[replace(one, op=np.full(len(one), RowOp.INSERT)) for one in batch.changes])
    read, new = (encode(form, one, headers=True) for one in (batch, inserted))
    assert read.keys.equals(new.keys)
    assert read.topics.tolist() == new.topics.tolist()
    assert read.headers["checksum"].equals(new.headers["checksum"])


def test_a_new_shape_that_a_snapshot_shows_names_no_transaction() -> None:
    batch = replace(chunk(), schema_changes=(SchemaChange(NOTES, None, 0, 0, 0),))
    records = encode("event", batch, headers=True, schema_topic="schemas")
    assert json.loads(records.values[0].as_py())["source"].items() >= {"xid": None, "commit_lsn": "0/1AF527F"}.items()
    assert "xid" not in headers(records)[0]


def test_rows_without_a_uuid_beside_rows_of_a_snapshot_have_the_computed_one() -> None:
    batch = merge([chunk(), inserts(28_268_000), chunk(snapshot=ON_DEMAND)])
    cells = convert_to_cells(batch.changes)
    assert cells.place is not None
    assert (cells.place == NO_PLACE).tolist() == [True] * 3 + [False] + [True] * 3
    computed = make_uuid(SOURCE, 28_268_000, 0).decode()
    expected = [*uuids(chunk()), computed, *uuids(chunk(snapshot=ON_DEMAND))]
    for one in (batch, replace(batch, changes=tuple(batch.changes))):
        assert [event["UUID"] for event in events("event", one)] == expected


def test_a_merged_batch_keeps_what_each_part_knows_of_transactions() -> None:
    unnamed = replace(chunk(), transactions=replace(chunk().transactions, ids=None))
    for batches in ([unnamed, inserts()], [inserts(), unnamed], [chunk(), inserts()]):
        merged = merge(batches)
        assert merged.transaction_metadata is not None
        assert len(merged.transaction_metadata.ends) == 1
        assert {merged.transactions.find_id(tx) for tx in range(2)} == {None, "7"}
        assert list(merged.transactions.snapshots.values()) == [INITIAL]


def test_a_batch_of_rows_that_were_read_counts_them_as_such() -> None:
    for batch in (chunk(), replace(chunk(), changes=convert_to_cells(chunk().changes))):
        assert list(batch.count_changes()) == [("public", "notes", RowOp.READ, 3)]
        check_batch(batch)


def said(records: Records) -> list[tuple[Any, ...]]:
    columns = records.keys.to_pylist(), records.values.to_pylist(), headers(records)
    snapshots = map(records.find_snapshot, range(len(records)))
    numbers = records.commit.tolist(), records.seq.tolist(), records.op.tolist()
    return list(zip(*columns, snapshots, *numbers, strict=True))


@pytest.mark.parametrize("form", JSON_FORMATS)
@settings(max_examples=25)
@given(data=st.data(), history=histories(max_happenings=4, max_width=5), transactions=st.booleans(), wide=st.booleans())
def test_events_of_snapshots_do_not_depend_on_what_is_beside_them_nor_on_how_many_they_are(
    form: str, data: st.DataObject, history: History, transactions: bool, wide: bool
) -> None:
    def all_said(batches: list[Batch]) -> list[Any]:
        return [one for batch in batches for one in said(encoder.encode(batch))]

    batches = data.draw(among_chunks(decode(history.session(), 7)))
    keyed = {"*": ()} if form != "flat" else {}
    topic = "transactions" if transactions else ""
    encoder = encoder_of(form, Router({}, "", "t", "m"), keyed, True, schemas=wide, transaction_topic=topic)
    if form == "flat":
        batches = [replace(batch, changes=[one for one in batch.changes if has_key(one)]) for batch in batches]
    if not batches:
        return
    alone, merged = all_said(batches), merge(batches)
    assert all_said([merged]) == alone
    assert all_said(list(cut(merged, 3))) == alone
    with nothing_counts_as_few():
        assert all_said(batches) == all_said([merged]) == alone


def has_key(changes: Any) -> bool:
    return any(column.key for column in changes.columns)


@dataclass(frozen=True)
class Message:
    """A record on its way back, as confluent_kafka.Message."""

    key_bytes: bytes | None
    value_bytes: bytes
    its_headers: list[tuple[str, bytes | None]]
    at: int

    def __len__(self) -> int:
        return len(self.value_bytes)

    def topic(self) -> str:
        return "notes"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_795_000_000_000

    def key(self) -> bytes | None:
        return self.key_bytes

    def value(self) -> bytes | None:
        return self.value_bytes

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self.its_headers or None


def messages(form: str, batch: Batch, **options: bool) -> list[Message]:
    records = encode(form, batch, **options)
    pairs = zip(records.keys.to_pylist(), records.values.to_pylist(), headers(records), strict=True)
    return [Message(key, value, list(held.items()), at) for at, (key, value, held) in enumerate(pairs)]


def read(records: list[Message]) -> Read:
    position = Position({"offset": 0}, "0")
    return EventReader("test").read(records, position, lambda _: position, 1.0, stops=False)


def hopped(form: str, batch: Batch, **options: bool) -> Batch:
    """What a Kafka source gives of the batch's records."""
    found = read(messages(form, batch, **options))
    assert not found.refused
    (one,) = found.batches
    check_batch(one)
    return one


TEXTS = postgres_table(
    16401,
    "public",
    "texts",
    ReplicaIdentity.DEFAULT,
    (postgres_column("id", 20, key=True), postgres_column("note", 25)),
)


@pytest.mark.behaviour("G1")
@pytest.mark.parametrize("count", [1, 40])
@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize(
    ("form", "options"),
    [
        ("event", {}),
        ("envelope", {}),
        ("debezium", {"headers": True}),
        ("debezium", {"headers": True, "schemas": True}),
    ],
)
def test_a_hop_leaves_events_of_snapshots_as_they_are(
    form: str, options: dict[str, bool], beside: bool, count: int
) -> None:
    """count: many records of `event` are read by fields."""
    rows = [(b"%d" % number, b"a") for number in range(count)]
    chunks = [chunk(rows, INITIAL, 100, TEXTS, 5_000_000), chunk(rows, ON_DEMAND, 100, TEXTS, 6_000_000, 1)]
    merged = merge([*chunks, inserts(count=count)] if beside else chunks)
    again = hopped(form, merged, **options)
    reads = 2 * count
    assert list(again.transactions.snapshots.values()) == [INITIAL, ON_DEMAND]
    if form != "debezium":  # its ordinary rows do not say their place in the transaction
        assert messages(form, again, **options) == messages(form, merged, **options)
    plain = {**options, "schemas": False} if "schemas" in options else options
    # The schema of its columns is not what a record says.
    assert messages(form, again, **plain)[:reads] == [
        replace(one, its_headers=[(name, text if name != "seq" else b"%d" % one.at) for name, text in one.its_headers])
        if form == "debezium"
        else one
        for one in messages(form, merged, **plain)[:reads]
    ]


@pytest.mark.parametrize("form", ["event", "envelope", "debezium"])
@pytest.mark.parametrize("through", ["event", "envelope", "debezium"])
def test_rows_of_a_snapshot_keep_their_identity_in_every_format(form: str, through: str) -> None:
    batch = chunk(snapshot=ON_DEMAND)
    again = hopped(through, hopped(form, batch, headers=True), headers=True)
    assert uuids(again) == uuids(batch)
    assert again.transactions.snapshots == {0: ON_DEMAND}
    assert again.transactions.commit.tolist() == [COMMIT]
    assert again.transactions.commit_ts.tolist() == [
        MOMENT if "envelope" not in (form, through) else MOMENT // 1000 * 1000
    ]
    assert (again.transactions.find_id(0), convert_to_cells(again.changes).place) == (None, None)


def test_rows_of_debezium_without_headers_are_of_a_snapshot_without_a_name() -> None:
    again = hopped("debezium", chunk(snapshot=ON_DEMAND))
    assert again.transactions.snapshots == {0: SnapshotRows("", on_demand=True)}
    assert len(set(uuids(again))) == len(ROWS)
    (event, *_) = events("event", again)
    assert (event["Snapshot"], event["OnDemand"]) == ("", True)
    assert hopped("event", again).transactions.snapshots == again.transactions.snapshots


def test_rows_that_debezium_read_in_a_transaction_that_it_names_stay_in_it() -> None:
    source = {"connector": "postgresql", "ts_ms": 1, "db": "d", "schema": "s", "table": "t", "lsn": 100, "txId": 3}
    event = {"op": "r", "source": {**source, "snapshot": "first"}, "before": None, "after": {"id": 1}}
    (batch,) = read([Message(b'{"id":1}', json.dumps(event).encode(), [], 0)]).batches
    assert not batch.transactions.snapshots
    assert (batch.transactions.find_id(0), batch.transactions.commit.tolist()) == ("3", [100])


@pytest.mark.parametrize("count", [1, 40])
@pytest.mark.parametrize(
    ("form", "old", "new", "reason"),
    [
        (
            "event",
            b'"Action":"read"',
            b'"Action":"insert"',
            "it names a Snapshot, and its Action is neither read nor delete",
        ),
        (
            "envelope",
            b'"op":"READ"',
            b'"op":"INSERT"',
            "its source names a snapshot, and its op is neither READ nor DELETE",
        ),
        ("envelope", b'"uuid":"', b'"uuid":"x', "its UUID is not made of 36 hexadecimal digits and dashes"),
    ],
)
def test_a_row_that_names_a_snapshot_and_was_not_read_is_refused(
    form: str, old: bytes, new: bytes, reason: str, count: int
) -> None:
    good = messages(form, chunk([(b"%d" % number, b"a", None) for number in range(count)]))
    bad = replace(good[0], value_bytes=good[0].value_bytes.replace(old, new))
    ((_, found),) = read([bad, *good[1:]]).refused
    assert found == reason


@pytest.mark.parametrize("value", [b"no uuid", b"\xff"])
def test_a_header_of_a_snapshot_that_holds_no_uuid_is_refused(value: bytes) -> None:
    (good, *_) = messages("debezium", chunk(), headers=True)
    bad = replace(good, its_headers=[("snapshot", b"first"), ("uuid", value)])
    ((_, reason),) = read([bad]).refused
    assert "uuid" in reason.lower()


def test_rows_that_were_read_in_a_transaction_keep_it_beside_rows_of_a_snapshot() -> None:
    """As those that Debezium's connector read first are, when they come through Kafka."""
    of_transaction = inserts()
    read_rows = [replace(one, op=np.full(len(one), RowOp.READ, np.uint8)) for one in of_transaction.changes]
    batch = merge([chunk(), replace(of_transaction, changes=read_rows)])
    (first, *_, last) = events("event", batch)
    assert ("Snapshot" in first, "XID" in first) == (True, False)
    assert ("Snapshot" in last, last["XID"], last["WALPosition"]) == (False, 7, 28_267_990)
    (*_, payload) = events("debezium", batch)
    assert (payload["op"], payload["source"]["txId"], payload["source"]["snapshot"]) == ("r", 7, "true")
    (*_, envelope) = events("envelope", batch)
    assert "snapshot_id" not in envelope["source"]
    (*_, held) = headers(encode("flat", batch))
    assert held.keys().isdisjoint({"snapshot", "uuid"})
