"""What `check` looks at before a Kafka sink is started. Changes nothing at the brokers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported, but not in its __all__
    AclOperation,
    AdminClient,
    ClusterMetadata,
    ConfigResource,
    ResourceType,
)

from psql_streamer.interfaces import Finding, Severity
from sinks.kafka_errors import REFUSED, UNREACHABLE, remedy
from sinks.kafka_options import KafkaSinkOptions
from sinks.kafka_topics import how_to_create

log = logging.getLogger(__name__)

_DEFAULT_BATCH_BYTES = 1_000_000  # librdkafka's batch.size


def check_kafka(name: str, options: KafkaSinkOptions) -> Iterable[Finding]:
    """Findings about the brokers, and about every topic that the section names outright."""
    complaints: list[KafkaError] = []
    try:
        settings: dict[str, Any] = {**options.admin_properties(), "error_cb": complaints.append, "logger": log}
        admin = AdminClient(settings)
        cluster = admin.list_topics(timeout=options.timeout)
    except KafkaException as error:
        admin.poll(0)
        yield _unreachable(options, [*complaints, error.args[0]])
        return
    topics = _named_topics(options)
    yield from _missing(options, admin, cluster, [topic for topic in topics if topic not in cluster.topics])
    yield from _existing(name, options, admin, [topic for topic in topics if topic in cluster.topics])


def _unreachable(options: KafkaSinkOptions, said: list[KafkaError]) -> Finding:
    worst = next((error for error in said if error.code() in REFUSED), said[0])
    problem = f"no answer from {','.join(options.hosts)} within {options.timeout:g} s: {worst.str()}"
    return Finding(Severity.ERROR, problem, remedy(worst) or UNREACHABLE[KafkaError._TRANSPORT])


def _named_topics(options: KafkaSinkOptions) -> list[str]:
    """Topics without a placeholder; the others depend on the tables that come."""
    given = (
        *options.mapped_topics(),
        options.topic_fallback,
        options.message_topic,
        options.transactions_to,
        options.schema_topic,
        options.dead_letter_topic,
    )
    return list(dict.fromkeys(topic for topic in given if topic and "{" not in topic))


def _missing(
    options: KafkaSinkOptions, admin: AdminClient, cluster: ClusterMetadata, missing: list[str]
) -> Iterator[Finding]:
    if options.create_topics is not None or not (missing or _made_of_tables(options)):
        return
    automatic = _auto_create(admin, cluster, options.timeout)
    if automatic:
        return
    severity = Severity.WARNING if automatic is None else Severity.ERROR
    why = "whether brokers create topics cannot be seen" if automatic is None else "brokers do not create topics"
    for topic in missing:
        yield Finding(severity, f'topic "{topic}" does not exist and {why}', how_to_create(topic))
    if _made_of_tables(options):
        problem = f"topics are named after tables and {why}"
        yield Finding(Severity.WARNING, problem, "create them beforehand, or add a section createTopics to the sink's")


def _made_of_tables(options: KafkaSinkOptions) -> bool:
    return bool(options.topic_prefix) or any("{" in topic for topic in options.mapped_topics())


def _auto_create(admin: AdminClient, cluster: ClusterMetadata, timeout: float) -> bool | None:
    """The brokers' auto.create.topics.enable; None when it may not be seen."""
    broker = ConfigResource(ResourceType.BROKER, str(next(iter(cluster.brokers))))
    try:
        settings = admin.describe_configs([broker], request_timeout=timeout)[broker].result()
    except KafkaException:
        return None
    entry = settings.get("auto.create.topics.enable")
    return None if entry is None else entry.value == "true"


def _existing(name: str, options: KafkaSinkOptions, admin: AdminClient, topics: list[str]) -> Iterator[Finding]:
    if not topics:
        return
    described = admin.describe_topics(
        TopicCollection(topics), include_authorized_operations=True, request_timeout=options.timeout
    )
    for topic, future in described.items():
        try:
            allowed = future.result().authorized_operations
        except KafkaException as error:
            mend = remedy(error.args[0]) or "look at the topic with kafka-topics.sh --describe"
            yield Finding(Severity.ERROR, f'topic "{topic}": {error.args[0].str()}', mend)
            continue
        if allowed and AclOperation.WRITE not in allowed:
            mend = f"kafka-acls.sh --add --allow-principal User:NAME --operation Write --topic {topic}"
            yield Finding(Severity.ERROR, f'no permission to write to topic "{topic}"', mend)
    yield from _too_small(name, options, admin, topics)


def _too_small(name: str, options: KafkaSinkOptions, admin: AdminClient, topics: list[str]) -> Iterator[Finding]:
    """A request larger than a topic takes is rejected whole, and then written record by record: slow."""
    batch_bytes = int(options.kafka.get("batch.size", _DEFAULT_BATCH_BYTES))
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    for resource, future in admin.describe_configs(resources, request_timeout=options.timeout).items():
        try:
            limit = int(future.result()["max.message.bytes"].value)
        except (KafkaException, KeyError):
            continue  # reading topic settings is a privilege of its own, and this is advice
        if limit < batch_bytes:
            problem = f'topic "{resource.name}" takes {limit} bytes a request, less than batch.size'
            yield Finding(Severity.WARNING, problem, f'set "batch.size" = {limit} or less under [sink.{name}.kafka]')
