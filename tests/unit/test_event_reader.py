"""Records that an instance wrote become batches again, from which the same records are made."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import RFC_4122, UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psql_streamer.cells import Shape, Tabular
from psql_streamer.event_reader.documents import BrokenJsonError, cut_out, require_json
from psql_streamer.event_reader.forms import decode_members
from psql_streamer.event_reader.parsed import Origin
from psql_streamer.event_reader.reader import EventReader, Read
from psql_streamer.events.assembling import MOST_HEADER_NAMES
from psql_streamer.events.routing import Router
from psql_streamer.model import (
    PART,
    Batch,
    Changes,
    Column,
    Position,
    Relation,
    ReplicaIdentity,
    RowOp,
    SnapshotRows,
    SourceInfo,
    TextType,
    Transactions,
)
from psql_streamer.pgtype import PostgresType
from psql_streamer.pgtypes.builtin import BY_OID, OIDS
from psql_streamer.testing.batches import make_mixed_batch
from tests.encoding import encoder_of
from tests.golden import batches
from tests.spark_changes import DELETE, INSERT, UPDATE, Texts, changes, column
from tests.spark_changes import batch as changed

Headers = list[tuple[str, bytes | None]]

BEFORE, AFTER = Position({"offset": 0}, "0"), Position({"offset": 1}, "1")


@dataclass(frozen=True)
class Record:
    """As confluent_kafka.Message, as far as a reader asks."""

    key_bytes: bytes | None
    value_bytes: bytes | None
    at: int = 0
    of: str = "orders"
    part: int = 0
    given_headers: Headers | None = None
    time: tuple[int, int] = (1, 1_795_000_000_000)

    def __len__(self) -> int:
        return len(self.value_bytes or b"")

    def topic(self) -> str:
        return self.of

    def partition(self) -> int:
        return self.part

    def offset(self) -> int:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return self.time

    def key(self) -> bytes | None:
        return self.key_bytes

    def value(self) -> bytes | None:
        return self.value_bytes

    def headers(self) -> Headers | None:
        return self.given_headers


def written(form: str, batch: Batch, **options: bool) -> list[Record]:
    """The records of a batch, all in one topic."""
    router = Router({}, "", "t", "messages")
    found = encoder_of(form, router, {}, **options).encode(batch)
    pairs = zip(found.keys.to_pylist(), found.values.to_pylist(), strict=True)
    return [
        Record(
            key,
            value,
            at,
            given_headers=[
                (name, text) for name, texts in found.headers.items() if (text := texts[at].as_py()) is not None
            ],
        )
        for at, (key, value) in enumerate(pairs)
    ]


def read(records: Sequence[Record], reader: EventReader | None = None) -> Read:
    return (reader or EventReader("hop")).read(records, BEFORE, lambda _: AFTER, 1.0, stops=False)


@pytest.mark.behaviour("G1")
@pytest.mark.parametrize("form", ["event", "envelope"])
def test_a_hop_leaves_keys_and_values_as_they_are(form: str) -> None:
    reader = EventReader("test")
    count = 0
    for batch in batches():
        first = written(form, batch)
        found = read(first, reader)
        assert not found.refused
        again = [record for one in found.batches for record in written(form, one)]
        for one, other in zip(first, again, strict=True):
            assert one.key_bytes == other.key_bytes
            assert one.value_bytes == other.value_bytes
            count += 1
    assert count >= 40


@pytest.mark.parametrize("form", ["event", "envelope"])
def test_a_hop_leaves_parts_of_a_change_as_they_are(form: str) -> None:
    columns = (column("id", 23, key=True), column("item", 25))
    made = changes([UPDATE] * 3, {row: [b"1", b"%d" % row] for row in range(3)}, {}, columns)
    same, part = np.ones(3, np.int64), np.array([(0, 2), (5, 2), (0, 0)], PART)
    parted = replace(made, seq=np.where(part["of"] > 0, same, 2), part=part)
    first = written(form, changed(parted))
    found = read(first, EventReader("db1"))
    assert not found.refused
    again = [record for one in found.batches for record in written(form, one)]
    assert [one.value_bytes for one in again] == [one.value_bytes for one in first]


WIDE = (column("id", 23, key=True), column("note", 25), column("item", 25), column("body", 25))


def updates(*absent: tuple[int, ...]) -> Batch:
    """A batch with an update for each. absent: the columns of WIDE that it did not change and that are not sent."""
    rows: dict[int, Texts] = {
        row: [None if at in lacking else b"%d" % at for at in range(len(WIDE))] for row, lacking in enumerate(absent)
    }
    masks = {at: [at in lacking for lacking in absent] for at in range(1, len(WIDE))}
    made = changes([UPDATE] * len(absent), rows, {}, WIDE, masks, identity=ReplicaIdentity.DEFAULT)
    return changed(made)


@pytest.mark.behaviour("G1")
@pytest.mark.parametrize("form", ["event", "envelope"])
@pytest.mark.parametrize(
    "sent",
    [
        [updates((1,), ())],
        [updates((1, 3), (3,), (1,), ())],
        [updates((1, 2), (3,), (1,))],
        [updates(()), updates((1,), (1, 3)), updates(())],
        [updates((1, 3)), updates(()), updates((2,))],
    ],
)
def test_a_hop_keeps_the_order_of_columns_behind_a_row_that_lacks_some(form: str, sent: list[Batch]) -> None:
    reader = EventReader("db1")
    for batch in sent:
        first = written(form, batch)
        found = read(first, reader)
        assert not found.refused
        again = [record for one in found.batches for record in written(form, one)]
        assert [one.value_bytes for one in again] == [one.value_bytes for one in first]


@pytest.mark.parametrize("form", ["event", "envelope"])
def test_a_hop_that_begins_anew_finds_the_order_of_columns_that_it_did_not_know(form: str) -> None:
    reader, again = EventReader("db1"), EventReader("db1")
    [batch] = read(written(form, updates((1,))), reader).batches
    again.remember([change.relation for change in batch.changes])
    first = written(form, updates(()))
    found = read(first, again)
    assert [record.value_bytes for one in found.batches for record in written(form, one)] == [first[0].value_bytes]


def test_rows_that_lack_other_columns_each_time_come_to_one_order() -> None:
    reader = EventReader("db1")
    rows = updates((1, 3), (2,), (1,), (3,), (1, 2), (2, 3))
    for _ in range(2):
        read(written("event", rows), reader)
    found = read(written("event", rows), reader)
    assert len({change.relation for one in found.batches for change in one.changes}) == 1


def test_records_whose_columns_are_in_any_order_are_of_one_shape() -> None:
    reader = EventReader("db1")
    [record] = written("envelope", updates(()))
    assert record.value_bytes is not None
    document = json.loads(record.value_bytes)
    document["after"] = dict(reversed(document["after"].items()))
    other = replace(record, value_bytes=json.dumps(document).encode())
    found = read([record, other, record, other], reader)
    assert len({change.relation for one in found.batches for change in one.changes}) == 1


GTIDS = {
    "mysql": b"3e11fa47-71ca-11e1-9e33-c80aa9429562:%d",
    "mariadb": b"0-1-%d",
    "mysql without GTIDs": None,
}


def binlog_batch(flavor: str, server_id: int = 7) -> Batch:
    """Two transactions of a binary log, of which the second has two rows. On MySQL the sessions 41 and 42 made them."""
    gtid = GTIDS[flavor]
    kind = TextType("int", PostgresType(OIDS["int4"]))
    table = Relation("shop.orders", "shop", "orders", (Column("id", kind, key=True),))
    commit = np.array([23, 24], np.uint64) if gtid else np.array([(7 << 32) | 400, (7 << 32) | 900], np.uint64)
    ids = [gtid % number if gtid else b"binlog.000007:%d" % (number % (1 << 32)) for number in commit.tolist()]
    changes = Changes.from_new_rows(table, [pa.array([b"1", b"2", b"3"], pa.binary())], np.array([0, 1, 1], np.int32))
    return Batch(
        SourceInfo(flavor.split()[0], "test", "db.example", "", server_id=server_id, log_name="binlog"),
        BEFORE,
        Transactions(
            commit,
            np.array([5_000_000, 6_000_000]),
            pa.array(ids, pa.binary()),
            threads=None if flavor == "mariadb" else np.array([41, 42]),
        ),
        (replace(changes, place=np.array([(7 << 32) | 500, (7 << 32) | 1000, (7 << 32) | 1000], np.uint64)),),
        nbytes=100,
    )


@pytest.mark.parametrize("made", [binlog_batch("mysql"), binlog_batch("mariadb"), next(iter(batches()))])
def test_no_header_of_the_services_own_goes_out_as_one_that_somebody_else_gave(made: Batch) -> None:
    first = written("event", made, headers=True)
    assert all(record.given_headers for record in first)
    found = read(first)
    assert found.headers_left_out == 0
    again = [record for batch in found.batches for record in written("event", batch)]
    assert [record.given_headers for record in again] == [[] for _ in first]


@pytest.mark.behaviour("G1")
@pytest.mark.parametrize("flavor", GTIDS)
@pytest.mark.parametrize("form", ["event", "envelope"])
def test_a_hop_leaves_events_of_a_binary_log_as_they_are(form: str, flavor: str) -> None:
    first = written(form, binlog_batch(flavor))
    found = read(first, EventReader("test"))
    assert not found.refused
    again = [record for one in found.batches for record in written(form, one)]
    assert [(record.key_bytes, record.value_bytes) for record in again] == [
        (record.key_bytes, record.value_bytes) for record in first
    ]


SERVERS_AND_SESSIONS = {"mysql": [(7, 41), (7, 42), (7, 42)], "mariadb": [(1, None)] * 3}
"""Of binlog_batch. MariaDB's GTID names the server, and its binary log has no session."""


def server_and_session(record: Record) -> tuple[object, object]:
    """What an event of any format says of them."""
    event = event_of(record)
    block = event.get("source", event)
    names = ("server_id", "thread") if "source" in event else ("ServerID", "Thread")
    return block.get(names[0]), block.get(names[1])


@pytest.mark.behaviour("B1", "G1")
@pytest.mark.parametrize("flavor", SERVERS_AND_SESSIONS)
@pytest.mark.parametrize("form", ["event", "envelope", "debezium"])
def test_events_of_a_binary_log_say_server_and_session_before_and_after_a_hop(form: str, flavor: str) -> None:
    first = [record for record in written(form, binlog_batch(flavor)) if record.value_bytes]
    assert list(map(server_and_session, first)) == SERVERS_AND_SESSIONS[flavor]
    for other in ("event", "envelope", "debezium"):
        again = [record for one in read(first).batches for record in written(other, one)]
        assert list(map(server_and_session, again)) == SERVERS_AND_SESSIONS[flavor]


def test_a_server_and_a_session_that_are_not_known_are_left_out() -> None:
    batch = binlog_batch("mysql", server_id=0)
    batch = replace(batch, transactions=replace(batch.transactions, threads=np.array([0, 42])))
    first, second, _ = map(event_of, written("event", batch))
    assert (first.keys() & {"ServerID", "Thread"}, second.keys() & {"ServerID", "Thread"}) == (set(), {"Thread"})
    first, second, _ = (event_of(record)["source"] for record in written("envelope", batch))
    assert (first.keys() & {"server_id", "thread"}, second.keys() & {"server_id", "thread"}) == (set(), {"thread"})


@pytest.mark.parametrize("form", ["event", "envelope"])
def test_events_of_a_binary_log_without_server_and_session_stay_as_they_are(form: str) -> None:
    batch = binlog_batch("mysql", server_id=0)
    batch = replace(batch, transactions=replace(batch.transactions, threads=None))
    first = written(form, batch)
    assert not any(name in (record.value_bytes or b"").lower() for record in first for name in (b"server", b"thread"))
    found = read(first, EventReader("test"))
    assert [record.value_bytes for one in found.batches for record in written(form, one)] == [
        record.value_bytes for record in first
    ]


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["event", "envelope"]),
    st.lists(st.tuples(st.sampled_from([0, 7, 8]), st.sampled_from([0, 41, 42]), st.integers(0, 2)), min_size=1),
)
def test_records_of_several_servers_stay_as_they_are_and_in_the_order_of_their_keys(
    form: str, made: list[tuple[int, int, int]]
) -> None:
    records = []
    for at, (server, thread, key) in enumerate(made):
        batch = binlog_batch("mysql", server)
        batch = replace(batch, transactions=replace(batch.transactions, threads=np.array([thread, thread])))
        records.append(replace(written(form, batch)[at % 3], at=at, key_bytes=b"%d" % key))
    found = read(records, EventReader("test"))
    assert not found.refused
    assert {batch.source.server_id for batch in found.batches} == {server for server, _, _ in made}
    assert [len(batch.schema_changes) for batch in found.batches] == [1] + [0] * (len(found.batches) - 1)
    again = [record for one in found.batches for record in written(form, one)]
    for key in {record.key_bytes for record in records}:
        assert [one.value_bytes for one in again if one.key_bytes == key] == [
            one.value_bytes for one in records if one.key_bytes == key
        ]


def binlog_snapshot() -> Batch:
    """Rows of a snapshot of the table of binlog_batch."""
    batch = binlog_batch("mysql")
    (rows,) = batch.changes
    uuids = np.array([b"6ba7b810-9dad-51d1-80b4-00c04fd430c%d" % row for row in range(3)], "S36")
    return replace(
        batch,
        transactions=Transactions(
            *(batch.transactions.commit, batch.transactions.commit_ts),
            snapshots=dict.fromkeys(range(2), SnapshotRows("orders-1", False)),
        ),
        changes=(replace(rows, place=None, op=np.full(3, RowOp.READ, np.uint8), uuid=uuids),),
    )


@pytest.mark.behaviour("G1")
@pytest.mark.parametrize("form", ["event", "envelope", "debezium"])
def test_a_hop_leaves_rows_of_a_snapshot_of_mysql_as_they_are(form: str) -> None:
    first = written(form, binlog_snapshot(), headers=True)
    found = read(first, EventReader("test"))
    assert not found.refused
    again = [record for one in found.batches for record in written(form, one, headers=True)]
    assert [record.key_bytes for record in again] == [record.key_bytes for record in first]
    events, expected = list(map(event_of, again)), list(map(event_of, first))
    if form == "debezium":
        for event in (*events, *expected):  # the record's offset stands for Seq
            event["source"].pop("row")
    assert events == expected
    kept = ("snapshot", "uuid")
    assert [[dict(one.given_headers or ())[name] for name in kept] for one in again] == [
        [dict(one.given_headers or ())[name] for name in kept] for one in first
    ]


@pytest.mark.parametrize("form", ["event", "envelope", "debezium"])
def test_a_table_is_the_same_in_its_snapshot_and_in_the_binary_log(form: str) -> None:
    records = [
        replace(record, at=at)
        for at, record in enumerate(
            one for batch in (binlog_snapshot(), binlog_batch("mysql")) for one in written(form, batch)
        )
    ]
    reader = EventReader("hop")
    found = reader.read(records, BEFORE, lambda _: AFTER, 1.0, stops=False)
    assert len(shapes_told(found)) == 1
    gone = reader.read([Record(b'{"id":9}', None, 9)], BEFORE, lambda _: AFTER, 1.0, False, lambda _: records)
    assert (gone.tombstone_deletes, gone.unknown_tombstones) == (1, [])


def test_records_of_several_servers_of_mariadb_are_one_batch_because_each_gtid_names_its_server() -> None:
    row = next(record for record in written("event", binlog_batch("mariadb")))
    records = [
        replace(row, value_bytes=json.dumps(event_of(row) | {"GTID": f"0-{server}-23", "ServerID": server}).encode())
        for server in (1, 2, 1)
    ]
    (batch,) = read(records).batches
    assert [event_of(record)["ServerID"] for record in written("event", batch)] == [1, 2, 1]


def test_a_tombstone_behind_rows_of_two_servers_is_a_delete_of_their_table() -> None:
    records = [
        replace(written("event", binlog_batch("mysql", server))[0], at=at, key_bytes=b"k%d" % at)
        for at, server in enumerate([7, 8])
    ]
    found = EventReader("hop").read(
        [*records, Record(b'{"id":9}', None, 2)], BEFORE, lambda _: AFTER, 1.0, stops=False, look_back=lambda _: records
    )
    assert (found.tombstone_deletes, found.unknown_tombstones) == (1, [])
    delete = event_of(written("event", found.batches[-1])[-1])
    assert (delete["Action"], delete["Table"], delete["ServerID"]) == ("delete", "orders", 8)


@pytest.mark.parametrize(("gtid", "server"), [("0-1-23", 1), ("0-01-23", 5), ("٠-٣-23", 5), (None, 5)])
def test_the_server_of_mariadb_is_that_of_the_gtid_if_there_is_one(gtid: str | None, server: int) -> None:
    (_, record, _) = (one for one in written("debezium", binlog_batch("mariadb")) if one.value_bytes)
    event = event_of(record)
    event["source"] |= {"gtid": gtid, "server_id": 5}
    ((batch,), *_) = read([replace(record, value_bytes=json.dumps(event).encode())])
    for form in ("event", "envelope", "debezium"):
        (again,) = (one for one in written(form, batch) if one.value_bytes)
        assert server_and_session(again) == (server, None)


def test_debezium_events_of_a_binary_log_keep_table_gtid_file_and_position() -> None:
    first = [record for record in written("debezium", binlog_batch("mysql")) if record.value_bytes]
    found = read(first)
    sources = [
        json.loads(record.value_bytes or b"")["source"] for one in found.batches for record in written("debezium", one)
    ]
    expected = [json.loads(record.value_bytes or b"")["source"] for record in first]
    kept = ("connector", "db", "table", "gtid", "file", "pos", "ts_us")
    assert [[one[name] for name in kept] for one in sources] == [[one[name] for name in kept] for one in expected]


@pytest.mark.behaviour("G1")
def test_a_hop_from_debezium_to_debezium_keeps_keys_and_rows_byte_for_byte() -> None:
    first = [record for batch in batches() for record in written("debezium", batch) if record.value_bytes]
    found = read(first)
    assert not found.refused
    again = [record for one in found.batches for record in written("debezium", one) if record.value_bytes]
    assert [record.key_bytes for record in again] == [record.key_bytes for record in first]
    images = [[decode_members(record.value_bytes or b"") for record in records] for records in (first, again)]
    for name in ("before", "after"):
        before, after = ([bytes(one.get(name, b"")) for one in some] for some in images)
        assert after == before


VALUES_OF_DEBEZIUM = [
    *(b"0.3333333333333333", b"1.0", b"-0.0", b"1e-05", b"1e400", b"12345678901234567890", b'"NaN"', b"[1.5,null]"),
    *(b'{"scale":1,"value":"Dw=="}', b'["a",null,"\\""]', b'{"x":1.50,"y":-2.0,"wkb":"AQE=","srid":null}', b"[]"),
]


@pytest.mark.parametrize("value", VALUES_OF_DEBEZIUM)
def test_values_of_debezium_s_events_stay_in_keys_and_rows(value: bytes) -> None:
    source = b'"source":{"connector":"postgresql","db":"d","schema":"s","table":"t","ts_ms":0,"txId":7,"lsn":9}'
    row = b'{"id":1,"v":%s,"w":%s}' % (value, value)
    key = b'{"id":1,"v":%s}' % value
    found = read([Record(key, b'{"before":null,"after":%s,"op":"c",%s}' % (row, source))])
    [again] = written("debezium", found.batches[0])
    assert again.key_bytes == key
    assert bytes(decode_members(again.value_bytes or b"")["after"]) == row


@pytest.mark.parametrize("of_row", [b"null", b"2629800000000", b"[1]"])
@pytest.mark.parametrize("form", ["event", "debezium"])
def test_a_text_in_a_key_that_stands_for_what_debezium_s_type_does_not_hold_stays(form: str, of_row: bytes) -> None:
    source = b'"source":{"connector":"postgresql","db":"d","schema":"s","table":"t","ts_ms":0,"txId":7,"lsn":9}'
    found = read([Record(b'{"n":"x"}', b'{"before":null,"after":{"n":%s},"op":"c",%s}' % (of_row, source))])
    [again] = written(form, found.batches[0])
    assert again.key_bytes == b'{"n":"x"}'


def test_a_hop_from_debezium_keeps_the_values_as_they_were_written() -> None:
    first = [record for batch in batches() for record in written("debezium", batch) if record.value_bytes]
    found = read(first)
    assert not found.refused
    again = [record.value_bytes for one in found.batches for record in written("envelope", one)]
    events = [json.loads(value) for value in again if value is not None]
    expected = [json.loads(record.value_bytes or b"") for record in first]
    assert len(events) == len(expected)
    for event, old in zip(events, expected, strict=True):
        assert event["before"] == old.get("before")
        if not event.get("unchanged"):
            assert event["after"] == old.get("after")
        if event["source"]["xid"] is not None:
            assert event["source"]["ts_ms"] == old["source"]["ts_ms"]
        assert event["source"]["xid"] == old["source"]["txId"]


@pytest.mark.parametrize("schemas", [False, True])
def test_debezium_with_and_without_schemas_gives_the_same(schemas: bool) -> None:
    (batch, *_) = batches()
    records = [record for record in written("debezium", batch, schemas=schemas) if record.value_bytes]
    found = read(records)
    assert not found.refused
    rows = [record.value_bytes for one in found.batches for record in written("envelope", one)]
    plain = read([record for record in written("debezium", batch) if record.value_bytes])
    assert rows == [record.value_bytes for one in plain.batches for record in written("envelope", one)]


def test_an_event_of_the_go_service_is_read() -> None:
    uuid = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
    event = {
        "Host": "db.example",
        "Database": "shop",
        "Table": "orders",
        "Action": "insert",
        "WALPosition": 4711,
        "Timestamp": "2026-11-22T10:00:00.123456789+01:00",
        "UUID": uuid,
        "Columns": {"id": 1, "note": "<b>"},
    }
    ((batch,), refused, *_) = read([Record(b"1", json.dumps(event).encode(), 42)])
    assert not refused
    (changes,) = batch.changes
    assert (batch.source.host, batch.source.database) == ("db.example", "shop")
    assert (batch.transactions.commit.tolist(), changes.seq.tolist()) == ([4711], [42])
    assert batch.transactions.commit_ts.tolist() == [1795338000123456]
    (record,) = written("event", batch)
    again = json.loads(record.value_bytes or b"")
    assert (again["UUID"], again["Timestamp"]) == (uuid, "2026-11-22T09:00:00.123456Z")
    assert again["Columns"] == event["Columns"]
    assert again["XID"] is None


REFUSED = {
    "no JSON": b"orders",
    "no object": b"[1]",
    "no fields": b"{}",
    "another action": b'{"Table":"t","Action":"upsert","Columns":{}}',
    "no row": b'{"Table":"t","Action":"insert"}',
    "a time without a zone": b'{"Table":"t","Action":"insert","Timestamp":"2026-11-22T10:00:00","Columns":{"id":1}}',
    "no time": b'{"Table":"t","Action":"insert","Timestamp":"noon","Columns":{"id":1}}',
    "a time past the year 9999": (
        b'{"Table":"t","Action":"insert","Timestamp":"9999-12-31T23:59:59-23:00","Columns":{"id":1}}'
    ),
    "a time before the year 1": (
        b'{"Table":"t","Action":"insert","Timestamp":"0001-01-01T00:00:00+00:01","Columns":{"id":1}}'
    ),
    "an envelope past the year 9999": (
        b'{"schema":"s","table":"t","op":"INSERT","before":null,"after":{"id":1},'
        b'"source":{"db":"d","ts_ms":253402300800000,"seq":0}}'
    ),
    "Debezium's event past the year 9999": (
        b'{"op":"c","after":{"id":1},"source":{"connector":"postgresql","ts_ms":0,"ts_us":253402300800000000}}'
    ),
    "Debezium's event before the year 1": (
        b'{"op":"c","after":{"id":1},"source":{"connector":"postgresql","ts_ms":-62135596800001}}'
    ),
    "a negative LSN": b'{"Table":"t","Action":"insert","CommitLSN":-1,"Columns":{"id":1}}',
    "an LSN past 8 bytes": b'{"Table":"t","Action":"insert","CommitLSN":99999999999999999999,"Columns":{"id":1}}',
    "a binary log's file of a number past 4 bytes": (
        b'{"Table":"t","Action":"insert","File":"b.9999999999","Position":4,"Columns":{"id":1}}'
    ),
    "an offset past 4 bytes": b'{"Table":"t","Action":"insert","File":"b.1","Position":9999999999,"Columns":{"id":1}}',
    "a short UUID": b'{"Table":"t","Action":"insert","UUID":"1","Columns":{"id":1}}',
    "bytes that are not UTF-8": b'{"Table":"t","Action":"insert","Columns":{"id":"\xff"}}',
    "a field that is not UTF-8": b'{"Table":"\xff","Action":"insert","Columns":{"id":1}}',
    "an escape that is none": rb'{"Table":"t","Action":"insert","Columns":{"id":"\x"}}',
    "a document that is none": rb'{"Table":"t","Action":"insert","Columns":{"id":{"a":"\x"}}}',
    "a number that is none": b'{"Table":"t","Action":"insert","Columns":{"id":1.2.3}}',
    "a number with a zero in front": b'{"Table":"t","Action":"insert","Columns":{"id":01}}',
    "cut": b'{"Table":"t","Action":"insert","Columns":{"id":',
    "an old row with more columns": b'{"Table":"t","Action":"update","Columns":{"id":1},"Before":{"id":1,"x":2}}',
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_event_is_refused_without_its_values_and_the_others_are_read(name: str) -> None:
    good = written("event", next(iter(batches())))
    found = read([good[0], Record(b"{}", REFUSED[name], 7), *good[1:]])
    ((record, reason),) = found.refused
    assert record.offset() == 7
    assert reason
    assert "upsert" not in reason
    assert "noon" not in reason
    again = [record for one in found.batches for record in written("event", one)]
    assert [record.value_bytes for record in again] == [record.value_bytes for record in good]


@pytest.mark.parametrize("time", ["9999-12-31T23:59:59.999999Z", "0001-01-01T00:00:00.000000Z"])
def test_the_first_and_the_last_time_of_an_event_stay(time: str) -> None:
    [batch] = read([rows({"id": 1}, Timestamp=time, XID=7, WALPosition=5)]).batches
    [again] = written("event", batch)
    assert json.loads(again.value_bytes or b"")["Timestamp"] == time


def test_where_it_stops_nothing_behind_the_record_is_read() -> None:
    good = written("event", next(iter(batches())))
    found = EventReader("hop").read([*good[:2], Record(b"", b"?", 2), *good[2:]], BEFORE, lambda _: AFTER, 1.0, True)
    assert (found.records, len(found.refused)) == (2, 1)
    assert sum(map(len, found.batches)) == 2


def test_tombstones_are_counted() -> None:
    found = read([Record(b"{}", None), *written("event", make_mixed_batch())])
    assert found.tombstones == 1
    assert sum(map(len, found.batches)) == len(make_mixed_batch()) + 1, "a changed key is a delete and an insert"


def test_records_of_several_origins_give_a_batch_each_and_only_the_last_moves_the_position() -> None:
    records = [of_host("a", 1, key=1), of_host("other", 2, key=2), of_host("a", 3, key=3)]
    found = read(records)
    assert [(batch.source.host, len(batch)) for batch in found.batches] == [("a", 2), ("other", 1)]
    assert [batch.position for batch in found.batches] == [BEFORE, AFTER]


def rows(columns: dict[str, object], **fields: object) -> Record:
    event = {"Host": "a", "Table": "t", "Action": "insert", "CommitLSN": 5, "Seq": 0, "Columns": columns, **fields}
    return Record(b'{"id":1}', json.dumps(event).encode())


KINDS = {
    "integers": ([1, -5], "integer"),
    "the largest and the smallest integer of 8 bytes": ([2**63 - 1, -(2**63)], "integer"),
    "one more than the largest": ([2**63, 1], "number"),
    "integers past 8 bytes": ([1, 10**30], "number"),
    "integers of many digits": ([1, 10**4200], "number"),
    "numbers": ([1, 2.5], "number"),
    "numbers and NaN": ([1, "NaN"], "number"),
    "strings": (["a", "NaN"], "string"),
    "booleans": ([True, False], "boolean"),
    "documents": ([{"a": [1]}, [2]], "any"),
    "a mixture": ([1, "a"], "any"),
    "nulls": ([None, None], "null"),
    "nulls and others": ([None, True], "boolean"),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_column_has_the_kind_that_fits_its_values(name: str) -> None:
    values, native = KINDS[name]
    found = read([rows({"id": 1, "v": value}) for value in values])
    (batch,) = found.batches
    (change,) = batch.schema_changes
    kind = change.relation.columns[1].type
    assert isinstance(kind, TextType)
    assert kind.native == native
    again = [json.loads(record.value_bytes or b"")["Columns"]["v"] for record in written("event", batch)]
    assert again == values


def test_a_kind_is_widened_with_a_change_of_the_shape_and_not_narrowed_again() -> None:
    reader = EventReader("hop")
    seen = []
    for value in (1, 2, 2.5, 3, "x", 4):
        (batch,) = read([rows({"id": 1, "v": value})], reader).batches
        seen.append([(change.relation.version, change.relation.columns[1].type) for change in batch.schema_changes])
        (record,) = written("event", batch)
        assert json.loads(record.value_bytes or b"")["Columns"]["v"] == value
    natives = [[(version, kind.native) for version, kind in one if isinstance(kind, TextType)] for one in seen]
    assert natives == [[(1, "integer")], [], [(2, "number")], [], [(3, "any")], []]


def test_columns_that_come_and_go_change_the_shape() -> None:
    reader = EventReader("hop")
    shapes = []
    for columns in ({"id": 1}, {"id": 1, "a": 1}, {"a": 1, "id": 1}, {"a": 2}, {"id": 1, "a": 1}):
        (batch,) = read([rows(columns)], reader).batches
        shapes.append([tuple(column.name for column in one.relation.columns) for one in batch.schema_changes])
        (record,) = written("event", batch)
        assert json.loads(record.value_bytes or b"")["Columns"] == columns
    assert shapes == [[("id",)], [("id", "a")], [], [("a",)], [("id", "a")]]


def test_a_delete_that_has_only_the_key_does_not_change_the_shape() -> None:
    reader = EventReader("hop")
    read([rows({"id": 1, "note": "n"})], reader)
    (batch,) = read([rows({"id": 1}, Action="delete")], reader).batches
    assert not batch.schema_changes
    (record,) = written("event", batch)
    assert json.loads(record.value_bytes or b"")["Columns"] == {"id": 1}


def test_a_shape_that_was_stored_is_not_told_again() -> None:
    (batch,) = read([rows({"id": 1, "v": "x"})]).batches
    after = EventReader("hop")
    after.remember([change.relation for change in batch.schema_changes])
    (again,) = read([rows({"id": 2, "v": "y"})], after).batches
    assert not again.schema_changes
    (wider,) = read([rows({"id": 2, "v": 1})], after).batches
    assert [change.relation.version for change in wider.schema_changes] == [2]


TWO = (column("id", OIDS["int4"], key=True), column("n", OIDS["int4"]))
OWN_KEYS = [
    b"customer-7",
    b'"customer-7"',
    b'{"customer":7}',
    b'{"id":5}',
    b'{"id":1,"tenant":9}',
    b'{"id":"1"',
    b'{"id": 1}',
    b'{"n":2,"id":1}',
]


@pytest.mark.behaviour("G1")
@pytest.mark.parametrize("form", ["event", "envelope", "debezium"])
@pytest.mark.parametrize("count", [1, 40])
@pytest.mark.parametrize("key", OWN_KEYS)
def test_a_key_that_the_columns_do_not_make_goes_out_as_it_came(key: bytes, count: int, form: str) -> None:
    event = written(form, changed(changes([UPDATE], {0: [b"1", b"2"]}, {0: [b"1", b"1"]}, TWO)))[0].value_bytes
    (batch,) = read([Record(key, event)] * count).batches
    assert [record.key_bytes for record in written(form, batch)] == [key] * count


def with_headers(record: Record, *headers: Headers) -> list[Record]:
    """The record once with each of these."""
    return [replace(record, given_headers=(record.given_headers or []) + one) for one in headers]


@pytest.mark.behaviour("G1")
@pytest.mark.parametrize("form", ["event", "envelope", "debezium"])
@pytest.mark.parametrize("count", [1, 40])
@pytest.mark.parametrize("again", [True, False])
def test_headers_that_others_gave_a_record_go_out_with_its_row(count: int, form: str, again: bool) -> None:
    (record,) = written("event", changed(changes([INSERT], {0: [b"1", b"2"]}, {}, TWO)), headers=True)
    theirs: Headers = [("traceparent", b"00-1"), ("empty", b""), ("bytes", b"\xff\x00")]
    records = with_headers(record, theirs, [], theirs[:1]) * count
    found = read(records)
    assert found.headers_left_out == 0
    (batch,) = found.batches
    ours = dict(record.given_headers or ())
    assert {"commit", "seq", "op", "uuid"} & ours.keys()
    expected = [dict(theirs), {}, dict(theirs[:1])] * count
    out = written(form, batch, headers=again)
    assert [
        {name: text for name, text in one.given_headers or () if name not in ours and not name.startswith("__debezium")}
        for one in out
    ] == expected
    assert again == ("seq" in dict(out[0].given_headers or ()))


@pytest.mark.behaviour("G1")
@pytest.mark.parametrize("form", ["event", "envelope", "debezium"])
@pytest.mark.parametrize("count", [1, 40])
def test_rows_have_the_timestamps_of_their_records(count: int, form: str) -> None:
    (record,) = written(form, changed(changes([INSERT], {0: [b"1", b"2"]}, {}, TWO)))
    times = [(1, 1_700_000_000_000), (0, -1), (2, 1_700_000_000_999)] * count
    (batch,) = read([replace(record, at=at, time=time) for at, time in enumerate(times)]).batches
    (made,) = batch.changes
    assert made.record_time is not None
    assert made.record_time.tolist() == [1_700_000_000_000, -1, 1_700_000_000_999] * count
    (plain,) = read([replace(record, at=at, time=(0, -1)) for at in range(3 * count)]).batches
    assert plain.changes[0].record_time is None


def test_a_delete_and_an_old_row_keep_the_headers_of_their_record() -> None:
    update, delete = written(
        "event",
        changed(changes([UPDATE, DELETE], {0: [b"1", b"2"]}, {0: [b"1", b"1"], 1: [b"3", b"1"]}, TWO)),
    )
    (batch,) = read([*with_headers(update, [("a", b"1")]), *with_headers(delete, [("b", b"2")])]).batches
    (made,) = batch.changes
    assert made.after.addresses is not None
    assert made.after.addresses.field("headers").to_pylist() == [[(b"a", b"1")]]
    out = written("event", batch)
    assert [one.given_headers for one in out] == [[("a", b"1")], [("b", b"2")]]


def test_headers_that_a_row_cannot_have_are_counted() -> None:
    (record,) = written("event", changed(changes([INSERT], {0: [b"1", b"2"]}, {}, TWO)))
    twice: Headers = [("a", b"1"), ("none", None), ("a", b"2"), ("with\0nul", b"3"), ("op", b"ours")]
    found = read(with_headers(record, twice))
    assert found.headers_left_out == 3
    assert written("event", found.batches[0])[0].given_headers == [("a", b"2")]
    many = [[(f"name{number}", b"v")] for number in range(MOST_HEADER_NAMES + 7)]
    found = read(with_headers(record, *many))
    assert found.headers_left_out == 7
    assert [one.given_headers for one in written("event", found.batches[0])] == many[:-7] + [[]] * 7


def test_headers_of_a_truncate_are_counted() -> None:
    truncate = {"Host": "h", "Database": "d", "Schema": "public", "Table": "t", "Action": "truncate"}
    truncate |= {"Timestamp": "2026-11-22T10:00:00Z", "CommitLSN": 1, "WALPosition": 1, "Seq": 0, "XID": 7}
    record = Record(None, json.dumps(truncate).encode(), given_headers=[("a", b"1"), ("op", b"truncate")])
    found = read([record])
    assert (len(found.batches[0].truncates), found.headers_left_out) == (1, 1)


def test_a_half_of_a_surrogate_pair_passes() -> None:
    documents = [b'{"a":"\\ud800"}', b'"\\ud83d"', b'{"a":"\\ude00\\ud83d \\ud83d\\ude00"}', b'{"a":"half\\\\ud800"}']
    columns = (column("id", OIDS["int4"], key=True), column("doc", OIDS["json"]))
    rows_of: dict[int, Texts] = {at: [b"%d" % at, document] for at, document in enumerate(documents)}
    sent = written("event", changed(changes([INSERT] * len(documents), rows_of, {}, columns)))
    found = read(sent)
    assert not found.refused
    assert [one.value_bytes for one in written("event", found.batches[0])] == [one.value_bytes for one in sent]


def test_a_key_of_another_column_changes_the_shape_and_comes_out_again() -> None:
    event = rows({"id": 1, "code": "c"}).value_bytes
    (batch,) = read([Record(b'{"id":1}', event), Record(b'{"code":"c"}', event), Record(None, event)]).batches
    assert [record.key_bytes for record in written("event", batch)] == [b'{"id":1}', b'{"code":"c"}', None]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.decimals(allow_nan=False, allow_infinity=False).map(str),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(), inside, max_size=3),
    max_leaves=5,
)
NAMES = st.text(min_size=1, max_size=8)


@pytest.mark.behaviour("G1")
@settings(max_examples=60, deadline=None)
@given(st.lists(st.fixed_dictionaries({"id": st.integers(0, 9)}, optional={"a": VALUES, 'é"': VALUES}), min_size=1))
def test_any_rows_come_out_as_they_were_by_fields_and_one_by_one(found: list[dict[str, object]]) -> None:
    fields = {
        "WALPosition": 9,
        "XID": 3,
        "Timestamp": "2026-11-22T10:00:00Z",
        "UUID": "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
    }
    records = [rows(columns, **fields) for columns in found]
    with pytest.MonkeyPatch.context() as patch:
        for many in (0, 1 << 30):
            patch.setattr("psql_streamer.event_reader.reader._MANY", many)
            (batch,) = read(records).batches
            again = [json.loads(record.value_bytes or b"")["Columns"] for record in written("event", batch)]
            assert again == found


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=40), st.integers(0, 400), st.integers(0, 40))
def test_bytes_that_were_changed_are_refused_or_read_and_never_break_it(more: bytes, at: int, gone: int) -> None:
    (good, *_) = written("event", make_mixed_batch())
    value = good.value_bytes or b""
    bad = value[:at] + more + value[at + gone :]
    found = read([Record(good.key_bytes, bad)])
    for one in found.batches:
        for record in written("event", one):
            json.loads(record.value_bytes or b"")


def test_broken_json_of_one_origin_does_not_hide_the_shapes_of_another() -> None:
    broken = Record(b"{}", b'{"Host":"other","Table":"t","Action":"insert","Columns":{"id":{"a":"\\x"}}}')
    found = read([rows({"id": 1}), broken])
    assert len(found.refused) == 1
    (batch,) = found.batches
    assert [str(change.relation) for change in batch.schema_changes] == [".t"]


@pytest.mark.parametrize("schemas", [False, True])
def test_debezium_says_of_columns_of_every_type_that_an_update_left_them_alone(schemas: bool) -> None:
    columns = column("id", OIDS["int4"], key=True), *(column(str(oid), oid) for oid in BY_OID)
    lacking: dict[int, list[bool]] = {at: [True] for at in range(1, len(columns))}
    update = changes([UPDATE], {0: [b"1", *[None] * len(BY_OID)]}, {}, columns, absent=lacking)
    (record,) = written("debezium", changed(update), schemas=schemas)
    event = json.loads(record.value_bytes or b"")
    after = event["payload"]["after"] if schemas else event["after"]
    told = {name for name, value in after.items() if value is not None}
    assert len(told) > len(BY_OID) // 2, "with a schema, null stands for what some types cannot hold"
    assert schemas or len(told) == len(columns)
    ((batch,), refused, *_) = read([record])
    assert not refused
    (again,) = written("event", batch)
    found = json.loads(again.value_bytes or b"")
    assert {name: value for name, value in found["Columns"].items() if value is not None} == {"id": 1}
    assert {"id", *found["Unchanged"]} == told


@pytest.mark.behaviour("G1")
@pytest.mark.parametrize("form", ["event", "envelope", "debezium"])
def test_an_insert_that_a_changed_key_gave_still_says_what_was_left_alone(form: str) -> None:
    columns = column("id", OIDS["int4"], key=True), column("note", OIDS["text"])
    moved = changes([UPDATE], {0: [b"2", None]}, {0: [b"1", None]}, columns, {1: [True]}, "t", ReplicaIdentity.DEFAULT)
    first = [record for record in written(form, changed(moved)) if record.value_bytes]
    assert len(first) == 2
    found = read(first, EventReader("db1"))
    again = [record for one in found.batches for record in written(form, one) if record.value_bytes]
    if form == "debezium":
        afters = [[json.loads(record.value_bytes or b"")["after"] for record in records] for records in (first, again)]
        assert afters[0] == afters[1]
        assert afters[0][1]["note"]
    else:
        assert [record.value_bytes for record in again] == [record.value_bytes for record in first]
        assert b'nchanged":["note"]' in (first[1].value_bytes or b"")


def test_values_of_debezium_that_look_a_little_like_placeholders_stay() -> None:
    after = {"id": 1, "a": ["__debezium"], "b": [95], "c": [], "d": [[]], "e": {"scale": 0, "value": "AQ=="}, "f": "["}
    source = {"connector": "postgresql", "ts_ms": 1, "db": "d", "table": "t", "schema": "s", "lsn": 2, "txId": 3}
    record = Record(b'{"id":1}', json.dumps({"op": "u", "source": source, "before": None, "after": after}).encode())
    ((batch,), refused, *_) = read([record])
    assert not refused
    (again,) = written("event", batch)
    assert json.loads(again.value_bytes or b"")["Columns"] == after


def test_values_of_any_depth_and_of_any_number_of_digits_pass() -> None:
    deep = b"[" * 5000 + b"]" * 5000
    event = b'{"Table":"t","Action":"insert","Columns":{"id":1,"v":{"a":%s}}}'
    for value in (deep, b"9" * 5000, b"-1" + b"0" * 5000 + b".5"):
        records = [Record(b'{"id":1}', event % value), Record(b"{}", REFUSED["an escape that is none"], 7)]
        for some in (records, records[:1]):
            found = read(some)
            assert [record.offset() for record, _ in found.refused] == [7] * (len(some) - 1)
            (again,) = (record.value_bytes or b"" for one in found.batches for record in written("event", one))
            assert b'"v":{"a":%s}}' % value in again


def test_a_deep_value_passes_among_many_records_and_in_keys_with_schemas() -> None:
    deep = b"[" * 5000 + b"]" * 5000
    source = b'{"connector":"postgresql","ts_ms":1,"db":"d","table":"t","schema":"s","lsn":2,"txId":3}'
    event = b'{"schema":%s,"payload":{"op":"c","source":%s,"before":null,"after":{"id":1,"v":%s}}}' % (
        deep,
        source,
        deep,
    )
    found = read([Record(b'{"schema":%s,"payload":{"v":%s}}' % (deep, deep), event)] * 40)
    assert not found.refused
    again = [record for one in found.batches for record in written("event", one)]
    assert [(record.key_bytes, b'"v":%s}' % deep in (record.value_bytes or b"")) for record in again] == [
        (b'{"v":%s}' % deep, True)
    ] * 40


SEQUENCES = ["[1e400]", "{}", "[]", "1", "[1]", '["-1"]', '["99999999999999999999"]', '["²"]', "[" * 5000 + "]" * 5000]


@pytest.mark.parametrize("sequence", SEQUENCES, ids=range(len(SEQUENCES)))
def test_a_sequence_of_debezium_that_is_none_is_refused(sequence: str) -> None:
    source = {"connector": "postgresql", "ts_ms": 1, "db": "d", "table": "t", "lsn": 2, "sequence": sequence}
    event = {"op": "c", "source": source, "before": None, "after": {"id": 1}}
    ((_, reason),) = read([Record(b'{"id":1}', json.dumps(event).encode())]).refused
    assert reason == "its source.sequence is not a list of LSNs"


@pytest.mark.parametrize("connector", ["postgresql", "oracle"])
def test_a_file_that_a_connector_without_binary_logs_names_is_no_binary_log(connector: str) -> None:
    source = {"connector": connector, "ts_ms": 1, "db": "d", "schema": "s", "table": "t", "lsn": 2, "txId": 3}
    first, second = (
        {"op": "c", "source": source | {"file": file, "pos": 4}, "before": None, "after": {"id": 1}}
        for file in ("", "bin.000001")
    )
    plain, named = (again([Record(b'{"id":1}', json.dumps(event).encode())]) for event in (first, second))
    assert event_of(named[0]) == event_of(plain[0])


OF_BINARY_LOGS = [
    {"op": "m", "source": {"connector": "mysql", "ts_ms": 1, "db": "d"}, "message": {"prefix": "p", "content": "YQ=="}},
    {"Table": "", "Action": "message", "Prefix": "p", "Content": "a", "Seq": 0, "Commit": 5}
    | {"Timestamp": "2026-11-22T10:00:00Z", "GTID": "1-1-1", "File": "bin.000001", "Position": 4},
]


@pytest.mark.parametrize("event", OF_BINARY_LOGS, ids=["debezium", "event"])
def test_a_message_of_a_binary_log_is_refused_as_debezium_cannot_write_it(event: dict[str, Any]) -> None:
    ((_, reason),) = read([Record(None, json.dumps(event).encode())]).refused
    assert reason == "it is a logical message, and a binary log has none"


UUIDS = [
    "x" * 36,
    '","Columns":{"id":666},"Tbl":"xxxxxx',
    "0" * 36,
    "-" * 36,
    "é" * 18,
    "00000000-0000-0000-0000-00000000000\0",
]


@pytest.mark.parametrize("count", [1, 40])
@pytest.mark.parametrize("uuid", UUIDS)
def test_a_uuid_that_is_none_is_refused(uuid: str, count: int) -> None:
    fields = {"WALPosition": 9, "XID": 3, "Timestamp": "2026-11-22T10:00:00Z", "Schema": "public"}
    good = rows({"id": 1}, **fields, UUID="6ba7b810-9DAD-11d1-80b4-00c04fd430c8")
    found = read([*[good] * (count - 1), rows({"id": 1}, **fields, UUID=uuid)])
    ((_, reason),) = found.refused
    assert reason == "its UUID is not made of 36 hexadecimal digits and dashes"
    assert sum(map(len, found.batches)) == count - 1


def debezium_row(number: int, partition: int) -> Record:
    """One of several rows of a transaction, each of them at the offset 5."""
    source = {
        "connector": "postgresql",
        "ts_ms": 1,
        "db": "d",
        "table": "t",
        "schema": "s",
        "lsn": 100 + number,
        "txId": 3,
    }
    event = {"op": "c", "source": source | {"sequence": '["200",null]'}, "before": None, "after": {"id": number}}
    return Record(b'{"id":%d}' % number, json.dumps(event).encode(), 5, "orders", partition)


def test_rows_that_do_not_say_their_place_have_uuids_of_their_own_that_stay() -> None:
    records = [debezium_row(number, partition=number) for number in range(3)]
    records.append(replace(records[0], of="archive"))
    events = [event_of(record) for record in again(records)]
    found = [event["UUID"] for event in events]
    assert len(set(found)) == 4
    assert {(event["CommitLSN"], event["Seq"]) for event in events} == {(200, 5)}
    assert [UUID(text).version for text in found] == [8] * 4
    assert {UUID(text).variant for text in found} == {RFC_4122}
    assert [event_of(record)["UUID"] for record in again(records[1:])] == found[1:]


def again(records: Sequence[Record], reader: EventReader | None = None) -> list[Record]:
    """The records of `event` that come of these."""
    found = read(records, reader)
    assert not found.refused
    return [record for one in found.batches for record in written("event", one)]


def event_of(record: Record) -> Any:
    return json.loads(record.value_bytes or b"")


def of_host(host: str, number: int, key: int, **fields: object) -> Record:
    """A row of some origin; the numbers say the order."""
    return replace(
        rows({"id": key, "v": number}, Host=host, **{"XID": 1, "CommitLSN": number} | fields), key_bytes=b"%d" % key
    )


def test_changes_of_a_key_stay_in_order_whatever_their_origins() -> None:
    records = [of_host("ab"[number % 2], number, key=1) for number in range(6)]
    assert [event_of(record)["Columns"]["v"] for record in again(records)] == list(range(6))


def test_origins_of_several_keys_give_a_batch_each_and_keep_their_own_order() -> None:
    records = [of_host("ab"[number % 2], number, key=number) for number in range(6)]
    assert [len(batch) for batch in read(records).batches] == [3, 3]
    back = [of_host("b", 6, key=0), of_host("a", 7, key=0), of_host("a", 8, key=50)]
    found = [event_of(record)["Columns"]["v"] for record in again([*records, *back])]
    assert found == [0, 2, 4, 1, 3, 5, 6, 7, 8]


def test_nothing_passes_a_truncate() -> None:
    truncate = replace(of_host("a", 3, key=1, Action="truncate"), key_bytes=None)
    records = [of_host("a", 1, key=1), of_host("b", 2, key=2), truncate, of_host("b", 4, key=4)]
    assert [(batch.source.host, len(batch)) for batch in read(records).batches] == [
        ("a", 1),
        ("b", 1),
        ("a", 1),
        ("b", 1),
    ]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.integers(0, 1)), min_size=1))
def test_order_is_kept_by_key_and_by_origin_in_each_partition(found: list[tuple[str, int, int]]) -> None:
    records = [replace(of_host(host, n, key=key), part=part) for n, (host, key, part) in enumerate(found)]
    out = [event_of(record)["Columns"]["v"] for record in again(records)]
    assert sorted(out) == list(range(len(records)))
    for same in (0, 1):
        groups: dict[object, list[int]] = {}
        for number in out:
            groups.setdefault((found[number][same], found[number][2]), []).append(number)
        assert all(group == sorted(group) for group in groups.values())


def test_a_row_that_does_not_name_its_transaction_is_of_the_kind_of_the_others() -> None:
    unsaid: dict[str, object] = {"XID": None, "CommitLSN": None}
    for count in (1, 40):
        records = [of_host("a", 1, 1, WALPosition=3)] * count
        records += [of_host("a", 2, 2, Action="read", **unsaid), of_host("a", 3, 2)]
        assert [(batch.source.kind, len(batch)) for batch in read(records).batches] == [("postgresql", count + 2)]
    (batch,) = read([of_host("a", 2, 2, Action="read", **unsaid)]).batches
    assert batch.source.kind == "sql"


def shapes_told(found: Read) -> list[list[tuple[str, str, bool]]]:
    """Of each schema change the columns, with their kinds, and whether they are of the key."""
    return [
        [
            (column.name, column.type.native, column.key)
            for column in one.relation.columns
            if isinstance(column.type, TextType)
        ]
        for batch in found.batches
        for one in batch.schema_changes
    ]


def test_a_kind_stays_wide_when_the_columns_change_in_the_same_batch() -> None:
    reader = EventReader("hop")
    read([rows({"id": 1, "a": 1, "b": 1})], reader)
    found = read([rows({"id": 1, "a": "x", "b": 1}), rows({"id": 1, "a": 1, "c": 1})], reader)
    assert [[kind for _, kind, _ in shape] for shape in shapes_told(found)] == [["integer", "any", "integer"]] * 2
    assert not shapes_told(read([rows({"id": 1, "a": 1, "c": 1})], reader))


def test_truncates_and_rows_without_a_key_say_nothing_of_the_tables_key() -> None:
    reader = EventReader("hop")
    keyed = rows({"id": 1, "v": 1})
    keyless = replace(keyed, key_bytes=None)
    truncate = replace(rows({}, Action="truncate"), key_bytes=None)
    assert shapes_told(read([keyed], reader)) == [[("id", "integer", True), ("v", "integer", False)]]
    for some in ([truncate], [keyless], [keyed, truncate, keyless, keyed], [keyless], [keyed]):
        found = read(some, reader)
        assert not shapes_told(found)
        out = [record.key_bytes for batch in found.batches for record in written("event", batch)]
        assert out == [record.key_bytes for record in some]


def test_a_kind_that_rows_without_a_key_widen_is_told_once() -> None:
    reader = EventReader("hop")
    keyed, wider = rows({"id": 1, "v": 1}), replace(rows({"id": 1, "v": 0.5}), key_bytes=None)
    truncate = replace(rows({}, Action="truncate"), key_bytes=None)
    read([keyed, replace(keyed, key_bytes=None)], reader)
    assert shapes_told(read([wider, keyed, truncate], reader)) == [[("id", "integer", True), ("v", "number", False)]]
    assert not shapes_told(read([keyed, wider], reader))


def test_a_table_that_gets_a_key_is_told_of() -> None:
    reader = EventReader("hop")
    keyed = rows({"id": 1})
    found = read([replace(keyed, key_bytes=None), keyed], reader)
    assert [[key for _, _, key in shape] for shape in shapes_told(found)] == [[False], [True]]


def test_names_with_points_and_slashes_are_not_taken_for_others() -> None:
    records = [
        rows({"id": 1}, Schema="a", Table="b.c"),
        rows({"id": 1}, Schema="a.b", Table="c"),
        replace(rows({"id": 1}, Host="a/b", Database="c"), key_bytes=b'{"id":2}'),
        replace(rows({"id": 1}, Host="a", Database="b/c"), key_bytes=b'{"id":3}'),
    ]
    found = read(records)
    relations = [change.relation for batch in found.batches for change in batch.schema_changes]
    assert len({relation.id for relation in relations}) == 4
    after = EventReader("hop")
    after.remember(relations)
    assert not shapes_told(read(records, after))
    for change in (replace(relations[0], schema="x"), replace(relations[0], table="x")):
        other = EventReader("hop")
        other.remember([change])
        (record, *_) = again(records[:1], other)
        assert event_of(record)["Table"] == "b.c"


@pytest.mark.parametrize("count", [1, 40])
@pytest.mark.parametrize("more", [{"Transaction": "x"}, {"Commit": 7}, {"Place": 7}])
def test_a_record_with_fields_of_postgresql_and_of_another_source_is_no_event(
    count: int, more: dict[str, object]
) -> None:
    """No source has both, and what is made of both may be no JSON."""
    of_postgres = {"CommitLSN": 5, "WALPosition": 5, "Timestamp": "2026-11-22T10:00:00Z", "UUID": ""}
    good = [rows({"id": 1}, XID=7, **of_postgres) for _ in range(count)]
    ((batch,), refused, *_) = read([*good, rows({"id": 1}, **of_postgres, **more)])
    assert len(batch) == count
    (refusal,) = refused
    assert refusal.reason == "it has fields of PostgreSQL and of another source"
    source = {"db": "d", "ts_ms": 1, "seq": 0, "commit_lsn": "0/5", "transaction": "x"}
    event = {"schema": "s", "table": "t", "op": "INSERT", "before": None, "after": {"id": 1}, "source": source}
    assert read([Record(b"{}", json.dumps(event).encode())]).refused


@pytest.mark.parametrize("text", ["Host", "orders", "id", "x"])
def test_half_a_surrogate_pair_in_a_text_that_is_no_value_is_refused_and_not_read_as_another_text(text: str) -> None:
    fields = {"Host": "Host", "Table": "orders", "Action": "insert", "CommitLSN": 5, "Seq": 0, "XID": 7}
    fields |= {"Database": "\ud83d\ude00", "GTID": "x"}
    whole = json.dumps(fields | {"Columns": {"id": "half \ud800"}}).encode()
    ((batch,), refused, *_) = read([Record(b"{}", whole)])
    assert not refused
    assert batch.source.database == "\U0001f600"
    assert event_of(written("event", batch)[0])["Columns"] == {"id": "half \ud800"}
    broken = whole.replace(b': "%s"' % text.encode(), b': "\\ud800"').replace(b'{"%s"' % text.encode(), b'{"\\ud800"')
    assert broken != whole
    (refusal,) = read([Record(b"{}", broken)]).refused
    assert refusal.reason == "a name or a field of it has half of a surrogate pair"


def test_columns_that_alternate_use_the_shapes_that_they_had() -> None:
    reader = EventReader("hop")
    alternating = [rows({"id": number, "ab"[number % 2]: 1}) for number in range(40)]
    for _ in range(3):
        found = read(alternating, reader)
        assert len(shapes_told(found)) == 2
        (batch,) = found.batches
        assert [event_of(record)["Columns"] for record in written("event", batch)] == [
            {"id": number, "ab"[number % 2]: 1} for number in range(40)
        ]
    (batch,) = found.batches
    assert isinstance(batch.changes, Tabular)
    assert len(batch.changes.cells.shapes) == 2
    for row in (alternating[:1], alternating[1:2]):
        (change,) = shapes_told(read(row, reader))
        assert len(change) == 2
        assert not shapes_told(read(row, reader))


class _GrowingShapes(list[Shape]):
    """A list of shapes to which the reader's thread adds one whenever another thread begins to look through it."""

    def __iter__(self) -> Iterator[Shape]:
        self.append(self[0])
        return super().__iter__()


@pytest.mark.parametrize("key", [{}, {"*": ("id",)}])
def test_shapes_that_are_read_meanwhile_do_not_disturb_rows_with_keys_of_their_own(key: dict[str, Any]) -> None:
    [batch] = read([replace(rows({"id": 1, "x": 2}), key_bytes=b"own"), rows({"id": 2, "x": 3})]).batches
    table = batch.changes
    assert isinstance(table, Tabular)
    growing = replace(batch, changes=replace(table.cells, shapes=_GrowingShapes(table.cells.shapes)))
    expected, found = (encoder_of("event", Router({}, "", "t"), key).encode(one) for one in (batch, growing))
    assert (found.keys, found.values) == (expected.keys, expected.values)


@pytest.mark.behaviour("G1")
@pytest.mark.parametrize("count", [3, 40])
def test_a_batch_may_be_written_while_the_next_one_is_read(count: int) -> None:
    """A sink's thread plans for all shapes that are there, and keeps the plans."""
    reader = EventReader("hop")
    encoder = encoder_of("event", Router({}, "", "t", "messages"), {})
    (first,) = read([rows({"id": 1})], reader).batches
    columns = [{"id": number, "ok": True, "of": [number]} for number in range(count)]
    records = [rows(one, Table=f"t{at % 2}") for at, one in enumerate(columns)]

    def write_the_first(_: int) -> Position:
        encoder.encode(first)
        return AFTER

    found = reader.read(records, BEFORE, write_the_first, 1.0, stops=False)
    again = [json.loads(value) for batch in found.batches for value in encoder.encode(batch).values.to_pylist()]
    assert [one["Columns"] for one in again] == columns
    assert [one["Table"] for one in again] == [f"t{at % 2}" for at in range(count)]


def test_orders_of_columns_are_not_remembered_without_bound() -> None:
    reader = EventReader("hop")
    columns = [f"c{number}" for number in range(8)]
    orders = itertools.islice(itertools.permutations(columns), 3000)
    found = read([rows(dict.fromkeys(names, 1)) for names in orders], reader)
    assert len(shapes_told(found)) == 1
    source = found.batches[0].source
    table = reader._tables.find_current(Origin(source.kind, source.host, source.database), "", "t")
    assert 0 < len(table.layouts) <= 1000


PIECES = [*list("{}[],:"), '"a"', '"\\u00e9"', '"\\x"', "1", "01", "-1.5e3", "-", "true", "nul", " ", '{"a":', "[1"]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=8).map("".join) | VALUES.map(json.dumps))
def test_texts_too_deep_for_a_decoder_are_told_from_broken_ones(text: str) -> None:
    deep = b'[{"a":' * 700 + b"[%s]" + b"}]" * 700
    try:
        json.loads(f'{{"a":[{text}]}}')
        is_json = True
    except ValueError:
        is_json = False
    if is_json:
        require_json(deep % text.encode())
        shallow = cut_out(deep % text.encode(), 3)
        assert len(shallow.text) < 20
        assert shallow.restore(shallow.text) == deep % text.encode()
    else:
        with pytest.raises(BrokenJsonError):
            require_json(deep % text.encode())


def test_rows_without_columns_are_read_as_they_are() -> None:
    records = [rows({}, WALPosition=1, XID=1, Timestamp="2026-11-22T10:00:00Z", UUID="") for _ in range(40)]
    found = read(records)
    assert not found.refused
    again = [record for one in found.batches for record in written("event", one)]
    assert [json.loads(record.value_bytes or b"")["Columns"] for record in again] == [{}] * 40
