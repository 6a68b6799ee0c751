"""The format `debezium-avro` says what `debezium` says: fastavro reads it, by the schema that goes with it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from psql_streamer.errors import SinkRefused
from psql_streamer.events.encoder import Encoder
from psql_streamer.events.routing import Route, Router
from psql_streamer.model import ArrowType, Batch, Changes, Column, PostgresType, Relation, Truncate
from psql_streamer.pgtypes.builtin import OIDS
from tests.avro_format import AvroWithoutRegistry
from tests.encoding import encoder_of
from tests.golden import TABLES, batches
from tests.same_events import assert_same_events
from tests.unit import test_addressed_events as addressed
from tests.unit import test_debezium_observed as observed
from tests.unit import test_made_columns as made
from tests.unit.test_event_reader import GTIDS, binlog_batch

ONE_TOPIC = Router({}, "", "t", "messages")


def test_events_of_captured_streams_and_of_snapshots_are_the_same() -> None:
    router = Router(dict.fromkeys(TABLES, "{table}"), "", "", "messages")
    assert sum(assert_same_events(batch, router) for batch in batches()) > 300


@pytest.mark.behaviour("A1")
def test_events_of_every_type_that_debezium_was_observed_with_are_the_same() -> None:
    assert assert_same_events(observed.batch(), Router({}, "shop", "", "shop.message")) > 100


@pytest.mark.parametrize("flavor", GTIDS)
def test_events_of_a_binary_log_are_the_same(flavor: str) -> None:
    assert assert_same_events(binlog_batch(flavor), ONE_TOPIC)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([made.VALUE, None], made.EVERYTHING),
        pa.array(['a "quoted" \\ text\n', "ż", "", None]),
        pa.array([True, None, False]),
        pa.array([0.1, float("nan"), float("inf"), -0.0, None]),
        pa.array([1.5, float("-inf"), None], pa.float32()),
        pa.array([b"\x00\xff", b"", None]),
        pa.array([-(1 << 63), (1 << 63) - 1, 0, -1, 63, 64, -64, -65, 8191, 8192, None]),
        pa.array([[1, None], [], None], pa.list_(pa.int64())),
    ],
    ids=lambda column: str(column.type)[:20],
)
def test_columns_that_a_rule_made_are_the_same(column: pa.Array) -> None:
    assert_same_events(made.batch(column), ONE_TOPIC)


@pytest.mark.parametrize(
    ("kind", "typmod", "texts"),
    [
        (
            "numeric",
            -1,
            ["0", "-0.5", "1.50", "100", "12345678901234567890.123", "NaN", "0.000001", "-1", "128", "-129"],
        ),
        ("numeric", (10 << 16 | 2) + 4, ["0.00", "-0.01", "99999999.99", "1.27", "1.28", "-1.28", "-1.29", "NaN"]),
        ("numeric", (38 << 16 | 9) + 4, ["12345678901234567890123456789.123456789", "-0.000000001", "0.000000000"]),
        ("bytea", -1, ["\\x", "\\x00ff", "\\x5C"]),
        ("int8", -1, ["9223372036854775807", "-9223372036854775808", "0"]),
        ("float4", -1, ["NaN", "-Infinity", "1e-20", "0.1"]),
        ("float8", -1, ["Infinity", "1e+300", "-0", "123456789012345680"]),
        ("date", -1, ["2024-02-29", "infinity", "0044-03-15 BC"]),
        ("timestamptz", -1, ["2024-02-29 12:00:00.5+00", "-infinity"]),
        (1007, -1, ["{1,NULL,3}", "{}", "{{1,2},{3,4}}"]),
        (1009, -1, ['{a,"b \\"c\\"",NULL}', "{}"]),
        ("point", -1, ["(1,-2.5)"]),
        ("jsonb", -1, ['{"a": "\\u0001\\n"}', "null"]),
        ("interval", -1, ["P1Y2M3DT4H5M6.789S"]),
    ],
)
def test_values_of_postgresql_are_the_same(kind: str | int, typmod: int, texts: list[str]) -> None:
    oid = OIDS[kind] if isinstance(kind, str) else kind  # arrays have no name there
    values = [*(text.encode() for text in texts), None]
    columns = (
        Column("id", PostgresType(OIDS["int4"]), key=True),
        Column("value", PostgresType(oid, typmod)),
    )
    arrays = [pa.array([b"%d" % at for at in range(len(values))], pa.binary()), pa.array(values, pa.binary())]
    assert_same_events(batch_of(columns, arrays), ONE_TOPIC)


def test_texts_of_all_lengths_are_the_same() -> None:
    texts = ["x" * length for length in (0, 1, 63, 64, 4095, 4096, 8191, 8192, 100_000)]
    assert_same_events(made.batch(pa.array(texts)), ONE_TOPIC)


def test_a_key_that_a_row_names_itself_stands_as_it_is_without_a_frame() -> None:
    rows = addressed.rows(addressed.INSERT, addressed.INSERT, after=[{"key": b"k"}, {}])
    form = AvroWithoutRegistry()
    keys = Encoder(form, ONE_TOPIC, {}).encode(addressed.batch(rows)).keys.to_pylist()
    assert (keys[0], form.read(keys[1])) == (b"k", {"id": 1})


def test_each_topic_is_asked_for_with_its_own_keys() -> None:
    router = Router({"orders": (Route("a"), Route("b", ("item",)))}, "", "")
    form = AvroWithoutRegistry()
    records = Encoder(form, router, {}).encode(addressed.batch(addressed.rows(addressed.INSERT)))
    keys = {records.look_up_topic(at): form.read(records.keys[at].as_py()) for at in range(2)}
    assert keys == {"a": {"id": 0}, "b": {"item": "new"}}
    assert {(topic, is_key) for topic, is_key, _ in form.asked} == {
        (topic, is_key) for topic in "ab" for is_key in (True, False)
    }


def test_a_schema_is_asked_for_once_whatever_batches_come() -> None:
    form = AvroWithoutRegistry()
    encoder, batch = Encoder(form, ONE_TOPIC, {}), addressed.batch(addressed.rows(addressed.INSERT, addressed.UPDATE))
    for _ in range(3):
        encoder.encode(batch)
    assert len(form.asked) == 2


def test_a_truncate_has_the_schema_of_the_tables_rows_whatever_columns_a_rule_gave_them() -> None:
    """Another one could be refused as a version of it."""
    made_by_rule = made.batch(pa.array(["x"]))
    relation = made_by_rule.changes[0].relation
    with_truncate = replace(made_by_rule, truncates=(Truncate(relation, 100, 1, 0, 0, False, False),))
    form = AvroWithoutRegistry()
    records = Encoder(form, ONE_TOPIC, {}).encode(with_truncate)
    assert [form.read(value)["op"] for value in records.values.to_pylist()] == ["c", "t"]
    assert len({text for _, is_key, text in form.asked if not is_key}) == 1


def test_a_truncate_before_the_first_row_has_the_schema_of_the_table() -> None:
    relation = made.batch(pa.array(["x"])).changes[0].relation
    alone = replace(made.batch(pa.array(["x"])), changes=(), truncates=(Truncate(relation, 0, 0, 0, 0, False, False),))
    form = AvroWithoutRegistry()
    [value] = Encoder(form, ONE_TOPIC, {}).encode(alone).values.to_pylist()
    assert form.read(value)["op"] == "t"


def test_rows_without_a_key_have_none_and_no_schema_of_one() -> None:
    columns = (Column("note", ArrowType(pa.string())),)
    form = AvroWithoutRegistry()
    records = Encoder(form, ONE_TOPIC, {}).encode(batch_of(columns, [pa.array(["a"])]))
    assert records.keys.to_pylist() == [None]
    assert [is_key for _, is_key, _ in form.asked] == [False]


@pytest.mark.parametrize(("key", "text"), [(True, "NaN"), (False, "NaN")])
def test_a_key_that_avro_has_no_value_for_is_refused_with_its_column(key: bool, text: str) -> None:
    columns = (Column("n", PostgresType(OIDS["numeric"]), key=key),)
    encoder = encoder_of("debezium-avro", ONE_TOPIC, {"*": ("n",)})
    with pytest.raises(SinkRefused, match=r'a row of public\.t has a value in its key column "n"') as refusal:
        encoder.encode(batch_of(columns, [pa.array([text.encode()], pa.binary())]))
    assert text not in str(refusal.value)


def test_a_null_in_a_key_column_that_has_none_is_refused() -> None:
    columns = (Column("n", PostgresType(OIDS["int4"]), key=True),)
    with pytest.raises(SinkRefused, match='key column "n"'):
        encoder_of("debezium-avro", ONE_TOPIC, {}).encode(batch_of(columns, [pa.array([None], pa.binary())]))


def test_a_value_that_is_no_number_is_null_and_counted() -> None:
    columns = (Column("id", PostgresType(OIDS["int4"]), key=True), Column("n", PostgresType(OIDS["int8"])))
    arrays = [pa.array([b"1", b"2"], pa.binary()), pa.array([b"7", b"seven"], pa.binary())]
    form = AvroWithoutRegistry()
    records = Encoder(form, ONE_TOPIC, {}).encode(batch_of(columns, arrays))
    assert [form.read(value)["after"]["n"] for value in records.values.to_pylist()] == [7, None]
    assert records.nulled == {"public.t.n": 1}


def test_two_columns_that_would_have_one_name_are_refused_with_both() -> None:
    columns = (Column("a-b", ArrowType(pa.int64()), key=True), Column("a.b", ArrowType(pa.int64())))
    with pytest.raises(SinkRefused, match=r'the columns "a-b" and "a\.b"'):
        encoder_of("debezium-avro", ONE_TOPIC, {}).encode(batch_of(columns, [pa.array([1]), pa.array([2])]))


def test_names_that_avro_does_not_have_are_adjusted() -> None:
    columns = (Column("id", ArrowType(pa.int64()), key=True), Column("2nd größe", ArrowType(pa.int64())))
    form = AvroWithoutRegistry()
    Encoder(form, ONE_TOPIC, {}).encode(batch_of(columns, [pa.array([1]), pa.array([2])]))
    (envelope,) = [json.loads(text) for _, is_key, text in form.asked if not is_key]
    fields = envelope["fields"][0]["type"][1]["fields"]
    assert [field["name"] for field in fields] == ["id", "_2nd_gr__e"]


def batch_of(columns: tuple[Column, ...], arrays: list[pa.Array]) -> Batch:
    """Inserts of one transaction into a table."""
    relation = Relation("t", "public", "t", columns)
    changes = Changes.from_new_rows(relation, arrays, np.zeros(len(arrays[0]), np.int32))
    return replace(made.batch(pa.array([1])), changes=(changes,))
