"""Questions about a cluster, for sinks and sources: what it shows, why it answers none, and what is not allowed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported, but not in its __all__
    AclOperation,
    AdminClient,
    ClusterMetadata,
    ConfigResource,
    ConsumerGroupDescription,
    ResourceType,
    TopicDescription,
)

from psql_streamer.interfaces import Finding, Severity
from sinks.kafka.connection_errors import explain_silence
from sinks.kafka.options import Property

log = logging.getLogger(__name__)

_ACCESS = {AclOperation.READ: ("read from", "Read"), AclOperation.WRITE: ("write to", "Write")}
"""What messages, and Kafka's tools, call operations."""

_TOPICS_A_DESCRIPTION = 500
"""Topics that one request asks for."""


class Administrator:
    """A client for questions. hosts: of the brokers. refused: error codes of which somebody has to mend something.

    Raises KafkaException for properties that librdkafka does not take.
    """

    def __init__(
        self, hosts: Sequence[str], properties: Mapping[str, Property], timeout: float, refused: Mapping[int, str]
    ) -> None:
        self.timeout = timeout
        self._hosts = hosts
        self._refused = refused
        self._complaints: list[KafkaError] = []
        settings: dict[str, Any] = {**properties, "error_cb": self._complaints.append}
        self.client = AdminClient(settings, logger=log)

    def list_topics(self) -> ClusterMetadata:
        """All that the cluster shows. Raises KafkaException: with why nobody is let in, if the brokers say that."""
        try:
            return self.client.list_topics(timeout=self.timeout)
        except KafkaException as error:
            self.client.poll(0)  # librdkafka gives the reason to a callback, and a timeout to whoever waits
            raise KafkaException(self._find_worst([*self._complaints, error.args[0]])) from None

    def find_forbidden(
        self, topics: Sequence[str], operation: AclOperation, remedy: Callable[[KafkaError], str]
    ) -> Iterator[Finding]:
        """Topics that cannot be described, or that may be described and no more. remedy: for an error; may be empty."""
        words, name = _ACCESS[operation]
        server = f"--bootstrap-server {self._hosts[0]}"
        for topic, future in self._describe(topics, include_authorized_operations=True):
            try:
                is_forbidden = _forbids(future.result(), operation)
            except KafkaException as error:
                said: KafkaError = error.args[0]
                mend = remedy(said) or f"look at it with kafka-topics.sh {server} --describe --topic {topic}"
                yield Finding(Severity.ERROR, f'topic "{topic}": {said.str()}', mend)
                continue
            if is_forbidden:
                mend = f"kafka-acls.sh {server} --add --allow-principal User:NAME --operation {name} --topic {topic}"
                yield Finding(Severity.ERROR, f'no permission to {words} topic "{topic}"', mend)

    def find_unwritable(self, topics: Sequence[str]) -> Sequence[str]:
        """Those that may be described and not written to, as far as brokers say it."""
        found = []
        for topic, future in self._describe(topics, include_authorized_operations=True):
            with suppress(KafkaException):
                if _forbids(future.result(), AclOperation.WRITE):
                    found.append(topic)
        return found

    def find_forbidden_group(self, group: str, refused: Mapping[int, str]) -> Iterator[Finding]:
        """Whether a consumer group may not be joined, which is not tried. refused: what to do about errors that stay.
        Others are left to whoever asks for the group's offsets.
        """
        described = self.client.describe_consumer_groups(
            [group], include_authorized_operations=True, request_timeout=self.timeout
        )
        try:
            is_forbidden = _forbids(described[group].result(), AclOperation.READ)
        except KafkaException as error:
            said: KafkaError = error.args[0]
            if said.code() in refused:
                yield Finding(Severity.ERROR, f'group "{group}": {said.str()}', refused[said.code()])
            return
        if is_forbidden:
            server = f"--bootstrap-server {self._hosts[0]}"
            mend = f"kafka-acls.sh {server} --add --allow-principal User:NAME --operation Read --group {group}"
            yield Finding(Severity.ERROR, f'no permission to read in group "{group}"', mend)

    def find_ids(self, topics: Sequence[str]) -> Mapping[str, str]:
        """The ids that topics got when they were made, of those that exist and may be described."""
        found = {}
        for topic, future in self._describe(topics):
            with suppress(KafkaException):
                found[topic] = str(future.result().topic_id)
        return found

    def find_hidden(self, topics: Sequence[str]) -> frozenset[str]:
        """Those that may not be described: whether they exist is not known. Brokers leave them out of a list of all."""
        answers = [(topic, future.exception()) for topic, future in self._describe(topics)]
        return frozenset(
            topic
            for topic, error in answers
            if isinstance(error, KafkaException) and error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        )

    def find_broker_setting(self, cluster: ClusterMetadata, name: str) -> str | None:
        """What the brokers have set; None if it may not be seen. cluster: what list_topics gave."""
        return self._find_setting(ConfigResource(ResourceType.BROKER, str(next(iter(cluster.brokers)))), name)

    def find_topic_setting(self, topic: str, name: str) -> str | None:
        """What a topic has set, itself or by the brokers' defaults; None if it may not be seen."""
        return self._find_setting(ConfigResource(ResourceType.TOPIC, topic), name)

    def describe_silence(self, error: KafkaError, remedy: str) -> Finding:
        """Why there was no answer."""
        hosts = ",".join(self._hosts)
        return Finding(Severity.ERROR, f"no answer from {hosts} within {self.timeout:g} s: {error.str()}", remedy)

    def _find_setting(self, of: ConfigResource, name: str) -> str | None:
        try:
            settings = self.client.describe_configs([of], request_timeout=self.timeout)[of].result()
        except KafkaException:
            return None
        entry = settings.get(name)
        return None if entry is None else entry.value

    def _describe(
        self, topics: Sequence[str], *, include_authorized_operations: bool = False
    ) -> Iterator[tuple[str, Future[TopicDescription]]]:
        for start in range(0, len(topics), _TOPICS_A_DESCRIPTION):
            described = self.client.describe_topics(
                TopicCollection(list(topics[start : start + _TOPICS_A_DESCRIPTION])),
                include_authorized_operations=include_authorized_operations,
                request_timeout=self.timeout,
            )
            yield from described.items()

    def _find_worst(self, said: Sequence[KafkaError]) -> KafkaError:
        """The error that says the most: one that somebody has to mend before the first one, which names the cause; how
        many brokers librdkafka counts says the least.
        """
        told = [error for error in said if error.code() != KafkaError._ALL_BROKERS_DOWN] or said
        return explain_silence(next((error for error in told if error.code() in self._refused), told[0]), self._hosts)


def _forbids(described: TopicDescription | ConsumerGroupDescription, operation: AclOperation) -> bool:
    """Whether brokers say that an operation is not allowed. Those without authorization say nothing."""
    allowed = described.authorized_operations
    return bool(allowed) and operation not in allowed
