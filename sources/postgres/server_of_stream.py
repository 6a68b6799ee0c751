"""Whether a session has come to the server that the stream comes from.

An address may lead elsewhere for the next connection, to a standby that was promoted or to a copy of the server, while
the stream of the server of before goes on. Its rows are of another history, though LSNs and transaction IDs may fit,
and its catalog may have other tables and types under the same OIDs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sources.other_server import OtherServer
from sources.postgres.catalog import Catalog, Session

_IS_THERE = """
SELECT pid FROM pg_stat_activity WHERE pid = %s AND coalesce(extract(epoch FROM backend_start)::text, '') = %s
"""


def require_server_of_stream(session: Session, walsender: tuple[int, str]) -> None:
    """OtherServer on a server that does not have the walsender of the stream, see describe_session."""
    if session.read_value(_IS_THERE, *walsender) is None:
        raise OtherServer


class ServerOfStream:
    """Sessions with the server that the stream comes from. walsender: of the stream, see describe_session; None while
    there is no stream, when the address alone decides.
    """

    def __init__(self, catalog: Catalog) -> None:
        self.walsender: tuple[int, str] | None = None
        self._catalog = catalog

    @contextmanager
    def open_session(self) -> Iterator[Session]:
        """As Catalog.open_session; OtherServer where the address leads to another server."""
        with self._catalog.open_session() as session:
            if self.walsender is not None:
                require_server_of_stream(session, self.walsender)
            yield session
