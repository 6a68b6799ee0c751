"""What Kafka's error codes mean to a source. One table; https://kafka.apache.org/protocol#protocol_error_codes."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaError

from psql_streamer.errors import SourceError, SourceRefused, SourceUnavailable
from sinks.kafka.connection_errors import UNREACHABLE, find_connection_remedy, list_login_remedies

REFUSED: Mapping[int, str] = {
    **list_login_remedies("source"),
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "grant the source's user Read and Describe on the topics",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "grant the source's user Read on the group",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "grant the source's user Describe on the cluster",
    KafkaError.TOPIC_EXCEPTION: "give a topic name that Kafka allows",
    KafkaError._FATAL: "if another instance of the group has this instanceId, give each its own",
    KafkaError.FENCED_INSTANCE_ID: "another instance of the group has this instanceId: give each its own",
    KafkaError.INVALID_SESSION_TIMEOUT: 'set kafka."session.timeout.ms" within group.min.session.timeout.ms and '
    "group.max.session.timeout.ms of the brokers",
    KafkaError.INCONSISTENT_GROUP_PROTOCOL: "other consumers are in this group: give psql-streamer a group of its own",
}
"""Somebody has to change something first; with what."""

NOT_SHOWN = "create it, or correct topics, or grant the source's user Read and Describe on it"
"""What to do about a topic that brokers do not show."""

MISSING = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
"""The topic does not exist, or is not shown: what brokers say, and what the client does."""

UNREADABLE = (KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION, KafkaError._NOT_IMPLEMENTED)
"""Records came that are not as they were written, or in a format that the client does not know: it would go on behind
them.
"""

MAY_PASS: Mapping[int, str] = {
    **UNREACHABLE,
    **dict.fromkeys(MISSING, NOT_SHOWN),
    **dict.fromkeys(UNREADABLE, "if it comes again, records on the broker's disk are damaged: restore them"),
}
"""Where to look if it does not."""


def make_source_error(what: str, error: KafkaError) -> SourceError:
    """The exception for an error of the consumer."""
    kind = SourceRefused if error.code() in REFUSED else SourceUnavailable
    return kind(f"{what}: {error.str()}", find_remedy(error))


def find_remedy(error: KafkaError) -> str:
    """What to do about an error; empty when there is nothing to say."""
    return REFUSED.get(error.code()) or find_connection_remedy(error) or MAY_PASS.get(error.code(), "")
