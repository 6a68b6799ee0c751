"""Values in a file of events: strings of PostgreSQL's text forms, and null."""

from __future__ import annotations

import base64
import json
from typing import Any

import pyarrow as pa

from psql_streamer.model import ArrowType, Column, ColumnType, find_text_form
from psql_streamer.pgtype import PgType
from psql_streamer.pgtypes.builtin import BY_OID


def render_values(array: pa.Array, kind: ColumnType) -> list[Any]:
    """A JSON value for each element. What is no text, or loses something as text, is an object with its bytes."""
    if isinstance(kind, ArrowType):
        return _render_arrow(array, kind.arrow)
    return [_render_text(value) for value in array.to_pylist()]


def parse_array(values: list[Any], column: Column) -> pa.Array:
    """The values of a column, as Image has them. ValueError when one is none of its type."""
    kind = column.type
    if isinstance(kind, ArrowType):
        return _parse_arrow(values, kind.arrow)
    form = find_text_form(kind)
    known = None if form is None else form.known or BY_OID.get(form.oid)
    return pa.array([_parse_text(value, known) for value in values], pa.binary())


def _render_text(value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:  # a SQL_ASCII database holds any bytes
        return {"base64": base64.b64encode(value).decode()}


def _parse_text(value: Any, known: PgType | None) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, dict) and set(value) == {"base64"}:
        return base64.b64decode(value["base64"])
    return _write_text_form(value, known).encode()


def _write_text_form(value: Any, known: PgType | None) -> str:
    """PostgreSQL's text form of a value that somebody wrote as JSON: `true`, 12, `["a", "b"]`."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) and (known is None or known.name not in ("json", "jsonb")):
        return "t" if value else "f"
    if isinstance(value, list) and known is not None and known.element is not None:
        return "{" + ",".join(_write_array_element(one, known.element) for one in value) + "}"
    return json.dumps(value, ensure_ascii=False)


def _write_array_element(value: Any, kind: PgType) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, list):
        return "{" + ",".join(_write_array_element(one, kind) for one in value) + "}"
    escaped = _write_text_form(value, kind).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _render_arrow(array: pa.Array, kind: pa.DataType) -> list[Any]:
    """As Arrow's text where that reads back as the same, else as Arrow's IPC bytes."""
    try:
        texts = array.cast(pa.string())
        if texts.cast(kind).equals(array):
            return list(texts.to_pylist())
    except pa.ArrowException:
        pass
    return [_encode_ipc(array.slice(at, 1)) if array[at].is_valid else None for at in range(len(array))]


def _parse_arrow(values: list[Any], kind: pa.DataType) -> pa.Array:
    if all(value is None for value in values):
        return pa.nulls(len(values), kind)
    if not any(isinstance(value, dict) for value in values):
        return pa.array([None if value is None else str(value) for value in values], pa.string()).cast(kind)
    parts = [pa.nulls(1, kind) if value is None else _parse_arrow_value(value, kind) for value in values]
    return pa.concat_arrays(parts)


def _parse_arrow_value(value: Any, kind: pa.DataType) -> pa.Array:
    if not isinstance(value, dict):
        return pa.array([str(value)], pa.string()).cast(kind)
    with pa.ipc.open_stream(base64.b64decode(value["arrow"])) as reader:
        return reader.read_all().column(0).combine_chunks()


def _encode_ipc(one: pa.Array) -> dict[str, str]:
    table = pa.table({"value": one})
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, table.schema) as writer:
        writer.write_table(table)
    return {"arrow": base64.b64encode(buffer.getvalue().to_pybytes()).decode()}
