"""Whether a session has come to the server that the stream comes from.

An address may lead elsewhere for the next connection, to a standby that was promoted or to a copy of the server, while
the stream of the server of before goes on. Its rows are of another history, though LSNs and transaction IDs may fit.
"""

from __future__ import annotations

from psql_streamer.errors import SourceUnavailable
from sources.postgres.catalog import Session

_IS_THERE = """
SELECT pid FROM pg_stat_activity WHERE pid = %s AND coalesce(extract(epoch FROM backend_start)::text, '') = %s
"""


def require_server_of_stream(session: Session, walsender: tuple[int, str]) -> None:
    """SourceUnavailable on a server that does not have the walsender of the stream, see describe_session."""
    if session.read_value(_IS_THERE, *walsender) is None:
        raise SourceUnavailable(
            "the dsn leads to another server than the one that the stream comes from, or the stream has just ended",
            "if it stays, look at what stands behind the address: a proxy, a pooler, a name with several addresses",
        )
