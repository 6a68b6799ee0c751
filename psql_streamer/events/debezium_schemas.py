"""The Kafka Connect schemas of Debezium's events, as Connect's JSON converter writes them with schemas.enable."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from psql_streamer.events.debezium_types import Schema, connect_type
from psql_streamer.model import Column, Relation

_REMEMBERED = 1 << 12


@lru_cache(_REMEMBERED)
def key_schema(server: str, relation: Relation, columns: tuple[Column, ...], key: tuple[int, ...]) -> bytes:
    """Of the records' keys. server: the source's name."""
    fields = [_column(relation, columns[index]) for index in key]
    return _json(_struct(fields, f"{server}.{relation}.Key"))


@lru_cache(_REMEMBERED)
def envelope_schema(server: str, relation: Relation, columns: tuple[Column, ...]) -> bytes:
    """Of the records' values."""
    rows = [_column(relation, column) for column in columns]
    image = _struct(rows, f"{server}.{relation}.Value", optional=True)
    fields = [
        _field("before", image),
        _field("after", image),
        _field("source", _SOURCE),
        _field("op", _STRING),
        _field("ts_ms", _OPTIONAL_INT64),
        _field("transaction", _TRANSACTION),
    ]
    return _json(_struct(fields, f"{server}.{relation}.Envelope", version=1))


def message_key_schema() -> bytes:
    """Of the keys of logical messages."""
    return _json(_struct([_field("prefix", _OPTIONAL_STRING)], "io.debezium.connector.postgresql.MessageKey"))


def message_schema() -> bytes:
    """Of the values of logical messages."""
    message = _struct(
        [_field("prefix", _OPTIONAL_STRING), _field("content", {"type": "bytes", "optional": True})],
        "io.debezium.connector.postgresql.Message",
    )
    fields = [
        _field("op", _STRING),
        _field("ts_ms", _OPTIONAL_INT64),
        _field("source", _SOURCE),
        _field("message", message),
    ]
    return _json(_struct(fields, "io.debezium.connector.postgresql.MessageValue"))


def transaction_key_schema() -> bytes:
    """Of the keys of records that say where a transaction begins or ends."""
    return _json(_struct([_field("id", _STRING)], "io.debezium.connector.common.TransactionMetadataKey", version=1))


def transaction_schema() -> bytes:
    """Of the values of these."""
    collection = _struct(
        [_field("data_collection", _STRING), _field("event_count", _INT64)],
        "event.collection",
        optional=True,
        version=1,
    )
    fields = [
        _field("status", _STRING),
        _field("id", _STRING),
        _field("event_count", _OPTIONAL_INT64),
        _field("data_collections", {"type": "array", "items": collection, "optional": True}),
        _field("ts_ms", _INT64),
    ]
    return _json(_struct(fields, "io.debezium.connector.common.TransactionMetadataValue", version=1))


def _column(relation: Relation, column: Column) -> Schema:
    """What the stream knows to be NOT NULL is the key; under FULL without a primary key all columns are flagged."""
    required = column.key and bool(relation.key_columns)
    kind = connect_type(column).schema
    head = ("type", "fields", "items")
    schema: Schema = {name: part for name, part in kind.items() if name in head}
    schema["optional"] = not required
    schema |= {name: part for name, part in kind.items() if name not in head}
    return _field(column.name, schema)


def _field(name: str, schema: Schema) -> Schema:
    return {**schema, "field": name}


def _struct(fields: list[Schema], name: str, optional: bool = False, version: int | None = None) -> Schema:
    schema: Schema = {"type": "struct", "fields": fields, "optional": optional, "name": name}
    return schema if version is None else {**schema, "version": version}


def _json(schema: Any) -> bytes:
    return json.dumps(schema, ensure_ascii=False, separators=(",", ":")).encode()


_STRING: Schema = {"type": "string", "optional": False}
_OPTIONAL_STRING: Schema = {"type": "string", "optional": True}
_INT64: Schema = {"type": "int64", "optional": False}
_OPTIONAL_INT64: Schema = {"type": "int64", "optional": True}

_SNAPSHOT: Schema = {
    "type": "string",
    "optional": True,
    "name": "io.debezium.data.Enum",
    "version": 1,
    "parameters": {"allowed": "true,last,false,incremental"},
    "default": "false",
}

_SOURCE = _struct(
    [
        _field("version", _STRING),
        _field("connector", _STRING),
        _field("name", _STRING),
        # Outside of a transaction a logical message has no time.
        _field("ts_ms", _OPTIONAL_INT64),
        _field("snapshot", _SNAPSHOT),
        _field("db", _STRING),
        _field("sequence", _OPTIONAL_STRING),
        _field("schema", _STRING),
        _field("table", _STRING),
        _field("txId", _OPTIONAL_INT64),
        _field("lsn", _OPTIONAL_INT64),
        _field("xmin", _OPTIONAL_INT64),
    ],
    "io.debezium.connector.postgresql.Source",
)

_TRANSACTION = _struct(
    [_field("id", _STRING), _field("total_order", _INT64), _field("data_collection_order", _INT64)],
    "event.block",
    optional=True,
    version=1,
)
