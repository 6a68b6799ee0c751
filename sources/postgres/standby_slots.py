"""Slots that standbys keep, to be read from when one of them is promoted (since PostgreSQL 17)."""

from __future__ import annotations

from collections.abc import Iterator

from psql_streamer.errors import SourceUnavailable
from psql_streamer.interfaces import Finding, Severity
from sources.postgres.catalog import Session, Slot

_PRIMARY = (
    "wait for its promotion; to be led to the primary, name all servers in the dsn and target_session_attrs=primary"
)


def require_readable(session: Session, name: str, slot: Slot | None, *, was_read: bool) -> None:
    """SourceUnavailable on a standby whose slot cannot be read from before it is promoted, or is not there yet.

    name: of the slot. slot: None if there is none. was_read: whether changes were read from it, here or elsewhere.
    """
    if slot is None:
        if was_read and session.is_standby():
            raise SourceUnavailable(f'the server is a standby on which slot "{name}" does not exist', _PRIMARY)
    elif slot.synced and session.is_standby():
        raise SourceUnavailable(f'the server is a standby, which keeps slot "{name}" for its promotion', _PRIMARY)


def check_failover(session: Session, name: str) -> Iterator[Finding]:
    """What may surprise with a slot that standbys keep. name: of the slot."""
    if not session.is_standby() and not session.read_setting("synchronized_standby_slots"):
        yield Finding(
            Severity.WARNING,
            f'slot "{name}" is kept on standbys, and synchronized_standby_slots is empty: changes can be delivered '
            "that a standby does not have when it is promoted",
            "set synchronized_standby_slots to the physical slots of the standbys that may be promoted",
        )
