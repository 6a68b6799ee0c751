"""The rights that the account of a source needs, and those that let it see more of the server."""

from __future__ import annotations

from sources.mysql.server import Session

_SLAVE_MONITOR_SINCE = (10, 5, 9)
"""Of MariaDB; before that SHOW SLAVE STATUS needs another right (MariaDB Knowledge Base, GRANT)."""


def to_see_upstream(asking: Session) -> str:
    """The right to see whether the server is a replica."""
    if not asking.is_mariadb:
        return "REPLICATION CLIENT"
    return "SLAVE MONITOR" if asking.numbers >= _SLAVE_MONITOR_SINCE else "REPLICATION SLAVE ADMIN"


def to_see_replicas(asking: Session) -> str:
    """The right to see the server ids of the clients that are connected."""
    return "REPLICATION MASTER ADMIN" if asking.is_mariadb else "REPLICATION SLAVE"


def grant_needed(asking: Session, *, own_id: bool) -> str:
    """The statement that gives the account of the session what a source needs. own_id: whether serverId is set: only
    then are other clients looked for.
    """
    rights = ["REPLICATION SLAVE", "REPLICATION CLIENT", to_see_upstream(asking)]
    if own_id:
        rights.append(to_see_replicas(asking))
    return grant(asking, *dict.fromkeys(rights))


def grant(asking: Session, *rights: str) -> str:
    """The statement that gives them to the account of the session."""
    user, _, host = str(asking.read_value("SELECT CURRENT_USER()")).rpartition("@")
    return f"GRANT {', '.join(rights)} ON *.* TO '{user}'@'{host}'"
