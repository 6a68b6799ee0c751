"""The records of the topic of transactions come around the events of their transaction, however batches are cut."""

from __future__ import annotations

import json
from typing import Any

import pytest

from psql_streamer.events.routing import Router
from psql_streamer.model import Batch
from psql_streamer.pipeline.coalescing import cut, merge
from tests.decoding import decode
from tests.encoding import encoder_of
from tests.few import both_ways  # noqa: F401 - a fixture for all tests here
from tests.pgoutput_wire import WireColumn, WireRelation
from tests.strategies import Emitted, History, RowChange, Transaction, Truncation

ORDERS = WireRelation(16400, "public", "orders", (WireColumn("id", 20, key=True),))
ITEMS = WireRelation(16401, "public", "items", (WireColumn("id", 20, key=True),))

FIRST, SECOND = "7:1000", "8:2000"


def inserted(relation: WireRelation, key: bytes) -> RowChange:
    return RowChange(relation, 990, (key,), None, "")


def moved(relation: WireRelation, old: bytes, new: bytes) -> RowChange:
    return RowChange(relation, 990, (new,), (old,), "K")


def stream() -> list[bytes]:
    first = (inserted(ORDERS, b"1"), inserted(ITEMS, b"1"), moved(ORDERS, b"1", b"2"), inserted(ORDERS, b"3"))
    second = (Emitted(1990, "note", b"hello"), Truncation((ITEMS,), 1991, False, False))
    return History(
        [
            Transaction(xid=7, commit_lsn=1000, end_lsn=1008, commit_ts=0, steps=first),
            Transaction(xid=8, commit_lsn=2000, end_lsn=2008, commit_ts=1_000_000, steps=second),
        ]
    ).session()


def encoded(batches: list[Batch], **options: Any) -> list[tuple[str, Any, Any]]:
    """(topic, key, value) of every record but tombstones, in their order."""
    encoder = encoder_of(
        "debezium", Router({}, "", "rows", "messages"), {}, transaction_topic="transactions", **options
    )
    found = []
    for batch in batches:
        records = encoder.encode(batch)
        columns = records.topics.tolist(), records.keys.to_pylist(), records.values.to_pylist()
        for topic, key, value in zip(*columns, strict=True):
            if value is not None:
                found.append((records.topic_names[topic], key and json.loads(key), json.loads(value)))
    return found


def summary(records: list[tuple[str, Any, Any]]) -> list[Any]:
    """The status of each transaction's records, and op and place of each event."""
    found: list[Any] = []
    for topic, _, value in records:
        if topic == "transactions":
            found.append((value["status"], value["id"]))
        elif topic == "messages":
            found.append("m")
        else:
            place = value["transaction"]
            found.append((value["op"], place["id"], place["total_order"], place["data_collection_order"]))
    return found


EXPECTED = [
    ("BEGIN", FIRST),
    ("c", FIRST, 1, 1),
    ("c", FIRST, 2, 1),
    ("d", FIRST, 3, 2),
    ("c", FIRST, 3, 2),
    ("c", FIRST, 4, 3),
    ("END", FIRST),
    ("BEGIN", SECOND),
    "m",
    ("t", SECOND, 2, 1),
    ("END", SECOND),
]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_records_of_transactions_come_around_their_events(size: int) -> None:
    batches = decode(stream(), size)
    assert summary(encoded(batches)) == EXPECTED
    assert summary(encoded([merge(batches)])) == EXPECTED
    assert summary(encoded(list(cut(merge(batches), size)))) == EXPECTED


def test_the_records_have_debeziums_fields() -> None:
    records = [(key, value) for topic, key, value in encoded(decode(stream(), 100)) if topic == "transactions"]
    begin, end, _, with_message = records
    assert begin == (
        {"id": FIRST},
        {"status": "BEGIN", "id": FIRST, "event_count": None, "data_collections": None, "ts_ms": 946_684_800_000},
    )
    assert list(begin[1]) == ["status", "id", "event_count", "data_collections", "ts_ms"]
    assert end == (
        {"id": FIRST},
        {
            "status": "END",
            "id": FIRST,
            "event_count": 4,
            "data_collections": [
                {"data_collection": "public.orders", "event_count": 3},
                {"data_collection": "public.items", "event_count": 1},
            ],
            "ts_ms": 946_684_800_000,
        },
    )
    assert with_message[1]["data_collections"] == [
        {"data_collection": "LOGICAL_DECODING_MESSAGE", "event_count": 1},
        {"data_collection": "public.items", "event_count": 1},
    ]


def test_a_commit_that_comes_alone_gives_its_record() -> None:
    batches = decode(stream(), 1)
    alone = [batch for batch in batches if batch.transaction_metadata and batch.transaction_metadata.ends]
    assert [len(batch) for batch in alone] == [0, 0]
    assert summary(encoded(alone)) == [("END", FIRST), ("END", SECOND)]


def test_with_headers_the_records_carry_those_that_apply() -> None:
    encoder = encoder_of("debezium", Router({}, "", "rows"), {}, headers=True, transaction_topic="transactions")
    records = encoder.encode(decode(stream(), 100)[0])
    first = {name: column[0].as_py() for name, column in records.headers.items() if column[0].is_valid}
    assert first == {"commit_lsn": b"0/3E8", "xid": b"7", "op": b"begin"}


def test_without_the_topic_events_say_nothing_of_their_transaction() -> None:
    records = encoder_of("debezium", Router({}, "", "rows"), {}).encode(decode(stream(), 100)[0])
    assert records.topic_names == ("rows",)
    values = [json.loads(value) for value in records.values.to_pylist() if value is not None]
    assert {value["transaction"] for value in values} == {None}


def test_other_formats_have_no_such_records() -> None:
    records = encoder_of("event", Router({}, "", "rows"), {}, transaction_topic="transactions").encode(
        decode(stream(), 100)[0]
    )
    assert records.topic_names == ("rows",)
