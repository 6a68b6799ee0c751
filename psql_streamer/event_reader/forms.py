"""Records of the formats `event`, `envelope` and `debezium`, and events of the Go psql-streamer, as Parsed.

msgspec leaves the columns' values as the bytes that they are: no digit goes through a float.
"""

from __future__ import annotations

import base64
from binascii import Error as Base64Error
from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from psql_streamer.event_reader.binary_logs import locate_in_binary_log, read_gtid_number
from psql_streamer.event_reader.parsed import (
    LARGEST_NUMBER,
    Image,
    MarkerDetails,
    NoEventError,
    Origin,
    Parsed,
    derive_kind,
    require_moment,
    to_micros,
)
from psql_streamer.event_reader.placeholders import is_placeholder
from psql_streamer.lsn import Lsn
from psql_streamer.model import MYSQL, OF_BINARY_LOGS, OUTSIDE, POSTGRESQL, Kind, Marker, RowOp, SnapshotRows

Parse = Callable[[bytes], Parsed]
"""Raises NoEventError, or one of NOT_OF_THE_FORMAT, whose text is not to be shown, for what is not of the format."""

NOT_OF_THE_FORMAT = (msgspec.DecodeError, UnicodeDecodeError)

Number = Annotated[int, Meta(ge=0, le=LARGEST_NUMBER)]
"""LSNs and the like."""

LARGEST_SEQ = 1 << 62

_Seq = Annotated[int, Meta(ge=-1, le=LARGEST_SEQ)]
_Part = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_Parts = Annotated[int, Meta(ge=1, le=(1 << 62))]
_Milliseconds = Annotated[int, Meta(ge=-(1 << 52), le=1 << 52)]
_Microseconds = Annotated[int, Meta(ge=-(1 << 62), le=1 << 62)]


class Event(Struct, gc=False):
    """The format `event`; the Go service's has no Schema, XID, CommitLSN and Seq."""

    Table: str
    Action: str
    Timestamp: str | None = None
    Host: str = ""
    Database: str = ""
    Schema: str = ""
    XID: Number | None = None
    CommitLSN: Number | None = None
    WALPosition: Number | None = None
    Transaction: str | None = None
    Commit: Number | None = None
    Place: Number | None = None
    Snapshot: str | None = None
    OnDemand: bool = False
    GTID: str | None = None
    File: str | None = None
    Position: Number = 0
    ServerID: Number | None = None
    Thread: Number | None = None
    Seq: _Seq | None = None
    Part: _Part | None = None
    Parts: _Parts | None = None
    UUID: str = ""
    Columns: dict[str, Raw] | None = None
    Before: dict[str, Raw] | None = None
    Unchanged: list[str] = []
    Options: list[str] = []
    Prefix: str = ""
    Content: str = ""
    ContentBase64: str | None = None


ACTIONS: dict[str, Kind] = {kind.action: kind for kind in (*RowOp, Marker.TRUNCATE, Marker.MESSAGE)}


decode_event = msgspec.json.Decoder(Event).decode

decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
"""Of any JSON object. Raises one of NOT_OF_THE_FORMAT, or RecursionError."""


def _parse_event(value: bytes) -> Parsed:
    event = decode_event(value)
    kind = ACTIONS.get(event.Action)
    if kind is None:
        raise NoEventError("its Action is none of insert, update, delete, read, truncate and message")
    commit = event.CommitLSN if event.Commit is None else event.Commit
    if event.File is None:
        xid, place = event.XID, event.WALPosition if event.Place is None else event.Place
        of_others = event.Transaction, event.Commit, event.Place
        kind_of_source = derive_kind((xid, event.CommitLSN, event.WALPosition), of_others)
        origin = Origin(kind_of_source, event.Host, event.Database)
        transaction, thread = event.Transaction if xid is None else str(xid), 0
    else:
        log = locate_in_binary_log(event.GTID, event.File, event.Position, commit, event.ServerID)
        origin, transaction, place = log.make_origin(event.Host, event.Database), log.id, log.place
        thread = event.Thread or 0
    new, old, details = event.Columns, event.Before, None
    if kind is RowOp.DELETE:
        new, old = None, new
    elif not isinstance(kind, RowOp):
        details = MarkerDetails(event.Options, event.Prefix, _decode_content(event.Content, event.ContentBase64))
        new = old = None
    return Parsed(
        origin,
        event.Schema,
        event.Table,
        kind,
        place if commit is None else commit,
        0 if event.Timestamp is None else to_micros(event.Timestamp),
        transaction,
        place,
        event.Seq,
        _parse_uuid(event.UUID),
        new,
        old,
        event.Unchanged,
        details,
        find_snapshot(event),
        _make_part(event.Part, event.Parts),
        thread,
    )


def find_snapshot(event: Event) -> SnapshotRows | None:
    """The snapshot that an event's row is of. Raises NoEventError for a row that no snapshot gives."""
    if event.Snapshot is None:
        return None
    if event.Action not in _ACTIONS_OF_SNAPSHOTS:
        raise NoEventError("it names a Snapshot, and its Action is neither read nor delete")
    return SnapshotRows(event.Snapshot, event.OnDemand)


_OPS_OF_SNAPSHOTS = (RowOp.READ, RowOp.DELETE)
"""Rows that are there, and keys that no row has."""

_ACTIONS_OF_SNAPSHOTS = tuple(op.action for op in _OPS_OF_SNAPSHOTS)


class _EnvelopeSource(Struct):
    db: str
    ts_ms: _Milliseconds | None
    seq: _Seq
    part: _Part | None = None
    parts: _Parts | None = None
    xid: Number | None = None
    commit_lsn: str | None = None
    lsn: str | None = None
    transaction: str | None = None
    commit: Number | None = None
    place: Number | None = None
    snapshot: str | None = None
    snapshot_id: str | None = None
    uuid: str = ""
    gtid: str | UnsetType | None = UNSET
    file: str | None = None
    pos: Number = 0
    server_id: Number | None = None
    thread: Number | None = None


class _EnvelopeMessage(Struct, rename={"content_base64": "contentBase64"}):
    prefix: str
    content: str = ""
    content_base64: str | None = None


class _Envelope(Struct):
    schema: str
    table: str
    op: str
    before: dict[str, Raw] | None
    after: dict[str, Raw] | None
    source: _EnvelopeSource
    unchanged: list[str] = []
    options: list[str] = []
    message: _EnvelopeMessage | None = None


_NAMES: dict[str, Kind] = {kind.name: kind for kind in ACTIONS.values()}


_decode_envelope = msgspec.json.Decoder(_Envelope).decode


def _parse_envelope(value: bytes) -> Parsed:
    event = _decode_envelope(value)
    kind, source, details = _NAMES.get(event.op), event.source, None
    if kind is None:
        raise NoEventError("its op is none of INSERT, UPDATE, DELETE, READ, TRUNCATE and MESSAGE")
    if not isinstance(kind, RowOp):
        said = event.message or _EnvelopeMessage("")
        details = MarkerDetails(event.options, said.prefix, _decode_content(said.content, said.content_base64))
    gtid = None if source.gtid is UNSET else source.gtid
    if source.file is None:
        of_others = source.transaction, source.commit, source.place
        kind_of_source = derive_kind((source.xid, source.commit_lsn, source.lsn), of_others)
        if source.gtid is None:  # of a row of a snapshot, which lies in no file
            kind_of_source = MYSQL
        origin = Origin(kind_of_source, "", source.db)
        transaction = source.transaction if source.xid is None else str(source.xid)
        place = source.place if source.lsn is None else _parse_lsn(source.lsn)
    else:
        log = locate_in_binary_log(gtid, source.file, source.pos, source.commit, source.server_id)
        origin, transaction, place = log.make_origin("", source.db), log.id, log.place
    return Parsed(
        origin,
        event.schema,
        event.table,
        kind,
        source.commit if source.commit_lsn is None else _parse_lsn(source.commit_lsn),
        require_moment((source.ts_ms or 0) * 1000),
        transaction,
        place,
        source.seq,
        _parse_uuid(source.uuid) if source.uuid else b"",
        event.after,
        event.before,
        event.unchanged,
        details,
        None if source.snapshot_id is None else _make_envelope_snapshot(kind, source.snapshot_id, source.snapshot),
        _make_part(source.part, source.parts),
        source.thread or 0,
    )


def _make_envelope_snapshot(kind: Kind, name: str, word: str | None) -> SnapshotRows:
    if kind not in _OPS_OF_SNAPSHOTS:
        raise NoEventError("its source names a snapshot, and its op is neither READ nor DELETE")
    return SnapshotRows(name, word == _INCREMENTAL)


_INCREMENTAL = "incremental"
"""What Debezium calls a snapshot that an operator asked for."""


class _DebeziumSource(Struct, rename={"transaction": "txId"}):
    connector: str
    ts_ms: _Milliseconds
    db: str = ""
    table: str = ""
    schema: str = ""
    ts_us: _Microseconds | None = None
    gtid: str | None = None
    file: str = ""
    pos: Number = 0
    server_id: Number | None = None
    thread: Number | None = None
    transaction: Number | str | None = None
    lsn: Number | None = None
    sequence: str | None = None
    snapshot: str | bool | None = None


class _DebeziumMessage(Struct):
    prefix: str
    content: str


class _Debezium(Struct):
    op: str
    source: _DebeziumSource
    before: dict[str, Raw] | None = None
    after: dict[str, Raw] | None = None
    message: _DebeziumMessage | None = None


class _WithSchema(Struct):
    payload: _Debezium


_CODES: dict[str, Kind] = {
    "c": RowOp.INSERT,
    "u": RowOp.UPDATE,
    "d": RowOp.DELETE,
    "r": RowOp.READ,
    "t": Marker.TRUNCATE,
    "m": Marker.MESSAGE,
}

_decode_debezium = msgspec.json.Decoder(_Debezium).decode
_decode_with_schema = msgspec.json.Decoder(_WithSchema).decode


def _parse_debezium(value: bytes) -> Parsed:
    return _convert_debezium(_decode_debezium(value))


def _parse_debezium_with_schema(value: bytes) -> Parsed:
    return _convert_debezium(_decode_with_schema(value).payload)


def _convert_debezium(event: _Debezium) -> Parsed:
    kind, source, details = _CODES.get(event.op), event.source, None
    if kind is None:
        raise NoEventError("its op is none of c, u, d, r, t and m")
    if not isinstance(kind, RowOp):
        said = event.message or _DebeziumMessage("", "")
        details = MarkerDetails((), said.prefix, _decode_base64(said.content))
    if source.connector == POSTGRESQL and isinstance(source.transaction, str):
        raise NoEventError("its source.txId is no number")
    new, unchanged = _split_unchanged(event.after)
    commit: int | None
    place: int | None
    transaction: str | None
    if source.file and source.connector in OF_BINARY_LOGS:
        log = locate_in_binary_log(source.gtid, source.file, source.pos, None, source.server_id, source.connector)
        origin, schema = log.make_origin("", source.db)._replace(encoded=True), source.db
        commit, place, transaction = read_gtid_number(source.gtid), log.place, log.id
    else:
        origin = Origin(source.connector, "", source.db, server_id=source.server_id or 0, encoded=True)
        # The db of MySQL's connectors is the table's schema.
        schema, place = source.db if source.connector in OF_BINARY_LOGS else source.schema, source.lsn
        commit = _commit_in(source.sequence) or source.lsn
        transaction = None if source.transaction is None else str(source.transaction)
    return Parsed(
        origin,
        schema,
        source.table,
        kind,
        commit,
        require_moment(source.ts_ms * 1000 if source.ts_us is None else source.ts_us),
        transaction,
        place,
        OUTSIDE if kind is Marker.MESSAGE and source.transaction is None else None,
        b"",
        new,
        event.before,
        unchanged,
        details,
        _find_debezium_snapshot(kind, source),
        thread=source.thread or 0,
    )


def _find_debezium_snapshot(kind: Kind, source: _DebeziumSource) -> SnapshotRows | None:
    """Rows for which the connector names the transaction that it read them in are READ rows of that transaction, and
    those for which it names a place in a binary log are of that place.
    """
    if source.connector not in (POSTGRESQL, *OF_BINARY_LOGS) or source.file:
        return None
    if (source.transaction, source.lsn) != (None, None):
        return None
    if kind is not RowOp.READ and not (kind is RowOp.DELETE and source.snapshot == _INCREMENTAL):
        return None
    return SnapshotRows("", source.snapshot == _INCREMENTAL)


def name_snapshot(parsed: Parsed, headers: Sequence[tuple[str, bytes | None]]) -> Parsed:
    """With the id of the row's snapshot and the UUID that stand in the headers, if they do. Raises NoEventError."""
    named = dict(headers)
    snapshot = named.get("snapshot")
    if snapshot is None or parsed.snapshot is None:
        return parsed
    try:
        uuid = parsed.uuid or _parse_uuid((named.get("uuid") or b"").decode("ascii"))
        return parsed._replace(snapshot=parsed.snapshot._replace(id=snapshot.decode()), uuid=uuid)
    except UnicodeDecodeError:
        raise NoEventError("its headers snapshot and uuid are not text") from None


def _make_part(number: int | None, of: int | None) -> tuple[int, int] | None:
    return None if number is None or of is None else (number, of)


def _split_unchanged(image: Image | None) -> tuple[Image | None, Sequence[str]]:
    """The values that are there, and the names of those that an update left alone."""
    if image is None:
        return None, ()
    lacking = [name for name, value in image.items() if is_placeholder(bytes(value))]
    if not lacking:
        return image, ()
    gone = set(lacking)
    return {name: value for name, value in image.items() if name not in gone}, lacking


def _commit_in(sequence: str | None) -> int | None:
    """Debezium writes the LSN of a commit and that of the change, or null, as a JSON text in a string."""
    if sequence is None:
        return None
    try:
        first = _decode_sequence(sequence)[0]
    except (*NOT_OF_THE_FORMAT, IndexError):
        raise NoEventError("its source.sequence is not a list of LSNs") from None
    if first is None:
        return None
    if not (first.isascii() and first.isdecimal() and len(first) <= _LONGEST_NUMBER and int(first) <= LARGEST_NUMBER):
        raise NoEventError("its source.sequence is not a list of LSNs")
    return int(first)


_decode_sequence = msgspec.json.Decoder(list[str | None]).decode
_LONGEST_NUMBER = len(str(LARGEST_NUMBER))


def _parse_uuid(text: str) -> bytes:
    uuid = text.encode()
    if uuid and not are_uuids(uuid, 1):
        raise NoEventError("its UUID is not made of 36 hexadecimal digits and dashes")
    return uuid


def are_uuids(texts: bytes, count: int) -> bool:
    """Whether these are so many UUIDs, one behind the other."""
    return texts.translate(_DIGITS_ALIKE) == _UUID_FORM * count


_UUID_FORM = b"00000000-0000-0000-0000-000000000000"
UUID_LENGTH = len(_UUID_FORM)
_HEX_DIGITS = b"0123456789abcdefABCDEF"
_DIGITS_ALIKE = bytes(
    ord("0") if byte in _HEX_DIGITS else byte if byte == ord("-") else ord("?") for byte in range(256)
)


def _parse_lsn(text: str) -> int:
    try:
        return int(Lsn.parse(text))
    except ValueError:
        raise NoEventError("an LSN in its source block is not as PostgreSQL writes them") from None


def _decode_content(text: str, encoded: str | None) -> bytes:
    return text.encode() if encoded is None else _decode_base64(encoded)


def _decode_base64(encoded: str) -> bytes:
    try:
        return base64.b64decode(encoded, validate=True)
    except (Base64Error, ValueError):
        raise NoEventError("the content of its message is not base64") from None


FORMS: tuple[tuple[str, Parse], ...] = (
    ("event", _parse_event),
    ("envelope", _parse_envelope),
    ("debezium", _parse_debezium),
    ("debezium", _parse_debezium_with_schema),
)
"""The formats, each with what reads it; no record is of two."""
