"""Values in a file of events: strings of PostgreSQL's text forms, and null."""

from __future__ import annotations

import base64
import json
from typing import Any

import pyarrow as pa

from psql_streamer.model import ArrowType, Column, ColumnType, text_form
from psql_streamer.pgtype import PgType
from psql_streamer.pgtypes.builtin import BY_OID


def values_to_json(array: pa.Array, kind: ColumnType) -> list[Any]:
    """A JSON value for each element. What is no text, or loses something as text, is an object with its bytes."""
    if isinstance(kind, ArrowType):
        return _arrow_to_json(array, kind.arrow)
    return [_text_to_json(value) for value in array.to_pylist()]


def array_of_json(values: list[Any], column: Column) -> pa.Array:
    """The values of a column, as Image has them. ValueError when one is none of its type."""
    kind = column.type
    if isinstance(kind, ArrowType):
        return _arrow_of_json(values, kind.arrow)
    form = text_form(kind)
    known = None if form is None else form.known or BY_OID.get(form.oid)
    return pa.array([_text_of_json(value, known) for value in values], pa.binary())


def _text_to_json(value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:  # a SQL_ASCII database holds any bytes
        return {"base64": base64.b64encode(value).decode()}


def _text_of_json(value: Any, known: PgType | None) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, dict) and set(value) == {"base64"}:
        return base64.b64decode(value["base64"])
    return _written(value, known).encode()


def _written(value: Any, known: PgType | None) -> str:
    """PostgreSQL's text form of a value that somebody wrote as JSON: `true`, 12, `["a", "b"]`."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) and (known is None or known.name not in ("json", "jsonb")):
        return "t" if value else "f"
    if isinstance(value, list) and known is not None and known.element is not None:
        return "{" + ",".join(_array_element(one, known.element) for one in value) + "}"
    return json.dumps(value, ensure_ascii=False)


def _array_element(value: Any, kind: PgType) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, list):
        return "{" + ",".join(_array_element(one, kind) for one in value) + "}"
    escaped = _written(value, kind).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _arrow_to_json(array: pa.Array, kind: pa.DataType) -> list[Any]:
    """As Arrow's text where that reads back as the same, else as Arrow's IPC bytes."""
    try:
        texts = array.cast(pa.string())
        if texts.cast(kind).equals(array):
            return list(texts.to_pylist())
    except pa.ArrowException:
        pass
    return [_ipc_of(array.slice(at, 1)) if array[at].is_valid else None for at in range(len(array))]


def _arrow_of_json(values: list[Any], kind: pa.DataType) -> pa.Array:
    if all(value is None for value in values):
        return pa.nulls(len(values), kind)
    if not any(isinstance(value, dict) for value in values):
        return pa.array([None if value is None else str(value) for value in values], pa.string()).cast(kind)
    parts = [pa.nulls(1, kind) if value is None else _one_of_json(value, kind) for value in values]
    return pa.concat_arrays(parts)


def _one_of_json(value: Any, kind: pa.DataType) -> pa.Array:
    if not isinstance(value, dict):
        return pa.array([str(value)], pa.string()).cast(kind)
    with pa.ipc.open_stream(base64.b64decode(value["arrow"])) as reader:
        return reader.read_all().column(0).combine_chunks()


def _ipc_of(one: pa.Array) -> dict[str, str]:
    table = pa.table({"value": one})
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, table.schema) as writer:
        writer.write_table(table)
    return {"arrow": base64.b64encode(buffer.getvalue().to_pybytes()).decode()}
