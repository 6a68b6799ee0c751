"""What a Kafka source says of trouble with its brokers."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import KafkaError

from sources.kafka.member_state import MemberState
from sources.kafka.options import KafkaSourceOptions
from sources.kafka.troubles import Troubles

CAUSE = KafkaError(KafkaError._SSL, "certificate verify failed")
NO_BROKER = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")


class Answering:
    """A client whose brokers answer."""

    def list_topics(self, timeout: float) -> None: ...


@pytest.fixture
def state() -> MemberState:
    options = KafkaSourceOptions.model_validate({"type": "kafka", "hosts": ["h:1"], "topics": ["t"], "groupID": "g"})
    return MemberState(options, {}, "")


def test_that_no_broker_is_left_does_not_hide_the_cause(state: MemberState) -> None:
    troubles = Troubles("k", "g", ["h:1", "i:2"], state)
    troubles.note(CAUSE)
    troubles.note(NO_BROKER)
    assert (state.problem, troubles.cause) == (CAUSE.str(), CAUSE)


def test_that_no_broker_is_left_is_said_where_nothing_else_is_known(state: MemberState) -> None:
    Troubles("k", "g", ["h:1", "i:2"], state).note(NO_BROKER)
    assert state.problem == "no broker answers (h:1, i:2), and the client goes on trying"


def test_trouble_that_has_passed_is_no_cause_of_the_next(state: MemberState) -> None:
    troubles = Troubles("k", "g", ["h:1", "i:2"], state)
    troubles.note(NO_BROKER)
    troubles.look_whether_passed(cast("Any", Answering()))
    assert state.problem == ""
    troubles.note(CAUSE)
    assert (state.problem, troubles.cause) == (CAUSE.str(), CAUSE)
