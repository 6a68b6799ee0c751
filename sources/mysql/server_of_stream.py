"""Whether a session has come to the server that the stream comes from.

An address may lead elsewhere for the next connection: to a replica, to a primary of a failover, or to a copy of the
server, which has its server_uuid or its host name and id, and transactions of the same GTIDs with other rows. The
stream of the server of before goes on meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from sources.mysql.connection import Connector
from sources.mysql.server import Session, open_session
from sources.other_server import OtherServer


class Client(NamedTuple):
    """A session as the list of processes shows it. number: at its server. host: where its connection comes from, with
    the port. No two servers have the same of both at one time.
    """

    number: int
    host: str


def find_client(asking: Session) -> Client:
    """Of a session, as other sessions of its account see it."""
    number = int(asking.read_value("SELECT CONNECTION_ID()"))
    host = next((one.host for one in _list_clients(asking) if one.number == number), "")
    return Client(number, host)


def require_server_of(client: Client, asking: Session) -> None:
    """OtherServer where there is no such session, which is the stream's, or is to be."""
    if client not in _list_clients(asking):
        raise OtherServer


def _list_clients(asking: Session) -> list[Client]:
    """An account sees its own without any privilege (MySQL documentation, "SHOW PROCESSLIST Statement")."""
    return [Client(int(number), str(host)) for number, _, host, *_ in asking.read_rows("SHOW PROCESSLIST")]


class ServerOfStream:
    """Sessions with the server that the stream comes from. client: the session of the stream; None while there is none,
    when the address alone decides.
    """

    def __init__(self, connector: Connector) -> None:
        self.client: Client | None = None
        self._connector = connector

    @contextmanager
    def open_session(self) -> Iterator[Session]:
        """As open_session of a connector; OtherServer where the address leads to another server."""
        with open_session(self._connector) as asking:
            if self.client is not None:
                require_server_of(self.client, asking)
            yield asking
