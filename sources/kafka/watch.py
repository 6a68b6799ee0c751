"""What a member looks at now and then while it reads."""

from __future__ import annotations

import logging
import time

from confluent_kafka import Consumer, TopicPartition

from sources.kafka.ends import AskedEnds, FoundEnds
from sources.kafka.member_state import MemberState
from sources.kafka.offsets import Partition, list_partitions
from sources.kafka.same_topics import SameTopics
from sources.kafka.troubles import Troubles

_LAG_LOOK_SECONDS = 1.0
"""Between two looks at how far the partitions' ends are away, and at the brokers after trouble."""

_ENDS_SECONDS = 5.0
"""Between two requests for the ends. The client knows only those that came with records: none of a partition that is
paused, or whose leader is away.
"""

_ENDS_ANSWER_SECONDS = 3.0
"""The time that brokers get to answer."""

_TOPICS_SECONDS = 5.0
"""Between two looks at whether a topic was made anew."""

log = logging.getLogger(__name__)


class Watch:
    """name: of the source. For the member's thread."""

    def __init__(self, name: str, state: MemberState, topics: SameTopics, troubles: Troubles, ends: AskedEnds) -> None:
        self._name = name
        self._state = state
        self._topics = topics
        self._troubles = troubles
        self._ends = ends
        self._look_at = self._look_at_topics_at = self._ask_at = 0.0
        self._unanswered: set[Partition] = set()
        self._unread: set[Partition] = set()

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
        if (found := self._ends.collect()) is not None:
            self._note_answers(found)
        self._note_unread(self._unread & partitions)
        for partition in partitions - self._unread:
            _, end = consumer.get_watermark_offsets(TopicPartition(*partition), cached=True)
            self._state.note_end(partition, end)
        if not partitions:
            self._troubles.look_whether_passed(consumer)
        elif not self._ends.is_waiting and (now >= self._ask_at or self._state.problem):
            self._ask_at = now + _ENDS_SECONDS
            self._troubles.note_asked()
            self._ends.ask(partitions, _ENDS_ANSWER_SECONDS)

    def _note_answers(self, found: FoundEnds) -> None:
        """Single answers are missing when partitions change their leaders, so two in a row count."""
        for partition, end in found.ends.items():
            self._state.note_end(partition, end)
        unanswered = set(found.unanswered)
        self._note_unread(self._unanswered & unanswered)
        self._unanswered = unanswered
        if not unanswered:
            self._troubles.note_answer()

    def _note_unread(self, partitions: set[Partition]) -> None:
        if partitions == self._unread:
            return
        if more := partitions - self._unread:
            log.warning("source.%s: %s", self._name, _describe_unread(more))
        if again := self._unread - partitions:
            log.info("source.%s: the leaders of %s answer again", self._name, list_partitions(again))
        self._unread = partitions
        self._state.set_unread(partitions, _describe_unread(partitions) if partitions else "")


def _describe_unread(partitions: set[Partition]) -> str:
    return f"the leader of {list_partitions(partitions)} does not answer: look at the brokers"
