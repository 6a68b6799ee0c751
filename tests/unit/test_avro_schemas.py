"""Avro's schemas and bytes are those that Connect's AvroData gives.

tests/data/debezium/avro.jsonl: Kafka Connect schemas of Debezium's connectors for PostgreSQL (3.6.3.Final) and MySQL
(3.6.1.Final) as Connect's JSON converter writes them, what io.apicurio.registry.utils.converter.avro.AvroData
(2.6.13.Final, a fork of Confluent's) made of each, and payloads with the bytes that Avro 1.12 wrote.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest

from psql_streamer.errors import SinkRefused
from psql_streamer.events.avro.schemas import adjust_full_name, adjust_name, make_avro_schema
from psql_streamer.events.avro.values import encode_value
from psql_streamer.events.debezium.schemas import make_envelope_schema
from psql_streamer.model import Column, PostgresType, Relation
from psql_streamer.pgtypes.builtin import OIDS
from psql_streamer.pgtypes.modifiers import VARHDRSZ
from tests.decoding import SOURCE

DATA = Path(__file__).parents[1] / "data" / "debezium" / "avro.jsonl"


def test_schemas_and_bytes_are_the_observed_ones() -> None:
    names = set()
    for seen in observed():
        names.add(seen["connect"]["name"])
        assert make_avro_schema(seen["connect"]) == seen["avro"]
        for payload, data in seen["records"]:
            assert encode_value(seen["connect"], payload).hex() == data
    assert names >= {
        "shop.public.typed.Key",
        "shop.public.typed.Envelope",
        "io.debezium.connector.postgresql.MessageValue",
        "io.debezium.connector.common.TransactionMetadataValue",
    }


def observed() -> Iterator[Any]:
    with DATA.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


@pytest.mark.parametrize(
    ("name", "adjusted"),
    [
        ("id", "id"),
        ("with-hyphen", "with_hyphen"),
        ("with.dot", "with_dot"),
        ("1st", "_1st"),
        ("größe", "gr__e"),
        ("żółć 🐘", "_______"),
        ("$", "_"),
        ("_under", "_under"),
        ("", "_"),
    ],
)
def test_names_are_adjusted_as_debezium_does(name: str, adjusted: str) -> None:
    assert adjust_name(name) == adjusted


def test_each_part_of_a_records_name_is_one_that_avro_takes() -> None:
    """Debezium leaves a digit at the beginning of other parts than the first, which Avro 1.12 refuses."""
    assert adjust_full_name("my-shop.1.2nd table.Key") == "my_shop._1._2nd_table.Key"


@pytest.mark.parametrize(("scale", "is_decimal"), [(0, True), (3, True), (5, False), (-2, False)])
def test_a_numeric_that_is_no_decimal_of_avros_is_bytes_there(scale: int, is_decimal: bool) -> None:
    """fastavro and Confluent's client for Python, which uses it, read no schema with others."""
    columns = [Column("n", PostgresType(OIDS["numeric"], (3 << 16 | scale & 0x7FF) + VARHDRSZ))]
    envelope = make_envelope_schema(SOURCE, Relation("t", "public", "t", tuple(columns)), columns)
    made = json.loads(make_avro_schema(envelope))
    fastavro.parse_schema(made)
    [field] = made["fields"][0]["type"][1]["fields"]
    assert field["type"][1]["connect.name"] == "org.apache.kafka.connect.data.Decimal"
    assert ("logicalType" in field["type"][1]) is is_decimal


def test_structs_without_a_name_get_one_each_and_equal_ones_the_same() -> None:
    x, y = ({"type": "struct", "optional": True, "fields": [string(name)]} for name in "xy")
    fields = [{**x, "field": "a"}, {**y, "field": "b"}, {**x, "field": "c"}]
    made = json.loads(make_avro_schema({"type": "struct", "name": "t.Value", "fields": fields}))
    first, second, third = (field["type"][1] for field in made["fields"])
    assert (first["namespace"], first["name"], second["name"]) == (
        "io.confluent.connect.avro",
        "ConnectDefault",
        "ConnectDefault2",
    )
    assert third == "io.confluent.connect.avro.ConnectDefault"


def test_a_map_with_other_keys_than_strings_is_an_array_of_entries() -> None:
    integers = {"type": "map", "keys": {"type": "int32"}, "values": {"type": "string", "optional": True}, "field": "m"}
    made = json.loads(make_avro_schema({"type": "struct", "name": "t.Value", "fields": [integers]}))
    entry = made["fields"][0]["type"]["items"]
    assert [field["name"] for field in entry["fields"]] == ["key", "value"]
    assert encode_value(integers, [[1, "a"], [2, None]]) == b"\x04\x02\x02\x02a\x04\x00\x00"


def test_a_type_of_connect_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="no type decimal"):
        encode_value({"type": "decimal"}, 1)


def test_two_fields_of_one_name_are_refused_with_both_names_and_the_record() -> None:
    schema = {"type": "struct", "name": "shop.public.t.Value", "fields": [string("a-b"), string("a b")]}
    with pytest.raises(SinkRefused, match=r'"a-b" and "a b" of shop\.public\.t\.Value') as refusal:
        make_avro_schema(schema)
    assert "excludeColumns" in refusal.value.remedy


def string(name: str) -> dict[str, Any]:
    return {"type": "string", "optional": False, "field": name}
