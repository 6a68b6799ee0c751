"""What a member looks at now and then while it reads."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, TopicPartition

from sources.kafka.member_state import MemberState
from sources.kafka.same_topics import SameTopics
from sources.kafka.troubles import Troubles

_LAG_LOOK_SECONDS = 1.0
"""Between two looks at how far the partitions' ends are away, and at the brokers after trouble."""

_TOPICS_SECONDS = 5.0
"""Between two looks at whether a topic was made anew."""


class Watch:
    """For the member's thread."""

    def __init__(self, state: MemberState, topics: SameTopics, troubles: Troubles) -> None:
        self._state = state
        self._topics = topics
        self._troubles = troubles
        self._look_at = self._look_at_topics_at = 0.0

    def look(self, consumer: Consumer) -> None:
        """Look at what is due. PositionRefused: a topic was made anew."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + _LAG_LOOK_SECONDS
        partitions = self._state.partitions
        if now >= self._look_at_topics_at:
            self._look_at_topics_at = now + _TOPICS_SECONDS
            self._topics.require({partition.topic for partition in partitions})
        for partition in partitions:
            _, end = consumer.get_watermark_offsets(TopicPartition(*partition), cached=True)
            self._state.note_end(partition, end)
        self._troubles.look_whether_passed(consumer)
