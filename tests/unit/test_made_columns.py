"""Columns that a handler made: structs, arrays and maps of anything, in every format and under Connect's schemas."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from psql_streamer.events.routing import Router
from psql_streamer.lsn import Lsn
from psql_streamer.model import (
    POSTGRESQL,
    ArrowType,
    Batch,
    Changes,
    Column,
    Image,
    ReplicaIdentity,
    RowOp,
    SourceInfo,
    Transactions,
)
from psql_streamer.pgoutput.wal_position import WalPosition
from tests.columns import postgres_column, postgres_table
from tests.connect_schema import misfits
from tests.encoding import JSON_FORMATS, encoder_of

ID = postgres_column("id", 23, key=True)
ORDERS = postgres_table(16400, "public", "orders", ReplicaIdentity.DEFAULT, (ID,))

MOMENTS = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31))
LEAVES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int8(), st.integers(-128, 127)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float32(), st.integers(-(2**20), 2**20).map(lambda eighths: eighths / 8)),
    (pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
    (pa.string(), st.text(st.characters(exclude_categories=["Cs"]), max_size=6)),
    (pa.binary(), st.binary(max_size=6)),
    (pa.decimal128(12, 2), st.decimals(-(10**9), 10**9, places=2)),
    (pa.decimal128(38, 10), st.decimals(-(10**9), 10**9, places=10)),
    (pa.date32(), st.dates()),
    (pa.timestamp("us"), MOMENTS),
    (pa.timestamp("us", tz="UTC"), MOMENTS.map(lambda moment: moment.replace(tzinfo=UTC))),
]
KEYS = [LEAVES[5], LEAVES[2], LEAVES[9]]
"""Of maps: strings, and others."""


@st.composite
def columns(draw: st.DrawFn) -> pa.Array:
    """Some values of some type."""
    kind, values = draw(types(3))
    made = pa.array(draw(st.lists(values, max_size=5)), kind)
    first = draw(st.integers(0, len(made)))
    return made[first : draw(st.integers(first, len(made)))]


@st.composite
def types(draw: st.DrawFn, depth: int) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
    """A type, and a strategy of its values as `pa.array` takes them."""
    of = draw(st.sampled_from(["leaf", "list", "struct", "map"] if depth else ["leaf"]))
    if of == "leaf":
        kind, values = draw(st.sampled_from(LEAVES))
    elif of == "list":
        item, items = draw(types(depth - 1))
        kind, values = pa.list_(item), st.lists(items, max_size=3)
    elif of == "map":
        (key, keys), (item, items) = draw(st.sampled_from(KEYS)), draw(types(depth - 1))
        kind, values = pa.map_(key, item), st.dictionaries(keys, items, max_size=3).map(lambda held: list(held.items()))
    else:
        names = draw(st.lists(st.sampled_from(["a", "b c", 'd"', "ż"]), unique=True, max_size=3))
        parts = {name: draw(types(depth - 1)) for name in names}
        kind = pa.struct([pa.field(name, part) for name, (part, _) in parts.items()])
        values = st.fixed_dictionaries({name: items for name, (_, items) in parts.items()})
    return kind, st.one_of(values, st.none())


@given(column=columns())
def test_a_made_column_says_in_json_what_it_holds(column: pa.Array) -> None:
    rows = [value["Columns"]["made"] for value in encoded("event", column)]
    assert rows == [as_json(value, column.type) for value in column.to_pylist()]
    assert rows == [value["after"]["made"] for value in encoded("envelope", column)]
    assert rows == [value["made"] for value in encoded("flat", column)]


@given(column=columns())
def test_a_made_column_fits_its_connect_schema(column: pa.Array) -> None:
    for record in encoded("debezium", column, schemas=True):
        assert misfits(record["schema"], record["payload"]) == []
    bare = [value["after"]["made"] for value in encoded("debezium", column)]
    assert bare == [record["payload"]["after"]["made"] for record in encoded("debezium", column, schemas=True)]


EVERYTHING = pa.struct(
    [
        ("n", pa.decimal128(12, 2)),
        ("at", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
        ("day", pa.date32()),
        ("raw", pa.binary()),
        ("ratio", pa.float64()),
        ("tags", pa.list_(pa.string())),
        ("by_name", pa.map_(pa.string(), pa.int32())),
        ("by_number", pa.map_(pa.int32(), pa.string())),
        ("many", pa.list_(pa.struct([("x", pa.int16())]))),
    ]
)
VALUE = {
    "n": Decimal("12.50"),
    "at": datetime(2024, 2, 29, 12, 0, 0, 500_000, UTC),
    "local": datetime(2024, 2, 29, 12),
    "day": date(1970, 1, 2),
    "raw": b"\x00\xff",
    "ratio": 1.0,
    "tags": ["a", None],
    "by_name": [("one", 1), ("two", None)],
    "by_number": [(1, "one")],
    "many": [{"x": 1}, None],
}


@pytest.mark.parametrize("form", ["event", "envelope", "flat"])
def test_a_struct_is_an_object_and_a_map_with_strings_as_keys_too(form: str) -> None:
    (value,) = encoded(form, pa.array([VALUE], EVERYTHING))
    row = value.get("Columns") or value.get("after") or value
    assert row["made"] == {
        "n": 12.5,
        "at": "2024-02-29T12:00:00.5Z",
        "local": "2024-02-29T12:00:00",
        "day": "1970-01-02",
        "raw": "AP8=",
        "ratio": 1,
        "tags": ["a", None],
        "by_name": {"one": 1, "two": None},
        "by_number": [[1, "one"]],
        "many": [{"x": 1}, None],
    }


def test_what_is_inside_of_a_struct_is_in_debezium_what_a_column_of_its_type_is() -> None:
    (record,) = encoded("debezium", pa.array([VALUE], EVERYTHING), schemas=True)
    assert record["payload"]["after"]["made"] == {
        "n": "BOI=",
        "at": "2024-02-29T12:00:00.500000Z",
        "local": 1709208000000000,
        "day": 1,
        "raw": "AP8=",
        "ratio": 1.0,
        "tags": ["a", None],
        "by_name": {"one": 1, "two": None},
        "by_number": [[1, "one"]],
        "many": [{"x": 1}, None],
    }
    _, made = record["schema"]["fields"][1]["fields"]
    fields = {field.pop("field"): field for field in made["fields"]}
    assert (made["type"], made["optional"], made["field"]) == ("struct", True, "made")
    assert fields["n"]["name"] == "org.apache.kafka.connect.data.Decimal"
    assert fields["at"]["name"] == "io.debezium.time.ZonedTimestamp"
    assert fields["local"]["name"] == "io.debezium.time.MicroTimestamp"
    assert fields["day"]["name"] == "io.debezium.time.Date"
    assert fields["raw"] == {"type": "bytes", "optional": True}
    assert fields["by_name"] == {
        "type": "map",
        "keys": {"type": "string", "optional": False},
        "values": {"type": "int32", "optional": True},
        "optional": True,
    }
    item = {"type": "struct", "fields": [{"type": "int16", "optional": True, "field": "x"}], "optional": True}
    assert fields["many"] == {"type": "array", "items": item, "optional": True}


def test_two_structs_under_one_name_have_a_schema_each() -> None:
    for kind in (pa.int32(), pa.string()):
        column = pa.array([None], pa.struct([("x", kind)]))
        (record,) = encoded("debezium", column, schemas=True)
        _, made = record["schema"]["fields"][1]["fields"]
        assert made["fields"][0]["type"] == {"int32": "int32", "string": "string"}[str(kind)]


@pytest.mark.parametrize("form", JSON_FORMATS)
@pytest.mark.parametrize(
    "column",
    [
        pa.array([1 << 63], pa.uint64()),
        pa.array([None], pa.null()),
        pa.array([1_500_000], pa.duration("us")),
        pa.array([Decimal(1)], pa.decimal256(50, 2)),
        pa.array(["x"], pa.large_string()),
        pa.array(["x"]).dictionary_encode(),
        pa.array([[1]], pa.list_(pa.int32(), 1)),
        pa.array([[1]], pa.large_list(pa.int32())),
        pa.array([1_500_000_000], pa.timestamp("ns", tz="Europe/Warsaw")),
    ],
    ids=lambda column: str(column.type),
)
def test_types_that_postgresql_has_no_counterpart_of_go_out_all_the_same(form: str, column: pa.Array) -> None:
    assert len(list(encoded(form, column))) == 1
    for record in encoded("debezium", column, schemas=True):
        assert misfits(record["schema"], record["payload"]) == []


def encoded(form: str, column: pa.Array, **options: Any) -> Sequence[Any]:
    """The values of a batch of inserts in which a handler made a column."""
    records = encoder_of(form, Router({}, "", "t"), {}, **options).encode(batch(column))
    return [json.loads(value) for value in records.values.to_pylist()]


def batch(column: pa.Array) -> Batch:
    rows = len(column)
    at = np.arange(rows)
    changes = Changes(
        relation=ORDERS,
        columns=(ID, Column("made", ArrowType(column.type))),
        batch_order=at,
        op=np.full(rows, RowOp.INSERT, np.uint8),
        seq=at,
        place=np.full(rows, 900, np.uint64),
        tx=np.zeros(rows, np.int32),
        table_seq=at,
        after=Image((pa.array([b"%d" % row for row in at], pa.binary()), column), at),
        before=Image((pa.array([], pa.binary()), column[:0]), at[:0]),
    )
    transactions = Transactions(np.array([1000], np.uint64), np.array([0], np.int64), pa.array([7]))
    return Batch(
        SourceInfo(POSTGRESQL, "db1", "localhost", "shop"),
        WalPosition(Lsn(1008)).position,
        transactions,
        (changes,) if rows else (),
    )


def as_json(value: Any, kind: pa.DataType) -> Any:
    """What json.loads should make of a value."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: as_json(value[field.name], field.type) for field in kind}
    if pa.types.is_list(kind):
        return [as_json(item, kind.value_type) for item in value]
    if pa.types.is_map(kind):
        pairs = [(as_json(key, kind.key_type), as_json(item, kind.item_type)) for key, item in value]
        return dict(pairs) if pa.types.is_string(kind.key_type) else [list(pair) for pair in pairs]
    if isinstance(value, Decimal):
        return json.loads(format(value, "f"))
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        text = value.replace(tzinfo=None).isoformat()
        text = text.rstrip("0") if value.microsecond else text
        return text + "Z" * (value.tzinfo is not None)
    return value.isoformat() if isinstance(value, date) else value
