"""Commits that a member makes of its group's offsets. Each carries a mark in its metadata. Where an operator has set
the group's offset there is none, and that offset is followed, also backwards.

One is on its way at a time. While the group shares its partitions anew, brokers answer a member's commits behind its
request to join, and refuse them for their old generation. The client takes the second such answer for the loss of its
partitions (librdkafka's issue 4059).

Where the sink's transactions commit the offsets, the member commits none: a commit of its own that arrives late would
set the group's offset back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from sources.kafka.committing import Committing, add_topic_id
from sources.kafka.member_state import MemberState
from sources.kafka.offsets import Partition, TopicIds, list_partitions, to_partitions

_AGAIN_SECONDS = 1.0
"""Behind a commit that failed."""

_TOLD_AFTER_SECONDS = 10.0
"""Commits fail now and then while a group shares its partitions; when they fail for so long, /status says so. The log
says it as often.
"""

log = logging.getLogger(__name__)


class Commits:
    """name: of the source. ids: of topics, as far as they are known. For the member's thread."""

    def __init__(self, name: str, committing: Committing, state: MemberState, ids: TopicIds) -> None:
        self._name = name
        self._ids = ids
        self._committing = committing
        self._state = state
        self._not_before = 0.0
        self._logged_at = -_TOLD_AFTER_SECONDS
        self._failing_since: float | None = None
        self._unanswered = 0
        self._sent_at = 0.0

    def send(self, consumer: Consumer) -> None:
        """Commit what is due, without waiting for the answer. Raises KafkaException."""
        if self._unanswered:
            self._note_no_answer()
        elif time.monotonic() >= self._not_before:
            self._commit_due(consumer, wait=False)

    def finish(self, consumer: Consumer) -> None:
        """Commit what is due, and wait for the answer. Offsets that are not committed are told of, and left."""
        try:
            self._commit_due(consumer, wait=True)
        except KafkaException as error:
            self._tell("offsets", error.args[0].str())

    def note_answer(self, error: KafkaError | None, offsets: Sequence[TopicPartition]) -> None:
        """The client's on_commit. What was not committed is committed again a second later.

        error: of the whole commit. Without one, brokers may still have refused single partitions.
        """
        self._unanswered = max(0, self._unanswered - 1)
        if error is not None:
            self._tell("offsets", error.str())
            self._send_again(to_partitions(offsets))
        elif not self._note_refused(offsets):
            self._note_taken()

    def _commit_due(self, consumer: Consumer, wait: bool) -> None:
        if self._committing.by_sink:
            return
        mark = self._committing.mark
        due = self._state.take_due()
        offsets = [
            TopicPartition(topic, number, offset, add_topic_id(mark, topic, self._ids))
            for (topic, number), offset in due.items()
        ]
        if not offsets:
            if not self._unanswered and self._failing_since is not None:
                self._note_taken()  # the partitions went to others
            return
        if wait:
            self._note_refused(consumer.commit(offsets=offsets, asynchronous=False))
        else:
            self._unanswered += 1
            self._sent_at = time.monotonic()
            consumer.commit(offsets=offsets, asynchronous=True)

    def _note_no_answer(self) -> None:
        if time.monotonic() - self._sent_at >= _TOLD_AFTER_SECONDS:
            self._failing_since = self._failing_since or self._sent_at
            self._tell("offsets", "the group's coordinator does not answer")

    def _note_refused(self, answered: Sequence[TopicPartition]) -> bool:
        """Whether one was refused. answered: the partitions of a commit, each with its error, if it has one."""
        refused = [(to_partitions([one]), one.error) for one in answered if one.error is not None]
        for partitions, error in refused:
            self._tell(f"offsets of {list_partitions(partitions)}", error.str())
            self._send_again(partitions)
        return bool(refused)

    def _note_taken(self) -> None:
        """Nothing is left that brokers have refused."""
        self._failing_since = None
        self._state.set_commit_problem("")

    def _send_again(self, partitions: Iterable[Partition]) -> None:
        self._not_before = time.monotonic() + _AGAIN_SECONDS
        self._state.send_again(partitions)

    def _tell(self, what: str, why: str) -> None:
        now = time.monotonic()
        self._failing_since = self._failing_since or now
        if now - self._failing_since >= _TOLD_AFTER_SECONDS:
            self._state.set_commit_problem(f"{what} are not committed: {why}")
        if now - self._logged_at >= _TOLD_AFTER_SECONDS:
            self._logged_at = now
            log.warning("source.%s: %s were not committed: %s", self._name, what, why)
