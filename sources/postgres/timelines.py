"""Timelines: the WAL of a cluster that was promoted, or recovered to an earlier time, goes on under another number.
What lies in front of the place where it branched off is the same on both (PostgreSQL documentation, "Timelines").
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from psql_streamer.errors import PositionRefused, SourceUnavailable
from psql_streamer.lsn import Lsn
from psql_streamer.model import Position
from psql_streamer.pgoutput.wal_position import WalPosition
from sources.postgres.replication import Identity, Walsender, identify, is_standby, read_timeline_history
from sources.postgres.standby_slots import LED_TO_PRIMARY
from sources.snapshot.gap_remedies import accept_gap, send_anew

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ancestry:
    """Where the WAL of a server comes from. history: the history file of its timeline; empty for the first one, and
    where the server does not have it. is_standby: it is in recovery, and may be on a later timeline soon.
    """

    history: str = ""
    is_standby: bool = False


def read_ancestry(connection: Walsender) -> tuple[Identity, Ancestry]:
    """Both over one connection: the next one may lead to another server, while one takes the place of the other."""
    found = identify(connection)
    history = read_timeline_history(connection, found.timeline) if found.timeline > 1 else ""
    return found, Ancestry(history, is_standby(connection))


def follow_timeline(
    now: Identity, ancestry: Ancestry, position: Position, before: Mapping[str, str], source: str
) -> Mapping[str, str]:
    """The stream identity `before`, with today's timeline if everything in front of the position is on that, too.

    PositionRefused if it is not; SourceUnavailable if a standby may get there. source: for messages.
    """
    if now.system_identifier != before.get("system identifier") or str(now.timeline) == before.get("timeline"):
        return before
    was = int(before["timeline"])
    if ancestry.is_standby and now.timeline < was:
        raise SourceUnavailable(
            f"the server is a standby on timeline {now.timeline}, and changes were read on timeline {was}",
            LED_TO_PRIMARY,
        )
    if not ancestry.history and now.timeline > was:
        raise PositionRefused(
            f"the server is on timeline {now.timeline} and lacks its history, pg_wal/{now.timeline:08X}.history: "
            f"whether all that was read on timeline {was} up to {position} is on this server cannot be known",
            f"copy that file there from the archive of the WAL or from another server; or {accept_gap(source)}",
        )
    branch = find_branch(ancestry.history, was) if was < now.timeline else None
    require_shared(WalPosition.from_position(position), was, now.timeline, branch, source)
    log.info(
        "source.%s: the server is on timeline %d, which left timeline %d at %s: all in front of %s is on it, too",
        *(source, now.timeline, was, branch, position),
    )
    return {**before, "timeline": str(now.timeline)}


def find_branch(history: str, timeline: int) -> Lsn | None:
    """Where the timeline was left; None if it is not among those that the history goes back to.

    Each line is the number of a timeline, the LSN where it was left, and a reason, separated by tabs (PostgreSQL
    source, readTimeLineHistory in timeline.c).
    """
    for line in history.splitlines():
        left = line.split("#")[0].split()
        if left and left[0] == str(timeline):
            return Lsn.parse(left[1])
    return None


def require_shared(position: WalPosition, before: int, now: int, branch: Lsn | None, source: str) -> None:
    """PositionRefused unless everything in front of the position is on the server's timeline, too.

    before: the timeline on which the position was read. now: the server's. branch: where the one left the other, as
    `find_branch` has it. source: for messages.
    """
    if branch is None:
        raise PositionRefused(
            f"the server is on timeline {now}, which does not go back to timeline {before}, where changes were read "
            f"up to {position}: it may be the primary of before a failover",
            f"set the dsn to the server that was promoted; if this one is right, {accept_gap(source)}",
        )
    # A commit record that begins in front of the branch ends in front of it.
    if position.lsn > branch or position.commit_lsn >= branch:
        raise PositionRefused(
            f"the server left timeline {before} at {branch}, and changes were read there up to {position}: what was "
            f"committed in between is not on this server, and may have been delivered",
            f'{accept_gap(source)}; or set walPositionOverride = "{branch}" to go on there, and {send_anew(source)}',
        )
