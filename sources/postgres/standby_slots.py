"""Slots that standbys keep, to be read from when one of them is promoted (since PostgreSQL 17)."""

from __future__ import annotations

from collections.abc import Iterator

from psql_streamer.errors import SourceUnavailable
from psql_streamer.interfaces import Finding, Severity
from psql_streamer.lsn import Lsn
from sources.postgres.catalog import Session, Slot
from sources.postgres.server_errors import STANDBY_SLOTS

_STANDBYS = """
SELECT listed, slot_type, wal_status, active
FROM (SELECT trim(name, ' "') AS listed FROM unnest(string_to_array(current_setting(%s), ',')) name) s
LEFT JOIN pg_replication_slots ON slot_name = listed
"""

LED_TO_PRIMARY = (
    "wait for its promotion; to be led to the primary, name all servers in the dsn and target_session_attrs=primary"
)


def require_readable(session: Session, name: str, slot: Slot | None, *, was_read: bool, failover: bool) -> None:
    """SourceUnavailable on a standby whose slot cannot be read from before it is promoted, or is not there yet.

    name: of the slot. slot: None if there is none. was_read: whether changes were read from it, here or elsewhere.
    failover: whether standbys are to keep it, which only a primary has them do.
    """
    if slot is None:
        if (was_read or failover) and session.is_standby():
            raise SourceUnavailable(f'the server is a standby on which slot "{name}" does not exist', LED_TO_PRIMARY)
    elif failover and not slot.synced and session.is_standby():
        raise SourceUnavailable(
            f'the server is a standby with a slot "{name}" of its own, which no other server keeps (slotFailover)',
            f"{LED_TO_PRIMARY}; to read from this standby, remove slotFailover",
        )
    elif (slot.synced or not session.decodes_on_standbys) and session.is_standby():
        raise SourceUnavailable(f'the server is a standby, which keeps slot "{name}" for its promotion', LED_TO_PRIMARY)


def require_replayed(session: Session, lsn: Lsn, end: Lsn) -> None:
    """SourceUnavailable on a standby that lags behind what was read. lsn: up to where that was. end: as replayed."""
    if session.is_standby():
        raise SourceUnavailable(
            f"the server is a standby that has replayed up to {end}, and changes were read up to {lsn}", LED_TO_PRIMARY
        )


def describe_held_back(session: Session) -> str:
    """What a walsender waits for that holds changes back until the standbys of synchronized_standby_slots have them."""
    problems = "; ".join(problem for problem, _ in _list_absent(session))
    return f"waits for the standbys of {STANDBY_SLOTS}" + (f": {problems}" if problems else "")


def check_failover(session: Session, name: str) -> Iterator[Finding]:
    """What may surprise with a slot that standbys keep. name: of the slot."""
    if session.is_standby():
        return
    if not session.read_setting(STANDBY_SLOTS):
        yield Finding(
            Severity.WARNING,
            f'slot "{name}" is kept on standbys, and {STANDBY_SLOTS} is empty: changes can be delivered '
            "that a standby does not have when it is promoted",
            f"set {STANDBY_SLOTS} to the physical slots of the standbys that may be promoted",
        )
    for problem, comes_back in _list_absent(session):
        yield Finding(
            Severity.WARNING if comes_back else Severity.ERROR,
            f'no change of slot "{name}" comes before all standbys of {STANDBY_SLOTS} have it, and {problem}',
            f"start that standby, or take its slot out of {STANDBY_SLOTS}"
            if comes_back
            else f"correct {STANDBY_SLOTS}",
        )


def _list_absent(session: Session) -> Iterator[tuple[str, bool]]:
    """What keeps standbys of synchronized_standby_slots from having anything, and whether a start of theirs ends it."""
    for name, kind, wal_status, active in session.read_rows(_STANDBYS, STANDBY_SLOTS):
        if kind is None:
            yield f'slot "{name}" does not exist', False
        elif kind != "physical":
            yield f'slot "{name}" is a {kind} slot, which no standby follows', False
        elif wal_status == "lost":
            yield f'slot "{name}" was invalidated', False
        elif not active:
            yield f'no standby is connected to slot "{name}"', True
