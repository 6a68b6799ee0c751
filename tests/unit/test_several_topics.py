"""One table in several topics, in each with a key of its own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from psql_streamer.errors import SinkRefused
from psql_streamer.events.encoder import Encoder
from psql_streamer.events.records import Records
from psql_streamer.events.routing import Route, Router
from psql_streamer.model import Batch
from psql_streamer.pgoutput.decoder import Decoder
from psql_streamer.pgtypes.builtin import BY_OID
from tests.decoding import BEGINNING, SOURCE, block, keyed_by
from tests.encoding import encoder_of
from tests.pgoutput_wire import (
    WireColumn,
    WireRelation,
    begin,
    commit,
    copy_data,
    delete,
    insert,
    relation,
    truncate,
    update,
    xlog_data,
)

ORDERS = 16400
ROUTES = [Route("orders"), Route("by-customer", ("customer",))]


def batch(*changes: bytes, full: bool) -> Batch:
    """One transaction over public.orders."""
    columns = (WireColumn("id", 23, key=True), WireColumn("customer", 25, key=full), WireColumn("note", 25, key=full))
    shape = WireRelation(ORDERS, "public", "orders", columns, "f" if full else "d")
    messages = [begin(100, 0, 7), relation(shape), *changes, commit(100, 120, 0)]
    piece = block([copy_data(xlog_data(message, 50)) for message in messages])
    return Decoder(SOURCE, BEGINNING, BY_OID.get, keyed_by("id")).decode(piece.data, piece.offsets)


def encoder(routes: Sequence[Route], form: str = "event", key: tuple[str, ...] = ()) -> Encoder:
    return encoder_of(form, Router({"orders": routes}, "", ""), {"*": key} if key else {})


def records_of(records: Records, topic: str) -> list[tuple[str, Any, Any]]:
    """(op, key, value) of a topic's records, in order."""
    columns = records.topics.tolist(), records.op.tolist(), records.keys.to_pylist(), records.values.to_pylist()
    return [
        (chr(op), json.loads(key or b"null"), json.loads(value or b"null"))
        for at, op, key, value in zip(*columns, strict=True)
        if records.topic_names[at] == topic
    ]


def keys(records: Records, topic: str) -> list[tuple[str, Any]]:
    return [(op, key) for op, key, _ in records_of(records, topic)]


CREATED = insert(ORDERS, (b"1", b"ann", b"x"))


def test_the_same_events_go_to_every_topic_each_with_its_key() -> None:
    found = encoder(ROUTES).encode(batch(CREATED, insert(ORDERS, (b"2", b"bob", b"y")), full=False))
    assert keys(found, "orders") == [("I", {"id": 1}), ("I", {"id": 2})]
    assert keys(found, "by-customer") == [("I", {"customer": "ann"}), ("I", {"customer": "bob"})]
    one, other = ([value for _, _, value in records_of(found, topic)] for topic in ("orders", "by-customer"))
    assert one == other
    assert found.skipped == {}


def test_a_row_that_moves_to_another_key_is_deleted_under_the_old_one_where_full_gives_it() -> None:
    moved = update(ORDERS, (b"1", b"bob", b"x"), (b"1", b"ann", b"x"), "O")
    found = encoder(ROUTES).encode(batch(CREATED, moved, full=True))
    assert keys(found, "orders") == [("I", {"id": 1}), ("U", {"id": 1})]
    assert keys(found, "by-customer") == [
        ("I", {"customer": "ann"}),
        ("D", {"customer": "ann"}),
        ("I", {"customer": "bob"}),
    ]


def test_without_the_old_row_a_row_that_moves_is_an_update_under_its_new_key() -> None:
    found = encoder(ROUTES).encode(batch(CREATED, update(ORDERS, (b"1", b"bob", b"x")), full=False))
    assert keys(found, "by-customer") == [("I", {"customer": "ann"}), ("U", {"customer": "bob"})]


def test_a_route_without_a_key_is_keyed_as_the_section_says() -> None:
    found = encoder(ROUTES, key=("note", "id")).encode(batch(CREATED, full=False))
    assert keys(found, "orders") == [("I", {"note": "x", "id": 1})]
    assert keys(found, "by-customer") == [("I", {"customer": "ann"})]


@pytest.mark.parametrize("form", ["event", "envelope", "debezium", "flat"])
def test_a_key_has_its_columns_in_the_order_in_which_they_are_named(form: str) -> None:
    found = encoder([Route("a")], form, key=("note", "id")).encode(batch(CREATED, full=False))
    assert found.keys.to_pylist() == [b'{"note":"x","id":1}']


def test_topics_with_the_same_key_hold_the_same_bytes() -> None:
    found = encoder([Route("a"), Route("b"), Route("c", ("id",))]).encode(batch(CREATED, full=False))
    assert [found.topic_names[at] for at in found.topics] == ["a", "b", "c"]
    assert len(set(found.values.to_pylist())) == len(set(found.keys.to_pylist())) == 1


@pytest.mark.parametrize("form", ["debezium", "flat"])
def test_every_topic_has_its_own_tombstones(form: str) -> None:
    gone = delete(ORDERS, (b"1", b"ann", b"x"), "O")
    found = encoder(ROUTES, form).encode(batch(gone, full=True))
    for topic, key in (("orders", {"id": 1}), ("by-customer", {"customer": "ann"})):
        assert records_of(found, topic)[-1] == ("D", key, None)


def test_a_truncate_goes_to_every_topic_of_its_table() -> None:
    found = encoder(ROUTES).encode(batch(truncate([ORDERS]), full=False))
    assert keys(found, "orders") == keys(found, "by-customer") == [("T", None)]


def test_a_table_without_a_topic_is_counted_once_a_row() -> None:
    found = encoder_of("event", Router({"others": ROUTES}, "", ""), {}).encode(batch(CREATED, CREATED, full=False))
    assert (len(found), found.skipped) == (0, {"public.orders": 2})


def test_a_key_of_a_column_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(SinkRefused, match=r'public\.orders names the column "client".*id, customer, note'):
        encoder([Route("orders"), Route("by-client", ("client",))]).encode(batch(CREATED, full=False))
