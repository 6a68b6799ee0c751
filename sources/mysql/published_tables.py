"""The tables of a server, as its catalog has them now: what the binary log's TABLE_MAP events would say."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from psql_streamer.binlog.cell_types import CellType, choose_form
from psql_streamer.binlog.charsets import BINARY
from psql_streamer.binlog.table_map import Field, FieldType, TableMap
from psql_streamer.errors import ProtocolError
from psql_streamer.geometries import GEOMETRIES
from psql_streamer.model import Column, Relation
from sources.mysql.options import SYSTEM_SCHEMAS
from sources.mysql.server import Session

_COLUMNS = """
    SELECT c.TABLE_SCHEMA, c.TABLE_NAME, c.COLUMN_NAME, c.DATA_TYPE, c.COLUMN_TYPE, c.CHARACTER_OCTET_LENGTH,
        c.NUMERIC_PRECISION, c.NUMERIC_SCALE, c.DATETIME_PRECISION, c.COLLATION_NAME, c.COLUMN_KEY
    FROM information_schema.COLUMNS c
    JOIN information_schema.TABLES t ON t.TABLE_SCHEMA = c.TABLE_SCHEMA AND t.TABLE_NAME = c.TABLE_NAME
        AND CAST(t.TABLE_SCHEMA AS BINARY) = CAST(c.TABLE_SCHEMA AS BINARY)
        AND CAST(t.TABLE_NAME AS BINARY) = CAST(c.TABLE_NAME AS BINARY)
    WHERE t.TABLE_TYPE = 'BASE TABLE' AND c.TABLE_SCHEMA NOT IN ({}) {}
    ORDER BY CAST(c.TABLE_SCHEMA AS BINARY), CAST(c.TABLE_NAME AS BINARY), c.ORDINAL_POSITION
"""
"""The catalog of MariaDB compares names whatever their case, where `t` and `T` may be two tables."""

VERSIONED = "SYSTEM VERSIONED"
"""The kind of a table of MariaDB that keeps its history."""

_SEEN = """
    SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE FROM information_schema.TABLES
    WHERE TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED', 'SEQUENCE')
"""
_INTEGERS = {
    "tinyint": FieldType.TINY,
    "smallint": FieldType.SHORT,
    "mediumint": FieldType.INT24,
    "int": FieldType.LONG,
    "bigint": FieldType.LONGLONG,
}
_BLOBS = {"tiny": 1, "": 2, "medium": 3, "long": 4}
_GEOMETRY = {**{name: number for number, name in enumerate(GEOMETRIES)}, "geomcollection": 7}
"""MySQL has two names for a collection."""

_UTF8 = 45
"""utf8mb4_general_ci."""
_FIXED_BYTES = {"uuid": 16, "inet6": 16, "inet4": 4}
_COMPRESSED = {FieldType.VARCHAR: FieldType.VARCHAR_COMPRESSED, FieldType.BLOB: FieldType.BLOB_COMPRESSED}
_TEMPORAL = {"datetime": FieldType.DATETIME2, "timestamp": FieldType.TIMESTAMP2, "time": FieldType.TIME2}
_OLD_FORM = "mariadb-5.3"
"""Stands in a comment behind the type of a column that was made with mysql56_temporal_format = OFF, or before 10.1."""
_LABEL = re.compile(r"'((?:[^']|'')*)'")


_ONE = "AND c.TABLE_SCHEMA = %s AND c.TABLE_NAME = %s"


@dataclass(frozen=True, slots=True)
class CatalogColumn:
    """A column, and how the binary log has its cells. data_type, shown, collation: of
    information_schema.COLUMNS."""

    column: Column
    cell: CellType
    data_type: str
    shown: str
    collation: str


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table as the catalog has it now."""

    relation: Relation
    columns: tuple[CatalogColumn, ...]


def list_published_tables(session: Session, wanted: Callable[[str, str], bool]) -> list[Relation]:
    """The tables that are wanted, and that the account may see, by schema and name.

    A table with a column whose type cannot be read is left out: `check` and the stream name it.
    """
    return [table.relation for table in read_catalog_tables(session, wanted, lambda _: None)]


def find_unreadable_tables(session: Session, wanted: Callable[[str, str], bool]) -> list[ProtocolError]:
    """What keeps tables from being streamed."""
    found: list[ProtocolError] = []
    for _ in read_catalog_tables(session, wanted, found.append):
        pass
    return found


def list_seen_tables(session: Session) -> dict[tuple[str, str], str]:
    """Schema and name of every table that the account may see and whose rows are in the binary log -> its kind."""
    rows = session.read_rows(_SEEN)
    return {(str(schema), str(table)): str(kind) for schema, table, kind in rows}


def read_catalog_tables(
    session: Session,
    wanted: Callable[[str, str], bool],
    refuse: Callable[[ProtocolError], None],
    only: tuple[str, str] | None = None,
) -> Iterator[CatalogTable]:
    """The tables that are wanted and seen, by schema and name. refuse: told of those that cannot be read. only: schema
    and name of the one that is asked for.
    """
    collations = session.collations
    for (schema, table), rows in groupby(_read_column_rows(session, only), key=lambda row: row[:2]):
        if not wanted(schema, table):
            continue
        shown = TableMap(schema, table)
        try:
            columns = tuple(_make_column(row[2:], shown, collations) for row in rows)
        except ProtocolError as error:
            refuse(error)
        else:
            relation = Relation(f"{schema}.{table}", schema, table, tuple(one.column for one in columns))
            yield CatalogTable(relation, columns)


def _read_column_rows(session: Session, only: tuple[str, str] | None) -> list[tuple[Any, ...]]:
    schemas = ", ".join(f"'{name}'" for name in sorted(SYSTEM_SCHEMAS))
    if only is None:
        return session.read_rows(_COLUMNS.format(schemas, ""))
    return session.read_rows(_COLUMNS.format(schemas, _ONE), *only)


def _make_column(row: tuple[Any, ...], table: TableMap, collations: Mapping[str, int]) -> CatalogColumn:
    name, kind, shown, octets, precision, scale, digits, collation, key = row
    field = _make_field(str(kind).lower(), str(shown), octets, precision, scale, digits)
    if field is None:
        raise ProtocolError(f"column {name!r} of {table} has the type {shown}, which cannot be read")
    if field.type in _TEMPORAL.values() and field.size and _OLD_FORM in str(shown):
        raise ProtocolError(
            f"column {name!r} of {table} is in MariaDB's form of before 10.1, which cannot be read with a fraction",
            f"SET GLOBAL mysql56_temporal_format = ON; ALTER TABLE {table} FORCE",
        )
    if "compressed" in str(shown).lower() and field.type in _COMPRESSED:
        field.type, field.size = _COMPRESSED[field.type], field.size + (field.type is FieldType.VARCHAR)
    field.name, field.key = str(name), key == "PRI"
    if field.collation is None and collation is not None:
        field.collation = collations.get(str(collation))
    form = choose_form(field, table)
    return CatalogColumn(
        Column(field.name, form.type, field.key), form.cell, str(kind).lower(), str(shown), str(collation or "")
    )


def _make_field(kind: str, shown: str, octets: Any, precision: Any, scale: Any, digits: Any) -> Field | None:
    """As TABLE_MAP has it; None for a type that is not known."""
    unsigned = "unsigned" in shown
    if kind in _INTEGERS:
        return Field(_INTEGERS[kind], 0, unsigned=unsigned)
    if kind in ("float", "double"):
        return Field(FieldType[kind.upper()], 4 if kind == "float" else 8, unsigned=unsigned)
    if kind == "decimal":
        return Field(FieldType.NEWDECIMAL, int(precision) | int(scale) << 8, unsigned=unsigned)
    if kind == "bit":
        return Field(FieldType.BIT, (int(precision) // 8) << 8 | int(precision) % 8)
    if kind in ("date", "year"):
        return Field(FieldType[kind.upper()], 0)
    if kind in _TEMPORAL:
        return Field(_TEMPORAL[kind], int(digits or 0))
    return _make_text_field(kind, shown, octets)


def _make_text_field(kind: str, shown: str, octets: Any) -> Field | None:
    if kind in ("char", "binary"):
        return Field(FieldType.STRING, int(octets), collation=BINARY if kind == "binary" else None)
    if kind in ("varchar", "varbinary"):
        return Field(FieldType.VARCHAR, int(octets), collation=BINARY if kind == "varbinary" else None)
    if kind in _FIXED_BYTES:
        return Field(FieldType.STRING, _FIXED_BYTES[kind], collation=BINARY)
    if kind.endswith(("blob", "text")):
        size = _BLOBS[kind.removesuffix("blob").removesuffix("text")]
        return Field(FieldType.BLOB, size, collation=BINARY if kind.endswith("blob") else None)
    if kind in ("enum", "set"):
        labels = tuple(label.replace("''", "'").encode() for label in _LABEL.findall(shown))
        many = len(labels) > 255 if kind == "enum" else False
        return Field(
            FieldType[kind.upper()],
            (2 if many else 1) if kind == "enum" else _set_bytes(labels),
            collation=_UTF8,  # the catalog shows labels in it, whatever the column's character set
            labels=labels,
        )
    if kind in ("json", "vector"):
        return Field(FieldType[kind.upper()], 4)
    return Field(FieldType.GEOMETRY, 4, geometry=_GEOMETRY[kind]) if kind in _GEOMETRY else None


def _set_bytes(labels: tuple[bytes, ...]) -> int:
    """1, 2, 3, 4 or 8."""
    size = (len(labels) + 7) // 8
    return 8 if size > 4 else size
