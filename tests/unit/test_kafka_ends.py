"""Where partitions begin and end, while brokers change."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from sources.kafka.ends import find_known_ends
from sources.kafka.offsets import Partition


def _answer(offset: int, error: int | None = None) -> Future[Any]:
    answer: Future[Any] = Future()
    if error is None:
        answer.set_result(SimpleNamespace(offset=offset))
    else:
        answer.set_exception(KafkaException(KafkaError(error)))
    return answer


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
    ],
)
def test_a_partition_whose_leader_changes_does_not_keep_others_from_being_read(code: int) -> None:
    admin = Mock()
    admin.list_offsets.side_effect = lambda asked, **_: {
        one: _answer(7, code if one.partition == 1 else None) for one in asked
    }
    found = find_known_ends(admin, [Partition("t", 0), Partition("t", 1)], 1.0)
    assert found == {Partition("t", 0): (7, 7)}


def test_what_a_leader_says_otherwise_is_an_error() -> None:
    admin = Mock()
    admin.list_offsets.return_value = {TopicPartition("t", 0): _answer(0, KafkaError.TOPIC_AUTHORIZATION_FAILED)}
    with pytest.raises(KafkaException):
        find_known_ends(admin, [Partition("t", 0)], 1.0)
