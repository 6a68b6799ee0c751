"""The demo's brokers: those of KAFKA_BROKERS, an embedded Apache Kafka, or librdkafka's mock cluster."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from psql_streamer.embedded.kafka import EmbeddedKafka
from psql_streamer.embedded.kafka_jars import KAFKA_VERSION
from psql_streamer.embedded.mock_kafka import MockKafka
from psql_streamer.errors import SinkUnavailable, StreamerError

_PARTITIONS = 3


@dataclass(frozen=True, slots=True)
class Brokers:
    """real: whether brokers are behind it that can create topics."""

    bootstrap: str
    real: bool

    def create(self, topics: Sequence[str]) -> None:
        """Return when every topic has its leaders. A mock cluster makes them when they are asked for."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        try:
            admin.list_topics(timeout=10)
            if self.real:
                for created in admin.create_topics([NewTopic(topic, _PARTITIONS) for topic in topics]).values():
                    created.result(30)
            deadline = time.monotonic() + 30
            while any(not _has_leader(admin, topic) for topic in topics):
                if time.monotonic() > deadline:
                    raise SinkUnavailable("the demo's topics did not come up in 30 s", "look at the brokers' log")
                time.sleep(0.1)
        except (KafkaException, TimeoutError) as error:
            reason = error.args[0].str() if isinstance(error, KafkaException) else "no answer in 30 s"
            raise SinkUnavailable(
                f"the brokers {self.bootstrap} did not create the demo's topics ({reason})",
                "check KAFKA_BROKERS and the right to create topics",
            ) from error


def start_brokers(cleanup: ExitStack, say: Callable[[str], None]) -> Brokers:
    """The brokers that are given, or new ones that end with the cleanup."""
    given = os.environ.get("KAFKA_BROKERS")
    if given:
        say(f"  Kafka         {given} (KAFKA_BROKERS); the demo's topics stay there")
        return Brokers(given, real=True)
    began = time.monotonic()
    try:
        broker = cleanup.enter_context(EmbeddedKafka(num_partitions=_PARTITIONS))
    except StreamerError as error:
        say(f"  Kafka         {error.what}: librdkafka's mock cluster takes its place")
        return Brokers(cleanup.enter_context(MockKafka()).bootstrap, real=False)
    say(f"  Kafka         Apache Kafka {KAFKA_VERSION} on {broker.bootstrap}, {time.monotonic() - began:.1f} s")
    return Brokers(broker.bootstrap, real=True)


def _has_leader(admin: AdminClient, topic: str) -> bool:
    found = admin.list_topics(topic, timeout=20).topics[topic]
    return bool(found.partitions) and all(partition.leader >= 0 for partition in found.partitions.values())
