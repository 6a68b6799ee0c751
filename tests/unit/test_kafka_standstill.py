"""What a Kafka source says while its brokers answer, and nothing comes."""

from __future__ import annotations

import logging
from unittest.mock import Mock

import pytest

from sources.kafka.offsets import Partition
from sources.kafka.passing_errors import PassingErrors
from sources.kafka.standstill import Standstill

A, B = Partition("orders", 0), Partition("orders", 1)


@pytest.fixture
def errors() -> dict[Partition | None, str]:
    """What the client has said."""
    return {}


@pytest.fixture
def standstill(errors: dict[Partition | None, str]) -> Standstill:
    return Standstill("shop", lambda partition: errors.get(partition, ""))


def test_a_group_has_half_a_minute_to_take_the_member_in(
    standstill: Standstill, errors: dict[Partition | None, str]
) -> None:
    assert [standstill.look_at_group(now, is_outside=True) for now in (100.0, 129.0)] == ["", ""]
    away = "its coordinator may be away, or other instances wait for their sinks"
    said = f"group shop has not taken this instance in for 30 s: {away}"
    assert standstill.look_at_group(130.0, is_outside=True) == said
    errors[None] = "JoinGroup failed"
    assert standstill.look_at_group(131.0, is_outside=True).endswith(" for 31 s: JoinGroup failed")
    assert standstill.look_at_group(132.0, is_outside=False) == ""
    assert standstill.look_at_group(133.0, is_outside=True) == ""


def test_partitions_of_which_nothing_comes_for_half_a_minute_are_said(
    standstill: Standstill, errors: dict[Partition | None, str]
) -> None:
    standstill.note_ends(100.0, {A: 9, B: 7}, {A: 5, B: 7})
    standstill.note_ends(129.0, {A: 9, B: 7}, {A: 5, B: 7})
    assert standstill.describe_partitions() == ""
    standstill.note_ends(130.0, {A: 10, B: 8}, {A: 5, B: 7})
    left = "nothing comes of orders[0], where 5 records are left"
    assert standstill.describe_partitions() == f"{left}: look at the brokers' log"
    errors[A] = "Broker: Message was corrupt"
    assert standstill.describe_partitions() == f"{left}: Broker: Message was corrupt"
    standstill.note_ends(135.0, {A: 10, B: 8}, {A: 6, B: 8})
    assert standstill.describe_partitions() == ""


def test_a_partition_that_went_away_is_not_said(standstill: Standstill) -> None:
    for now in (100.0, 140.0):
        standstill.note_ends(now, {A: 9}, {A: 5})
    standstill.note_ends(141.0, {A: 9}, {})
    assert standstill.describe_partitions() == ""


def test_while_the_member_does_not_poll_nothing_is_expected(standstill: Standstill) -> None:
    for now in (100.0, 140.0):
        standstill.note_ends(now, {A: 9}, {A: 5})
    standstill.forget()
    assert standstill.describe_partitions() == ""
    standstill.note_ends(141.0, {A: 9}, {A: 5})
    assert standstill.describe_partitions() == ""


def test_an_error_that_comes_again_and_again_is_logged_once_a_minute_and_known_while_it_is_recent(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    errors, clock = PassingErrors("hop"), Mock(return_value=100.0)
    monkeypatch.setattr("sources.kafka.passing_errors.time.monotonic", clock)
    assert errors.find_last(A) == ""
    for clock.return_value in (100.0, 101.0, 159.0, 160.0):
        errors.note(A, "Broker: Message was corrupt")
    errors.note(None, "JoinGroup failed")
    assert caplog.messages == [
        "source.hop: orders[0]: Broker: Message was corrupt",
        "source.hop: orders[0]: Broker: Message was corrupt",
        "source.hop: JoinGroup failed",
    ]
    assert (errors.find_last(A), errors.find_last(None)) == ("Broker: Message was corrupt", "JoinGroup failed")
    clock.return_value = 190.0
    assert errors.find_last(A) == ""
