"""Commits that a member makes of its group's offsets. Each carries a mark in its metadata. Where an operator has set
the group's offset there is none, and that offset is followed, also backwards.

Where the sink's transactions commit the offsets, the member commits none: a commit of its own that arrives late would
set the group's offset back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from sources.kafka.committing import Committing
from sources.kafka.member_state import MemberState
from sources.kafka.offsets import Partition, list_partitions, to_partitions

_AGAIN_SECONDS = 1.0
"""Behind a commit that failed."""

log = logging.getLogger(__name__)


class Commits:
    """name: of the source. For the member's thread."""

    def __init__(self, name: str, committing: Committing, state: MemberState) -> None:
        self._name = name
        self._committing = committing
        self._state = state
        self._not_before = 0.0

    def send(self, consumer: Consumer) -> None:
        """Commit what is due, without waiting for the answer. Raises KafkaException."""
        if time.monotonic() >= self._not_before:
            self._commit_due(consumer, wait=False)

    def finish(self, consumer: Consumer) -> None:
        """Commit what is due, and wait for the answer. Offsets that are not committed are told of, and left."""
        try:
            self._commit_due(consumer, wait=True)
        except KafkaException as error:
            self._tell("offsets", error.args[0])

    def note_answer(self, error: KafkaError | None, offsets: Sequence[TopicPartition]) -> None:
        """The client's on_commit. What was not committed is committed again a second later.

        error: of the whole commit. Without one, brokers may still have refused single partitions.
        """
        if error is None:
            self._note_refused(offsets)
        else:
            self._tell("offsets", error)
            self._send_again(to_partitions(offsets))

    def _commit_due(self, consumer: Consumer, wait: bool) -> None:
        if self._committing.by_sink:
            return
        mark = self._committing.mark
        due = self._state.take_due()
        offsets = [TopicPartition(topic, number, offset, mark) for (topic, number), offset in due.items()]
        if not offsets:
            return
        if wait:
            self._note_refused(consumer.commit(offsets=offsets, asynchronous=False))
        else:
            consumer.commit(offsets=offsets, asynchronous=True)

    def _note_refused(self, answered: Sequence[TopicPartition]) -> None:
        """answered: the partitions of a commit, each with its error, if it has one."""
        for one in answered:
            if one.error is not None:
                refused = to_partitions([one])
                self._tell(f"offsets of {list_partitions(refused)}", one.error)
                self._send_again(refused)

    def _send_again(self, partitions: Iterable[Partition]) -> None:
        self._not_before = time.monotonic() + _AGAIN_SECONDS
        self._state.send_again(partitions)

    def _tell(self, what: str, error: KafkaError) -> None:
        log.warning("source.%s: %s were not committed: %s", self._name, what, error.str())
