"""The Kafka Connect schemas of Debezium's events, as Connect's JSON converter writes them with schemas.enable."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

from psql_streamer.events.debezium.types import Schema, connect_type, optional
from psql_streamer.model import MARIADB, MYSQL, POSTGRESQL, Column, Relation, SourceInfo

_REMEMBERED_SCHEMAS = 1 << 12


@lru_cache(_REMEMBERED_SCHEMAS)
def key_schema(server: str, relation: Relation, columns: tuple[Column, ...], key: tuple[int, ...]) -> bytes:
    """The schema of the records' keys. server: the source's name."""
    fields = [_column(columns[index]) for index in key]
    return _json(_struct(fields, f"{_name(server, relation)}.Key"))


@lru_cache(_REMEMBERED_SCHEMAS)
def envelope_schema(source: SourceInfo, relation: Relation, columns: tuple[Column, ...]) -> bytes:
    """The schema of the records' values."""
    rows = [_column(column) for column in columns]
    name = _name(source.name, relation)
    image = _struct(rows, f"{name}.Value", is_optional=True)
    fields = [
        _field("before", image),
        _field("after", image),
        _field("source", _source(source.kind)),
        _field("transaction", _TRANSACTION),
        _field("op", _STRING),
        *(_field(times, _OPTIONAL_INT64) for times in ("ts_ms", "ts_us", "ts_ns")),
    ]
    return _json(_struct(fields, f"{name}.Envelope", version=2))


def message_key_schema(source: SourceInfo) -> bytes:
    """The schema of the keys of logical messages."""
    return _json(_struct([_field("prefix", _OPTIONAL_STRING)], _connector_name(source.kind, "MessageKey"), version=1))


def message_schema(source: SourceInfo) -> bytes:
    """The schema of the values of logical messages."""
    message = _struct(
        [_field("prefix", _OPTIONAL_STRING), _field("content", {"type": "bytes", "optional": True})],
        _connector_name(source.kind, "Message"),
        version=1,
    )
    fields = [
        _field("op", _STRING),
        _field("ts_ms", _OPTIONAL_INT64),
        _field("source", _source(source.kind)),
        _field("transaction", _TRANSACTION),
        _field("message", message),
    ]
    return _json(_struct(fields, "io.debezium.connector.postgresql.MessageValue", version=1))


def transaction_key_schema() -> bytes:
    """The schema of the keys of records that say where a transaction begins or ends."""
    return _json(_struct([_field("id", _STRING)], "io.debezium.connector.common.TransactionMetadataKey", version=1))


def transaction_schema() -> bytes:
    """The schema of the values of records that say where a transaction begins or ends."""
    collection = _struct(
        [_field("data_collection", _STRING), _field("event_count", _INT64)],
        "event.collection",
        is_optional=True,
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


def _column(column: Column) -> Schema:
    """What the stream knows to be NOT NULL is the key."""
    return _field(column.name, optional(connect_type(column.type).schema, not column.key))


def _source(kind: str) -> Schema:
    fields = _OF_BINLOG if kind in (MYSQL, MARIADB) else [*_OF_EVERY_SOURCE, *_OF_KIND.get(kind, [])]
    return _struct(fields, _connector_name(kind, "Source"), version=1)


def _connector_name(kind: str, schema: str) -> str:
    return f"io.debezium.connector.{kind}.{schema}"


def _name(server: str, relation: Relation) -> str:
    """What the names of a table's schemas begin with: Debezium's name for its topic."""
    return re.sub(r"[^a-zA-Z0-9._-]", "_", f"{server}.{relation}")


def _field(name: str, schema: Schema) -> Schema:
    return {**schema, "field": name}


def _struct(fields: list[Schema], name: str, is_optional: bool = False, version: int | None = None) -> Schema:
    schema: Schema = {"type": "struct", "fields": fields, "optional": is_optional, "name": name}
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
    "parameters": {
        "allowed": "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental",
    },
    "default": "false",
}

_OF_EVERY_SOURCE = [
    _field("version", _STRING),
    _field("connector", _STRING),
    _field("name", _STRING),
    _field("ts_ms", _INT64),
    _field("snapshot", _SNAPSHOT),
    _field("db", _STRING),
    _field("sequence", _OPTIONAL_STRING),
    _field("ts_us", _OPTIONAL_INT64),
    _field("ts_ns", _OPTIONAL_INT64),
    _field("schema", _STRING),
    _field("table", _STRING),
]

_OF_POSTGRESQL = [
    _field("txId", _OPTIONAL_INT64),
    _field("lsn", _OPTIONAL_INT64),
    _field("xmin", _OPTIONAL_INT64),
    _field("origin", _OPTIONAL_STRING),
    _field("origin_lsn", _OPTIONAL_INT64),
]

_OF_KIND = {POSTGRESQL: _OF_POSTGRESQL}

_OF_BINLOG = [
    *(field for field in _OF_EVERY_SOURCE if field["field"] not in ("schema", "table")),
    _field("table", _OPTIONAL_STRING),
    _field("server_id", _INT64),
    _field("gtid", _OPTIONAL_STRING),
    _field("file", _STRING),
    _field("pos", _INT64),
    _field("row", {"type": "int32", "optional": False}),
    _field("thread", _OPTIONAL_INT64),
    _field("query", _OPTIONAL_STRING),
]

_TRANSACTION = _struct(
    [_field("id", _STRING), _field("total_order", _INT64), _field("data_collection_order", _INT64)],
    "event.block",
    is_optional=True,
    version=1,
)
