"""Records as Debezium's connectors write them with a schema registry."""

from __future__ import annotations

import io
from typing import Any

import fastavro


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


def framed(schema: int, payload: bytes) -> bytes:
    """As the serializers of a schema registry write it."""
    return b"\0" + schema.to_bytes(4, "big") + payload
