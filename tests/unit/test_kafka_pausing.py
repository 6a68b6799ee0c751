"""When a member of a group pauses its partitions."""

from __future__ import annotations

from sources.kafka.pausing import Pausing


def test_a_member_pauses_where_it_had_no_room_for_three_seconds() -> None:
    pausing = Pausing()
    assert [pausing.is_due(now) for now in (100.0, 102.9, 103.0)] == [False, False, True]


def test_room_in_between_puts_a_pause_off() -> None:
    pausing = Pausing()
    assert not pausing.is_due(100.0)
    pausing.note_room()
    assert [pausing.is_due(now) for now in (103.0, 105.9, 106.0)] == [False, False, True]
