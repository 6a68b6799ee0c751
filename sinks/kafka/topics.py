"""How many partitions a topic has, looked up now and then; makes missing topics where that is asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from numpy.typing import NDArray

from psql_streamer.errors import SinkRefused, SinkUnavailable
from sinks.kafka.delivery import Delivery
from sinks.kafka.errors import REFUSED, make_sink_error
from sinks.kafka.options import CreateTopics
from sinks.kafka.producer import TopicMetadata

_SINGLY_ASKED_TOPICS = 16
"""Up to this many topics are asked for one by one, more with one question for all."""

_TOPIC_LOOK_SECONDS = 0.1
"""Between two questions for topics that brokers do not have yet."""

_TOPIC_CREATION_SECONDS = 1.0
"""The time in which a broker makes a topic if it does at all, with some to spare."""

_TOPICS_A_REQUEST = 500
"""Topics that one request makes: a broker takes a millisecond for each."""

_CONTROLLER_RECORDS = 9_000
"""A controller takes no request that would make more than 10,000 records of its log: one for a topic, for each of its
partitions and its settings (org.apache.kafka.controller.QuorumController.MAX_RECORDS_PER_USER_OP).
"""

_DEFAULT_PARTITIONS = 50
"""More than brokers give a topic that does not ask for a number (num.partitions)."""

_NAME_REMEDY = "choose another name, for a table under tableTopicMapping"


class TopicRefused(SinkRefused):
    """Brokers make no topic of this name, whatever they are asked."""

    def __init__(self, topic: str, why: str) -> None:
        super().__init__(f'topic "{topic}" cannot be created: {why}', _NAME_REMEDY)
        self.topic = topic


@dataclass(frozen=True, slots=True)
class _Known:
    partitions: int
    until: float


@dataclass(frozen=True, slots=True)
class _Asked:
    """What was asked for last: most batches have the topics of the one before. until: when one of them is due."""

    topics: tuple[str, ...]
    partitions: NDArray[np.int32]
    until: float

    @classmethod
    def from_known(cls, topics: tuple[str, ...], known: list[_Known]) -> _Asked:
        counts = np.array([entry.partitions for entry in known], np.int32)
        return cls(topics, counts, min((entry.until for entry in known), default=0.0))


_NOTHING_ASKED = _Asked.from_known((), [])


class Topics:
    """Partition counts by topic, each remembered for `interval` seconds.

    host: a broker's, for messages. appear_timeout: seconds to wait for the next topic to appear. create: how to make a
    missing one; None leaves it to the broker, which does so when asked for its metadata if auto.create.topics.enable is
    set.
    """

    def __init__(
        self,
        delivery: Delivery,
        *,
        host: str,
        timeout: float,
        interval: float,
        appear_timeout: float,
        create: CreateTopics | None,
        admin: Callable[[], AdminClient],
    ) -> None:
        self._delivery = delivery
        self._host = host
        self._timeout = timeout
        self._interval = interval
        self._appear_timeout = appear_timeout
        self._create = create
        self._admin = admin
        self._known: dict[str, _Known] = {}
        self._last = _NOTHING_ASKED

    def count_partitions(self, topics: tuple[str, ...]) -> NDArray[np.int32]:
        """The partitions of each topic, in their order, every one above zero.

        Raises SinkUnavailable for a topic that does not appear, TopicRefused for one that cannot, and SinkRefused for
        one that may not be used.
        """
        now = time.monotonic()
        last = self._last
        if last.until < now or last.topics != topics:
            if due := self._select_due(topics):
                self._refresh(due)
            last = self._last = _Asked.from_known(topics, [self._known[topic] for topic in topics])
        return last.partitions

    def forget(self) -> None:
        """Look everything up again: what was known proved wrong."""
        self._known.clear()
        self._last = _NOTHING_ASKED

    def _refresh(self, topics: list[str]) -> None:
        if len(topics) > _SINGLY_ASKED_TOPICS or self._create:
            self._look_up_together(topics)
            topics = self._select_due(topics)
        if topics and self._create:
            self._make(topics, self._create)
            if len(topics) > _SINGLY_ASKED_TOPICS:
                self._look_up_together(topics)
                topics = self._select_due(topics)
        if topics:
            self._await(topics)

    def _select_due(self, topics: Iterable[str]) -> list[str]:
        now, known = time.monotonic(), self._known
        return [topic for topic in topics if topic not in known or known[topic].until < now]

    def _look_up_together(self, topics: list[str]) -> None:
        """Remember the counts of those that exist. Asking for all topics never makes one."""
        metadata = self._delivery.read_metadata(None, self._timeout)
        self._remember({topic: metadata[topic].partitions for topic in topics if topic in metadata})

    def _remember(self, counts: Mapping[str, int]) -> None:
        """Counts that are zero are of topics whose partitions are on their way."""
        until = time.monotonic() + self._interval
        self._known.update({topic: _Known(count, until) for topic, count in counts.items() if count})

    def _await(self, topics: list[str]) -> None:
        """Remember the counts when all topics have appeared; a new one takes a moment to get its leaders. The wait is
        given up when none appeared for `appear_timeout` seconds.
        """
        began = time.monotonic()
        deadline, soon = began + self._appear_timeout, began + min(_TOPIC_CREATION_SECONDS, self._appear_timeout)
        while absent := self._find_absent(topics):
            now = time.monotonic()
            if len(absent) < len(topics):
                topics, deadline = absent, now + self._appear_timeout
            if now > soon:
                self._refuse_likeness(topics)
                soon = deadline
            if now > deadline:
                raise self._describe_absent(topics)
            self._delivery.wait(_TOPIC_LOOK_SECONDS)

    def _describe_absent(self, topics: list[str]) -> SinkUnavailable:
        more = f", and {len(topics) - 1} more do not" if len(topics) > 1 else ""
        if not self._create:
            return SinkUnavailable(
                f'topic "{topics[0]}" does not exist{more}', describe_topic_creation(topics[0], self._host)
            )
        return SinkUnavailable(
            f'topic "{topics[0]}" was created and does not appear{more}',
            "brokers may still be at it: look at the load of the controller, and at its log",
        )

    def _find_absent(self, topics: list[str]) -> list[str]:
        """Which of them brokers do not have yet; the counts of the others are remembered. SinkRefused for one that may
        not be used.
        """
        metadata = self._ask(topics)
        self._remember({name: metadata[name].partitions for name in topics if metadata[name].error is None})
        for name in topics:
            error = metadata[name].error
            if error is not None and error.code() in REFUSED:
                raise make_sink_error(f'topic "{name}"', error)
        return [name for name in topics if metadata[name].error is not None or not metadata[name].partitions]

    def _ask(self, topics: list[str]) -> Mapping[str, TopicMetadata]:
        """What brokers say of each; where they make topics when asked for them, they do so now."""
        if len(topics) > _SINGLY_ASKED_TOPICS:
            return self._delivery.read_metadata_together(topics, self._timeout)
        return {topic: self._delivery.read_metadata(topic, self._timeout)[topic] for topic in topics}

    def _refuse_likeness(self, topics: list[str]) -> None:
        """Kafka makes no topic beside one whose name differs from it in . and _ alone: names of metrics tell the two
        not apart (org.apache.kafka.common.internals.Topic.hasCollision). When a client's question makes topics, the
        answer does not say so.
        """
        wanted = {topic.replace(".", "_"): topic for topic in reversed(topics)}
        for other in self._delivery.read_metadata(None, self._timeout):
            topic = wanted.get(other.replace(".", "_"), other)
            if other != topic:
                raise TopicRefused(topic, f'it differs from "{other}" in . and _ alone')

    def _make(self, topics: list[str], create: CreateTopics) -> None:
        """Ask for as many at once as a controller takes; those that are there by now are all right."""
        admin = self._admin()  # named, because its futures die with it
        for new in group_new_topics(topics, create):
            for topic, made in admin.create_topics(new, request_timeout=self._timeout).items():
                _refuse(topic, made.exception())


def group_new_topics(topics: Sequence[str], create: CreateTopics) -> Iterator[list[NewTopic]]:
    """What to ask a controller for, as many topics as it takes at once."""
    partitions = create.partitions if create.partitions > 0 else _DEFAULT_PARTITIONS
    size = min(_TOPICS_A_REQUEST, max(1, _CONTROLLER_RECORDS // (1 + partitions + len(create.config))))
    for start in range(0, len(topics), size):
        yield [
            NewTopic(topic, create.partitions, create.replication_factor, config=dict(create.config))
            for topic in topics[start : start + size]
        ]


def _refuse(topic: str, error: BaseException | None) -> None:
    """Raise for a topic that was not made and is not there."""
    if error is None:
        return
    if not isinstance(error, KafkaException):
        raise error
    if error.args[0].code() == KafkaError.TOPIC_EXCEPTION:
        raise TopicRefused(topic, error.args[0].str())
    if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
        raise make_sink_error(f'topic "{topic}" cannot be created', error.args[0])


def describe_topic_creation(topic: str, host: str) -> str:
    """What to do about a missing topic."""
    return (
        f"kafka-topics.sh --bootstrap-server {host} --create --topic {topic}, or a section createTopics in the sink's"
    )
