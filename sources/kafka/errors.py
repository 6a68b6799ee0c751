"""What Kafka's error codes mean to a source. One table; https://kafka.apache.org/protocol#protocol_error_codes."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaError

from psql_streamer.errors import SourceError, SourceRefused, SourceUnavailable

REFUSED: Mapping[int, str] = {
    KafkaError._AUTHENTICATION: "check the security.* and sasl.* properties of the source",
    KafkaError.SASL_AUTHENTICATION_FAILED: "check sasl.username and sasl.password of the source",
    KafkaError.UNSUPPORTED_SASL_MECHANISM: "check sasl.mechanism of the source",
    KafkaError.ILLEGAL_SASL_STATE: "check security.protocol of the source",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "grant the source's user Read and Describe on the topics",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "grant the source's user Read on the group",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "grant the source's user Describe on the cluster",
    KafkaError.TOPIC_EXCEPTION: "give a topic name that Kafka allows",
    KafkaError._FATAL: "if another instance of the group has this instanceId, give each its own",
    KafkaError.FENCED_INSTANCE_ID: "another instance of the group has this instanceId: give each its own",
    KafkaError.INCONSISTENT_GROUP_PROTOCOL: "other consumers are in this group: give psql-streamer a group of its own",
}
"""Somebody has to change something first; with what."""

_CONNECTION_REMEDY = "check hosts, the network and the security.* properties"

UNREACHABLE: Mapping[int, str] = {
    KafkaError._TRANSPORT: _CONNECTION_REMEDY,
    KafkaError._RESOLVE: _CONNECTION_REMEDY,
    KafkaError._ALL_BROKERS_DOWN: _CONNECTION_REMEDY,
    KafkaError._TIMED_OUT: _CONNECTION_REMEDY,
    KafkaError._SSL: "check security.protocol and the ssl.* properties",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "create the topic, or correct topics",
    KafkaError._UNKNOWN_TOPIC: "create the topic, or correct topics",
}
"""What may pass; where to look if it does not."""


def source_error(what: str, error: KafkaError) -> SourceError:
    """The exception for an error of the consumer."""
    code = error.code()
    kind = SourceRefused if code in REFUSED else SourceUnavailable
    return kind(f"{what}: {error.str()}", REFUSED.get(code) or UNREACHABLE.get(code, ""))
