"""The Kafka Connect schemas of Debezium's events, as Connect's JSON converter writes them with schemas.enable."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from psql_streamer.events.debezium.connect_type import Schema
from psql_streamer.events.debezium.types import add_optional, choose_connect_type
from psql_streamer.model import OF_BINARY_LOGS, POSTGRESQL, Column, Relation, SourceInfo
from psql_streamer.pgtypes.descriptions import HashedColumns, hash_columns

_REMEMBERED_SCHEMAS = 1 << 12


def render_key_schema(server: str, relation: Relation, columns: tuple[Column, ...], key: tuple[int, ...]) -> bytes:
    """The schema of the records' keys. server: the source's name."""
    return _render_key_schema(server, relation, hash_columns(columns), key)


def render_envelope_schema(source: SourceInfo, relation: Relation, columns: tuple[Column, ...]) -> bytes:
    """The schema of the records' values."""
    return _render_envelope_schema(source, relation, hash_columns(columns))


@lru_cache(_REMEMBERED_SCHEMAS)
def _render_key_schema(server: str, relation: Relation, columns: HashedColumns, key: tuple[int, ...]) -> bytes:
    return _render_json(make_key_schema(server, relation, columns.value, key))


@lru_cache(_REMEMBERED_SCHEMAS)
def _render_envelope_schema(source: SourceInfo, relation: Relation, columns: HashedColumns) -> bytes:
    return _render_json(make_envelope_schema(source, relation, columns.value))


def make_key_schema(server: str, relation: Relation, columns: Sequence[Column], key: tuple[int, ...]) -> Schema:
    """The schema of the records' keys, which is not rendered yet."""
    fields = [_make_column(columns[index]) for index in key]
    return _make_struct(fields, f"{_make_schema_name(server, relation)}.Key")


def make_envelope_schema(source: SourceInfo, relation: Relation, columns: Sequence[Column]) -> Schema:
    """The same of their values."""
    rows = [_make_column(column) for column in columns]
    name = _make_schema_name(source.name, relation)
    image = _make_struct(rows, f"{name}.Value", is_optional=True)
    fields = [
        _make_field("before", image),
        _make_field("after", image),
        _make_field("source", _make_source(source.kind)),
        _make_field("transaction", _TRANSACTION),
        _make_field("op", _STRING),
        *(_make_field(times, _OPTIONAL_INT64) for times in ("ts_ms", "ts_us", "ts_ns")),
    ]
    return _make_struct(fields, f"{name}.Envelope", version=2)


def render_message_key_schema(source: SourceInfo) -> bytes:
    """The schema of the keys of logical messages."""
    return _render_json(make_message_key_schema(source))


def make_message_key_schema(source: SourceInfo) -> Schema:
    """The same, not rendered yet."""
    return _make_struct(
        [_make_field("prefix", _OPTIONAL_STRING)], _name_connector_schema(source.kind, "MessageKey"), version=1
    )


def render_message_schema(source: SourceInfo) -> bytes:
    """The schema of the values of logical messages."""
    return _render_json(make_message_schema(source))


def make_message_schema(source: SourceInfo) -> Schema:
    """The same, not rendered yet."""
    message = _make_struct(
        [_make_field("prefix", _OPTIONAL_STRING), _make_field("content", {"type": "bytes", "optional": True})],
        _name_connector_schema(source.kind, "Message"),
        version=1,
    )
    fields = [
        _make_field("op", _STRING),
        _make_field("ts_ms", _OPTIONAL_INT64),
        _make_field("source", _make_source(source.kind)),
        _make_field("transaction", _TRANSACTION),
        _make_field("message", message),
    ]
    return _make_struct(fields, "io.debezium.connector.postgresql.MessageValue", version=1)


def render_transaction_key_schema() -> bytes:
    """The schema of the keys of records that say where a transaction begins or ends."""
    return _render_json(make_transaction_key_schema())


def make_transaction_key_schema() -> Schema:
    """The same, not rendered yet."""
    name = "io.debezium.connector.common.TransactionMetadataKey"
    return _make_struct([_make_field("id", _STRING)], name, version=1)


def render_transaction_schema() -> bytes:
    """The schema of the values of records that say where a transaction begins or ends."""
    return _render_json(make_transaction_schema())


def make_transaction_schema() -> Schema:
    """The same, not rendered yet."""
    collection = _make_struct(
        [_make_field("data_collection", _STRING), _make_field("event_count", _INT64)],
        "event.collection",
        is_optional=True,
        version=1,
    )
    fields = [
        _make_field("status", _STRING),
        _make_field("id", _STRING),
        _make_field("event_count", _OPTIONAL_INT64),
        _make_field("data_collections", {"type": "array", "items": collection, "optional": True}),
        _make_field("ts_ms", _INT64),
    ]
    return _make_struct(fields, "io.debezium.connector.common.TransactionMetadataValue", version=1)


def _make_column(column: Column) -> Schema:
    """What the stream knows to be NOT NULL is the key."""
    return _make_field(column.name, add_optional(choose_connect_type(column.type).schema, not column.key))


def _make_source(kind: str) -> Schema:
    fields = _OF_BINLOG if kind in OF_BINARY_LOGS else [*_OF_EVERY_SOURCE, *_OF_KIND.get(kind, [])]
    return _make_struct(fields, _name_connector_schema(kind, "Source"), version=1)


def _name_connector_schema(kind: str, schema: str) -> str:
    return f"io.debezium.connector.{kind}.{schema}"


def _make_schema_name(server: str, relation: Relation) -> str:
    """What the names of a table's schemas begin with: Debezium's name for its topic."""
    return re.sub(r"[^a-zA-Z0-9._-]", "_", f"{server}.{relation}")


def _make_field(name: str, schema: Schema) -> Schema:
    return {**schema, "field": name}


def _make_struct(fields: list[Schema], name: str, is_optional: bool = False, version: int | None = None) -> Schema:
    schema: Schema = {"type": "struct", "fields": fields, "optional": is_optional, "name": name}
    return schema if version is None else {**schema, "version": version}


def _render_json(schema: Any) -> bytes:
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
    _make_field("version", _STRING),
    _make_field("connector", _STRING),
    _make_field("name", _STRING),
    _make_field("ts_ms", _INT64),
    _make_field("snapshot", _SNAPSHOT),
    _make_field("db", _STRING),
    _make_field("sequence", _OPTIONAL_STRING),
    _make_field("ts_us", _OPTIONAL_INT64),
    _make_field("ts_ns", _OPTIONAL_INT64),
    _make_field("schema", _STRING),
    _make_field("table", _STRING),
]

_OF_POSTGRESQL = [
    _make_field("txId", _OPTIONAL_INT64),
    _make_field("lsn", _OPTIONAL_INT64),
    _make_field("xmin", _OPTIONAL_INT64),
    _make_field("origin", _OPTIONAL_STRING),
    _make_field("origin_lsn", _OPTIONAL_INT64),
]

_OF_KIND = {POSTGRESQL: _OF_POSTGRESQL}

_OF_BINLOG = [
    *(field for field in _OF_EVERY_SOURCE if field["field"] not in ("schema", "table")),
    _make_field("table", _OPTIONAL_STRING),
    _make_field("server_id", _INT64),
    _make_field("gtid", _OPTIONAL_STRING),
    _make_field("file", _STRING),
    _make_field("pos", _INT64),
    _make_field("row", {"type": "int32", "optional": False}),
    _make_field("thread", _OPTIONAL_INT64),
    _make_field("query", _OPTIONAL_STRING),
]

_TRANSACTION = _make_struct(
    [_make_field("id", _STRING), _make_field("total_order", _INT64), _make_field("data_collection_order", _INT64)],
    "event.block",
    is_optional=True,
    version=1,
)
