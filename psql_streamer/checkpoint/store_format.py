"""How the position store writes what it remembers: JSON objects by name, under a format version. Pure.

Format 1 is that of files without a version; there the shape of a table is a list, in the order of Relation's fields. In
formats 1 and 2 the fields of a position stand beside the others.
A name that is not known here was written by another version of the same format, and is kept.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

import msgspec
import pyarrow as pa
from msgspec import Raw

from psql_streamer.model import ArrowType, Column, ColumnType, Position, Relation, ReplicaIdentity, TextType
from psql_streamer.pgoutput.wal_position import WalPosition
from psql_streamer.pgtype import PostgresType
from psql_streamer.snapshots import KeyForm, SnapshotRequest, SnapshotState, TableRequest, Wanted

FORMAT = 3
"""What is written, and the newest that is read."""

UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError)
"""What decoding raises for bytes that are not what was written: a JSON value of another type, a number out of range."""


@dataclass(frozen=True, slots=True)
class StoredPosition:
    """What is remembered of a source: how far its changes are durable, and of which stream that is true.

    stream: Source.read_stream_identity. override: the place that the source was sent to last
    (Source.position_override), as text; empty for none. serial: it increases from position to position, from session to
    session, where a sink's transactions note positions, too; 0 elsewhere. ahead: the position as text, if the server
    was found to end in front of it. sinks: names of those in which it is durable; empty where that is not known.
    """

    position: Position
    stream: Mapping[str, str]
    override: str = ""
    serial: int = 0
    ahead: str = ""
    sinks: Sequence[str] = ()

    @property
    def was_ahead(self) -> bool:
        """Whether the server ended in front of this position. Other versions store positions, and leave `ahead`."""
        return bool(self.ahead) and self.ahead == str(self.position)


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """What is remembered of a snapshot that was asked for.

    ended: how it ended; None until a position behind its end has been stored. How far it is is part of the position.
    """

    request: SnapshotRequest
    ended: SnapshotState | None = None


def encode_position(stored: StoredPosition, before: bytes | None) -> bytes:
    """before: what was written of the source the last time, if anything was."""
    fields = {
        "position": dict(stored.position.data),
        "shown": stored.position.shown,
        "stream": dict(stored.stream),
        "override": stored.override,
        "serial": stored.serial,
        "ahead": stored.ahead,
        "sinks": list(stored.sinks),
    }
    # A snapshot of ten thousand tables makes a position of megabytes.
    return msgspec.json.encode(_select_other_fields(before, fields) | fields)


def decode_position(written: bytes) -> StoredPosition:
    """Raises one of UNREADABLE for what is no position."""
    fields = json.loads(bytes(written))
    if "position" not in fields:
        return _decode_format_2_position(fields)
    position = Position(dict(fields["position"]), str(fields["shown"]))
    return StoredPosition(
        position,
        dict(fields["stream"]),
        str(fields.get("override", "")),
        int(fields.get("serial", 0)),
        str(fields.get("ahead", "")),
        tuple(map(str, fields.get("sinks", ()))),
    )


def encode_relation(relation: Relation, before: bytes | None) -> bytes:
    """Without what the source knows of the types: it asks again. before: what was written of the table, if anything."""
    identity, kept = relation.replica_identity, _parse_earlier_fields(before)
    of_columns = _select_unknown_column_fields(kept.get("columns"))
    fields = {
        "id": relation.id,
        "schema": relation.schema,
        "table": relation.table,
        "columns": [
            {"name": column.name, "key": column.key, **_encode_type(column.type), **of_columns.get(column.name, {})}
            for column in relation.columns
        ],
        "replica_identity": None if identity is None else chr(identity),
        "version": relation.version,
    }
    return json.dumps(kept | fields).encode()


def decode_relation(written: bytes) -> Relation:
    """Raises one of UNREADABLE for what is no shape of a table."""
    fields = json.loads(bytes(written))
    if isinstance(fields, list):
        return _decode_format_1_relation(fields)
    if "id" not in fields:
        return _decode_format_2_relation(fields)
    columns = tuple(Column(column["name"], _decode_type(column), column["key"]) for column in fields["columns"])
    identity = fields["replica_identity"]
    known = None if identity is None else ReplicaIdentity(ord(identity))
    return Relation(fields["id"], fields["schema"], fields["table"], columns, known, fields["version"])


def encode_snapshot(stored: StoredSnapshot, before: bytes | None) -> bytes:
    """before: what was written of the snapshot the last time, if anything was. Its tables and keys never change."""
    request = stored.request
    tables = [{"table": table.table, "where": table.where} for table in request.tables]
    fields = {
        "id": request.id,
        "wanted": request.wanted.value,
        "asked_at": request.asked_at,
        "ended": None if stored.ended is None else stored.ended.value,
    }
    keys = {} if request.keys is None else {"keys": request.keys.value}
    return json.dumps({"tables": tables} | keys | _parse_earlier_fields(before) | fields).encode()


def decode_snapshot(written: bytes) -> StoredSnapshot:
    """Raises one of UNREADABLE for what is no snapshot."""
    fields = json.loads(bytes(written))
    tables = tuple(TableRequest(str(table["table"]), str(table["where"])) for table in fields["tables"])
    keys = KeyForm(fields["keys"]) if "keys" in fields else None
    request = SnapshotRequest(str(fields["id"]), tables, Wanted(fields["wanted"]), float(fields["asked_at"]), keys)
    return StoredSnapshot(request, None if fields["ended"] is None else SnapshotState(fields["ended"]))


def _encode_type(kind: ColumnType) -> dict[str, Any]:
    match kind:
        case PostgresType():
            return {"type_oid": kind.oid, "typmod": kind.typmod}
        case TextType():
            return {"type_oid": kind.like.oid, "typmod": kind.like.typmod, "native": kind.native}
        case ArrowType():
            schema = pa.schema([pa.field("", kind.arrow)]).serialize().to_pybytes()
            return {"arrow": base64.b64encode(schema).decode(), "native": kind.native}
        case _:
            assert_never(kind)


def _decode_type(column: Mapping[str, Any]) -> ColumnType:
    if "arrow" not in column:
        form = PostgresType(column["type_oid"], column["typmod"])
        return TextType(column["native"], form) if "native" in column else form
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(column["arrow"])))
    return ArrowType(schema.field(0).type, column["native"])


def _parse_earlier_fields(before: bytes | None) -> dict[str, Any]:
    """All fields of an object that was written before; those that are known are overwritten."""
    fields = None if before is None else json.loads(bytes(before))
    return fields if isinstance(fields, dict) else {}


_COLUMN_FIELDS = frozenset({"name", "key", "type_oid", "typmod", "native", "arrow"})


def _select_unknown_column_fields(columns: Any) -> dict[str, dict[str, Any]]:
    """By name, the fields of columns that were written before and are not known."""
    known = [column for column in columns if isinstance(column, dict)] if isinstance(columns, list) else []
    return {
        str(column.get("name")): {name: value for name, value in column.items() if name not in _COLUMN_FIELDS}
        for column in known
    }


_POSITION_OF_FORMAT_2 = ("lsn", "commit_lsn", "changes")

_parse_names = msgspec.json.Decoder(dict[str, Raw]).decode


def _select_other_fields(before: bytes | None, fields: Container[str]) -> dict[str, Raw]:
    """Fields of a position that was written before, as they are, which are none of these."""
    try:
        found = {} if before is None else _parse_names(before)
    except msgspec.ValidationError:  # not an object
        return {}
    over = (*_POSITION_OF_FORMAT_2, "fence")
    return {name: value for name, value in found.items() if name not in fields and name not in over}


def _decode_format_2_position(fields: Mapping[str, Any]) -> StoredPosition:
    """The position of a PostgreSQL source: there was no other kind."""
    position = WalPosition.from_position(Position({name: fields[name] for name in _POSITION_OF_FORMAT_2}, "")).position
    return StoredPosition(position, dict(fields["fence"]), str(fields.get("override", "")))


def _decode_format_2_relation(fields: Mapping[str, Any]) -> Relation:
    columns = [(column["name"], column["type_oid"], column["typmod"], column["key"]) for column in fields["columns"]]
    identity = ReplicaIdentity(ord(fields["replica_identity"]))
    table = fields["oid"], fields["schema"], fields["table"]
    return _make_relation(*table, identity, columns, fields["version"], fields["keyed"])


def _decode_format_1_relation(fields: list[Any]) -> Relation:
    oid, schema, table, identity, columns, version, keyed = fields
    named = [(name, type_oid, typmod, key) for name, type_oid, typmod, key, _ in columns]
    return _make_relation(oid, schema, table, ReplicaIdentity(identity), named, version, keyed)


def _make_relation(
    oid: int,
    schema: str,
    table: str,
    identity: ReplicaIdentity,
    columns: Sequence[tuple[str, int, int, bool]],
    version: int,
    keyed: bool,
) -> Relation:
    """keyed: under FULL, whether the columns flagged as key are the primary key's, and not all of them."""
    tells_apart = keyed or identity is not ReplicaIdentity.FULL
    shape = tuple(
        Column(name, PostgresType(oid_of_type, typmod), key and tells_apart)
        for name, oid_of_type, typmod, key in columns
    )
    return Relation(str(oid), schema, table, shape, identity, version)
