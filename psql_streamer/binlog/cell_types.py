"""What a cell of a column is in a row: its bytes, what they mean, and the type that its text form has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum

from psql_streamer.binlog.charsets import BINARY, BY_COLLATION, CharacterSet, decode_characters
from psql_streamer.binlog.table_map import Field, FieldType, TableMap
from psql_streamer.errors import ProtocolError
from psql_streamer.geometries import GEOMETRIES
from psql_streamer.model import TextType
from psql_streamer.pgtype import PostgresType
from psql_streamer.pgtypes.builtin import OIDS


class Kind(IntEnum):
    """How bytes become a text."""

    VERBATIM = 0
    SIGNED = 1
    UNSIGNED = 2
    FLOAT = 3
    DOUBLE = 4
    DECIMAL = 5
    BIT = 6
    YEAR = 7
    DATE = 8
    DATETIME2 = 9
    TIMESTAMP2 = 10
    TIME2 = 11
    DATETIME = 12
    TIMESTAMP = 13
    TIME = 14
    CHARACTERS = 15
    BYTES = 16
    PADDED_BYTES = 17
    ENUM = 18
    SET = 19
    JSON = 20
    GEOMETRY = 21
    VECTOR = 22
    COMPRESSED_CHARACTERS = 23
    COMPRESSED_BYTES = 24


@dataclass(frozen=True, slots=True)
class CellType:
    """What cells of a column are.

    width: bytes, where all cells have as many, and 0 where a length of `prefix` bytes stands in front.
    precision, scale: digits of decimals; precision is also that of times (digits of the second), and bits of BIT.
    codec: Python's, of CHARACTERS. labels: of ENUM and SET, in UTF-8.
    """

    kind: Kind
    width: int
    prefix: int = 0
    precision: int = 0
    scale: int = 0
    codec: str = ""
    labels: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class ColumnForm:
    """How a column's cells are read, and what type they then are."""

    cell: CellType
    type: TextType


def choose_form(field: Field, table: TableMap) -> ColumnForm:
    """ProtocolError, which names the column, when its type is not known.

    The binlog does not tell TINYINT(1) from TINYINT, nor MariaDB's UUID, INET6 and INET4 from BINARY.
    """
    make = _FORMS.get(field.type)
    if make is None:
        raise ProtocolError(f"column {field.name!r} of {table} has the type {field.type.name}, which cannot be read")
    return make(field, table)


def _make_postgres_type(name: str, modifier: int = -1) -> PostgresType:
    return PostgresType(OIDS[name], modifier)


_INTEGERS = {
    FieldType.TINY: ("tinyint", 1, "int2", "int2"),
    FieldType.SHORT: ("smallint", 2, "int2", "int4"),
    FieldType.INT24: ("mediumint", 3, "int4", "int4"),
    FieldType.LONG: ("int", 4, "int4", "int8"),
    FieldType.LONGLONG: ("bigint", 8, "int8", "numeric"),
}
"""Name, bytes, what it is like with a sign and without."""


def _make_integer_form(field: Field, _: TableMap) -> ColumnForm:
    name, width, signed, unsigned = _INTEGERS[field.type]
    if not field.unsigned:
        return ColumnForm(CellType(Kind.SIGNED, width), TextType(name, _make_postgres_type(signed)))
    like = (
        _make_postgres_type(unsigned, _compute_numeric_modifier(20, 0))
        if unsigned == "numeric"
        else _make_postgres_type(unsigned)
    )
    return ColumnForm(CellType(Kind.UNSIGNED, width), TextType(f"{name} unsigned", like))


def _compute_numeric_modifier(precision: int, scale: int) -> int:
    return (precision << 16 | scale) + 4


def _make_float_form(field: Field, _: TableMap) -> ColumnForm:
    width = 4 if field.type is FieldType.FLOAT else 8
    name, like, kind = ("float", "float4", Kind.FLOAT) if width == 4 else ("double", "float8", Kind.DOUBLE)
    return ColumnForm(CellType(kind, width), TextType(name + " unsigned" * field.unsigned, _make_postgres_type(like)))


_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
"""Bytes of so many decimal digits (MySQL source, decimal.cc, dig2bytes)."""


def _make_decimal_form(field: Field, table: TableMap) -> ColumnForm:
    precision, scale = field.size & 0xFF, field.size >> 8
    cell = make_decimal_type(precision, scale)
    if cell is None:
        raise ProtocolError(f"column {field.name!r} of {table} is a decimal of impossible precision")
    name = f"decimal({precision},{scale})" + " unsigned" * field.unsigned
    return ColumnForm(cell, TextType(name, _make_postgres_type("numeric", _compute_numeric_modifier(precision, scale))))


def make_decimal_type(precision: int, scale: int) -> CellType | None:
    """DECIMAL(precision, scale); None where there is no such type."""
    if not 0 < precision <= 65 or scale > min(precision, 38):
        return None
    width = sum(4 * (digits // 9) + _DIGIT_BYTES[digits % 9] for digits in (precision - scale, scale))
    return CellType(Kind.DECIMAL, width, precision=precision, scale=scale)


def _make_bit_form(field: Field, _: TableMap) -> ColumnForm:
    bits = (field.size >> 8) * 8 + (field.size & 0xFF)
    return ColumnForm(
        CellType(Kind.BIT, (bits + 7) // 8, precision=bits), TextType(f"bit({bits})", _make_postgres_type("bit", bits))
    )


def _build_fixed_maker(name: str, kind: Kind, width: int, like: str) -> Callable[[Field, TableMap], ColumnForm]:
    return lambda *_: ColumnForm(CellType(kind, width), TextType(name, _make_postgres_type(like)))


def _build_temporal_maker(name: str, kind: Kind, width: int, like: str) -> Callable[[Field, TableMap], ColumnForm]:
    def make(field: Field, table: TableMap) -> ColumnForm:
        digits = field.size
        if digits > 6:
            raise ProtocolError(f"column {field.name!r} of {table} has times of {digits} digits")
        cell = CellType(kind, width + (digits + 1) // 2, precision=digits)
        modifier = -1 if like == "interval" else digits
        return ColumnForm(cell, TextType(f"{name}({digits})" if digits else name, _make_postgres_type(like, modifier)))

    return make


def _make_character_form(field: Field, table: TableMap, prefix: int, native: str, like: PostgresType) -> ColumnForm:
    codec = _require_character_set(field, table).codec
    kind = Kind.VERBATIM if codec == "utf-8" else Kind.CHARACTERS
    return ColumnForm(CellType(kind, 0, prefix, codec=codec), TextType(native, like))


def _require_character_set(field: Field, table: TableMap) -> CharacterSet:
    found = BY_COLLATION.get(field.collation or 0)
    if found is None:
        raise ProtocolError(
            f"column {field.name!r} of {table} has the collation number {field.collation}, which cannot be read",
            "information_schema.COLLATIONS says which it is: change the column's character set, or exclude the table",
        )
    return found


def _make_string_form(field: Field, table: TableMap) -> ColumnForm:
    """CHAR and BINARY: without the padding at their end."""
    prefix = 1 if field.size < 256 else 2
    if field.collation == BINARY:
        cell = CellType(Kind.PADDED_BYTES, 0, prefix, precision=field.size)
        return ColumnForm(cell, TextType(f"binary({field.size})", _make_postgres_type("bytea")))
    width = field.size // _require_character_set(field, table).most
    return _make_character_form(field, table, prefix, f"char({width})", _make_postgres_type("varchar", width + 4))


def _make_varchar_form(field: Field, table: TableMap) -> ColumnForm:
    prefix = 1 if field.size < 256 else 2
    if field.collation == BINARY:
        return ColumnForm(
            CellType(Kind.BYTES, 0, prefix), TextType(f"varbinary({field.size})", _make_postgres_type("bytea"))
        )
    width = field.size // _require_character_set(field, table).most
    return _make_character_form(field, table, prefix, f"varchar({width})", _make_postgres_type("varchar", width + 4))


_BLOBS = {
    1: ("tinyblob", "tinytext"),
    2: ("blob", "text"),
    3: ("mediumblob", "mediumtext"),
    4: ("longblob", "longtext"),
}


def _make_blob_form(field: Field, table: TableMap) -> ColumnForm:
    binary, text = _BLOBS[_require_prefix(field, table)]
    if field.collation == BINARY:
        return ColumnForm(CellType(Kind.BYTES, 0, field.size), TextType(binary, _make_postgres_type("bytea")))
    return _make_character_form(field, table, field.size, text, _make_postgres_type("text"))


def _require_prefix(field: Field, table: TableMap) -> int:
    if field.size not in _BLOBS:
        raise ProtocolError(f"column {field.name!r} of {table} has lengths of {field.size} bytes")
    return field.size


def _make_labelled_form(field: Field, table: TableMap) -> ColumnForm:
    kind, name = (Kind.ENUM, "enum") if field.type is FieldType.ENUM else (Kind.SET, "set")
    codec = "latin-1" if field.collation == BINARY else _require_character_set(field, table).codec
    try:
        labels = tuple(decode_characters(label, codec).encode() for label in field.labels)
    except UnicodeDecodeError:
        raise ProtocolError(f"a label of column {field.name!r} of {table} is not of its character set") from None
    shown = ",".join(_quote_label(label.decode()) for label in labels)
    return ColumnForm(
        CellType(kind, field.size, labels=labels), TextType(f"{name}({shown})", _make_postgres_type("text"))
    )


def _quote_label(label: str) -> str:
    return "'" + label.replace("'", "''") + "'"


def _build_document_maker(name: str, kind: Kind) -> Callable[[Field, TableMap], ColumnForm]:
    def make(field: Field, table: TableMap) -> ColumnForm:
        return ColumnForm(CellType(kind, 0, _require_prefix(field, table)), TextType(name, _make_postgres_type("json")))

    return make


def _make_geometry_form(field: Field, table: TableMap) -> ColumnForm:
    name = GEOMETRIES[field.geometry] if field.geometry < len(GEOMETRIES) else "geometry"
    return _build_document_maker(name, Kind.GEOMETRY)(field, table)


def _build_compressed_maker(make: Callable[[Field, TableMap], ColumnForm]) -> Callable[[Field, TableMap], ColumnForm]:
    """A column of MariaDB's with the attribute COMPRESSED: like the type without it, and each value for itself."""

    def made(field: Field, table: TableMap) -> ColumnForm:
        found = make(field, table)
        if field.type is FieldType.VARCHAR_COMPRESSED:
            # One byte more than the column has, for the one that says how a value is compressed.
            found = replace(found, type=make(replace(field, size=field.size - 1), table).type)
        is_bytes = found.cell.kind is Kind.BYTES
        cell = replace(found.cell, kind=Kind.COMPRESSED_BYTES if is_bytes else Kind.COMPRESSED_CHARACTERS)
        return ColumnForm(cell, TextType(f"{found.type.native} compressed", found.type.like))

    return made


_FORMS: dict[FieldType, Callable[[Field, TableMap], ColumnForm]] = {
    **dict.fromkeys(_INTEGERS, _make_integer_form),
    FieldType.FLOAT: _make_float_form,
    FieldType.DOUBLE: _make_float_form,
    FieldType.NEWDECIMAL: _make_decimal_form,
    FieldType.BIT: _make_bit_form,
    FieldType.YEAR: _build_fixed_maker("year", Kind.YEAR, 1, "int2"),
    FieldType.DATE: _build_fixed_maker("date", Kind.DATE, 3, "date"),
    FieldType.NEWDATE: _build_fixed_maker("date", Kind.DATE, 3, "date"),
    FieldType.DATETIME2: _build_temporal_maker("datetime", Kind.DATETIME2, 5, "timestamp"),
    FieldType.TIMESTAMP2: _build_temporal_maker("timestamp", Kind.TIMESTAMP2, 4, "timestamptz"),
    FieldType.TIME2: _build_temporal_maker("time", Kind.TIME2, 3, "interval"),
    FieldType.DATETIME: _build_fixed_maker("datetime", Kind.DATETIME, 8, "timestamp"),
    FieldType.TIMESTAMP: _build_fixed_maker("timestamp", Kind.TIMESTAMP, 4, "timestamptz"),
    FieldType.TIME: _build_fixed_maker("time", Kind.TIME, 3, "interval"),
    FieldType.VARCHAR: _make_varchar_form,
    FieldType.VAR_STRING: _make_varchar_form,
    FieldType.VARCHAR_COMPRESSED: _build_compressed_maker(_make_varchar_form),
    FieldType.BLOB_COMPRESSED: _build_compressed_maker(_make_blob_form),
    FieldType.STRING: _make_string_form,
    FieldType.ENUM: _make_labelled_form,
    FieldType.SET: _make_labelled_form,
    FieldType.JSON: _build_document_maker("json", Kind.JSON),
    FieldType.GEOMETRY: _make_geometry_form,
    FieldType.VECTOR: _build_document_maker("vector", Kind.VECTOR),
    **dict.fromkeys((FieldType.BLOB, FieldType.TINY_BLOB, FieldType.MEDIUM_BLOB, FieldType.LONG_BLOB), _make_blob_form),
}
