"""How the position store writes what it remembers: JSON objects by name, under a format version. Pure.

Format 1 is that of files without a version; there the shape of a table is a list, in the order of Relation's fields. In
formats 1 and 2 the fields of a position stand beside the others.
A name that is not known here was written by another version of the same format, and is kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from psql_streamer.model import Column, Position, Relation, ReplicaIdentity

FORMAT = 3
"""What is written, and the newest that is read."""


@dataclass(frozen=True, slots=True)
class StoredPosition:
    """What is remembered of a source: how far its changes are durable, and of which stream that is true.

    stream: Source.stream_identity. override: the place that the source was sent to last (Source.position_override), as
    text; empty for none.
    """

    position: Position
    stream: Mapping[str, str]
    override: str = ""


def encode_position(stored: StoredPosition, before: bytes | None) -> bytes:
    """before: what was written of the source the last time, if anything was."""
    fields = {
        "position": dict(stored.position.data),
        "shown": stored.position.shown,
        "stream": dict(stored.stream),
        "override": stored.override,
    }
    return json.dumps(_without_old_fields(_unknown_fields(before)) | fields).encode()


def decode_position(written: bytes) -> StoredPosition:
    """Raises ValueError, KeyError or TypeError for what is no position."""
    fields = json.loads(bytes(written))
    if "position" not in fields:
        return _position_of_format_2(fields)
    position = Position(dict(fields["position"]), str(fields["shown"]))
    return StoredPosition(position, dict(fields["stream"]), str(fields.get("override", "")))


def encode_relation(relation: Relation, before: bytes | None) -> bytes:
    """Without what the source knows of the types: it asks again. before: what was written of the table, if anything."""
    fields = {
        "oid": relation.oid,
        "schema": relation.schema,
        "table": relation.table,
        "replica_identity": chr(relation.replica_identity),
        "columns": [_column_fields(column) for column in relation.columns],
        "version": relation.version,
        "keyed": relation.keyed,
    }
    return json.dumps(_unknown_fields(before) | fields).encode()


def decode_relation(written: bytes) -> Relation:
    """Raises ValueError, KeyError or TypeError for what is no shape of a table."""
    fields = json.loads(bytes(written))
    if isinstance(fields, list):
        return _relation_of_format_1(fields)
    columns = [
        Column(column["name"], column["type_oid"], column["typmod"], column["key"]) for column in fields["columns"]
    ]
    identity = ReplicaIdentity(ord(fields["replica_identity"]))
    table = fields["oid"], fields["schema"], fields["table"]
    return Relation(*table, identity, tuple(columns), fields["version"], fields["keyed"])


def _column_fields(column: Column) -> dict[str, Any]:
    return {"name": column.name, "type_oid": column.type_oid, "typmod": column.typmod, "key": column.key}


def _unknown_fields(before: bytes | None) -> dict[str, Any]:
    """All fields of an object that was written before; those that are known are overwritten."""
    fields = None if before is None else json.loads(bytes(before))
    return fields if isinstance(fields, dict) else {}


_POSITION_OF_FORMAT_2 = ("lsn", "commit_lsn", "changes")


def _without_old_fields(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in (*_POSITION_OF_FORMAT_2, "fence")}


def _position_of_format_2(fields: Mapping[str, Any]) -> StoredPosition:
    """Of a source of PostgreSQL's: there was no other kind."""
    data = {name: fields[name] for name in _POSITION_OF_FORMAT_2}
    inside = f"+{data['changes']} of {data['commit_lsn']}" if data["changes"] else ""
    position = Position(data, f"{data['lsn']}{inside}")
    return StoredPosition(position, dict(fields["fence"]), str(fields.get("override", "")))


def _relation_of_format_1(fields: list[Any]) -> Relation:
    oid, schema, table, identity, columns, version, keyed = fields
    shape = tuple(Column(name, type_oid, typmod, key) for name, type_oid, typmod, key, _ in columns)
    return Relation(oid, schema, table, ReplicaIdentity(identity), shape, version, keyed)
