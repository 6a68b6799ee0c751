"""What `check` looks at before a Kafka source is started. Changes nothing at the brokers."""

from __future__ import annotations

import time
from collections.abc import Iterator

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported
    AclOperation,
    AdminClient,
    OffsetSpec,
    TopicMetadata,
)

from psql_streamer.interfaces import Finding, Severity
from sinks.kafka.administrator import Administrator
from sources.kafka.errors import MAY_PASS, NOT_SHOWN, REFUSED, remedy
from sources.kafka.options import KafkaSourceOptions
from sources.kafka.subscribed import PATTERN_MARK, subscribed


def make_administrator(options: KafkaSourceOptions) -> Administrator:
    """A client for questions about the source's brokers."""
    return Administrator(options.hosts, options.client_properties(), options.timeout, REFUSED)


def findings(options: KafkaSourceOptions) -> Iterator[Finding]:
    """Findings about the schema registry, the brokers, the topics, and the group's offsets."""
    if options.registry is not None:
        from psql_streamer.registry.checking import find_problems

        yield from find_problems(options.registry)
    administrator = make_administrator(options)
    admin = administrator.client
    try:
        found = administrator.list_topics().topics
    except KafkaException as error:
        said: KafkaError = error.args[0]
        yield administrator.describe_silence(said, remedy(said) or MAY_PASS[KafkaError._TRANSPORT])
        return
    there: dict[str, TopicMetadata] = {}
    for topic in options.topics:
        if topic.startswith(PATTERN_MARK):
            there |= {name: found[name] for name in subscribed([topic], found) if found[name].error is None}
        elif topic not in found:
            yield Finding(Severity.ERROR, f'topic "{topic}" does not exist, or may not be described', NOT_SHOWN)
        elif (denied := found[topic].error) is not None:
            yield Finding(Severity.ERROR, f'topic "{topic}": {denied.str()}', remedy(denied) or "look at it")
        else:
            there[topic] = found[topic]
    if options.dead_letter_topic and options.dead_letter_topic not in found:
        problem = f'deadLetterTopic "{options.dead_letter_topic}" does not exist'
        yield Finding(Severity.WARNING, problem, "create it, unless the brokers create topics")
    yield from administrator.find_forbidden(list(there), AclOperation.READ, remedy)
    yield from _offsets(admin, options, there)


def _offsets(admin: AdminClient, options: KafkaSourceOptions, topics: dict[str, TopicMetadata]) -> Iterator[Finding]:
    """Whether what the group has not read yet is still there."""
    asked = [TopicPartition(name, number) for name, topic in topics.items() for number in topic.partitions]
    if not asked:
        return
    try:
        of_group = ConsumerGroupTopicPartitions(options.group_id, asked)
        stored = [one for one in _committed(admin, of_group, options.timeout) if one.offset >= 0]
        earliest = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
        asked_oldest = {TopicPartition(one.topic, one.partition): earliest for one in stored}
        oldest = admin.list_offsets(asked_oldest, request_timeout=options.timeout) if stored else {}
        lows = {(one.topic, one.partition): found.result().offset for one, found in oldest.items()}
    except KafkaException as error:
        said: KafkaError = error.args[0]
        refused = said.code() in REFUSED
        # Brokers that have just started have no coordinator for a while.
        severity = Severity.ERROR if refused else Severity.WARNING
        mend = REFUSED[said.code()] if refused else "check again, or look at the brokers' log"
        yield Finding(severity, f"the offsets of group {options.group_id} cannot be read: {said.str()}", mend)
        return
    for one in stored:
        low = lows[one.topic, one.partition]
        if one.offset < low:
            yield Finding(
                Severity.ERROR,
                f"{one.topic}[{one.partition}]: the records {one.offset} to {low - 1} are not on the brokers any more",
                f"to go on without them, set the offsets of group {options.group_id} "
                "(kafka-consumer-groups.sh --reset-offsets)",
            )


def _committed(admin: AdminClient, of_group: ConsumerGroupTopicPartitions, timeout: float) -> list[TopicPartition]:
    """The group's offsets. A coordinator that is just starting, or moving, is asked again for the timeout."""
    deadline = time.monotonic() + timeout
    while True:
        (listed,) = admin.list_consumer_group_offsets([of_group], request_timeout=timeout).values()
        try:
            return list(listed.result().topic_partitions)
        except KafkaException as error:
            if error.args[0].code() not in _COORDINATOR_MOVES or time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE_SECONDS)


_COORDINATOR_MOVES = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}

_PAUSE_SECONDS = 0.1
