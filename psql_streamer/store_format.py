"""How the position store writes what it remembers: JSON objects by name, under a format version. Pure.

Format 1 is that of files without a version; there the shape of a table is a list, in the order of Relation's fields.
A name that is not known here was written by another version of the same format, and is kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from psql_streamer.model import Column, Lsn, Position, Relation, ReplicaIdentity

FORMAT = 2
"""What is written, and the newest that is read."""


@dataclass(frozen=True, slots=True)
class Record:
    """What is remembered of a source: how far its changes are durable, and of which stream that is true.

    override: the place that the source was sent to last (Source.position_override), as text; empty for none.
    """

    position: Position
    fence: Mapping[str, str]
    override: str = ""


def encode_record(record: Record, before: bytes | None) -> bytes:
    """before: what was written of the source the last time, if anything was."""
    position = record.position
    fields = {
        "lsn": str(position.lsn),
        "commit_lsn": str(position.commit_lsn),
        "changes": position.changes,
        "fence": dict(record.fence),
        "override": record.override,
    }
    return json.dumps(_unknown_fields(before) | fields).encode()


def decode_record(written: bytes) -> Record:
    """Raises ValueError, KeyError or TypeError for what is no record."""
    fields = json.loads(bytes(written))
    position = Position(Lsn.parse(fields["lsn"]), Lsn.parse(fields["commit_lsn"]), int(fields["changes"]))
    return Record(position, dict(fields["fence"]), str(fields.get("override", "")))


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


def _relation_of_format_1(fields: list[Any]) -> Relation:
    oid, schema, table, identity, columns, version, keyed = fields
    shape = tuple(Column(name, type_oid, typmod, key) for name, type_oid, typmod, key, _ in columns)
    return Relation(oid, schema, table, ReplicaIdentity(identity), shape, version, keyed)
