"""Events of the binlog: the header, the checksum, and the fields of those that are not about rows.

MySQL: libs/mysql/binlog/event/control_events.h; MariaDB: sql/log_event.h and its knowledge base, "Replication
Protocol". Integers are little-endian. An event is the header of 19 bytes, a part of fixed length, a part of variable
length, and, if the FORMAT_DESCRIPTION event of the file says so, its CRC-32.
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from psql_streamer.binlog.charsets import BY_COLLATION, decode_characters
from psql_streamer.binlog.reader import Reader, decode
from psql_streamer.errors import ProtocolError

HEADER_BYTES = 19
CHECKSUM_BYTES = 4
_HEADER = Struct("<IBIIIH")

ARTIFICIAL = 0x20
"""Flag: made for this connection, and not in the file; its log_pos means nothing."""

THREAD_SPECIFIC = 0x04
"""Of a statement: it uses a temporary table of its session (LOG_EVENT_THREAD_SPECIFIC_F)."""

IGNORABLE = 0x80
"""Flag: whoever does not know the event may skip it."""


class EventType(IntEnum):
    """Log_event_type; from 160 on MariaDB's own."""

    UNKNOWN = 0
    START_V3 = 1
    QUERY = 2
    STOP = 3
    ROTATE = 4
    INTVAR = 5
    LOAD = 6
    SLAVE = 7
    CREATE_FILE = 8
    APPEND_BLOCK = 9
    EXEC_LOAD = 10
    DELETE_FILE = 11
    NEW_LOAD = 12
    RAND = 13
    USER_VAR = 14
    FORMAT_DESCRIPTION = 15
    XID = 16
    BEGIN_LOAD_QUERY = 17
    EXECUTE_LOAD_QUERY = 18
    TABLE_MAP = 19
    PRE_GA_WRITE_ROWS = 20
    PRE_GA_UPDATE_ROWS = 21
    PRE_GA_DELETE_ROWS = 22
    WRITE_ROWS_V1 = 23
    UPDATE_ROWS_V1 = 24
    DELETE_ROWS_V1 = 25
    INCIDENT = 26
    HEARTBEAT = 27
    IGNORABLE = 28
    ROWS_QUERY = 29
    WRITE_ROWS = 30
    UPDATE_ROWS = 31
    DELETE_ROWS = 32
    GTID = 33
    ANONYMOUS_GTID = 34
    PREVIOUS_GTIDS = 35
    TRANSACTION_CONTEXT = 36
    VIEW_CHANGE = 37
    XA_PREPARE = 38
    PARTIAL_UPDATE_ROWS = 39
    TRANSACTION_PAYLOAD = 40
    HEARTBEAT_V2 = 41
    GTID_TAGGED = 42
    ANNOTATE_ROWS = 160
    BINLOG_CHECKPOINT = 161
    MARIADB_GTID = 162
    GTID_LIST = 163
    START_ENCRYPTION = 164
    QUERY_COMPRESSED = 165
    WRITE_ROWS_COMPRESSED_V1 = 166
    UPDATE_ROWS_COMPRESSED_V1 = 167
    DELETE_ROWS_COMPRESSED_V1 = 168
    WRITE_ROWS_COMPRESSED = 169
    UPDATE_ROWS_COMPRESSED = 170
    DELETE_ROWS_COMPRESSED = 171


_NAMES: dict[int, str] = {int(kind): kind.name for kind in EventType}


def name_event(kind: int) -> str:
    """What an event type is called."""
    return _NAMES.get(kind, f"type {kind}")


class Header(NamedTuple):
    """timestamp: seconds since 1970. size: of the event, header and checksum included. log_pos: where the event ends in
    its file.
    """

    timestamp: int
    type: int
    server_id: int
    size: int
    log_pos: int
    flags: int


def read_header(event: bytes) -> Header:
    """ProtocolError when it does not say the event's own length."""
    if len(event) < HEADER_BYTES:
        raise ProtocolError("a binlog event is shorter than its header")
    header: Header = tuple.__new__(Header, _HEADER.unpack_from(event))
    if header.size != len(event):
        raise ProtocolError(f"a {name_event(header.type)} event of {len(event)} bytes says that it has {header.size}")
    return header


_CRC_OF_ALL = 0x2144_DF1C
"""The CRC-32 of whatever ends with its own CRC-32, little-endian."""


def has_checksum(event: bytes) -> bool:
    """Whether the event ends with its CRC-32."""
    return len(event) >= HEADER_BYTES + CHECKSUM_BYTES and zlib.crc32(event) == _CRC_OF_ALL


def make_checksum_error(header: Header) -> ProtocolError:
    """What to say of an event whose checksum is wrong."""
    return ProtocolError(
        f"the checksum of a {name_event(header.type)} event that ends at {header.log_pos} is wrong",
        "the binlog, or the network, is damaged: see the server's log, and verify the file with mysqlbinlog "
        "--verify-binlog-checksum",
    )


_CRC32 = 1
_SERVER_AND_MOMENT = 50 + 4
"""Bytes of the server's version and of the time at which the file was begun."""


def read_format_description(event: bytes, header: Header) -> bool:
    """Whether the events of the file have checksums. ProtocolError when they have another form than the known one.

    The event has room for a checksum itself, whatever it says of the others (MySQL source,
    Log_event_footer::get_checksum_alg).
    """
    reader = Reader(event, "FORMAT_DESCRIPTION", HEADER_BYTES)
    version = reader.read_integer(2)
    if version != 4:
        raise ProtocolError(f"the binlog has version {version} where 4 is known")
    reader.take(_SERVER_AND_MOMENT)
    header_length = reader.read_integer(1)
    if header_length != HEADER_BYTES:
        raise ProtocolError(f"binlog events have headers of {header_length} bytes where {HEADER_BYTES} are known")
    rest = reader.take_rest()
    if len(rest) < CHECKSUM_BYTES + 1 + EventType.DELETE_ROWS_V1:
        raise ProtocolError("a FORMAT_DESCRIPTION event is shorter than its fields")
    algorithm = rest[-CHECKSUM_BYTES - 1]
    if algorithm > _CRC32:
        raise ProtocolError(f"the binlog has checksums of the unknown algorithm {algorithm}")
    if algorithm == _CRC32 and not has_checksum(_as_closed(event)):
        raise make_checksum_error(header)
    return algorithm == _CRC32


def _as_closed(event: bytes) -> bytes:
    """The flag that a file is in use is not part of the checksum, or it would change when the file is closed."""
    return event[:_FLAGS_AT] + bytes([event[_FLAGS_AT] & ~_IN_USE]) + event[_FLAGS_AT + 1 :]


_FLAGS_AT, _IN_USE = 17, 1


def read_rotate(body: bytes) -> tuple[str, int]:
    """The file that comes next, and where its events begin."""
    reader = Reader(body, "ROTATE")
    position = reader.read_integer(8)
    return decode(reader.take_rest(), "ROTATE"), position


class Gtid(NamedTuple):
    """What names a transaction. source: MySQL's server uuid, with `:tag` where it has one, or MariaDB's
    `domain-server`. number: gno, or MariaDB's sequence number.
    """

    source: str
    number: int

    def __str__(self) -> str:
        return f"{self.source}{'-' if _is_mariadb(self.source) else ':'}{self.number}"


def _is_mariadb(source: str) -> bool:
    return source.count("-") == 1


class GtidEvent(NamedTuple):
    """The begin of a transaction.

    gtid: None for an anonymous one. moment: of the original commit, microseconds since 1970; 0 where it is not said.
    standalone: whether one statement follows, without BEGIN and COMMIT (MariaDB). prepares: whether
    it is an XA transaction up to its XA PREPARE (MariaDB). unfinished: whether its ALTER has only begun, or has
    failed: one that is finished comes again (MariaDB's binlog_alter_two_phase).
    """

    gtid: Gtid | None
    moment: int = 0
    standalone: bool = False
    prepares: bool = False
    unfinished: bool = False


_FULL_MOMENT = 1 << 55
_UNTAGGED = Struct("<x16sQ")
_MOMENTS = 42
"""Where the times begin, behind a byte 2 and two numbers of 8 bytes about parallel replicas."""


def read_gtid(body: bytes, anonymous: bool) -> GtidEvent:
    """GTID_LOG_EVENT and ANONYMOUS_GTID_LOG_EVENT of MySQL."""
    if len(body) < _UNTAGGED.size:
        raise ProtocolError("a GTID event is shorter than its fields")
    uuid, number = _UNTAGGED.unpack_from(body)
    gtid = None if anonymous else Gtid(_name_source(uuid), number)
    if len(body) < _MOMENTS + 7 or body[_UNTAGGED.size] != _HAS_MOMENTS:
        return GtidEvent(gtid)
    # The immediate commit's time; with its highest bit set, that of the original commit follows.
    moment = int.from_bytes(body[_MOMENTS : _MOMENTS + 7], "little")
    if moment & _FULL_MOMENT:
        moment = int.from_bytes(body[_MOMENTS + 7 : _MOMENTS + 14], "little")
    return GtidEvent(gtid, moment & (_FULL_MOMENT - 1))


_HAS_MOMENTS = 2


@lru_cache(maxsize=256)
def _name_source(uuid: bytes, tag: str = "") -> str:
    digits = uuid.hex()
    dashed = f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
    return f"{dashed}:{tag}" if tag else dashed


_TAGGED_FIELDS = {"flags": 0, "uuid": 1, "gno": 2, "tag": 3, "immediate": 6, "original": 7}


def read_tagged_gtid(body: bytes) -> GtidEvent:
    """GTID_TAGGED_LOG_EVENT: a message of MySQL's serialization library, whose fields stand behind their numbers.

    Integers have as many bytes behind the first one as that has ones at its end (MySQL source,
    libs/mysql/serialization/readme.md); signed ones have the sign in the lowest bit.
    """
    reader = Reader(body, "GTID_TAGGED")
    for _ in range(3):  # version, size, the last field that must be known
        _read_variable_integer(reader)
    uuid, number, tag, moments = b"", 0, "", {}
    while len(reader):
        kind = _read_variable_integer(reader)
        if kind == _TAGGED_FIELDS["uuid"]:
            uuid = bytes(_read_variable_integer(reader) & 0xFF for _ in range(16))
        elif kind == _TAGGED_FIELDS["tag"]:
            tag = decode(reader.take(_read_variable_integer(reader)), "GTID_TAGGED")
        elif kind == _TAGGED_FIELDS["gno"]:
            number = _read_variable_integer(reader) >> 1
        else:
            moments[kind] = _read_variable_integer(reader)
    if not uuid:
        raise ProtocolError("a GTID_TAGGED event has no uuid")
    moment = moments.get(_TAGGED_FIELDS["original"]) or moments.get(_TAGGED_FIELDS["immediate"], 0)
    return GtidEvent(Gtid(_name_source(uuid, tag), number), moment)


def _read_variable_integer(reader: Reader) -> int:
    first = reader.read_integer(1)
    more = (first ^ (first + 1)).bit_length() - 1
    rest = reader.read_integer(more)
    return rest << 8 - more - 1 | first >> more + 1 if more < 8 else rest


_STANDALONE, _HAS_COMMIT_ID, _PREPARED_XA, _COMPLETED_XA = 1, 2, 64, 128
_START_ALTER, _ROLLBACK_ALTER = 2, 8


_OF_MARIADB = Struct("<QIB")


def read_mariadb_gtid(body: bytes, server_id: int) -> GtidEvent:
    """MariaDB's GTID event, which begins a transaction.

    Behind the flags come the number of a group commit, the name of an XA transaction, and more flags, each where it is
    there: https://mariadb.com/kb/en/gtid_event/.
    """
    if len(body) < _OF_MARIADB.size:
        raise ProtocolError("a GTID event is shorter than its fields")
    number, domain, flags = _OF_MARIADB.unpack_from(body)
    gtid = Gtid(_name_server(domain, server_id), number)
    unfinished = bool(_read_more_flags(body, flags) & (_START_ALTER | _ROLLBACK_ALTER))
    return GtidEvent(gtid, 0, bool(flags & _STANDALONE), bool(flags & _PREPARED_XA), unfinished)


def _read_more_flags(body: bytes, flags: int) -> int:
    """0 where the event ends before them, as that of an older server does."""
    place = _OF_MARIADB.size + (8 if flags & _HAS_COMMIT_ID else 0)
    if flags & (_PREPARED_XA | _COMPLETED_XA):
        lengths = body[place + 4 : place + 6]
        place += 6 + sum(lengths)
    return body[place] if place < len(body) else 0


@lru_cache(maxsize=256)
def _name_server(domain: int, server_id: int) -> str:
    return f"{domain}-{server_id}"


def name_xa_transaction(form: int, gtrid: bytes, bqual: bytes) -> bytes:
    """An XA transaction's name as the servers write it in statements, in lower case: x'67',x'62',1."""
    return b"x'%s',x'%s',%d" % (gtrid.hex().encode(), bqual.hex().encode(), form)


class XaPrepare(NamedTuple):
    """one_phase: whether it is a commit at the same time."""

    one_phase: bool
    xid: bytes


def read_xa_prepare(body: bytes) -> XaPrepare:
    """XA_PREPARE_LOG_EVENT, which ends the prepared transaction."""
    reader = Reader(body, "XA_PREPARE")
    one_phase, form = reader.read_integer(1), reader.read_integer(4)
    lengths = reader.read_integer(4), reader.read_integer(4)
    return XaPrepare(bool(one_phase), name_xa_transaction(form, reader.take(lengths[0]), reader.take(lengths[1])))


class Query(NamedTuple):
    """A statement in UTF-8, in the schema that was in use, and the server's thread that ran it."""

    schema: str
    statement: bytes
    thread_id: int


_SETTING_BYTES = {0: 4, 1: 8, 3: 4}
"""Of FLAGS2, SQL_MODE and AUTO_INCREMENT, which stand in front of CHARSET; so does a catalog with its length."""

_CATALOG_SETTING, _CHARSET_SETTING = 6, 4


def _find_client_collation(settings: bytes) -> int:
    """The number of character_set_client among a QUERY event's settings (MySQL source, Query_event); 0 for none."""
    at = 0
    while at + 3 <= len(settings):
        kind = settings[at]
        if kind == _CHARSET_SETTING:
            return settings[at + 1] | settings[at + 2] << 8
        if kind == _CATALOG_SETTING:
            at += 2 + settings[at + 1]
        elif kind in _SETTING_BYTES:
            at += 1 + _SETTING_BYTES[kind]
        else:
            break
    return 0


def _decode_statement(statement: bytes, settings: bytes) -> bytes:
    """In UTF-8. A statement is in its client's character set, also one that the server has written in its place; the
    schema in front of it is in UTF-8.
    """
    if statement.isascii() or (found := BY_COLLATION.get(_find_client_collation(settings))) is None:
        return statement
    if found.codec == "utf-8":
        return statement
    try:
        return decode_characters(statement, found.codec).encode()
    except UnicodeDecodeError:
        return statement


_QUERY = Struct("<I4xB2xH")
"""Thread, and the lengths of the schema's name and of the session's settings, which stand between."""


def read_query(body: bytes, compressed: bool = False) -> Query:
    """QUERY_EVENT; compressed: MariaDB's QUERY_COMPRESSED_EVENT."""
    if len(body) < _QUERY.size:
        raise ProtocolError("a QUERY event is shorter than its fields")
    thread_id, schema_length, settings_length = _QUERY.unpack_from(body)
    schema_at = _QUERY.size + settings_length
    statement_at = schema_at + schema_length + 1
    if statement_at > len(body):
        raise ProtocolError("a QUERY event is shorter than its fields")
    schema, statement = body[schema_at : statement_at - 1], body[statement_at:]
    if compressed:
        statement = inflate(statement, "QUERY_COMPRESSED")
    statement = _decode_statement(statement, body[_QUERY.size : schema_at])
    return Query(schema.decode(errors="replace"), statement, thread_id)


def read_load_query(body: bytes) -> Query:
    """EXECUTE_LOAD_QUERY: a query, with the number of the file that it loads and the places of its name in front of
    the session's settings.
    """
    return read_query(body[: _QUERY.size] + body[_QUERY.size + _LOADED_FILE_BYTES :])


_LOADED_FILE_BYTES = 13


def inflate(data: bytes, name: str) -> bytes:
    """What MariaDB compressed: a byte (7 bits: zlib, length bytes in the low 3), the length big-endian, and zlib's
    stream (MariaDB source, binlog_buf_uncompress).
    """
    reader = Reader(data, name)
    head = reader.read_integer(1)
    if head & 0xF0 != 0x80:
        raise ProtocolError(f"a {name} event is compressed with an unknown algorithm")
    size = reader.read_big_endian(head & 7)
    return decompress(reader.take_rest(), size, name)


def decompress(data: bytes, size: int, name: str, raw: bool = False) -> bytes:
    """zlib's stream of so many bytes. raw: whether its header is left out."""
    stream = zlib.decompressobj(-zlib.MAX_WBITS if raw else zlib.MAX_WBITS)
    try:
        found = stream.decompress(data, size + 1)
    except zlib.error:
        raise ProtocolError(f"a {name} event cannot be decompressed") from None
    if len(found) != size:
        raise ProtocolError(f"a {name} event does not have the {size} bytes that it says")
    return found
