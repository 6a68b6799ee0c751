"""Events of rows that say where they go, and of parts of changes, in every format."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from psql_streamer.events.records import Records
from psql_streamer.events.routing import Route, Router
from psql_streamer.model import ADDRESS, PART, Batch, Changes, Image
from psql_streamer.pipeline.coalescing import cut, merge
from tests.encoding import FORMATS, JSON_FORMATS, encoder_of
from tests.spark_changes import DELETE, INSERT, UPDATE, batch, changes, column

COLUMNS = (column("id", 23, key=True), column("item", 25))
ROUTER = Router({}, "t", "")

Said = dict[str, Any]


def addressed(image: Image, said: list[Said]) -> Image:
    texts = [
        {
            "topic": one.get("topic"),
            "key": one.get("key"),
            "headers": [(name.encode(), text) for name, text in one.get("headers", {}).items()],
        }
        for one in said
    ]
    return replace(image, addresses=pa.array(texts, ADDRESS))


def rows(
    *ops: int,
    after: list[Said] | None = None,
    before: list[Said] | None = None,
    parts: list[tuple[int, int]] | None = None,
) -> Changes:
    """Changes of one table, each with the id of its row. after, before: what their images say. parts: (number, of): the
    rows are then parts of one change.
    """
    new = [row for row, op in enumerate(ops) if op != DELETE]
    old = [row for row, op in enumerate(ops) if op != INSERT]
    made = changes(
        list(ops), {row: [b"%d" % row, b"new"] for row in new}, {row: [b"%d" % row, b"old"] for row in old}, COLUMNS
    )
    if after is not None:
        made = replace(made, after=addressed(made.after, after))
    if before is not None:
        made = replace(made, before=addressed(made.before, before))
    if parts is not None:
        one = np.zeros(len(made), np.int64)
        made = replace(made, part=np.array(parts, PART), batch_order=one, seq=one)
    return made


def encoded(given: Changes | Batch, form: str = "event", router: Router = ROUTER, headers: bool = True) -> Records:
    whole = given if isinstance(given, Batch) else batch(given)
    return encoder_of(form, router, {}, headers).encode(whole)


def sent(records: Records) -> list[tuple[str, bytes | None]]:
    """(topic, key) of every record."""
    return [(records.look_up_topic(at), records.keys[at].as_py()) for at in range(len(records))]


def header(records: Records, name: str) -> list[bytes | None]:
    listed: list[bytes | None] = records.headers[name].to_pylist() if name in records.headers else []
    return listed


@pytest.mark.parametrize("form", FORMATS)
def test_rows_go_where_they_say_and_the_others_where_the_options_say(form: str) -> None:
    said: list[Said] = [{"topic": b"eu", "key": b"k"}, {"key": b"k"}, {}, {"topic": b"us"}]
    records = encoded(rows(*[INSERT] * 4, after=said), form)
    plain = encoded(rows(*[INSERT] * 4), form)
    keys = plain.keys.to_pylist()
    assert sent(records) == [("eu", b"k"), ("t.public.orders", b"k"), ("t.public.orders", keys[2]), ("us", keys[3])]
    assert records.values == plain.values
    assert records.seq.tolist() == [0, 1, 2, 3]


def test_a_row_that_names_its_topic_goes_there_alone_though_its_table_has_several() -> None:
    router = Router({"orders": (Route("a"), Route("b", ("item",)))}, "", "")
    records = encoded(rows(INSERT, INSERT, after=[{"topic": b"own"}, {}]), router=router)
    assert sorted(sent(records)) == [("a", b'{"id":1}'), ("b", b'{"item":"new"}'), ("own", b'{"id":0}')]


def test_a_table_without_a_topic_is_counted_for_the_rows_that_name_none() -> None:
    records = encoded(
        rows(INSERT, INSERT, DELETE, after=[{"topic": b"own"}, {}], before=[{}]), router=Router({}, "", "")
    )
    assert (sent(records), records.skipped) == ([("own", b'{"id":0}')], {"public.orders": 2})


def test_an_excluded_table_stays_excluded_whatever_its_rows_say() -> None:
    records = encoded(rows(INSERT, after=[{"topic": b"own"}]), router=Router({}, "t", "", exclude=["orders"]))
    assert (len(records), records.excluded, records.skipped) == (0, 1, {})


@pytest.mark.behaviour("K9")
@pytest.mark.parametrize(
    ("old", "new"), [({"key": b"a"}, {"key": b"b"}), ({"topic": b"a"}, {"topic": b"b"}), ({}, {"topic": b"b"})]
)
def test_an_update_that_goes_elsewhere_is_a_delete_there_and_an_insert_here(old: Said, new: Said) -> None:
    records = encoded(rows(UPDATE, after=[new], before=[old]))
    was, now = ((one.get("topic", b"t.public.orders").decode(), one.get("key", b'{"id":0}')) for one in (old, new))
    assert sent(records) == [was, now]
    assert records.op.tolist() == [DELETE, INSERT]
    assert header(records, "key_change") == [b"true", b"true"]
    ids = [json.loads(value)["UUID"] for value in records.values.to_pylist()]
    assert len({*ids}) == 2


def test_an_update_of_the_key_columns_stays_one_under_a_key_of_its_own() -> None:
    made = rows(UPDATE, after=[{"key": b"k"}], before=[{"key": b"k"}])
    moved = replace(made, before=replace(made.before, columns=(pa.array([b"77"]), made.before.columns[1])))
    assert encoded(moved).op.tolist() == [UPDATE]
    assert encoded(replace(moved, before=replace(moved.before, addresses=None))).op.tolist() == [DELETE, INSERT]


def test_the_keys_in_debezium_s_headers_are_those_of_the_records() -> None:
    records = encoded(rows(UPDATE, after=[{"key": b"new"}], before=[{"key": b"old"}]), "debezium", headers=False)
    assert records.keys.to_pylist() == [b"old", b"old", b"new"]
    assert header(records, "__debezium.newkey") == [b"new", b"new", None]
    assert header(records, "__debezium.oldkey") == [None, None, b"old"]


def test_headers_of_rows_are_beside_those_of_the_service() -> None:
    said: list[Said] = [{"headers": {"tenant": b"a", "trace": None}}, {}, {"headers": {"tenant": b"b", "trace": b"t"}}]
    records = encoded(rows(*[INSERT] * 3, after=said))
    assert (header(records, "tenant"), header(records, "trace")) == ([b"a", None, b"b"], [None, None, b"t"])
    assert header(records, "op") == [b"insert"] * 3
    assert {*encoded(rows(INSERT, after=[{"headers": {"tenant": b"a"}}]), headers=False).headers} == {"tenant"}


def test_a_table_without_a_key_can_be_flat_if_its_rows_have_one() -> None:
    keyless = tuple(replace(one, key=False) for one in COLUMNS)
    made = replace(rows(INSERT, after=[{"key": b"k"}]), columns=keyless)
    assert sent(encoded(made, "flat")) == [("t.public.orders", b"k")]


@pytest.mark.parametrize("form", FORMATS)
def test_parts_of_a_change_are_told_apart(form: str) -> None:
    records = encoded(rows(*[INSERT] * 3, parts=[(0, 3), (1, 3), (7, 3)]), form)
    plain = encoded(rows(INSERT), "event")
    change = uuid.UUID(json.loads(plain.values[0].as_py())["UUID"])
    ids = [str(uuid.uuid5(change, str(part))).encode() for part in (0, 1, 7)]
    assert header(records, "part") == [b"0", b"1", b"7"]
    assert header(records, "parts") == [b"3", b"3", b"3"]
    assert header(records, "uuid") == ids
    assert [records.find_part(at) for at in range(3)] == [0, 1, 7]
    values = [json.loads(value) for value in records.values.to_pylist()] if form in JSON_FORMATS else []
    if form == "event":
        assert [(one["Part"], one["Parts"], one["UUID"].encode()) for one in values] == [
            (part, 3, name) for part, name in zip((0, 1, 7), ids, strict=True)
        ]
    if form == "envelope":
        of = [one["source"] for one in values]
        assert [(one["seq"], one["part"], one["parts"], one["uuid"].encode()) for one in of] == [
            (0, part, 3, name) for part, name in zip((0, 1, 7), ids, strict=True)
        ]


@pytest.mark.parametrize("form", FORMATS)
def test_a_change_that_stays_one_row_has_the_bytes_that_it_had_beside_others_that_do_not(form: str) -> None:
    alone = encoded(rows(INSERT, UPDATE, DELETE), form)
    split = replace(rows(INSERT, INSERT, parts=[(0, 2), (1, 2)]), batch_order=np.full(2, 100))
    beside = encoded(batch(rows(INSERT, UPDATE, DELETE), split), form)
    assert beside.values[: len(alone)] == alone.values
    assert beside.keys[: len(alone)] == alone.keys
    assert [beside.find_part(at) for at in range(len(beside))] == [None] * len(alone) + [0, 1]
    assert header(beside, "part")[: len(alone)] == [None] * len(alone)


@pytest.mark.behaviour("K8")
def test_the_parts_that_are_gone_are_deleted_before_others_take_their_keys() -> None:
    """Part 1 moves to the key of part 2, which is gone."""
    made = rows(
        UPDATE,
        UPDATE,
        DELETE,
        parts=[(0, 3), (1, 3), (2, 3)],
        after=[{"key": b"a"}, {"key": b"c"}],
        before=[{"key": b"a"}, {"key": b"b"}, {"key": b"c"}],
    )
    records = encoded(made)
    assert [(key, op) for (_, key), op in zip(sent(records), records.op.tolist(), strict=True)] == [
        (b"b", DELETE),
        (b"c", DELETE),
        (b"a", UPDATE),
        (b"c", INSERT),
    ]
    assert [records.find_part(at) for at in range(4)] == [1, 2, 0, 1]


def test_parts_and_what_they_say_survive_merging_and_cutting() -> None:
    said: list[Said] = [{"key": b"%d" % at, "topic": b"own"} for at in range(4)]
    split = batch(rows(*[INSERT] * 4, after=said, parts=[(at, 4) for at in range(4)]), rows(INSERT, DELETE, INSERT))
    both = merge([split, batch(rows(INSERT)), split])
    whole = encoded(both)
    pieces = [encoded(piece) for piece in cut(both, 2)]
    assert [one for piece in pieces for one in sent(piece)] == sent(whole)
    assert [piece.find_part(at) for piece in pieces for at in range(len(piece))] == [
        whole.find_part(at) for at in range(len(whole))
    ]
    assert [key for topic, key in sent(whole) if topic == "own"] == [b"%d" % at for at in range(4)] * 2


def test_a_batch_of_many_parts_is_cut_by_its_rows() -> None:
    """Of 4 changes, each in 3 parts, no piece has more than 6 rows."""
    one = np.repeat(np.arange(4), 3)
    made = replace(rows(*[INSERT] * 12, parts=[(at % 3, 3) for at in range(12)]), batch_order=one, seq=one)
    whole = batch(made)
    whole = replace(whole, nbytes=whole.overhead + 1200)
    pieces = list(cut(whole, 6))
    assert [len(piece) for piece in pieces] == [6, 6]
    assert [piece.nbytes - piece.overhead for piece in pieces] == [600, 600]
    assert [len(piece) for piece in cut(whole, 2)] == [3, 3, 3, 3]


def test_rows_that_are_taken_keep_their_parts_and_addresses() -> None:
    made = rows(INSERT, INSERT, INSERT, after=[{"key": b"%d" % at} for at in range(3)], parts=[(0, 3), (1, 3), (2, 3)])
    for some in (made.take(np.array([1, 2])), made.slice(1, 3)):
        assert some.part is not None
        assert some.part["number"].tolist() == [1, 2]
        assert some.after.addresses is not None
        assert some.after.addresses.field("key").to_pylist() == [b"1", b"2"]
