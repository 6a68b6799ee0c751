"""The settings of every session that values come from: their text forms are the same in the stream and in snapshots."""

from __future__ import annotations

import psycopg2.extensions

TEXT_FORMS = {
    # What a value's text form depends on; events must not change with a server's or a role's settings.
    "datestyle": "ISO",
    "timezone": "UTC",
    "intervalstyle": "iso_8601",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    # regclass and the like: always with their schema.
    "search_path": "",
    "quote_all_identifiers": "off",
}
"""Setting -> value, for session_dsn."""

_IN_ENVIRONMENT = ("datestyle", "timezone")
"""libpq sends what PGDATESTYLE and PGTZ say as well, and the server lets that win over `options`."""

_TRANSACTION_TIMEOUT_RELEASE = 170000
"""The release (server_version_num) that brought transaction_timeout."""


def settle(connection: psycopg2.extensions.connection) -> None:
    """Set what `options` could not set, on a session that was opened with TEXT_FORMS. psycopg2.Error."""
    with connection.cursor() as cursor:
        for name in _IN_ENVIRONMENT:
            cursor.execute(f"SET {name} = '{TEXT_FORMS[name]}'")
    lift_transaction_timeout(connection)


def lift_transaction_timeout(connection: psycopg2.extensions.connection) -> None:
    """A limit that was made for others' transactions ends none of this session. psycopg2.Error."""
    if connection.server_version >= _TRANSACTION_TIMEOUT_RELEASE:
        with connection.cursor() as cursor:
            cursor.execute("SET transaction_timeout = 0")
