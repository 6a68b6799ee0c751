"""Records as Debezium's connectors write them with a schema registry."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import fastavro
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from psql_streamer.registry.proto_files import read_proto_files


def _optional(kind: Any) -> dict[str, Any]:
    return {"type": ["null", kind], "default": None}


_DECIMAL = {
    "type": "bytes",
    "scale": 2,
    "precision": 10,
    "logicalType": "decimal",
    "connect.name": "org.apache.kafka.connect.data.Decimal",
}
_ROW = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", **_optional("string")},
        {"name": "price", **_optional("double")},
        {"name": "photo", **_optional("bytes")},
        {"name": "paid", **_optional("boolean")},
        {"name": "changed", **_optional({"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"})},
    ],
    "connect.name": "shop.public.orders.Value",
}
_SOURCE = {
    "type": "record",
    "name": "Source",
    "namespace": "io.debezium.connector.postgresql",
    "fields": [
        {"name": "version", "type": "string"},
        {"name": "connector", "type": "string"},
        {"name": "name", "type": "string"},
        {"name": "ts_ms", "type": "long"},
        {"name": "snapshot", "type": [{"type": "string", "connect.default": "false"}, "null"], "default": "false"},
        {"name": "db", "type": "string"},
        {"name": "sequence", **_optional("string")},
        {"name": "schema", "type": "string"},
        {"name": "table", "type": "string"},
        {"name": "txId", **_optional("long")},
        {"name": "lsn", **_optional("long")},
        {"name": "xmin", **_optional("long")},
    ],
}

ENVELOPE: dict[str, Any] = {
    "type": "record",
    "name": "Envelope",
    "namespace": "shop.public.orders",
    "fields": [
        {"name": "before", "type": ["null", _ROW], "default": None},
        {"name": "after", **_optional("Value")},
        {"name": "source", "type": _SOURCE},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", **_optional("long")},
        {"name": "transaction", **_optional("string")},
    ],
}
"""Of the topic shop.public.orders."""

KEY: dict[str, Any] = {
    "type": "record",
    "name": "Key",
    "namespace": "shop.public.orders",
    "fields": [{"name": "id", "type": "long"}],
}

DECIMAL = _DECIMAL


PROTO_ROW = """
syntax = "proto3"; package shop.orders;
message Value {
  int64 id = 1;
  optional string name = 2;
  optional double price = 3;
  optional bytes photo = 4;
  optional bool paid = 5;
  optional int64 changed = 6;
}
"""
PROTO_ENVELOPE = """
syntax = "proto3"; package shop.orders;
import "shop/orders/value.proto";
message Envelope {
  message Source {
    string version = 1; string connector = 2; string name = 3; int64 ts_ms = 4; optional string snapshot = 5;
    string db = 6; optional string sequence = 7; string schema = 8; string table = 9; optional int64 txId = 10;
    optional int64 lsn = 11; optional int64 xmin = 12;
  }
  Value before = 1; Value after = 2; Source source = 3; string op = 4; optional int64 ts_ms = 5;
  optional string transaction = 6;
}
"""
PROTO_FILE = "shop/orders/value.proto"


def envelope(number: int, op: str = "c", **columns: Any) -> dict[str, Any]:
    """The change of the row with this id, as both the Avro and the JSON of it say. A delete has the key alone."""
    given = {"name": None, "price": None, "photo": None, "paid": None, "changed": None} | columns
    row = {"id": number, **given}
    place = number % 1_000_000 * 8
    return {
        "before": row if op == "d" else None,
        "after": None if op == "d" else row,
        "source": {
            "version": "3.3.0.Final",
            "connector": "postgresql",
            "name": "shop",
            "ts_ms": 1_795_000_000_000 + place,
            "snapshot": "false",
            "db": "shop",
            "sequence": f'["{place}","{place + 1}"]',
            "schema": "public",
            "table": "orders",
            "txId": place + 700,
            "lsn": place + 1,
            "xmin": None,
        },
        "op": op,
        "ts_ms": 1_795_000_000_100,
        "transaction": None,
    }


def avro(schema: Any, value: Any) -> bytes:
    """The binary encoding, without a frame."""
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(schema), value)
    return file.getvalue()


def protobuf(value: Mapping[str, Any]) -> bytes:
    """A message Envelope, with the index in front of it that says that it is the first message of its file."""
    pool = DescriptorPool()
    for file in read_proto_files(PROTO_ENVELOPE, {PROTO_FILE: PROTO_ROW}):
        pool.AddSerializedFile(file.SerializeToString())
    made: bytes = GetMessageClass(pool.FindMessageTypeByName("shop.orders.Envelope"))(**value).SerializeToString()
    return b"\0" + made


def framed(schema: int, payload: bytes) -> bytes:
    """As the serializers of a schema registry write it."""
    return b"\0" + schema.to_bytes(4, "big") + payload
