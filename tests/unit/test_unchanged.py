"""TOASTed values that an update left alone, in every format and under every rule."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from psql_streamer.events.records import Records
from psql_streamer.events.routing import Router
from psql_streamer.events.unchanged import Treatment, Unchanged
from psql_streamer.model import ReplicaIdentity
from psql_streamer.pgoutput.decoder import Decoder
from psql_streamer.pgtypes.builtin import BY_OID
from tests.columns import postgres_table
from tests.decoding import BEGINNING, SOURCE, block, keyed_by
from tests.encoding import encoder_of
from tests.few import both_ways  # noqa: F401 - a fixture for all tests here
from tests.pgoutput_wire import (
    UNCHANGED,
    Row,
    WireColumn,
    WireRelation,
    begin,
    commit,
    copy_data,
    relation,
    update,
    xlog_data,
)

FORMATS = ("event", "envelope", "flat", "debezium")
PLACEHOLDER = "__debezium_unavailable_value"
OLD, NEW = (b"1", b"long", b"a"), (b"1", UNCHANGED, b"b")


def updated(form: str, rules: Mapping[str, Treatment], *, full: bool, marker: str = "", new: Row = NEW) -> Any:
    """The new row and what it is said to lack, of an update of public.docs that left `body` alone."""
    records = encoded(form, rules, full=full, marker=marker, new=new)
    value = json.loads(records.values[0].as_py())
    row = value if form == "flat" else value.get("Columns") or value["after"]
    lacking = named(records)[0]
    if form in ("event", "envelope"):
        assert value.get("Unchanged" if form == "event" else "unchanged", []) == lacking
    return row, lacking


def named(records: Records) -> list[Any]:
    """What the header `unchanged` names, record by record."""
    header = records.headers.get("unchanged")
    return [[]] * len(records) if header is None else [json.loads(one or b"[]") for one in header.to_pylist()]


def encoded(
    form: str,
    rules: Mapping[str, Treatment],
    *,
    full: bool,
    marker: str = "",
    new: Row = NEW,
    old: Row | None = None,
    key: tuple[str, ...] = ("id",),
) -> Records:
    columns = (
        WireColumn("id", 23, key=True),
        WireColumn("body", 25, key=full or "body" in key),
        WireColumn("note", 25, key=full),
    )
    shape = WireRelation(16400, "public", "docs", columns, "f" if full else "d")
    change = update(shape.oid, new, OLD, "O") if full else update(shape.oid, new, old)
    messages = [begin(100, 0, 7), relation(shape), change, commit(100, 120, 0)]
    piece = block([copy_data(xlog_data(message, 50)) for message in messages])
    batch = Decoder(SOURCE, BEGINNING, BY_OID.get, keyed_by("id")).decode(piece.data, piece.offsets)
    policy = Unchanged(rules, marker) if marker else Unchanged(rules)
    return encoder_of(form, Router({}, "t", ""), {"*": key}, headers=True, unchanged=policy).encode(batch)


FILLED = {"id": 1, "body": "long", "note": "b"}
LEFT_OUT = {"id": 1, "note": "b"}
RULES: tuple[Mapping[str, Treatment], ...] = ({}, {"*": "fill"}, {"*": "marker"})


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("rules", RULES, ids=str)
def test_the_old_row_fills_in_unless_a_rule_says_otherwise(form: str, rules: Mapping[str, Treatment]) -> None:
    assert updated(form, rules, full=True) == (FILLED, [])


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("full", [True, False])
def test_what_is_to_be_omitted_is_left_out_and_named_even_if_the_old_row_has_it(form: str, full: bool) -> None:
    assert updated(form, {"*": "omit"}, full=full) == (LEFT_OUT, ["body"])


@pytest.mark.parametrize("form", FORMATS)
def test_without_an_old_row_a_column_is_left_out_or_a_marker_stands_there(form: str) -> None:
    debezium = FILLED | {"body": PLACEHOLDER}
    assert updated(form, {}, full=False) == (debezium if form == "debezium" else LEFT_OUT, ["body"])
    marked = debezium if form == "debezium" else FILLED | {"body": "__unchanged__"}
    assert updated(form, {"body": "marker"}, full=False) == (marked, ["body"])


@pytest.mark.parametrize("rules", [*RULES, {"*": "omit"}], ids=str)
def test_a_record_of_avro_has_all_its_fields_and_the_placeholder_in_place_of_null(rules: dict[str, Treatment]) -> None:
    records = encoded("debezium-avro", rules, full=False)
    assert PLACEHOLDER.encode() in records.values[0].as_py()
    assert named(records) == [["body"]]


def test_the_marker_is_any_text() -> None:
    row, _ = updated("event", {"*": "marker"}, full=False, marker='say "nothing"\n')
    assert row["body"] == 'say "nothing"\n'


def test_a_marker_stands_only_in_rows_that_need_it() -> None:
    columns = (WireColumn("id", 23, key=True), WireColumn("body", 25), WireColumn("note", 25))
    shape = WireRelation(16400, "public", "docs", columns)
    bodies = (UNCHANGED, b"long", None, UNCHANGED)
    changes = [update(shape.oid, (b"%d" % at, body, None)) for at, body in enumerate(bodies)]
    piece = block(
        [copy_data(xlog_data(one, 50)) for one in (begin(9, 0, 7), relation(shape), *changes, commit(9, 12, 0))]
    )
    batch = Decoder(SOURCE, BEGINNING).decode(piece.data, piece.offsets)
    rules: dict[str, Treatment] = {"body": "marker"}
    records = encoder_of("flat", Router({}, "t", ""), {}, unchanged=Unchanged(rules, "?")).encode(batch)
    assert [json.loads(value)["body"] for value in records.values.to_pylist()] == ["?", "long", None, "?"]
    assert named(records) == [["body"], [], [], ["body"]]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("rule", ["fill", "omit", "marker"])
def test_a_key_is_filled_from_the_old_key_whatever_the_rule(form: str, rule: Treatment) -> None:
    records = encoded(form, {"*": rule}, full=False, old=(b"1", b"long", None), key=("body", "id"))
    assert [json.loads(key) for key in records.keys.to_pylist()] == [{"body": "long", "id": 1}]
    assert chr(records.op[0]) == "U"
    assert b'"long"' in records.values[0].as_py()


@pytest.mark.parametrize("form", FORMATS)
def test_both_halves_of_a_key_change_hold_to_the_rule(form: str) -> None:
    records = encoded(form, {"*": "omit"}, full=True, new=(b"2", UNCHANGED, b"b"))
    inserted = json.loads(records.values[-1].as_py())
    row = inserted if form == "flat" else inserted.get("Columns") or inserted["after"]
    assert row == {"id": 2, "note": "b"}
    assert named(records)[-1] == ["body"]


def test_the_most_specific_rule_wins() -> None:
    docs = postgres_table(1, "public", "docs", ReplicaIdentity.DEFAULT, ())
    rules: dict[str, Treatment] = {"*": "marker"}
    assert Unchanged(rules).find_treatment(docs, "body") == "marker"
    assert Unchanged({}).find_treatment(docs, "body") == "fill"
    wider: tuple[tuple[str, Treatment], ...] = (("body", "omit"), ("docs.body", "marker"), ("public.docs.body", "fill"))
    for name, rule in wider:
        rules[name] = rule
        assert Unchanged(rules).find_treatment(docs, "body") == rule
        assert Unchanged(rules).find_treatment(docs, "note") == "marker"


PRECEDENCE = ("public.docs.body", "docs.body", "docs.*", "d*.body", "*.b*", "/^public[.]/.body", "body", "b*", "*")


@pytest.mark.parametrize("rule", PRECEDENCE)
def test_exact_names_go_before_patterns_and_rules_of_tables_before_those_of_columns_alone(rule: str) -> None:
    docs = postgres_table(1, "public", "docs", ReplicaIdentity.DEFAULT, ())
    rules: dict[str, Treatment] = dict.fromkeys(PRECEDENCE[PRECEDENCE.index(rule) :], "omit")
    policy = Unchanged(rules | {rule: "marker"})
    assert policy.find_rule(docs, "body") == rule
    assert policy.find_treatment(docs, "body") == "marker"
    assert Unchanged({rule: "marker"}).find_treatment(docs, "note") == ("marker" if rule in ("docs.*", "*") else "fill")


def test_patterns_are_tried_in_the_order_of_the_file() -> None:
    docs = postgres_table(1, "public", "docs", ReplicaIdentity.DEFAULT, ())
    assert Unchanged({"d*.body": "omit", "do*.body": "marker"}).find_treatment(docs, "body") == "omit"
    assert Unchanged({"do*.body": "marker", "d*.body": "omit"}).find_treatment(docs, "body") == "marker"


@pytest.mark.parametrize(
    ("rule", "says"), [("/(/.body", "not a regular expression"), ("/^docs$/", r"names no column: write /\^docs\$/\.\*")]
)
def test_a_rule_that_cannot_work_is_named(rule: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Unchanged({rule: "omit"})
