"""A start behind a gap that the operator has accepted."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import psycopg2

from psql_streamer.errors import PositionRefused
from sources.postgres.catalog import Session, Slot
from sources.postgres.server_errors import from_psycopg2

log = logging.getLogger(__name__)

_PEEK_SECONDS = 3


def drop_unreadable_slot(session: Session, slot: Slot, publications: Sequence[str], source: str) -> bool:
    """Make room for a new slot when this one cannot be read on; whether it was dropped.

    Only for a gap that the operator has accepted. A slot of another kind or database, or one that somebody reads from,
    is refused.
    """
    slot.require_own(session.database)
    slot.require_free()
    why = _explain_unreadable(session, slot, publications)
    if not why:
        return False
    log.warning(
        'source %s: slot "%s" cannot be read on (%s): the gap was accepted, the slot is dropped and made anew, and a '
        "snapshot of all tables follows",
        *(source, slot.name, why),
    )
    session.drop_slot(slot.name)
    return True


def _explain_unreadable(session: Session, slot: Slot, publications: Sequence[str]) -> str:
    """Empty for a slot that gives what comes next."""
    if slot.is_lost:
        return slot.why_lost
    try:
        return session.peek(slot.name, publications, _PEEK_SECONDS)
    except psycopg2.Error as error:
        refused = from_psycopg2(error, "")
        if isinstance(refused, PositionRefused):
            return refused.what
        raise
