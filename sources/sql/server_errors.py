"""What drivers raise as our errors: what passes by itself is unavailable, what needs somebody is refused.

A message is what the server said, on one line: never the statement, its parameters or the URL.
"""

from __future__ import annotations

import re
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL

from psql_streamer.errors import SourceError, SourceRefused, SourceUnavailable
from psql_streamer.redaction import gives_away, redact

_LOGIN = "check user and password in the url, and whom the server lets in"
_DATABASE = "check the database in the url"
_GRANT = "give this user the right: GRANT SELECT ON the table"
_TABLES = "correct tables in the configuration, or create what is missing"
_CONDITIONS = "correct where or query of the table"
_NO_UTF8 = "a text in it is no UTF-8: correct the row, or leave the column out with columns"
_KEYS = "a date of zeros cannot be a key: correct the row, or name other columns as the table's key"

_BY_STATE = {
    "22021": _NO_UTF8,
    "28": _LOGIN,
    "3D000": _DATABASE,
    "42501": _GRANT,
    "42601": _CONDITIONS,
    "42P01": _TABLES,
    "42703": _TABLES,
    "3F000": _TABLES,
    "42": _TABLES,
}
"""The beginning of PostgreSQL's SQLSTATE -> what to do. Source: its documentation, "PostgreSQL Error Codes"."""

_BY_NUMBER = {
    1044: _DATABASE,
    1045: _LOGIN,
    1049: _DATABASE,
    1054: _TABLES,
    1064: _CONDITIONS,
    1142: _GRANT,
    1143: _GRANT,
    1146: _TABLES,
    1292: _KEYS,
    1525: _KEYS,
    1698: _LOGIN,
}
"""MySQL's and MariaDB's error numbers. Source: MySQL documentation, "Server Error Message Reference"."""

_BY_TEXT = {
    "authentication failed|no password supplied|pg_hba.conf|role .* does not exist": _LOGIN,
    "database .* does not exist": _DATABASE,
    "(^|failed: )(invalid (integer|[a-z_]+ value|port number)|weak sslmode)": "correct it in the url",
    "no such (table|column)|has no column": _TABLES,
    "syntax error|incomplete input|unrecognized token": _CONDITIONS,
    "unable to open database file": "check the path in the url, and the rights of this user on the file and its folder",
    "file is not a database|malformed": "check the file with sqlite3 FILE 'PRAGMA integrity_check'",
    "could not decode to utf-8": _NO_UTF8,
}
"""For drivers and moments that give nothing but a text, in lower case."""

_LOCK_STATES, _LOCK_NUMBERS = ("55P03",), (1205,)
"""lock_timeout of PostgreSQL; lock_wait_timeout of MySQL and MariaDB."""

_TIME_STATES, _TIME_NUMBERS = ("57014",), (1969, 3024)
"""statement_timeout of PostgreSQL; max_statement_time of MariaDB, max_execution_time of MySQL."""

_COLUMN_STATES, _COLUMN_NUMBERS, _COLUMN_TEXT = ("42703", "42883", "42846"), (1054,), "no such column"


def is_about_columns(error: sa.exc.SQLAlchemyError) -> bool:
    """Whether a statement failed because the columns of a table are not what they were."""
    return (
        _find_sqlstate(error) in _COLUMN_STATES
        or _find_error_number(error) in _COLUMN_NUMBERS
        or _COLUMN_TEXT in _read_message(error).lower()
    )


def is_about_a_lock(error: sa.exc.SQLAlchemyError) -> bool:
    """Whether the server gave up a statement that waited for a lock; it does others."""
    return _find_sqlstate(error) in _LOCK_STATES or _find_error_number(error) in _LOCK_NUMBERS


def is_about_time(error: sa.exc.SQLAlchemyError) -> bool:
    """Whether the server gave up a statement that took too long; it does others."""
    return _find_sqlstate(error) in _TIME_STATES or _find_error_number(error) in _TIME_NUMBERS


def from_sqlalchemy(error: sa.exc.SQLAlchemyError, url: URL, doing: str) -> SourceError:
    """Our error for one of SQLAlchemy's, or of a driver's in it. doing: what failed, in words."""
    said, remedy = _read_message(error), _find_remedy(error)
    if url.password and gives_away(said, str(url.password)):
        said = "what the driver says of it may hold a part of the password and is not shown"
    kind = SourceRefused if remedy else SourceUnavailable
    return kind(f"{doing}: {redact(said)}", remedy)


def _find_remedy(error: sa.exc.SQLAlchemyError) -> str:
    """What somebody has to change; empty for what may pass."""
    if isinstance(error, sa.exc.NoSuchTableError):
        return _TABLES
    if remedy := _BY_NUMBER.get(_find_error_number(error)):
        return remedy  # it says more than the SQLSTATE, which some drivers of MySQL give as well
    state = _find_sqlstate(error)
    if state:
        return next((remedy for prefix, remedy in _BY_STATE.items() if state.startswith(prefix)), "")
    said = _read_message(error).lower()
    return next((remedy for pattern, remedy in _BY_TEXT.items() if re.search(pattern, said)), "")


def _read_message(error: sa.exc.SQLAlchemyError) -> str:
    """The driver's own text; that of SQLAlchemy holds the statement. A driver's second line quotes the statement."""
    original = getattr(error, "orig", None)
    if isinstance(error, sa.exc.NoSuchTableError):
        return f"table {error} does not exist"
    if original is None:
        return type(error).__name__ if isinstance(error, sa.exc.StatementError) else _keep_first_line(str(error))
    arguments: tuple[Any, ...] = getattr(original, "args", ())
    if len(arguments) > 1 and isinstance(arguments[0], int):
        return _keep_first_line(str(arguments[1]))
    return _keep_first_line(str(original)) or type(original).__name__


def _keep_first_line(text: str) -> str:
    return " ".join(text.strip().partition("\n")[0].split())


def _find_sqlstate(error: sa.exc.SQLAlchemyError) -> str:
    original = getattr(error, "orig", None)
    return str(getattr(original, "pgcode", None) or getattr(original, "sqlstate", None) or "")


def _find_error_number(error: sa.exc.SQLAlchemyError) -> int:
    arguments: tuple[Any, ...] = getattr(getattr(error, "orig", None), "args", ())
    return arguments[0] if arguments and isinstance(arguments[0], int) else 0
