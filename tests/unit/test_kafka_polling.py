"""How much a poll of a Kafka source takes of what the client has."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import Message

from sources.kafka.member_state import MemberState
from sources.kafka.offsets import Partition
from sources.kafka.options import KafkaSourceOptions
from sources.kafka.passing_errors import PassingErrors
from sources.kafka.polling import Polling

BATCH_BYTES = 1 << 20


class Client:
    """It has fetched records of these sizes."""

    def __init__(self, *sizes: int) -> None:
        self._records = [
            Message(topic="orders", partition=0, offset=offset, value=b"x" * size) for offset, size in enumerate(sizes)
        ]

    def poll(self, _: float) -> Message | None:
        return self._records.pop(0) if self._records else None

    def consume(self, count: int, _: float) -> list[Message]:
        taken, self._records = self._records[:count], self._records[count:]
        return taken


@pytest.fixture
def state() -> MemberState:
    given = {"type": "kafka", "hosts": ["h:1"], "topics": ["orders"], "groupID": "g", "batchBytes": BATCH_BYTES}
    state = MemberState(KafkaSourceOptions.model_validate(given), {}, "")
    state.begin(Partition("orders", 0), committed=0, start=0)
    return state


def take(state: MemberState, client: Client) -> int:
    """The records that one poll holds."""
    before = state._held.size
    Polling("hop", state._options, state, PassingErrors("hop")).poll(cast("Any", client), 1.0)
    assert state._held.size > before
    return sum(len(chunk.messages) for chunk in state._held._chunks)


def test_a_poll_takes_a_batch_of_small_records(state: MemberState) -> None:
    take(state, Client(*[150] * 100))
    before = sum(len(chunk.messages) for chunk in state._held._chunks)
    batch = BATCH_BYTES * 0.95 // 400
    assert take(state, Client(*[150] * 20_000)) - before == pytest.approx(batch, rel=0.01)


def test_the_first_records_may_be_large(state: MemberState) -> None:
    assert take(state, Client(*[900_000] * 50)) <= 11


def test_records_may_be_much_larger_than_those_in_front_of_them(state: MemberState) -> None:
    take(state, Client(*[100] * 100))
    held = take(state, Client(*[100] * 10, *[900_000] * 50)) - 100
    assert held <= 31


def test_a_poll_takes_no_more_records_than_a_batch_may_have(state: MemberState) -> None:
    take(state, Client(*[1] * 100))
    state._options = state._options.model_copy(update={"batch_size": 50})
    assert take(state, Client(*[1] * 1000)) - 100 == 50
