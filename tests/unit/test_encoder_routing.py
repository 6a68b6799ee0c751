"""What the encoder leaves out and counts, and the topics that name a source."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np

from psql_streamer.events.routing import Router
from psql_streamer.model import (
    Batch,
    LogicalMessage,
    Relation,
    SchemaChange,
    TableStatement,
    TransactionMarks,
    TransactionMetadata,
    Truncate,
)
from tests.decoding import decode
from tests.encoding import encoder_of
from tests.pgoutput_wire import WireColumn, WireRelation, begin, commit, copy_data, insert, relation, xlog_data

KEYLESS = WireRelation(16400, "public", "keyless", (WireColumn("note"),), "n")
KEYED = WireRelation(16401, "public", "keyed", (WireColumn("id", 23, key=True),))


def batch(source: str = "db1") -> Batch:
    """Two inserts into keyless, one into keyed, and a truncate of each."""
    rows = [(KEYLESS, b"x"), (KEYLESS, b"y"), (KEYED, b"1")]
    changes = [insert(table.oid, (value,)) for table, value in rows]
    messages = [begin(100, 0, 7), relation(KEYLESS), relation(KEYED), *changes, commit(100, 120, 0)]
    (decoded,) = decode([copy_data(xlog_data(message)) for message in messages], 10)
    tables = [changes.relation for changes in decoded.changes]
    truncates = tuple(Truncate(table, 3 + at, 3 + at, 50, 0, False, False) for at, table in enumerate(tables))
    return replace(decoded, truncates=truncates, source=replace(decoded.source, name=source))


def test_excluded_tables_are_counted_apart_and_those_without_a_topic_by_table() -> None:
    records = encoder_of("flat", Router({}, "t", "", exclude=["keyless"]), {}).encode(batch())
    assert (records.excluded, records.skipped) == (3, {})
    assert set(records.topic_names) == {"t.public.keyed"}
    records = encoder_of("event", Router({"keyless": "k"}, "", ""), {}).encode(batch())
    assert (records.excluded, records.skipped) == (0, {"public.keyed": 2})


def messages(*prefixes: str) -> Batch:
    """A message of each prefix, outside of transactions."""
    told = (LogicalMessage(prefix, b"x", at, -1, 100 + at, -1) for at, prefix in enumerate(prefixes))
    return replace(batch(), changes=(), truncates=(), messages=tuple(told))


def test_messages_without_a_topic_are_counted_by_prefix_and_the_others_are_told() -> None:
    for router in (Router({}, "", "t"), Router({}, "", "t", "{prefix}")):
        found = encoder_of("event", router, {}).encode(messages(".", "p" * 300, ".", ""))
        assert len(found) == 0
        assert found.skipped_messages == {".": 2, "p" * 63 + "...": 1, "": 1}
    found = encoder_of("event", Router({}, "", "t", "{prefix}"), {}).encode(messages("..", "good", "." * 300))
    assert found.topic_names == ("good",)


def test_a_prefix_is_shown_short_and_on_one_line() -> None:
    prefix = "a\nb\x1b[31m\u202e" + "c" * 1000
    found = encoder_of("event", Router({}, "", "t", "m"), {}).encode(messages(prefix))
    assert found.table_names == ("a\\nb\\x1b[31m\\u202e" + "c" * 54 + "...",)
    assert json.loads(found.values[0].as_py())["Prefix"] == prefix


def test_shapes_of_excluded_tables_are_not_told() -> None:
    tables: list[Relation] = [changes.relation for changes in batch().changes]
    shapes = replace(batch(), schema_changes=tuple(SchemaChange(table, None, 0, 0, 0) for table in tables))
    encoder = encoder_of("event", Router({}, "t", "", exclude=["keyless"]), {}, schema_topic="shapes")
    assert encoder.encode(shapes).table_names.count("public.keyless") == 0
    assert "shapes" in encoder.encode(shapes).topic_names


def test_statements_about_excluded_tables_are_not_told_and_the_others_stand_before_the_rows_behind_them() -> None:
    tables: list[Relation] = [changes.relation for changes in batch().changes]
    statements = tuple(TableStatement(table, f"ALTER TABLE {table}", 2, 2, 0) for table in tables)
    given = replace(batch(), statements=statements, schema_changes=())
    encoder = encoder_of("event", Router({}, "t", "", exclude=["keyless"]), {}, schema_topic="shapes", headers=True)
    records = encoder.encode(given)
    assert [records.look_up_topic(at) for at in range(3)] == ["shapes", "t.public.keyed", "t.public.keyed"]
    told = json.loads(records.values[0].as_py())
    assert (told["op"], told["statement"]) == ("DDL", "ALTER TABLE public.keyed")
    assert ([column["name"] for column in told["before"]["columns"]], told["after"]) == (["id"], None)
    assert told["source"]["seq"] == 2
    assert records.headers["table"][0].as_py() == b"keyed"
    assert len(encoder_of("event", Router({}, "t", ""), {}).encode(given)) == 5


def test_two_sources_of_one_encoder_have_topics_of_their_own_where_rules_name_the_source() -> None:
    router = Router({}, "{source}", "", "")
    encoder = encoder_of(
        "debezium", router, {}, transaction_topic="{source}.transactions", schema_topic="{source}.shapes"
    )
    for source in ("db1", "db2"):
        one = batch(source)
        shape = SchemaChange(one.changes[0].relation, None, 0, 0, 0)
        begins = TransactionMetadata(TransactionMarks(np.zeros(1, np.int32), np.zeros(1, np.int64)))
        rows = tuple(replace(changes, table_seq=np.zeros(len(changes), np.int64)) for changes in one.changes)
        one = replace(one, changes=rows, schema_changes=(shape,), transaction_metadata=begins)
        told = encoder.encode(one)
        names = ("transactions", "shapes", "public.keyless", "public.keyed")
        assert set(told.topic_names) == {f"{source}.{name}" for name in names}
