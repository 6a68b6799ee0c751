"""TABLE_MAP: the shape that the rows events behind it have, with the optional metadata that name and type its columns.

MySQL source: Table_map_event in libs/mysql/binlog/event/rows_event.h. Names, signs, labels and keys are there when the
server runs with binlog_row_metadata=FULL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from psql_streamer.binlog.reader import Reader, decode
from psql_streamer.errors import ProtocolError


class FieldType(IntEnum):
    """enum_field_types, as far as rows have them."""

    DECIMAL = 0
    TINY = 1
    SHORT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    NULL = 6
    TIMESTAMP = 7
    LONGLONG = 8
    INT24 = 9
    DATE = 10
    TIME = 11
    DATETIME = 12
    YEAR = 13
    NEWDATE = 14
    VARCHAR = 15
    BIT = 16
    TIMESTAMP2 = 17
    DATETIME2 = 18
    TIME2 = 19
    TYPED_ARRAY = 20
    BLOB_COMPRESSED = 140
    VARCHAR_COMPRESSED = 141
    VECTOR = 242
    JSON = 245
    NEWDECIMAL = 246
    ENUM = 247
    SET = 248
    TINY_BLOB = 249
    MEDIUM_BLOB = 250
    LONG_BLOB = 251
    BLOB = 252
    VAR_STRING = 253
    STRING = 254
    GEOMETRY = 255


_ONE_BYTE = {
    FieldType.FLOAT,
    FieldType.DOUBLE,
    FieldType.BLOB,
    FieldType.TINY_BLOB,
    FieldType.MEDIUM_BLOB,
    FieldType.LONG_BLOB,
    FieldType.BLOB_COMPRESSED,
    FieldType.GEOMETRY,
    FieldType.JSON,
    FieldType.VECTOR,
    FieldType.TIMESTAMP2,
    FieldType.DATETIME2,
    FieldType.TIME2,
}
_TWO_BYTES = {
    FieldType.VARCHAR,
    FieldType.VARCHAR_COMPRESSED,
    FieldType.BIT,
    FieldType.NEWDECIMAL,
    FieldType.ENUM,
    FieldType.SET,
    FieldType.STRING,
    FieldType.VAR_STRING,
}
_NUMERIC = {
    FieldType.TINY,
    FieldType.SHORT,
    FieldType.INT24,
    FieldType.LONG,
    FieldType.LONGLONG,
    FieldType.FLOAT,
    FieldType.DOUBLE,
    FieldType.NEWDECIMAL,
    FieldType.YEAR,
}
_CHARACTER = {
    FieldType.STRING,
    FieldType.VAR_STRING,
    FieldType.VARCHAR,
    FieldType.BLOB,
    FieldType.TINY_BLOB,
    FieldType.MEDIUM_BLOB,
    FieldType.LONG_BLOB,
    FieldType.BLOB_COMPRESSED,
    FieldType.VARCHAR_COMPRESSED,
}
_CHARACTER_OF_MYSQL = _CHARACTER | {FieldType.VECTOR}
_CHARACTER_OF_MARIADB = _CHARACTER | {FieldType.GEOMETRY}
"""Columns whose collations are listed: what the servers do, and not what they call a character column."""

_LABELLED = {FieldType.ENUM, FieldType.SET}


@dataclass(slots=True)
class Field:
    """A column as a TABLE_MAP has it.

    type: the real one, of ENUM and SET as well. size: the metadata, as the type understands them: for STRING its length
    in bytes, for ENUM and SET the bytes of a value. collation: of character columns, ENUM and SET.
    """

    type: FieldType
    size: int
    name: str = ""
    unsigned: bool = False
    collation: int | None = None
    labels: tuple[bytes, ...] = ()
    key: bool = False
    geometry: int = 0
    visible: bool = True


@dataclass(slots=True)
class TableMap:
    """A table in one shape. named: whether the event says what its columns are called."""

    schema: str
    table: str
    fields: list[Field] = field(default_factory=list)
    named: bool = False

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


_FIELD_TYPES: dict[int, FieldType] = {int(kind): kind for kind in FieldType}


def read_names(body: bytes) -> tuple[str, str]:
    """Schema and table. body: of the event, behind its fixed part."""
    schema, table, _ = _read_head(body)
    return schema, table


def _read_head(body: bytes) -> tuple[str, str, Reader]:
    reader = Reader(body, "TABLE_MAP")
    schema = decode(reader.take(reader.read_integer(1)), "TABLE_MAP")
    reader.take(1)
    table = decode(reader.take(reader.read_integer(1)), "TABLE_MAP")
    reader.take(1)
    return schema, table, reader


def read_table_map(body: bytes, mariadb: bool) -> TableMap:
    """The whole of it. body: of the event, behind its fixed part. mariadb: whether MariaDB wrote it."""
    schema, table, reader = _read_head(body)
    found = TableMap(schema, table)
    types = reader.take(reader.read_packed())
    metadata = Reader(reader.take(reader.read_packed()), "TABLE_MAP")
    found.fields = [_read_field(kind, metadata, found) for kind in types]
    reader.take((len(types) + 7) // 8)
    optional = _OPTIONAL | (_OPTIONAL_OF_MARIADB if mariadb else {})
    while len(reader):
        kind = reader.read_integer(1)
        value = Reader(reader.take(reader.read_packed()), "TABLE_MAP")
        read = optional.get(kind)
        if read is not None:
            read(found, value)
    return found


def _read_field(kind: int, metadata: Reader, table: TableMap) -> Field:
    known = _FIELD_TYPES.get(kind)
    if known is None:
        raise ProtocolError(
            f"a column of {table} has the unknown type {kind}",
            "exclude the table, or use a version of psql-streamer that knows the type",
        )
    if known in (FieldType.STRING, FieldType.ENUM, FieldType.SET):
        return _decode_string_field(metadata.read_integer(1), metadata.read_integer(1))
    return Field(known, metadata.read_integer(2 if known in _TWO_BYTES else 1 if known in _ONE_BYTE else 0))


def _decode_string_field(first: int, second: int) -> Field:
    """CHAR, BINARY, ENUM and SET: the real type, and a length. Bits 8 and 9 of a length that does not fit a byte lie
    inverted in bits 4 and 5 of the type (MySQL source, Field_string::do_save_field_metadata).
    """
    if first & 0x30 != 0x30:
        return Field(FieldType.STRING, second | ((first & 0x30) ^ 0x30) << 4)
    return Field(FieldType(first) if first in (FieldType.ENUM, FieldType.SET) else FieldType.STRING, second)


def _select_fields(table: TableMap, types: set[FieldType]) -> list[Field]:
    return [one for one in table.fields if one.type in types]


def _read_signedness(table: TableMap, value: Reader) -> None:
    fields = _select_fields(table, _NUMERIC)
    bits = value.take((len(fields) + 7) // 8)
    for place, one in enumerate(fields):
        one.unsigned = bool(bits[place >> 3] & 0x80 >> (place & 7))


def _read_default_collation(types: set[FieldType]) -> Callable[[TableMap, Reader], None]:
    def read(table: TableMap, value: Reader) -> None:
        fields, usual = _select_fields(table, types), value.read_packed()
        for one in fields:
            one.collation = usual
        while len(value):
            place, collation = value.read_packed(), value.read_packed()
            _require_field(fields, place, table).collation = collation

    return read


def _read_collations(types: set[FieldType]) -> Callable[[TableMap, Reader], None]:
    def read(table: TableMap, value: Reader) -> None:
        for one in _select_fields(table, types):
            one.collation = value.read_packed()

    return read


def _require_field(fields: Sequence[Field], place: int, table: TableMap) -> Field:
    if place >= len(fields):
        raise ProtocolError(f"the TABLE_MAP event of {table} speaks of a column that it does not have")
    return fields[place]


def _read_column_names(table: TableMap, value: Reader) -> None:
    for one in table.fields:
        one.name = value.read_text()
    table.named = True


def _read_labels(kind: FieldType) -> Callable[[TableMap, Reader], None]:
    def read(table: TableMap, value: Reader) -> None:
        for one in _select_fields(table, {kind}):
            one.labels = tuple(_read_each_label(value))

    return read


def _read_each_label(value: Reader) -> Iterator[bytes]:
    for _ in range(value.read_packed()):
        yield value.take(value.read_packed())


def _read_geometry_types(table: TableMap, value: Reader) -> None:
    for one in _select_fields(table, {FieldType.GEOMETRY}):
        one.geometry = value.read_packed()


def _read_primary_key(table: TableMap, value: Reader) -> None:
    while len(value):
        _require_field(table.fields, value.read_packed(), table).key = True


def _read_prefixed_key(table: TableMap, value: Reader) -> None:
    while len(value):
        _require_field(table.fields, value.read_packed(), table).key = True
        value.read_packed()


def _read_visibility(table: TableMap, value: Reader) -> None:
    bits = value.take((len(table.fields) + 7) // 8)
    for place, one in enumerate(table.fields):
        one.visible = bool(bits[place >> 3] & 0x80 >> (place & 7))


_OPTIONAL: dict[int, Callable[[TableMap, Reader], None]] = {
    1: _read_signedness,
    2: _read_default_collation(_CHARACTER_OF_MYSQL),
    3: _read_collations(_CHARACTER_OF_MYSQL),
    4: _read_column_names,
    5: _read_labels(FieldType.SET),
    6: _read_labels(FieldType.ENUM),
    7: _read_geometry_types,
    8: _read_primary_key,
    9: _read_prefixed_key,
    10: _read_default_collation(_LABELLED),
    11: _read_collations(_LABELLED),
    12: _read_visibility,
}
"""Optional metadata by type. What is not here says nothing that a row's reader needs."""

_OPTIONAL_OF_MARIADB = {2: _read_default_collation(_CHARACTER_OF_MARIADB), 3: _read_collations(_CHARACTER_OF_MARIADB)}
