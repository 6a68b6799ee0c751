"""Where the streams of two servers part, and what that means for a position."""

from __future__ import annotations

from dataclasses import replace

import pytest

from psql_streamer.errors import PositionRefused, SourceUnavailable
from psql_streamer.lsn import Lsn
from psql_streamer.model import Position
from psql_streamer.pgoutput.wal_position import WalPosition
from sources.postgres.replication import Identity
from sources.postgres.timelines import (
    Branch,
    Fork,
    describe_branches,
    follow_timeline,
    move_to_timeline,
    parse_history,
    require_shared,
)

_HISTORY = "1\t0/3004FC8\tno recovery target specified\n\n# a comment\n3\t1/0\tbefore 2000-01-01 00:00:00+00\n"
_LEFT = Lsn.parse("1/0")


def test_a_history_says_where_each_timeline_was_left() -> None:
    assert parse_history(_HISTORY) == [Branch(1, Lsn.parse("0/3004FC8")), Branch(3, _LEFT)]
    assert describe_branches(server(4, _HISTORY)) == {"branches": "1 until 0/3004FC8, 3 until 1/0"}
    assert describe_branches(server(1)) == {}


@pytest.mark.parametrize(
    "position", [WalPosition(_LEFT), WalPosition(Lsn(_LEFT - 100), Lsn(_LEFT - 1), 3), WalPosition(Lsn(0))]
)
def test_positions_in_front_of_the_fork_are_of_both_streams(position: WalPosition) -> None:
    require_shared(position, 3, Fork(3, None, _LEFT), "db1")


@pytest.mark.parametrize("position", [WalPosition(Lsn(_LEFT + 1)), WalPosition(Lsn(_LEFT - 100), _LEFT, 3)])
def test_positions_behind_the_fork_and_inside_a_transaction_behind_it_are_refused(position: WalPosition) -> None:
    with pytest.raises(PositionRefused, match="the server left timeline 3 at 1/0"):
        require_shared(position, 3, Fork(3, None, _LEFT), "db1")


def test_a_timeline_that_does_not_go_back_to_the_position_is_refused() -> None:
    for now in server(2, "1\t0/10\t\n"), server(4, "1\t0/10\t\n"):
        with pytest.raises(PositionRefused, match=f"timeline {now.timeline}, which does not go back to timeline 3"):
            follow(now, 0x10, {"timeline": "3"})


def test_a_standby_that_has_not_replayed_the_timeline_of_the_position_yet_is_waited_for() -> None:
    with pytest.raises(SourceUnavailable, match="a standby on timeline 1, and changes were read on timeline 2"):
        follow(server(1), 1, {"timeline": "2"}, is_standby=True)


@pytest.mark.parametrize(
    ("now", "history"), [(2, "1\t0/30\t\n"), (3, "1\t0/30\t\n"), (3, "1\t0/30\t\n2\t0/90\t\n"), (3, "1\t0/20\t\n")]
)
def test_a_server_that_left_the_same_timeline_elsewhere_has_what_is_in_front_of_both_places(
    now: int, history: str
) -> None:
    before = {"timeline": "2", "branches": "1 until 0/20"}
    followed = follow(server(now, history), 0x20, before)
    assert followed["timeline"] == str(now)
    assert followed["branches"] == describe_branches(server(now, history))["branches"]
    where = history[2:6]
    says = f"the server left timeline 1 at {where}, and changes were read up to 0/21 on another server, which left it "
    with pytest.raises(PositionRefused, match=f"{says}at 0/20, on its timeline 2: .* behind 0/20"):
        follow(server(now, history), 0x21, before)


@pytest.mark.parametrize(
    ("now", "before"),
    [
        (Identity("1", 2, "d", "1\t0/20\t\n"), {"timeline": "2", "branches": "1 until 0/20"}),
        (Identity("1", 2, "d", "1\t0/20\t\n"), {"timeline": "2"}),  # as an earlier version stored it
        (Identity("1", 2, "d"), {"timeline": "2", "branches": "1 until 0/20"}),  # the history is not on the server
        (Identity("1", 1, "d"), {"timeline": "1"}),
    ],
)
def test_the_same_timeline_is_gone_on_with(now: Identity, before: dict[str, str]) -> None:
    assert follow(now, 0x99, before) == {"system identifier": "1", **before}


def test_branches_are_known_of_the_timeline_on_which_a_session_began_only() -> None:
    before = {"timeline": "2", "branches": "1 until 0/20"}
    assert move_to_timeline(before, 2) == before
    assert move_to_timeline(before, 3) == {"timeline": "3"}


def test_a_position_that_went_on_without_changes_goes_back_to_where_the_streams_part() -> None:
    now, stream = server(2, "1\t0/20\t\n"), {"system identifier": "1", "timeline": "1"}
    position = Position({**WalPosition(Lsn(0x30)).position.data, "given": "0/20", "snapshots": []}, "0/30")
    goes_on, _ = follow_timeline(now, position, stream, "db1", is_standby=False)
    assert goes_on == Position({**WalPosition(Lsn(0x20)).position.data, "given": "0/20", "snapshots": []}, "0/20")
    with pytest.raises(PositionRefused):
        follow_timeline(
            now, replace(position, data={**position.data, "given": "0/21"}), stream, "db1", is_standby=False
        )


def server(timeline: int, history: str = "") -> Identity:
    return Identity("1", timeline, "d", history)


def follow(now: Identity, lsn: int, before: dict[str, str], *, is_standby: bool = False) -> dict[str, str]:
    position, stream = WalPosition(Lsn(lsn)).position, {"system identifier": "1", **before}
    goes_on, followed = follow_timeline(now, position, stream, "db1", is_standby=is_standby)
    assert goes_on == position
    return dict(followed)
