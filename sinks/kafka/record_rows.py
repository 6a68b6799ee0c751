"""What a record of each format says of its row, as far as a reader of keys needs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Struct

from psql_streamer.event_reader.forms import ACTIONS
from psql_streamer.model import RowOp

Headers = Sequence[tuple[str, bytes | str | None]]


class NotReadableError(Exception):
    """A record is none of the format. The text has nothing of it."""


class RecordRow(NamedTuple):
    """is_row: whether it is about a row at all. origin: whatever it names as where the row is from. source: the name of
    the source in the configuration, if it says that.
    """

    schema: str
    table: str
    is_row: bool
    is_delete: bool
    origin: tuple[str, ...]
    source: str | None


def list_readable_formats() -> Sequence[str]:
    """The formats that `read_record` knows."""
    return tuple(_READERS)


def read_record(name: str, value: bytes | str | None, headers: Headers) -> RecordRow | None:
    """name: of the format. None for a tombstone that says nothing more. Raises NotReadableError."""
    try:
        return _READERS[name](value if not isinstance(value, str) else value.encode(), headers)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise NotReadableError("its value is another one") from None


class _Event(Struct, gc=False):
    Action: str
    Table: str
    Schema: str = ""
    Host: str = ""
    Database: str = ""


class _EnvelopeSource(Struct, gc=False):
    name: str
    db: str


class _Envelope(Struct, gc=False):
    schema: str
    table: str
    op: str
    source: _EnvelopeSource


class _DebeziumSource(Struct, gc=False):
    name: str
    db: str = ""
    schema: str = ""
    table: str = ""


class _Debezium(Struct, gc=False):
    op: str
    source: _DebeziumSource


class _Document(Struct, gc=False):
    payload: _Debezium | None = None
    op: str | None = None
    source: _DebeziumSource | None = None


_decode_event = msgspec.json.Decoder(_Event).decode
_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decode_debezium = msgspec.json.Decoder(_Document).decode

_CODES = {"c": RowOp.INSERT, "u": RowOp.UPDATE, "d": RowOp.DELETE, "r": RowOp.READ}


def _make_row(
    action: str, schema: str, table: str, origin: tuple[str, ...] = (), source: str | None = None
) -> RecordRow:
    kind = ACTIONS.get(action)
    return RecordRow(schema, table, isinstance(kind, RowOp), kind is RowOp.DELETE, origin, source)


def _read_event(value: bytes | None, _: Headers) -> RecordRow | None:
    if value is None:
        return None
    event = _decode_event(value)
    return _make_row(event.Action, event.Schema, event.Table, (event.Host, event.Database))


def _read_envelope(value: bytes | None, _: Headers) -> RecordRow | None:
    if value is None:
        return None
    event = _decode_envelope(value)
    source = event.source
    return _make_row(event.op.lower(), event.schema, event.table, (source.name, source.db), source.name)


def _read_debezium(value: bytes | None, _: Headers) -> RecordRow | None:
    if value is None:
        return None
    document = _decode_debezium(value)
    if document.payload is not None:
        document = _Document(None, document.payload.op, document.payload.source)
    source, op = document.source, document.op
    if source is None or op is None:
        raise NotReadableError("it has no op and source")
    kind = _CODES.get(op)
    action = "message" if kind is None else kind.action
    return _make_row(action, source.schema, source.table, (source.name, source.db), source.name)


def _read_flat(value: bytes | None, headers: Headers) -> RecordRow | None:
    named = dict(headers)
    if "op" not in named:
        if value is None:
            return None
        raise NotReadableError("it has no header op")
    op, schema, table = (_read_header(named, name) for name in ("op", "schema", "table"))
    return _make_row(op, schema, table)


def _read_header(headers: Mapping[str, bytes | str | None], name: str) -> str:
    found = headers.get(name) or b""
    return found if isinstance(found, str) else found.decode()


_READERS: Mapping[str, Callable[[bytes | None, Headers], RecordRow | None]] = {
    "event": _read_event,
    "envelope": _read_envelope,
    "debezium": _read_debezium,
    "flat": _read_flat,
}
