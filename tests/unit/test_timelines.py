"""Where a server's timeline left another one."""

from __future__ import annotations

import pytest

from psql_streamer.errors import PositionRefused, SourceUnavailable
from psql_streamer.lsn import Lsn
from psql_streamer.pgoutput.wal_position import WalPosition
from sources.postgres.replication import Identity
from sources.postgres.timelines import Ancestry, find_branch, follow_timeline, require_shared

_HISTORY = "1\t0/3004FC8\tno recovery target specified\n\n# a comment\n3\t1/0\tbefore 2000-01-01 00:00:00+00\n"
_BRANCH = Lsn.parse("1/0")


@pytest.mark.parametrize(("timeline", "branch"), [(1, "0/3004FC8"), (3, "1/0"), (2, None), (13, None)])
def test_a_history_says_where_each_timeline_was_left(timeline: int, branch: str | None) -> None:
    assert find_branch(_HISTORY, timeline) == (None if branch is None else Lsn.parse(branch))


@pytest.mark.parametrize(
    "position", [WalPosition(_BRANCH), WalPosition(Lsn(_BRANCH - 100), Lsn(_BRANCH - 1), 3), WalPosition(Lsn(0))]
)
def test_positions_in_front_of_the_branch_are_of_both_timelines(position: WalPosition) -> None:
    require_shared(position, 3, 4, _BRANCH, "db1")


@pytest.mark.parametrize("position", [WalPosition(Lsn(_BRANCH + 1)), WalPosition(Lsn(_BRANCH - 100), _BRANCH, 3)])
def test_positions_behind_the_branch_and_inside_a_transaction_behind_it_are_refused(position: WalPosition) -> None:
    with pytest.raises(PositionRefused, match="the server left timeline 3 at 1/0"):
        require_shared(position, 3, 4, _BRANCH, "db1")


def test_a_timeline_that_does_not_go_back_to_the_position_is_refused() -> None:
    with pytest.raises(PositionRefused, match="timeline 2, which does not go back to timeline 3"):
        require_shared(WalPosition(Lsn(1)), 3, 2, None, "db1")


def test_a_standby_that_has_not_replayed_the_timeline_of_the_position_yet_is_waited_for() -> None:
    before = {"system identifier": "1", "timeline": "2"}
    with pytest.raises(SourceUnavailable, match="a standby on timeline 1, and changes were read on timeline 2"):
        follow_timeline(Identity("1", 1, "d"), Ancestry(is_standby=True), WalPosition(Lsn(1)).position, before, "db1")
