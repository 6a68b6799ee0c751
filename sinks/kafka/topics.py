"""How many partitions a topic has, looked up now and then; makes missing topics where that is asked for."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from numpy.typing import NDArray

from psql_streamer.errors import SinkRefused, SinkUnavailable
from sinks.kafka.delivery import Delivery
from sinks.kafka.errors import REFUSED, sink_error
from sinks.kafka.options import CreateTopics

_FEW = 16
"""Up to this many topics are asked for one by one, more with one question for all of the cluster's."""

_NAP = 0.1

_SOON = 1.0
"""Seconds in which a broker makes a topic if it does at all, with some to spare."""


_ANOTHER = "choose another name, for a table under tableTopicMapping"


class TopicRefused(SinkRefused):
    """Brokers make no topic of this name, whatever they are asked."""

    def __init__(self, topic: str, why: str) -> None:
        super().__init__(f'topic "{topic}" cannot be created: {why}', _ANOTHER)
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
    def of(cls, topics: tuple[str, ...], known: list[_Known]) -> _Asked:
        counts = np.array([one.partitions for one in known], np.int32)
        return cls(topics, counts, min((one.until for one in known), default=0.0))


_NOTHING_ASKED = _Asked.of((), [])


class Topics:
    """Partition counts by topic, each remembered for `interval` seconds.

    host: a broker's, for messages. patience: seconds to wait for a topic to appear. create: how to make a missing one;
    None leaves it to the broker, which does so when asked for its metadata if auto.create.topics.enable is set.
    """

    def __init__(
        self,
        delivery: Delivery,
        *,
        host: str,
        timeout: float,
        interval: float,
        patience: float,
        create: CreateTopics | None,
        admin: Callable[[], AdminClient],
    ) -> None:
        self._delivery = delivery
        self._host = host
        self._timeout = timeout
        self._interval = interval
        self._patience = patience
        self._create = create
        self._admin = admin
        self._known: dict[str, _Known] = {}
        self._last = _NOTHING_ASKED

    def partitions(self, topics: tuple[str, ...]) -> NDArray[np.int32]:
        """The partitions of each topic, in their order, every one above zero.

        Raises SinkUnavailable for a topic that does not appear, TopicRefused for one that cannot, and SinkRefused for
        one that may not be used.
        """
        now = time.monotonic()
        last = self._last
        if last.until < now or last.topics != topics:
            due = [topic for topic in topics if topic not in self._known or self._known[topic].until < now]
            if due:
                self._refresh(due)
            last = self._last = _Asked.of(topics, [self._known[topic] for topic in topics])
        return last.partitions

    def forget(self) -> None:
        """Look everything up again: what was known proved wrong."""
        self._known.clear()
        self._last = _NOTHING_ASKED

    def _refresh(self, topics: list[str]) -> None:
        found = self._look_up_together(topics) if len(topics) > _FEW or self._create else {}
        for topic in topics:
            count = found.get(topic) or self._await(topic)
            self._known[topic] = _Known(count, time.monotonic() + self._interval)

    def _look_up_together(self, topics: list[str]) -> dict[str, int]:
        """The counts of those that exist. Asking for all topics never makes one."""
        metadata = self._delivery.metadata(None, self._timeout)
        return {name: metadata[name].partitions for name in topics if name in metadata}

    def _await(self, topic: str) -> int:
        """The topic's count, from when it appears; a new topic takes a moment to get its leaders."""
        if self._create is not None:
            self._make(topic, self._create)
        began = time.monotonic()
        deadline, soon = began + self._patience, began + min(_SOON, self._patience)
        while True:
            metadata = self._delivery.metadata(topic, self._timeout)[topic]
            if metadata.error is None and metadata.partitions:
                return metadata.partitions
            if metadata.error is not None and metadata.error.code() in REFUSED:
                raise sink_error(f'topic "{topic}"', metadata.error)
            now = time.monotonic()
            if now > soon:
                self._refuse_likeness(topic)
                soon = deadline
            if now > deadline:
                raise SinkUnavailable(f'topic "{topic}" does not exist', how_to_create(topic, self._host))
            self._delivery.wait(_NAP)

    def _refuse_likeness(self, topic: str) -> None:
        """Kafka makes no topic beside one whose name differs from it in . and _ alone: names of metrics tell the two
        not apart (org.apache.kafka.common.internals.Topic.hasCollision). When a client's question makes topics, the
        answer does not say so.
        """
        like = topic.replace(".", "_")
        for other in self._delivery.metadata(None, self._timeout):
            if other != topic and other.replace(".", "_") == like:
                raise TopicRefused(topic, f'it differs from "{other}" in . and _ alone')

    def _make(self, topic: str, create: CreateTopics) -> None:
        new = NewTopic(topic, create.partitions, create.replication_factor, config=dict(create.config))
        admin = self._admin()  # named, because its futures die with it
        try:
            admin.create_topics([new], request_timeout=self._timeout)[topic].result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_EXCEPTION:
                raise TopicRefused(topic, error.args[0].str()) from None
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise sink_error(f'topic "{topic}" cannot be created', error.args[0]) from None


def how_to_create(topic: str, host: str) -> str:
    """What to do about a missing topic."""
    return (
        f"kafka-topics.sh --bootstrap-server {host} --create --topic {topic}, or a section createTopics in the sink's"
    )
