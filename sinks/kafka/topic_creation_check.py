"""Whether topics that do not exist may be made, asked without making any."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from confluent_kafka import KafkaError, KafkaException

from psql_streamer.interfaces import Finding, Severity
from sinks.kafka.administrator import Administrator
from sinks.kafka.errors import REFUSED, find_remedy
from sinks.kafka.options import CreateTopics
from sinks.kafka.topics import group_new_topics

_FORBIDDEN = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)

_AS_BROKERS_DO = CreateTopics(partitions=-1, replication_factor=-1)


def find_uncreatable_topics(
    administrator: Administrator, topics: Sequence[str], create: CreateTopics | None, host: str
) -> Iterator[tuple[str, Finding]]:
    """Those that brokers would not make with these settings, until somebody changes something. host: for commands.
    create: None for what brokers make by themselves, which is nothing that the user may not create.

    Brokers look at the permission and at the settings, though they are not to make the topic
    (ControllerApis.createTopics, ReplicationControlManager.createTopics). An answer that may pass says nothing.
    """
    for new in group_new_topics(topics, create or _AS_BROKERS_DO):
        asked = administrator.client.create_topics(new, request_timeout=administrator.timeout, validate_only=True)
        for topic, answer in asked.items():
            raised = answer.exception()
            if not isinstance(raised, KafkaException):
                continue
            error: KafkaError = raised.args[0]
            if error.code() in _FORBIDDEN:
                yield topic, _make_forbidden_finding(topic, host)
            elif create is not None and error.code() in REFUSED:
                problem = f'topic "{topic}" does not exist and cannot be created: {error.str()}'
                yield topic, Finding(Severity.ERROR, problem, find_remedy(error))


def _make_forbidden_finding(topic: str, host: str) -> Finding:
    mend = (
        f"kafka-acls.sh --bootstrap-server {host} --add --allow-principal User:NAME --operation Create --topic {topic}"
    )
    return Finding(Severity.ERROR, f'topic "{topic}" does not exist and the user may not create it', mend)
