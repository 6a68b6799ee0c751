"""Timelines: the WAL of a cluster that was promoted, or recovered to an earlier time, goes on under another number.
What lies in front of the place where it branched off is the same on both (PostgreSQL documentation, "Timelines").

Two servers that know nothing of each other take the same number for their next timeline. They are told apart by where
that branched off, and cannot be where it did at one place.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from psql_streamer.errors import PositionRefused, SourceUnavailable
from psql_streamer.lsn import Lsn
from psql_streamer.model import Position
from psql_streamer.pgoutput.wal_position import WalPosition
from sources.postgres.given import move_back, read_given
from sources.postgres.replication import Identity, Walsender, identify, is_standby
from sources.postgres.standby_slots import LED_TO_PRIMARY
from sources.snapshot.gap_remedies import accept_gap, send_anew

log = logging.getLogger(__name__)

_BRANCHES = "branches"
"""The key of a stream identity. Positions that were stored by earlier versions have it not."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A timeline, and where it was left for the next one."""

    timeline: int
    left: Lsn

    def __str__(self) -> str:
        return f"{self.timeline} until {self.left}"


@dataclass(frozen=True, slots=True)
class Fork:
    """Where two streams of WAL part: the last timeline that both have, and where each left it. None: it goes on."""

    timeline: int
    left_before: Lsn | None
    left_now: Lsn | None

    @property
    def lsn(self) -> Lsn:
        """Everything in front of it is on both."""
        return min(left for left in (self.left_before, self.left_now) if left is not None)


def identify_with_role(connection: Walsender) -> tuple[Identity, bool]:
    """Which stream a server has, and whether it is in recovery: it may be on a later timeline soon.

    Both over one connection: the next one may lead to another server, while one takes the place of the other.
    """
    return identify(connection), is_standby(connection)


def describe_branches(identity: Identity) -> Mapping[str, str]:
    """Where the timelines in front of this one were left, for a stream identity; empty where that is not known."""
    branches = parse_history(identity.history)
    return {_BRANCHES: ", ".join(map(str, branches))} if branches else {}


def move_to_timeline(before: Mapping[str, str], timeline: int) -> Mapping[str, str]:
    """The stream identity of a session that ended on this timeline, wherever it began."""
    if before.get("timeline") == str(timeline):
        return before
    return {name: value for name, value in before.items() if name != _BRANCHES} | {"timeline": str(timeline)}


def follow_timeline(
    now: Identity, position: Position, before: Mapping[str, str], source: str, *, is_standby: bool
) -> tuple[Position, Mapping[str, str]]:
    """The stream identity `before`, with today's timeline if everything that was given is on that, too. And where to go
    on: at the position, or where the streams part, if nothing was given behind that.

    PositionRefused if something was; SourceUnavailable if a standby may get there. source: for messages.
    """
    if now.system_identifier != before.get("system identifier"):
        return position, before
    was = int(before["timeline"])
    if is_standby and now.timeline < was:
        raise SourceUnavailable(
            f"the server is a standby on timeline {now.timeline}, and changes were read on timeline {was}",
            LED_TO_PRIMARY,
        )
    if not now.history and now.timeline == was:
        return position, before
    if not now.history and now.timeline > was:
        raise PositionRefused(
            f"the server is on timeline {now.timeline} and lacks its history, pg_wal/{now.timeline:08X}.history: "
            f"whether all that was read on timeline {was} up to {position} is on this server cannot be known",
            f"copy that file there from the archive of the WAL or from another server; or {accept_gap(source)}",
        )
    branches = parse_history(now.history)
    branches_before = find_branches_before(before, was, branches, now.timeline)
    if now.timeline < was or branches_before is None:
        raise PositionRefused(
            f"the server is on timeline {now.timeline}, which does not go back to timeline {was}, where changes were "
            f"read up to {position}: it may be the primary of before a failover",
            f"set the dsn to the server that was promoted; if this one is right, {accept_gap(source)}",
        )
    fork = find_fork(branches_before, was, branches, now.timeline)
    if fork is None:
        return position, before
    there = WalPosition.from_position(position)
    if read_given(position) > fork.lsn or there.changes:
        require_shared(there, was, fork, source)
    goes_on = position if there.lsn <= fork.lsn else move_back(position, fork.lsn)
    log.info(
        "source.%s: the server is on timeline %d, which left timeline %d at %s: all that was read in front of %s is on "
        "it, too",
        *(source, now.timeline, fork.timeline, fork.left_now, goes_on),
    )
    return goes_on, {**before, "timeline": str(now.timeline), **describe_branches(now)}


def parse_history(history: str) -> Sequence[Branch]:
    """The timelines that a history file goes back to, the first one first.

    Each line is the number of a timeline, the LSN where it was left, and a reason, separated by tabs (PostgreSQL
    source, readTimeLineHistory in timeline.c).
    """
    lines = [line.split("#")[0].split() for line in history.splitlines()]
    return [Branch(int(line[0]), Lsn.parse(line[1])) for line in lines if line]


def find_branches_before(
    before: Mapping[str, str], was: int, branches: Sequence[Branch], now: int
) -> Sequence[Branch] | None:
    """What the timeline `was` of a stream identity goes back to. branches, now: the server's.

    Where it was not stored, a timeline of this number that the server has counts as the same; None if it has none.
    """
    if _BRANCHES in before:
        found = re.findall(r"(\d+) until ([0-9A-F]+/[0-9A-F]+)", before[_BRANCHES])
        return [Branch(int(timeline), Lsn.parse(left)) for timeline, left in found]
    if was not in (now, *(branch.timeline for branch in branches)):
        return None
    return list(takewhile(lambda branch: branch.timeline != was, branches))


def find_fork(branches_before: Sequence[Branch], was: int, branches: Sequence[Branch], now: int) -> Fork | None:
    """Where the stream of timeline `was` and that of timeline `now` part; None if they are one stream.

    Both begin with the same timeline.
    """
    path_before = [*((branch.timeline, branch.left) for branch in branches_before), (was, None)]
    path = [*((branch.timeline, branch.left) for branch in branches), (now, None)]
    last = path[0][0], path_before[0][1], path[0][1]
    for (timeline_before, left_before), (timeline, left) in zip(path_before, path, strict=False):
        if timeline_before != timeline:
            return Fork(*last)
        last = timeline, left_before, left
        if left_before != left:
            return Fork(*last)
    return None


def require_shared(position: WalPosition, was: int, fork: Fork, source: str) -> None:
    """PositionRefused unless everything in front of the position lies in front of the fork.

    was: the timeline on which the position was read. source: for messages.
    """
    # A commit record that begins in front of the fork ends in front of it.
    if position.lsn <= fork.lsn and position.commit_lsn < fork.lsn:
        return
    go_on = f'{accept_gap(source)}; or set walPositionOverride = "{fork.lsn}" to go on there, and {send_anew(source)}'
    if fork.left_before is None:
        raise PositionRefused(
            f"the server left timeline {was} at {fork.lsn}, and changes were read there up to {position}: what was "
            f"committed in between is not on this server, and may have been delivered",
            go_on,
        )
    raise PositionRefused(
        f"the server left timeline {fork.timeline} at {fork.left_now}, and changes were read up to {position} on "
        f"another server, which left it at {fork.left_before}, on its timeline {was}: what that one committed behind "
        f"{fork.lsn} is not on this server, and may have been delivered",
        f"set the dsn to that server if it is the primary; if this one is right, {go_on}",
    )
