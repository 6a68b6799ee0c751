"""What `check` looks at before a Kafka source is started. Changes nothing at the brokers."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported
    AclOperation,
    AdminClient,
    TopicMetadata,
)

from psql_streamer.errors import SourceError, SourceRefused
from psql_streamer.interfaces import Finding, Severity
from sinks.kafka.administrator import Administrator
from sources.kafka.beginnings import CORRECT_START, find_start_problem
from sources.kafka.coordinator import ask_coordinator
from sources.kafka.ends import find_ends
from sources.kafka.errors import MAY_PASS, NOT_SHOWN, REFUSED, find_remedy
from sources.kafka.foreign_members import FOREIGN_REMEDY, find_foreign_members
from sources.kafka.offsets import Partition, TopicIds, to_partitions
from sources.kafka.options import KafkaSourceOptions
from sources.kafka.same_topics import describe_made_anew, describe_made_anew_remedy
from sources.kafka.subscribed import PATTERN_MARK, describe, find_topic_ids, find_unmatched, select_subscribed


def make_administrator(options: KafkaSourceOptions) -> Administrator:
    """A client for questions about the source's brokers."""
    return Administrator(options.hosts, options.make_client_properties(), options.timeout, REFUSED)


def check_source(options: KafkaSourceOptions) -> Iterator[Finding]:
    """Findings about the schema registry, the brokers, the topics, and the group and its offsets."""
    if options.registry is not None:
        from psql_streamer.registry.checking import find_problems

        yield from find_problems(options.registry)
    administrator = make_administrator(options)
    admin = administrator.client
    try:
        found = administrator.list_topics().topics
    except KafkaException as error:
        said: KafkaError = error.args[0]
        yield administrator.describe_silence(said, find_remedy(said) or MAY_PASS[KafkaError._TRANSPORT])
        return
    there: dict[str, TopicMetadata] = {}
    for topic in options.topics:
        if topic.startswith(PATTERN_MARK):
            there |= {name: found[name] for name in select_subscribed([topic], found) if found[name].error is None}
        elif topic not in found:
            yield _describe_missing(admin, topic, options.timeout)
        elif (denied := found[topic].error) is not None:
            yield Finding(Severity.ERROR, f'topic "{topic}": {denied.str()}', find_remedy(denied) or "look at it")
        else:
            there[topic] = found[topic]
    for pattern in find_unmatched(options.topics, found):
        yield Finding(Severity.WARNING, f"no topic matches {pattern}", f"{NOT_SHOWN}; it is read when there is one")
    yield from _check_dead_letters(administrator, options, found)
    yield from administrator.find_forbidden(list(there), AclOperation.READ, find_remedy)
    forbidden = list(administrator.find_forbidden_group(options.group_id, REFUSED))
    yield from forbidden
    if not forbidden:
        if foreign := find_foreign_members(options, admin):
            yield Finding(Severity.ERROR, foreign, FOREIGN_REMEDY)
        yield from _check_offsets(admin, options, there)


def _describe_missing(admin: AdminClient, topic: str, timeout: float) -> Finding:
    """Why brokers do not show a topic: they say it to whoever asks for it by its name."""
    try:
        describe(admin, [topic], timeout)
    except SourceError as error:
        return Finding(Severity.ERROR, error.what, error.remedy)
    wait = "the source waits until it does"
    return Finding(Severity.ERROR, f'topic "{topic}" does not exist: {wait}', "create it, or correct topics")


def _check_dead_letters(
    administrator: Administrator, options: KafkaSourceOptions, found: Collection[str]
) -> Iterator[Finding]:
    """Whether records that are no events have a place. found: topics that brokers show."""
    topic = options.dead_letter_topic
    if not topic:
        return
    if topic in found:
        yield from administrator.find_forbidden([topic], AclOperation.WRITE, find_remedy)
        return
    try:
        describe(administrator.client, [topic], options.timeout)
    except SourceRefused as error:
        problem = error.what.replace(f"topic {topic}", f'deadLetterTopic "{topic}"', 1)
        yield Finding(Severity.ERROR, problem, "grant the source's user Write and Describe on it")
    else:
        problem = f'deadLetterTopic "{topic}" does not exist'
        yield Finding(Severity.WARNING, problem, "create it, unless the brokers create topics")


def find_topics_made_anew(name: str, options: KafkaSourceOptions, ids: TopicIds) -> Iterator[Finding]:
    """Topics of a position that are others now. ids: those that the position was made with."""
    if not ids:
        return
    found = find_topic_ids(make_administrator(options).client, ids.keys(), options.timeout)
    for topic, one in found.items():
        if ids[topic] != one:
            yield Finding(Severity.ERROR, describe_made_anew(topic), describe_made_anew_remedy(options.group_id, name))


def _check_offsets(
    admin: AdminClient, options: KafkaSourceOptions, topics: dict[str, TopicMetadata]
) -> Iterator[Finding]:
    """Whether what the group has not read yet is still there."""
    asked = [TopicPartition(name, number) for name, topic in topics.items() for number in topic.partitions]
    if not asked:
        return
    try:
        of_group = ConsumerGroupTopicPartitions(options.group_id, asked)
        stored = {
            Partition(one.topic, one.partition): one.offset
            for one in _read_committed(admin, of_group, options.timeout)
            if one.offset >= 0
        }
        starts = options.start_at if not stored and isinstance(options.start_at, Mapping) else {}
        ends = find_ends(admin, {**stored, **starts}.keys() & to_partitions(asked), options.timeout)
    except KafkaException as error:
        said: KafkaError = error.args[0]
        refused = said.code() in REFUSED
        # Brokers that have just started have no coordinator for a while.
        severity = Severity.ERROR if refused else Severity.WARNING
        mend = REFUSED[said.code()] if refused else "check again, or look at the brokers' log"
        yield Finding(severity, f"the offsets of group {options.group_id} cannot be read: {said.str()}", mend)
        return
    group = f"the offsets of group {options.group_id} (kafka-consumer-groups.sh --reset-offsets)"
    go_on = f"to go on without them, set {group}"
    for partition, offset in stored.items():
        low, high = ends[partition]
        if offset < low:
            what = f"{partition}: the records {offset} to {low - 1} are not on the brokers any more"
            yield Finding(Severity.ERROR, what, go_on)
        elif offset > high:
            what = f"{partition} ends at {high}, before offset {offset}, which was read already"
            yield Finding(Severity.ERROR, what, f"was the topic made anew? {go_on}")
    for partition, offset in starts.items():
        if problem := find_start_problem(partition, offset, ends.get(partition)):
            # A position in `lmdb`, of which this does not know, counts more than startAt.
            yield Finding(Severity.WARNING, f"{problem}: a source without a position stops there", CORRECT_START)


def _read_committed(admin: AdminClient, of_group: ConsumerGroupTopicPartitions, timeout: float) -> list[TopicPartition]:
    """The group's offsets. A coordinator that is just starting, or moving, is asked again for the timeout."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            listed = ask_coordinator(
                admin, lambda limit: admin.list_consumer_group_offsets([of_group], request_timeout=limit), timeout
            )
            return list(listed.topic_partitions)
        except KafkaException as error:
            if error.args[0].code() not in _COORDINATOR_MOVES or time.monotonic() > deadline:
                raise
        time.sleep(_COORDINATOR_PAUSE_SECONDS)


_COORDINATOR_MOVES = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}

_COORDINATOR_PAUSE_SECONDS = 0.1
