"""Columns of a rule's result that say where events go: `_topic`, `_key` and `_headers`."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from psql_streamer.errors import HandlerRefused
from psql_streamer.events.routing import Router
from psql_streamer.interfaces import Severity
from psql_streamer.model import Image, ReplicaIdentity
from tests.columns import postgres_column, postgres_table
from tests.encoding import encoder_of
from tests.spark_changes import DELETE, INSERT, ORDERS, UPDATE, batch, changes, column, names, only, shop, values

ROUTER = Router({}, "t", "")


def said(image: Image, field: str) -> list[Any]:
    assert image.addresses is not None
    listed: list[Any] = image.addresses.field(field).to_pylist()
    return listed


def test_a_rule_says_topic_key_and_headers_and_none_of_it_is_part_of_the_row(spark: Any) -> None:
    rule = (
        "SELECT *, IF(amount > 15, 'big', NULL) AS _topic, customer AS _key, "
        "map('amount', CAST(amount AS STRING), 'op-of-row', _op) AS _headers FROM changes"
    )
    made = only(spark(orders={"sql": rule}).handle(batch(shop())))
    assert names(made) == ["id", "amount", "customer", "meta"]
    assert made.part is None
    assert said(made.after, "topic") == [None, b"big", None]
    assert said(made.after, "key") == [b"ann", b"bob", b"dan"]
    assert said(made.before, "key") == [b"old bob", b"carl"]
    assert [dict(one) for one in said(made.before, "headers")] == [
        {b"amount": b"5.00", b"op-of-row": b"update"},
        {b"amount": b"7.00", b"op-of-row": b"delete"},
    ]


def test_events_of_a_rule_go_where_it_says(spark: Any) -> None:
    rule = {"sql": "SELECT *, IF(amount > 15, 'big', NULL) AS _topic, customer AS _key FROM changes"}
    records = encoder_of("event", ROUTER, {}).encode(spark(orders=rule).handle(batch(shop())))
    assert [(records.look_up_topic(at), records.keys[at].as_py()) for at in range(len(records))] == [
        ("t.public.orders", b"ann"),
        ("t.public.orders", b"old bob"),
        ("big", b"bob"),
        ("t.public.orders", b"carl"),
        ("t.public.orders", b"dan"),
    ]
    assert records.op.tolist() == [INSERT, DELETE, INSERT, DELETE, INSERT]


@pytest.mark.parametrize("sql", ["SELECT *, id + 1 AS next FROM changes", "SELECT * FROM changes WHERE id > 1"])
def test_a_key_that_rows_had_before_the_rule_stays(spark: Any, sql: str) -> None:
    keyed = only(spark(orders={"sql": "SELECT *, customer AS _key FROM changes"}).handle(batch(shop())))
    made = only(spark(orders={"sql": sql}).handle(batch(keyed)))
    assert said(made.after, "key") == values(made, "customer")
    assert said(made.before, "key")[-1] == b"carl"


@pytest.mark.parametrize(
    ("sql", "keys", "headers"),
    [
        ("SELECT *, 'big' AS _topic FROM changes", [b"ann", b"bob", b"dan"], {b"tenant": b"7"}),
        ("SELECT *, upper(customer) AS _key FROM changes", [b"ANN", b"BOB", b"DAN"], {b"tenant": b"7"}),
        ("SELECT *, map('other', '8') AS _headers FROM changes", [b"ann", b"bob", b"dan"], {b"other": b"8"}),
        ("SELECT *, NULL AS _key FROM changes", [None, None, None], {b"tenant": b"7"}),
        ("SELECT *, explode(array(1, 2)) AS part FROM changes", [None] * 6, {b"tenant": b"7"}),
    ],
)
def test_what_a_rule_says_nothing_of_stays_as_rows_had_it_before(
    spark: Any, sql: str, keys: list[bytes | None], headers: dict[bytes, bytes]
) -> None:
    first = "SELECT *, customer AS _key, map('tenant', '7') AS _headers FROM changes"
    before = only(spark(orders={"sql": first}).handle(batch(shop())))
    made = only(spark(orders={"sql": sql}).handle(batch(before)))
    assert said(made.after, "key") == keys
    assert [dict(one) for one in said(made.after, "headers")] == [headers] * len(keys)


def test_a_rule_reads_the_key_and_the_headers_that_a_record_had(spark: Any) -> None:
    first = (
        "SELECT *, IF(id < 3, customer, NULL) AS _key, IF(id > 1, map('tenant', '7'), NULL) AS _headers FROM changes"
    )
    before = only(spark(orders={"sql": first}).handle(batch(shop())))
    rule = (
        "SELECT id, concat_ws('|', CAST(_record_key AS STRING), CAST(_record_headers['tenant'] AS STRING)) AS seen, "
        "map('again', CAST(_record_headers['tenant'] AS STRING)) AS _headers FROM changes"
    )
    made = only(spark(orders={"sql": rule}).handle(batch(before)))
    assert (values(made, "seen"), values(made, "seen", "before")) == ([b"ann", b"bob|7", b"7"], [b"old bob|7", b"7"])
    assert said(made.after, "key") == [b"ann", b"bob", None]
    assert [dict(one or ()).get(b"again") for one in said(made.after, "headers")] == [None, b"7", b"7"]
    plain = only(spark(orders={"sql": "SELECT id, _record_key IS NULL AS no FROM changes"}).handle(batch(shop())))
    assert values(plain, "no") == [b"t", b"t", b"t"]


def test_a_rule_reads_the_timestamp_of_a_record_and_its_rows_keep_it(spark: Any) -> None:
    past_calendars = 1_700_000_000_123_456_789  # nanoseconds, which a writer took for milliseconds
    times = np.array([1_700_000_000_123, -1, 1_700_000_001_000, past_calendars])
    rule = "SELECT id, unix_millis(_record_timestamp) AS seen FROM changes WHERE id <> 2 OR id IS NULL"
    made = only(spark(orders={"sql": rule}).handle(batch(replace(shop(), record_time=times))))
    assert values(made, "seen") == [b"1700000000123", None]
    assert made.record_time is not None
    assert made.record_time.tolist() == [1_700_000_000_123, 1_700_000_001_000, past_calendars]
    plain = only(spark(orders={"sql": "SELECT id, _record_timestamp AS seen FROM changes"}).handle(batch(shop())))
    assert values(plain, "seen") == [None, None, None]


def test_a_key_of_several_columns_is_a_json_object(spark: Any) -> None:
    rule = {"sql": "SELECT *, struct(id AS number, customer) AS _key FROM changes"}
    made = only(spark(orders=rule).handle(batch(shop())))
    assert said(made.after, "key")[0] == b'{"number":1,"customer":"ann"}'


def test_null_leaves_it_to_the_options(spark: Any) -> None:
    rule = {"sql": "SELECT *, NULL AS _topic, NULL AS _key, NULL AS _headers FROM changes"}
    records = encoder_of("event", ROUTER, {}).encode(spark(orders=rule).handle(batch(shop())))
    plain = encoder_of("event", ROUTER, {}).encode(batch(shop()))
    assert (records.keys, records.values, records.topic_names) == (plain.keys, plain.values, plain.topic_names)


def test_a_column_of_the_table_that_has_such_a_name_stays_one(spark: Any) -> None:
    columns = (column("id", 23, key=True), column("_key", 25))
    given = changes([INSERT], {0: [b"1", b"theirs"]}, {}, columns)
    made = only(spark(orders={"sql": "SELECT * FROM changes"}).handle(batch(given)))
    assert (names(made), made.after.addresses) == (["id", "_key"], None)
    made = only(spark(orders={"sql": "SELECT id, upper(_key) AS _key FROM changes"}).handle(batch(given)))
    assert (names(made), said(made.after, "key")) == (["id"], [b"THEIRS"])


@pytest.mark.parametrize("name", ["no spaces", "", "..", "__consumer_offsets", "a" * 250])
def test_a_topic_that_kafka_does_not_allow_is_a_row_that_the_rule_cannot_take(spark: Any, name: str) -> None:
    rule = {"sql": f"SELECT *, IF(id = 2, '{name}', 'good') AS _topic FROM changes WHERE _image = 'after'"}
    with pytest.raises(
        HandlerRefused,
        match=r"_topic gives a topic that Kafka does not allow for change \(16/B374D848, 1\): give a name of",
    ) as refused:
        spark(orders=rule).handle(batch(shop()))
    assert not name or f'"{name}"' not in str(refused.value)
    result = spark(orders={**rule, "on_error": "dead-letter"}).handle(batch(shop()))
    assert only(result).seq.tolist() == [0, 3]
    (aside,) = result.rejections
    assert (aside.column, aside.changes.seq.tolist(), aside.rule) == ("_topic", [1], "orders")
    assert aside.changes.columns == ORDERS


@pytest.mark.parametrize("name", ["op", "uuid", "part", "dead_letter_reason", "__debezium.newkey"])
def test_a_header_of_the_service_is_not_the_rule_s_to_give(spark: Any, name: str) -> None:
    rule = {"sql": f"SELECT *, IF(id = 1, map('{name}', 'x'), map('mine', 'x')) AS _headers FROM changes"}
    with pytest.raises(HandlerRefused, match="_headers gives a header whose name the service uses itself"):
        spark(orders=rule).handle(batch(shop()))
    result = spark(orders={**rule, "on_error": "dead-letter"}).handle(batch(shop()))
    assert [one.changes.seq.tolist() for one in result.rejections] == [[0]]


def test_names_of_headers_are_not_for_data(spark: Any) -> None:
    many = {row: [b"%d" % row, b"1.00", b"c", None] for row in range(101)}
    rule = {"sql": "SELECT *, map(CONCAT('h', id), 'x') AS _headers FROM changes"}
    with pytest.raises(HandlerRefused, match="_headers has 101 names of headers in one batch, more than 100"):
        spark(orders=rule).handle(batch(changes([INSERT] * 101, many, {})))


def test_what_old_rows_do_not_say_is_left_to_the_options_and_told(spark: Any, caplog: pytest.LogCaptureFixture) -> None:
    given = changes(
        [DELETE, UPDATE, INSERT],
        {1: [b"2", b"1.00", b"bob", None], 2: [b"3", b"1.00", b"cay", None]},
        {0: [b"1", None, None, None]},
        identity=ReplicaIdentity.DEFAULT,
    )
    rule = {"sql": "SELECT *, coalesce(customer, 'nobody') AS _key, concat('t', id) AS _topic FROM changes"}
    handler = spark(orders=rule)
    with caplog.at_level(logging.WARNING):
        made = only(handler.handle(batch(given)))
    assert said(made.before, "key") == [None]
    assert said(made.before, "topic") == [b"t1"]
    assert said(made.after, "key") == [b"bob", b"cay"]
    assert handler.stats()["unaddressed"] == 1
    assert "rows lack values of which it makes _topic, _key or _headers" in caplog.text


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("id AS _topic", "the column _topic is of type int: make it a string"),
        ("array(id) AS _key", "the column _key is of type array<int>: make it a string, or a struct"),
        ("map('a', 1) AS _headers", r"the column _headers is of type map<string,int>: make it a map<string,string>"),
        ("'1' AS _part", "the column _part is of type string: make it an integer"),
    ],
)
def test_columns_of_other_types_are_found_before_the_first_row(spark: Any, given: str, says: str) -> None:
    handler = spark(orders={"sql": f"SELECT *, {given} FROM changes"})
    (finding,) = handler.review({"db1": [shop().relation]})
    assert finding.severity is Severity.ERROR
    assert says in str(finding)
    with pytest.raises(HandlerRefused):
        handler.handle(batch(shop()))


def test_the_check_says_what_old_rows_will_lack(spark: Any) -> None:
    lines = postgres_table(1, "public", "lines", ReplicaIdentity.DEFAULT, (*ORDERS, postgres_column("tags", 25)))
    split = "SELECT *, tag AS _key FROM changes LATERAL VIEW explode(split(tags, ',')) AS tag"
    findings = list(spark(lines={"sql": split}).review({"db1": [lines]}))
    where, stay = "public.lines, rule 'lines'", "rows that an update or a delete removes stay with consumers"
    assert [one.problem for one in findings] == [
        f"{where}: the rule makes several rows of one, and old rows hold the key alone: {stay}",
        f"{where}: _key is made of tags, which old rows lack: deletes go where the sink's options say",
    ]
    assert {one.remedy for one in findings} == {"ALTER TABLE public.lines REPLICA IDENTITY FULL"}
    full = postgres_table(1, "public", "lines", ReplicaIdentity.FULL, (*ORDERS, postgres_column("tags", 25)))
    assert list(spark(lines={"sql": split}).review({"db1": [full]})) == []


def test_parts_may_go_to_topics_of_their_own(spark: Any) -> None:
    rule = (
        "SELECT *, 'orders' AS _topic FROM changes UNION ALL "
        "SELECT *, 'audit' AS _topic FROM changes WHERE amount > 15 AND _image = 'after'"
    )
    made = spark(orders={"sql": rule}).handle(batch(shop()))
    records = encoder_of("event", Router({}, "", ""), {}).encode(made)
    found = [(records.look_up_topic(at), int(records.seq[at]), records.find_part(at)) for at in range(len(records))]
    assert found == [("orders", 0, None), ("orders", 1, 0), ("audit", 1, 1), ("orders", 2, None), ("orders", 3, None)]
    assert values(only(made), "id") == [b"1", b"2", b"2", b"4"]
