"""What Kafka's error codes mean to a sink. One table; https://kafka.apache.org/protocol#protocol_error_codes."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaError

from psql_streamer.errors import SinkError, SinkRefused, SinkUnavailable
from sinks.kafka.connection_errors import find_connection_remedy, list_login_remedies

REJECTED: Mapping[int, str] = {
    KafkaError.MSG_SIZE_TOO_LARGE: 'raise the topic\'s max.message.bytes (and kafka."message.max.bytes", if it is set)',
    KafkaError.RECORD_LIST_TOO_LARGE: "raise the topic's segment.bytes",
    KafkaError.INVALID_RECORD: "look at the topic's settings (a compacted topic takes no record without a key)",
    KafkaError.INVALID_TIMESTAMP: "look at the topic's message.timestamp settings and at both clocks",
    KafkaError.POLICY_VIOLATION: "ask the administrator of the brokers which policy rejects it",
    KafkaError._INVALID_DIFFERENT_RECORD: "look at the topic's settings",
}
"""The record, or one that shared its request, can never be delivered; with what could be done about it."""

TOO_LARGE = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE)
"""Of those: the request was too large for the topic, or a record of it. By max.message.bytes, or by segment.bytes."""

REFUSED: Mapping[int, str] = {
    **list_login_remedies("sink"),
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "grant the sink's user Write, Describe and (for new topics) Create on it",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "grant the sink's user Read on the group of the source",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "grant the sink's user Write on its topics, and Create for new ones",
    KafkaError.TOPIC_EXCEPTION: "give a topic name that Kafka allows",
    KafkaError.INVALID_REQUIRED_ACKS: "set requiredAcks to -1",
    KafkaError.INVALID_PARTITIONS: "correct createTopics.partitions",
    KafkaError.INVALID_REPLICATION_FACTOR: "correct createTopics.replicationFactor: no more than there are brokers",
    KafkaError.INVALID_CONFIG: "correct createTopics.config",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "grant the sink's user Write and Describe on the transactional id: kafka-acls.sh --add --operation Write "
        "--operation Describe --transactional-id ID"
    ),
    KafkaError.INVALID_TRANSACTION_TIMEOUT: 'lower kafka."transaction.timeout.ms", or raise transaction.max.timeout.ms',
    KafkaError.UNSUPPORTED_VERSION: "use brokers of version 0.11 or newer",
}
"""Somebody has to change something first; with what."""


def make_sink_error(what: str, error: KafkaError) -> SinkError:
    """The exception for an error that concerns the whole sink, or a whole topic, rather than a record."""
    kind = SinkRefused if error.code() in REFUSED else SinkUnavailable
    return kind(f"{what}: {error.str()}", find_remedy(error))


def find_remedy(error: KafkaError) -> str:
    """What to do about an error; empty when there is nothing to say."""
    return REFUSED.get(error.code()) or find_connection_remedy(error)
