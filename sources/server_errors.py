"""PostgreSQL's errors as ours: what passes by itself is unavailable, what needs somebody is refused.

SQLSTATEs: PostgreSQL documentation, "PostgreSQL Error Codes".
"""

from __future__ import annotations

from collections.abc import Mapping

import psycopg2
import psycopg2.extensions

from psql_streamer.errors import PositionRefused, SourceError, SourceRefused, SourceUnavailable

SLOT_IN_USE = "55006"

_REFUSED = {
    "28": "check user and password in the dsn, and the server's pg_hba.conf",
    "3D000": "check the database name in the dsn",
    "42501": "grant the privilege, for example ALTER ROLE ... REPLICATION and GRANT SELECT",
    "42704": "create it, or correct its name in the configuration",
    "42602": "correct the name in the configuration",
    "22023": "correct the value in the configuration",
    "0A000": "use a server of version 14 or later",
    "42601": "use a server of version 14 or later",
    "53400": "raise max_replication_slots, or drop a slot that nobody needs",
}
_POSITION = {
    "55000": "the slot cannot be used as it is: see pg_replication_slots (wal_status, invalidation_reason)",
    "58P01": "WAL that the slot needs is gone",
}


class SlotInUse(SourceUnavailable):
    """Another session streams from the slot."""


def from_psycopg2(error: psycopg2.Error, dsn: str) -> SourceError:
    """Our error for a psycopg2 error; the text is the server's primary message, or libpq's without the DSN."""
    if error.pgcode is None:
        return _from_connect(str(error), dsn)
    diagnostics = error.diag
    return from_fields({"C": error.pgcode, "M": diagnostics.message_primary or "", "H": diagnostics.message_hint or ""})


def from_fields(fields: Mapping[str, str]) -> SourceError:
    """Our error for the fields of an ErrorResponse: C is the SQLSTATE, M the message, H the hint."""
    code, message, hint = fields.get("C", ""), fields.get("M", "an error without a message"), fields.get("H", "")
    if code == SLOT_IN_USE:
        return SlotInUse(message, "stop the other consumer or set replicationSlot")
    for known, remedy in _POSITION.items():
        if code == known:
            return PositionRefused(message, hint or remedy)
    for prefix, remedy in _REFUSED.items():
        if code.startswith(prefix):
            return SourceRefused(message, hint or remedy)
    return SourceUnavailable(message, hint)


def _from_connect(text: str, dsn: str) -> SourceError:
    """A connection that was not made: libpq gives a text and no SQLSTATE."""
    message = _without_secrets(" ".join(text.split()), dsn)
    lowered = message.lower()
    if "password authentication failed" in lowered or "no password supplied" in lowered or "pg_hba.conf" in lowered:
        return SourceRefused(message, _REFUSED["28"])
    if "database" in lowered and "does not exist" in lowered:
        return SourceRefused(message, _REFUSED["3D000"])
    if "role" in lowered and ("does not exist" in lowered or "not permitted" in lowered or "permission" in lowered):
        return SourceRefused(message, _REFUSED["28"])
    if "must be superuser or replication role" in lowered or "permission denied" in lowered:
        return SourceRefused(message, _REFUSED["42501"])
    if "invalid dsn" in lowered or "invalid connection option" in lowered or 'missing "="' in lowered:
        return SourceRefused("the dsn is not a libpq connection string", "write it as host=... dbname=... user=...")
    return SourceUnavailable(message or "the server cannot be reached", "check host and port in the dsn")


def _without_secrets(message: str, dsn: str) -> str:
    try:
        password = psycopg2.extensions.parse_dsn(dsn).get("password")
    except psycopg2.ProgrammingError:
        return "the dsn is not a libpq connection string"
    message = message.replace(dsn, "the dsn")
    return message.replace(password, "***") if password else message
