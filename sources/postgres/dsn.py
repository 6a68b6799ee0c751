"""What a session with the server is opened with, beside what the user's dsn says."""

from __future__ import annotations

from collections.abc import Mapping

from psycopg2.extensions import make_dsn, parse_dsn

_TCP = {
    # A peer that is gone without a word: the kernel asks after 10 s of silence, and gives up 15 s later; what was sent
    # and not acknowledged is waited for half a minute. Without these a connection through a broken network stands for
    # two hours (PostgreSQL documentation, "libpq: Parameter Key Words").
    "keepalives": "1",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}

_MESSAGES = {
    # A warning tells of changes that are left out. Nothing below it comes: while it connects, libpq writes it to
    # stderr, past the log.
    "client_min_messages": "warning",
}

_LEAST_CONNECT_SECONDS = 2
"""libpq counts whole seconds, and takes 1 for 2."""


def build_session_dsn(dsn: str, timeout: float, settings: Mapping[str, str], **more: str) -> str:
    """The dsn of a session in UTF-8, with the kernel's watch over the connection where the dsn says nothing of it.

    timeout: seconds for each address of the host. settings: of the server, for this session; they win over those of the
    role, the database and the dsn. more: libpq's parameters; they win over the dsn's.
    """
    given = parse_dsn(dsn)
    all_settings = {**settings, **_MESSAGES}
    options = " ".join([given.get("options", ""), *(f"-c {name}={value}" for name, value in all_settings.items())])
    connect_timeout = str(max(_LEAST_CONNECT_SECONDS, round(timeout)))
    ours = {"options": options.strip(), "client_encoding": "UTF8", "connect_timeout": connect_timeout, **more}
    watched = {} if "service" in given else {name: value for name, value in _TCP.items() if name not in given}
    # What replicates says so itself: a session that only asks must not take one of the server's WAL senders.
    plain = {"replication": "false"} if "replication" in given else {}
    return str(make_dsn(dsn, **(watched | plain | ours)))
