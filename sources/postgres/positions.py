"""Whether a slot can still give what comes after a position."""

from __future__ import annotations

from collections.abc import Iterator

from psql_streamer.errors import PositionAhead, PositionRefused, SourceError
from psql_streamer.interfaces import Finding, Severity
from psql_streamer.lsn import Lsn
from psql_streamer.model import Position
from psql_streamer.pgoutput.wal_position import WalPosition
from psql_streamer.shown_commands import show_command
from sources.postgres.catalog import Catalog, Session, Slot
from sources.postgres.options import PostgresOptions
from sources.postgres.standby_slots import require_readable, require_replayed
from sources.snapshot.gap_remedies import accept_gap, send_anew


def resolve_resume_position(
    options: PostgresOptions, source: str, position: Position | None, slot: Slot, session: Session
) -> WalPosition:
    """Where to start: the position, or the slot's own. PositionRefused, with the size of the gap, when it cannot be;
    SourceUnavailable when a standby may get there.

    The server silently starts at confirmed_flush_lsn when it is asked for less: that would hide a gap.
    """
    if position is None:
        return WalPosition(slot.confirmed_flush_lsn)
    resume = _require_wal_position(source, position)
    overriding = _is_override(options, resume)
    what = "walPositionOverride" if overriding else "the stored position"
    if resume.lsn < slot.confirmed_flush_lsn:
        gap = slot.confirmed_flush_lsn - resume.lsn
        raise PositionRefused(
            f"{what} {resume.lsn} is {gap} bytes before {slot.confirmed_flush_lsn}, the first that slot "
            f'"{slot.name}" can still give',
            "use a later one, or 0" if overriding else _describe_choices(source),
        )
    if resume.lsn > (wal_end := session.read_wal_end()):
        if not overriding:
            require_replayed(session, resume.lsn, wal_end)
        kind = PositionRefused if overriding else PositionAhead
        raise kind(
            f"{what} {resume.lsn} is {resume.lsn - wal_end} bytes after the end of the server's WAL {wal_end}: "
            "the position belongs to another server, or to another state of this one",
            "use an earlier one, or 0" if overriding else _describe_choices(source),
        )
    return resume


def require_never_read(options: PostgresOptions, source: str, position: Position | None) -> None:
    """PositionRefused when the slot that does not exist is one that changes were read from."""
    if position is None:
        return
    delivered = _require_wal_position(source, position)
    if _is_override(options, delivered):
        return
    raise PositionRefused(
        f'slot "{options.replication_slot}" does not exist, but changes up to {delivered.lsn} were delivered from it: '
        "changes that were committed since then are lost to this source",
        accept_gap(source),
    )


def make_gap_error(what: str, source: str, wal_end: Lsn) -> PositionRefused:
    """The error for a slot that cannot be read on from where it is, only from the end of the WAL."""
    return PositionRefused(
        what,
        f'{accept_gap(source)}; or set walPositionOverride = "{wal_end}", where the WAL ends now, and '
        f"{send_anew(source)}",
    )


def check_position(
    options: PostgresOptions, catalog: Catalog, source: str, position: Position | None
) -> Iterator[Finding]:
    """What keeps a start there from working; nothing is made."""
    try:
        with catalog.open_session() as session:
            slot = session.find_slot(options.replication_slot)
            was_read, failover = position is not None, options.slot_failover
            require_readable(session, options.replication_slot, slot, was_read=was_read, failover=failover)
            if slot is None:
                require_never_read(options, source, position)
            else:
                resolve_resume_position(options, source, position, slot, session)
    except SourceError as error:
        yield Finding(Severity.ERROR, error.what, error.remedy)


def _require_wal_position(source: str, position: Position) -> WalPosition:
    try:
        return WalPosition.from_position(position)
    except (KeyError, TypeError, ValueError):
        raise PositionRefused(
            f"the stored position {position} is not a position in WAL: a source of another kind had this name",
            f"give the source another name, or forget the position ({show_command('position', 'forget', source)})",
        ) from None


def _is_override(options: PostgresOptions, position: WalPosition) -> bool:
    return position == WalPosition(options.wal_position_override)


def _describe_choices(source: str) -> str:
    return f"{accept_gap(source)}; or set walPositionOverride to the position to start from, and {send_anew(source)}"
