"""Values that a SELECT gives, in the text forms that the stream has of them, and text forms as literals.

Sessions that read are set so that values come as the column has them: bytes of characters in its own character set,
times in UTC. What the server's text of a type lacks or has too much is mended here, all rows at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from psql_streamer.binlog import characters, documents, numbers
from psql_streamer.binlog.cell_bytes import Block, CellBytes, Texts, take_spans
from psql_streamer.binlog.cell_types import CellType, Kind
from psql_streamer.model import Index
from sources.mysql.snapshot.text_rows import TextRows, Values


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column as it is read. cell: as the binary log has it. data_type: of information_schema.COLUMNS. order: what
    its values are ordered by, type and collation. zerofill: whether the server's text has zeros in front.
    """

    name: str
    cell: CellType
    data_type: str
    order: str
    zerofill: bool

    @property
    def quoted(self) -> str:
        """SQL of its name."""
        return quote_name(self.name)


def quote_name(name: str) -> str:
    """SQL of a name."""
    return "`" + name.replace("`", "``") + "`"


_BYTE_TYPES = {"uuid": 16, "inet6": 16, "inet4": 4}
"""MariaDB's types that the binary log has as bytes, and a SELECT as text."""


def select_value(column: TableColumn, table: str) -> str:
    """SQL of what is selected. table: SQL of what the column is of."""
    name, cell = f"{table}.{column.quoted}", column.cell
    if column.data_type in _BYTE_TYPES:
        return f"CAST({name} AS BINARY({_BYTE_TYPES[column.data_type]}))"
    if cell.kind in (Kind.FLOAT, Kind.DOUBLE):
        return f"{name} * 1e0"  # all digits, also of FLOAT(7,2); a sum would lose the sign of -0
    if cell.kind is Kind.YEAR:
        return f"{name} + 0"
    if cell.kind in (Kind.ENUM, Kind.SET):
        return f"CONVERT({name} USING utf8mb4)"
    if column.zerofill and cell.kind is Kind.UNSIGNED:
        return f"CAST({name} AS UNSIGNED)"
    if column.zerofill and cell.kind is Kind.DECIMAL:
        return f"CAST({name} AS DECIMAL({cell.precision},{cell.scale}))"
    return name


def render_column(rows: TextRows, number: int, column: TableColumn) -> pa.Array:
    """The values of a column as `binary` text forms, null for NULL."""
    values = rows.columns[number]
    if column.cell.kind in _TRIMMED:
        return _trim_times(_as_they_are(rows.block, values), column.cell)
    render = _RENDER.get(column.cell.kind)
    if render is None:
        return _as_they_are(rows.block, values)
    there = np.flatnonzero(~values.null)
    return _make_array(
        render(CellBytes(rows.block, column.cell, values.start[there], values.end[there])), there, rows.count
    )


def _as_they_are(block: Block, values: Values) -> pa.Array:
    return take_spans(block.u8, values.start, values.end, values.null)


def _make_array(texts: Texts, there: Index, count: int) -> pa.Array:
    """There are texts of some of the rows; the others are NULL."""
    start, end, null = np.zeros(count, np.int64), np.zeros(count, np.int64), np.ones(count, np.bool_)
    start[there], end[there], null[there] = texts.start, texts.end, False
    return take_spans(texts.data, start, end, null)


def _decode_characters(cells: CellBytes) -> Texts:
    """Those that are not UTF-8 as they lie are made anew; the others stay where they are."""
    needed = characters.find_non_ascii(cells)
    if not needed.any():
        return Texts(cells.block.u8, cells.start, cells.end)
    made = characters.recode_characters(replace(cells, start=cells.start[needed], end=cells.end[needed]))
    start, end, behind = cells.start.copy(), cells.end.copy(), len(cells.block.u8)
    start[needed], end[needed] = made.start + behind, made.end + behind
    return Texts(np.concatenate([cells.block.u8, made.data]), start, end)


def _decode_unpacked_characters(cells: CellBytes) -> Texts:
    """Of COMPRESSED columns, whose values the server has unpacked."""
    if cells.type.codec == "utf-8":
        return Texts(cells.block.u8, cells.start, cells.end)
    return _decode_characters(cells)


def _decode_floats(cells: CellBytes) -> Texts:
    return numbers.decode_floats(_as_cells(cells, np.float32))


def _decode_doubles(cells: CellBytes) -> Texts:
    return numbers.decode_doubles(_as_cells(cells, np.float64))


def _as_cells(cells: CellBytes, kind: type[np.float32 | np.float64]) -> CellBytes:
    """Digits as the bytes of a number, as the binary log has it."""
    texts = pa.array(cells.list_values(), pa.binary()).cast(pa.string())
    data = texts.cast(pa.float64()).to_numpy(zero_copy_only=False).astype(kind)
    begins = np.arange(len(data), dtype=np.int64) * data.itemsize
    return CellBytes(Block(data.tobytes() + bytes(8)), cells.type, begins, begins + data.itemsize)


_RENDER: dict[Kind, Callable[[CellBytes], Texts]] = {
    Kind.FLOAT: _decode_floats,
    Kind.DOUBLE: _decode_doubles,
    Kind.BIT: numbers.decode_bits,
    Kind.CHARACTERS: _decode_characters,
    Kind.COMPRESSED_CHARACTERS: _decode_unpacked_characters,
    Kind.BYTES: characters.decode_bytes,
    Kind.PADDED_BYTES: characters.decode_padded_bytes,
    Kind.COMPRESSED_BYTES: characters.decode_bytes,
    Kind.GEOMETRY: documents.decode_geometries,
    Kind.VECTOR: documents.decode_vectors,
}

_MOMENTS = (Kind.TIMESTAMP2, Kind.TIMESTAMP)
_TRIMMED = (Kind.DATETIME2, Kind.DATETIME, Kind.TIME2, Kind.TIME, *_MOMENTS)
_ZERO_MOMENT = b"0000-00-00 00:00:00"


def _trim_times(texts: pa.Array, cell: CellType) -> pa.Array:
    """Times without zeros at the end of the fraction; moments with their zone."""
    found = texts.cast(pa.string())
    if cell.precision:
        found = pc.utf8_rtrim(pc.utf8_rtrim(found, "0"), ".")
    if cell.kind in _MOMENTS:
        found = pc.if_else(pc.equal(found, _ZERO_MOMENT.decode()), found, pc.binary_join_element_wise(found, "+00", ""))
    return found.cast(pa.binary())


def quote_literal(text: str, column: TableColumn) -> str:
    """SQL of a value of a key, from its text form."""
    kind = column.cell.kind
    if column.data_type in _BYTE_TYPES:
        return f"CAST({_quote_hex(text)} AS {column.data_type})"
    make = _LITERALS.get(kind)
    return f"'{text}'" if make is None else make(text, column.cell)


def _quote_hex(text: str) -> str:
    return f"X'{text.removeprefix(chr(92) + 'x')}'"


def _quote_double(value: float) -> str:
    shown = repr(value)
    return shown if "e" in shown else f"{shown}e0"


def _quote_enum(text: str, cell: CellType) -> str:
    return str(cell.labels.index(text.encode()) + 1 if text else 0)


def _quote_set(text: str, cell: CellType) -> str:
    return str(sum(1 << cell.labels.index(label.encode()) for label in text.split(",") if label))


def _quote_characters(text: str, _: CellType) -> str:
    # Whatever bytes a text has, these digits hold no quote and no backslash.
    return f"_utf8mb4 X'{text.encode('utf-8', 'surrogateescape').hex()}'"


_LITERALS: dict[Kind, Callable[[str, CellType], str]] = {
    **dict.fromkeys((Kind.SIGNED, Kind.UNSIGNED, Kind.DECIMAL, Kind.YEAR), lambda text, _: str(text)),
    # The stream has the shortest digits of a FLOAT; compared are all that its bytes stand for.
    Kind.FLOAT: lambda text, _: _quote_double(float(np.float32(text))),
    Kind.DOUBLE: lambda text, _: _quote_double(float(text)),
    Kind.BIT: lambda text, _: f"b'{text}'",
    **dict.fromkeys(_MOMENTS, lambda text, _: f"'{text.removesuffix('+00')}'"),
    **dict.fromkeys((Kind.VERBATIM, Kind.CHARACTERS, Kind.COMPRESSED_CHARACTERS), _quote_characters),
    **dict.fromkeys((Kind.BYTES, Kind.PADDED_BYTES, Kind.COMPRESSED_BYTES), lambda text, _: _quote_hex(text)),
    Kind.ENUM: _quote_enum,
    Kind.SET: _quote_set,
}
