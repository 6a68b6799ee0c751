"""The servers' errors as ours: what passes by itself is unavailable, what needs somebody is refused.

Numbers: MySQL 8.4 Reference Manual, "Server Error Message Reference"; MariaDB Knowledge Base, "MariaDB Error Codes".
"""

from __future__ import annotations

import re

import pymysql

from psql_streamer.errors import PositionRefused, SourceError, SourceRefused, SourceUnavailable
from psql_streamer.redaction import redact
from psql_streamer.shortage import find_limit

_ACCOUNT = "check user and password in the dsn, and the hosts that the account may come from"
_GRANT = (
    "grant what reading the binary log takes: GRANT REPLICATION SLAVE, REPLICATION CLIENT (on MariaDB SLAVE MONITOR "
    "besides) ON *.* TO the account of the dsn"
)
PLUGINS = "let the account use mysql_native_password, caching_sha2_password or (with PyNaCl installed) ed25519"

_REFUSED = {
    1044: _GRANT,
    1045: _ACCOUNT,
    1130: _ACCOUNT,
    1142: _GRANT,
    1227: _GRANT,
    1251: PLUGINS,
    1698: _ACCOUNT,
    1193: "use MySQL 8.0.14, MariaDB 10.5 or later",
    1064: "use MySQL 8.0.14, MariaDB 10.5 or later",
    2026: "check ssl-mode and ssl-ca in the dsn, and the server's certificate",
    2059: PLUGINS,
    2061: PLUGINS,
    3159: "the server takes TLS alone (require_secure_transport): leave out ssl-mode in the dsn, or set REQUIRED",
}
"""Errors that come again until somebody changes something."""

_BINLOG = 1236
"""ER_MASTER_FATAL_ERROR_READING_BINLOG: whatever keeps a dump thread from going on."""

_SAME_ID_NUMBER = 4052
"""MariaDB's ER_SLAVE_SAME_ID; MySQL says it with 1236."""

_SAME_ID = re.compile("same server_(uu)?id", re.IGNORECASE)
_PURGED = re.compile(
    "purged|could not find first log file|could not find gtid state|not in the master's binlog|"
    "not in the source's binlog|could not open log file",
    re.IGNORECASE,
)
_OUT_OF_ORDER = re.compile("even though both a prior and a subsequent", re.IGNORECASE)
_NOT_THERE = re.compile("impossible position|position > file size|requires? .* that .* not yet|diverge", re.IGNORECASE)
_CERTIFICATE = re.compile("certificate|SSL|TLS", re.IGNORECASE)


class SameServerId(SourceRefused):
    """Another client with this server id has connected, and the server ended this one."""


class LogMissing(PositionRefused):
    """The server does not have what lies behind the place that was asked for. Whoever asked knows what to do."""


def from_pymysql(error: pymysql.Error, where: str) -> SourceError:
    """Our error for one of PyMySQL's. where: host:port."""
    number, text = _split_error(error)
    if number is None or 2000 <= number < 3000:
        return _from_client(number, text, where)
    return from_fields(number, text)


def from_fields(number: int, text: str) -> SourceError:
    """Our error for an error packet of the server's."""
    message = f"{redact(text).strip().rstrip('.')} (error {number})"
    if number in (_BINLOG, _SAME_ID_NUMBER):
        return _from_dump(message)
    if number in _REFUSED:
        return SourceRefused(message, _REFUSED[number])
    return SourceUnavailable(message)


def _from_dump(message: str) -> SourceError:
    if _SAME_ID.search(message):
        return SameServerId(
            "the server ended the stream, because another client with the same server id has connected",
            "stop that one, or give this source a serverId of its own",
        )
    if _OUT_OF_ORDER.search(message):
        return SourceRefused(
            message,
            "numbers of transactions have gone back in the binary log (gtid_strict_mode = OFF), so that GTIDs say no "
            "place in it: set gtid_strict_mode = ON on the server, and positionOverride to the file and the offset to "
            "start at (binlog.000007:4; SHOW MASTER STATUS has the end)",
        )
    if _PURGED.search(message) or _NOT_THERE.search(message):
        return LogMissing(message, "the binary log from the position on is to be there")
    return SourceRefused(message, "see the server's error log")


def _from_client(number: int | None, text: str, where: str) -> SourceError:
    """What PyMySQL says of its own accord."""
    if number is not None and number in _REFUSED:
        return SourceRefused(f"{where}: {redact(text)}", _REFUSED[number])
    if _CERTIFICATE.search(text) and "EOF" not in text:
        return SourceRefused(f"no TLS session with {where} ({redact(text)})", _REFUSED[2026])
    remedy = find_limit(text) or "check host and port in the dsn"
    return SourceUnavailable(f"{where}: {redact(text) or 'the connection was lost'}", remedy)


def _split_error(error: pymysql.Error) -> tuple[int | None, str]:
    number = error.args[0] if error.args and isinstance(error.args[0], int) else None
    text = " ".join(str(one) for one in (error.args[1:] if number is not None else error.args))
    return number, text
