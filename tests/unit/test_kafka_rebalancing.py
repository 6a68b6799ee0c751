"""What a member of a group does when it is given partitions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

from confluent_kafka import KafkaError, TopicPartition

from sources.kafka.committing import Committing
from sources.kafka.member_state import MemberState
from sources.kafka.options import KafkaSourceOptions
from sources.kafka.rebalancing import Rebalancing


def test_a_start_that_brokers_do_not_take_for_one_partition_ends_the_session_and_nothing_is_read() -> None:
    """They say so beside the partition; the commit as a whole has no error."""
    options = KafkaSourceOptions.model_validate({"type": "kafka", "hosts": ["h:1"], "topics": ["t"], "groupID": "g"})
    state = MemberState(options, {}, "")
    beginnings, takeover = Mock(), Mock()
    beginnings.begin.return_value = [TopicPartition("t", 0, 5), TopicPartition("t", 1, 7)]
    takeover.find_unwanted.return_value = []
    refused = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "not authorized to read topic")
    consumer = Mock()
    consumer.commit.return_value = [SimpleNamespace(error=None), SimpleNamespace(error=refused)]
    rebalancing = Rebalancing(
        "hop", options, state, beginnings, Committing(), Mock(), Mock(), Mock(), cast("Any", takeover)
    )
    rebalancing._note_membership = Mock()  # type: ignore[method-assign]  # a mock has none
    rebalancing.assign(consumer, [TopicPartition("t", 0)])
    assert "partitions cannot be read: not authorized to read topic" in str(state.error)
    consumer.incremental_assign.assert_not_called()
