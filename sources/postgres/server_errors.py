"""PostgreSQL's errors as ours: what passes by itself is unavailable, what needs somebody is refused.

SQLSTATEs: PostgreSQL documentation, "PostgreSQL Error Codes".
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import psycopg2
import psycopg2.extensions

from psql_streamer.errors import PositionRefused, SourceError, SourceRefused, SourceUnavailable
from psql_streamer.redaction import is_secret

SLOT_IN_USE = "55006"
_NOT_AS_NEEDED = "55000"
_DATA_EXCEPTION = "22"
_NO_TEXT = ("22021", "22P05")

_REFUSED = {
    "28": "check user and password in the dsn, and the server's pg_hba.conf",
    "3D000": "check the database name in the dsn",
    "42501": "grant the privilege, for example ALTER ROLE ... REPLICATION and GRANT SELECT",
    "42704": "create it, or correct its name in the configuration",
    "42602": "correct the name in the configuration",
    "22021": "a row has bytes that are not text (a SQL_ASCII database accepts any): walPositionOverride can skip it",
    "22023": "correct the value in the configuration",
    "22P05": "a row has a character that UTF-8 does not have: walPositionOverride can skip it",
    "0A000": "use a server of version 14 or later, and no standby before version 16",
    "42601": "use a server of version 14 or later",
    "53400": "raise max_replication_slots, or drop an unused slot",
}
_REFUSED_BY_SERVER = {
    "password authentication failed": _REFUSED["28"],
    "no password supplied": _REFUSED["28"],
    "start wal ?sender": "allow the role to replicate: ALTER ROLE ... REPLICATION",
    "no pg_hba.conf entry .*no encryption": (
        "check user and password in the dsn, and the server's pg_hba.conf, which may want TLS: set sslmode = require"
    ),
    "pg_hba.conf": _REFUSED["28"],
    "database .*does not exist": _REFUSED["3D000"],
    "permission denied for database": "allow the role to connect: GRANT CONNECT ON DATABASE ... TO ...",
    "role .*(does not exist|is not permitted)": _REFUSED["28"],
    "permission denied": _REFUSED["42501"],
    "unrecognized configuration parameter": "correct `options` in the dsn",
    "invalid value for parameter": "correct `options` in the dsn",
}
"""What the server says, in lower case and without the names that it quotes, of a session that it will not allow until
somebody changes something. A session that is not there yet has no SQLSTATE in libpq."""

_FULL = {
    "too many connections for role": (
        "end sessions of this role, or raise its limit: ALTER ROLE ... CONNECTION LIMIT ..."
    ),
    "too many connections for database": (
        "end sessions of this database, or raise its limit: ALTER DATABASE ... CONNECTION LIMIT ..."
    ),
    "too many clients|connection slots are reserved": "end sessions, or raise max_connections and restart the server",
    "number of requested standby connections": (
        "end WAL senders (SELECT * FROM pg_stat_replication), or raise max_wal_senders and restart the server"
    ),
}
"""The same of sessions that it has no room for, which may pass."""

_REFUSED_BY_LIBPQ = {
    "fe_sendauth: no password supplied": _REFUSED["28"],
    "certificate verify failed|self-?signed certificate": "check sslrootcert in the dsn, and the server's certificate",
    "server'?s? certificate|host name .*certificate": (
        "connect by a name that the server's certificate holds, or set sslmode = verify-ca"
    ),
    "(root )?certificate file|private key file|could not load|could not read certificate|certificate present, but": (
        "check sslcert, sslkey and sslrootcert in the dsn: the files must exist, and only their owner may read the key"
    ),
    "tlsv1[0-9]* alert|sslv3 alert": (
        "the server refuses the TLS session: check sslcert and sslkey in the dsn, and the server's ssl settings"
    ),
    "does not support ssl": "set sslmode = prefer in the dsn, or enable TLS on the server (ssl = on)",
    "does not support gssapi": "set gssencmode = disable in the dsn",
    "^invalid |^missing |^weak |unsupported ": "correct it in the dsn",
}
"""The same for what libpq says of its own accord."""

_TRANSIENT_MESSAGE = re.compile(
    "could not translate host name|ssl syscall error|unexpected eof|eof detected|closed the connection|timeout expired|"
    "connection refused|reset by peer|broken pipe|no route to host|unreachable|timed out|too many open files"
)
"""A peer or a name server that is away or leaves, or files that cannot be opened for now, whatever else the text holds:
`SSL SYSCALL error: EOF detected`."""

_ATTEMPT = re.compile(r"connection to server .*? failed: ", re.IGNORECASE)
_QUOTED = re.compile(r'"[^"]*"')

_ADDRESS = "check host and port in the dsn"
_LOG = "the server's log may say why"
_FILES = "the service itself has too many: look at what it has open, or raise the limit (ulimit -n, LimitNOFILE)"
_LEFT = re.compile("server closed the connection|terminated abnormally")
_IS_IT_RUNNING = re.compile(r"\s*Is the server running[^?]*\?")

_SPLIT_PASSWORD = re.compile(r"[a-z]+://[^/?]*@[^/?]*@|[a-z]+://[^/?]*/[^?]*@")
"""An URI in which a password with @ or / is not encoded: libpq takes pieces of it for host, port or database."""

_NOT_SHOWN = "what libpq says of it may hold a part of the password and is not shown"
_ENCODING = "and write in a password / as %2F, @ as %40"

_TEMPORARY_FILES = "temp_file_limit"
"""A setting, which is not translated either: its limit has the SQLSTATE of that of slots."""

_POSITION = {
    _NOT_AS_NEEDED: "the slot cannot be used as it is: see pg_replication_slots (wal_status, invalidation_reason)",
    "58P01": "WAL that the slot needs is gone",
}


_LSN_IN_CONTEXT = re.compile(r"\b[0-9A-F]+/[0-9A-F]+$")

_MISSING = "42704"

STANDBY_SLOTS = "synchronized_standby_slots"
"""A setting, which is not translated in what the server says of it."""


class SlotInUse(SourceUnavailable):
    """Another session streams from the slot."""


class WalMissing(PositionRefused):
    """The server cannot give what comes after the position any more."""


class ObjectMissing(SourceRefused):
    """The server does not know an object by this name: a publication, or a slot."""


def from_psycopg2(error: psycopg2.Error, dsn: str) -> SourceError:
    """Our error for a psycopg2 error; the text is the server's primary message, or libpq's without the DSN."""
    if error.pgcode is None:
        return _from_connect(str(error), dsn)
    diagnostics = error.diag
    return from_fields({"C": error.pgcode, "M": diagnostics.message_primary or "", "H": diagnostics.message_hint or ""})


def from_fields(fields: Mapping[str, str]) -> SourceError:
    """Our error for the fields of an ErrorResponse: C is the SQLSTATE, M the message, H the hint."""
    code, message, hint = fields.get("C", ""), fields.get("M", "an error without a message"), fields.get("H", "")
    if STANDBY_SLOTS in message:  # of a server that is shut down while it waits for these standbys
        return SourceUnavailable(message, hint)
    if code == _NOT_AS_NEEDED and "wal_level" in message:  # a standby decodes what its primary has written
        return SourceRefused(message, hint or "set wal_level = logical on the primary and restart it")
    if _TEMPORARY_FILES in message:
        return SourceRefused(message, hint or f"raise it for the role: ALTER ROLE ... SET {_TEMPORARY_FILES} = ...")
    if code == SLOT_IN_USE:
        return SlotInUse(message, "stop the other consumer, or set replicationSlot to another name")
    if code == _MISSING:
        return ObjectMissing(message, hint or _REFUSED[code])
    for known, remedy in _POSITION.items():
        if code == known:
            return WalMissing(message, hint or remedy)
    for prefix, remedy in _REFUSED.items():
        if code.startswith(prefix):
            return SourceRefused(message, hint or remedy)
    return SourceUnavailable(message, hint)


def from_stream(fields: Mapping[str, str]) -> SourceError:
    """The same of a stream that had begun. W: the context, which has the LSN of the change.

    What the server says of a value may quote it.
    """
    code, found = fields.get("C", ""), _LSN_IN_CONTEXT.search(fields.get("W", ""))
    where = f" at {found[0]}" if found else ""
    if code in _NO_TEXT:
        return from_fields({**fields, "M": f"{fields.get('M', '')}{where}"})
    if not code.startswith(_DATA_EXCEPTION):
        return from_fields(fields)
    return SourceRefused(
        f"the row filter of a publication, or a type's text form, fails on a row{where} (SQLSTATE {code}; its text "
        "is in the server's log)",
        "correct the filter, skip the transaction with walPositionOverride, and ask for a snapshot of the table",
    )


def find_gap(notice: Mapping[str, str]) -> SourceError | None:
    """The error for a NoticeResponse that says that changes are left out from here on; None for any other.

    Since version 18 pgoutput goes on without a publication that is gone, with a warning whose only telling part that
    is not translated is its SQLSTATE (PostgreSQL source, LoadPublications in pgoutput.c; V: the severity in English).
    """
    if notice.get("V") != "WARNING" or notice.get("C") != _NOT_AS_NEEDED:
        return None
    if STANDBY_SLOTS in notice.get("M", ""):  # it waits for a standby (see server_watch.py)
        return None
    return ObjectMissing(
        f"{notice.get('M', 'the server leaves changes out')}: changes committed without it are not in the stream",
        "create the publication if it does not exist",
    )


def _from_connect(text: str, dsn: str) -> SourceError:
    """A connection that was not made: libpq gives a text and no SQLSTATE."""
    message = " ".join(_IS_IT_RUNNING.sub("", text).split()).rstrip(".")
    # The host's addresses are tried one after the other; the last attempt says why there is no connection. Names that
    # are quoted are no words of libpq or of the server: a host or a database may be called `ssl`.
    cause = _QUOTED.sub("", _ATTEMPT.split(message)[-1]).lower()
    _, by_server, said = cause.partition("fatal:")
    may_pass = not by_server and _TRANSIENT_MESSAGE.search(cause) is not None
    remedy = "" if may_pass else _find_remedy(said or cause, _REFUSED_BY_SERVER if by_server else _REFUSED_BY_LIBPQ)
    kind = SourceRefused if remedy else SourceUnavailable
    if _SPLIT_PASSWORD.match(dsn):
        return kind(f"the connection cannot be made, {_NOT_SHOWN}", f"check the dsn, {_ENCODING}")
    if _quotes_password(message, dsn):
        return kind(f"the connection cannot be made, {_NOT_SHOWN}", remedy or "check the dsn")
    return kind(message or "the server cannot be reached", remedy or _advise_to_look(cause, said))


def _advise_to_look(cause: str, said: str) -> str:
    """At what may be why there is no connection, where it may pass. said: by the server."""
    if _LEFT.search(cause) is not None:
        return _LOG
    if said:
        return _find_remedy(said, _FULL)
    return _FILES if "too many open files" in cause else _ADDRESS


def _find_remedy(said: str, known: Mapping[str, str]) -> str:
    """What somebody has to change; empty for what may pass."""
    return next((remedy for text, remedy in known.items() if re.search(text, said)), "")


def _quotes_password(message: str, dsn: str) -> bool:
    """Whether something in quotes is the password, and not the user's name or what else of the DSN may be shown.

    The words of a message are nobody's password, whatever it is.
    """
    given = psycopg2.extensions.parse_dsn(dsn)
    secrets = {value for name, value in given.items() if is_secret(name)}
    shown = {*given, *(value for name, value in given.items() if not is_secret(name))}
    return any(quoted in secrets and quoted not in shown for quoted in re.findall(r'"([^"]*)"', message))
