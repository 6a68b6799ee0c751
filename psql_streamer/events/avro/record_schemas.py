"""The Avro schemas of records, as a registry takes them, by what the records are of."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import NamedTuple

from psql_streamer.cells import Shape
from psql_streamer.events.avro.schemas import adjust_full_name, make_avro_schema
from psql_streamer.events.debezium.connect_type import Schema
from psql_streamer.events.debezium.schemas import (
    make_envelope_schema,
    make_key_schema,
    make_message_key_schema,
    make_message_schema,
    make_transaction_key_schema,
    make_transaction_schema,
)
from psql_streamer.model import Relation, SourceInfo
from psql_streamer.pgtypes.descriptions import HashedColumns, hash_columns

_REMEMBERED_SCHEMAS = 1 << 12


class RecordSchema(NamedTuple):
    """name: of the record, with its namespace. text: the schema, as JSON."""

    name: str
    text: str


def find_key_schema(source: SourceInfo, shape: Shape, key: tuple[int, ...]) -> RecordSchema:
    """Of keys of rows. SinkRefused: two columns get one name."""
    return _find_key_schema(source.name, shape.relation, hash_columns(shape.columns), key)


def find_envelope_schema(source: SourceInfo, shape: Shape) -> RecordSchema:
    """Of values of rows, and of truncates. SinkRefused, as above."""
    return _find_envelope_schema(source, shape.relation, hash_columns(shape.columns))


@lru_cache
def find_message_schemas(source: SourceInfo) -> tuple[RecordSchema, RecordSchema]:
    """Of keys and values of logical messages."""
    return _describe(make_message_key_schema(source)), _describe(make_message_schema(source))


@cache
def find_transaction_schemas() -> tuple[RecordSchema, RecordSchema]:
    """Of keys and values of records that say where transactions begin and end."""
    return _describe(make_transaction_key_schema()), _describe(make_transaction_schema())


@lru_cache(_REMEMBERED_SCHEMAS)
def _find_key_schema(server: str, relation: Relation, columns: HashedColumns, key: tuple[int, ...]) -> RecordSchema:
    return _describe(make_key_schema(server, relation, columns.value, key))


@lru_cache(_REMEMBERED_SCHEMAS)
def _find_envelope_schema(source: SourceInfo, relation: Relation, columns: HashedColumns) -> RecordSchema:
    return _describe(make_envelope_schema(source, relation, columns.value))


def _describe(schema: Schema) -> RecordSchema:
    return RecordSchema(adjust_full_name(schema["name"]), make_avro_schema(schema))
