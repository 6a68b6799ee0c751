"""The `[source.NAME]` section of a Kafka source, and what it means in librdkafka's terms."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any, Self

from confluent_kafka import Consumer, IsolationLevel, KafkaException
from pydantic import AfterValidator, Field, PlainValidator, model_validator

from psql_streamer.errors import SourceRefused
from psql_streamer.events.options import require_items
from psql_streamer.events.routing import check_topic
from psql_streamer.options import (
    PartOptions,
    PositiveByteSize,
    PositiveDuration,
    SourceOptions,
    refuse_longer_than,
    require_form,
)
from psql_streamer.registry.options import RegistryOptions
from psql_streamer.shortage import explain_shortage
from sinks.kafka.options import Hosts, Property, normalize_address
from sinks.kafka.properties import find_unreadable_files
from sources.kafka.dead_letters import DeadLetters
from sources.kafka.offsets import Offsets, Partition
from sources.kafka.patterns import require_same_meaning
from sources.kafka.subscribed import PATTERN_MARK, select_subscribed

_MOST_RECORDS = 1_000_000

_INSTANCE_ID = require_form(
    "[A-Za-z0-9._-]*", "no name of an instance: it may have the letters a to z in either case, digits, . _ and - alone"
)

_OURS = {
    "bootstrap.servers": "hosts sets it",
    "metadata.broker.list": "hosts sets it",
    "group.id": "groupID sets it",
    "group.instance.id": "instanceId sets it",
    "group.protocol": "partitions are given up one by one, which this source does in the classic protocol",
    "partition.assignment.strategy": "partitions that stay with an instance are not taken from it for a rebalance",
    "enable.auto.commit": "offsets are committed when every sink has the records, and not before",
    "auto.commit.enable": "offsets are committed when every sink has the records, and not before",
    "enable.auto.offset.store": "offsets are committed when every sink has the records, and not before",
    "auto.offset.reset": "records that the broker does not have any more would be skipped without a word; see startAt",
    "enable.partition.eof": "the source asks for it itself",
    "test.mock.num.brokers": "records would come from brokers inside this process",
}
"""Properties that a section cannot pass through, and why."""


def _read_start(value: Any) -> str | datetime | Offsets:
    if isinstance(value, Mapping):
        return _read_offsets(value)
    if isinstance(value, str) and value in _STARTS:
        return value
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    except ValueError:
        raise ValueError(f"is not {_FORMS_OF_START}") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    if moment < datetime(1970, 1, 1, tzinfo=UTC):
        raise ValueError("is before 1970, where Kafka's times begin")
    return moment


_STARTS = ("earliest", "latest")
_FORMS_OF_START = (
    '"earliest", "latest", a time such as "2026-11-22T10:00:00Z", or a table of offsets such as '
    "{ orders = { 0 = 1234, 1 = 99 } }"
)


def _read_offsets(value: Mapping[str, Any]) -> Offsets:
    found = {}
    for topic, partitions in value.items():
        check_topic("startAt", topic)
        if not isinstance(partitions, Mapping) or not partitions:
            raise ValueError(f'says no offsets of topic "{topic}": give {_FORMS_OF_START}')
        for number, offset in partitions.items():
            if not str(number).isdecimal():
                raise ValueError(f'has "{number}" as a partition of topic "{topic}": give its number')
            if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
                raise ValueError(f"has {offset!r} as the offset of {topic}[{number}]: give a number from 0 on")
            found[Partition(topic, int(number))] = offset
    if not found:
        raise ValueError(f"is empty: give {_FORMS_OF_START}")
    return found


def _is_topic(name: str) -> str:
    if not name.startswith(PATTERN_MARK):
        check_topic("topics", name)
    else:
        require_same_meaning(name)
        try:
            re.compile(name)
        except re.error as error:
            raise ValueError(f"is no regular expression: {error}") from None
    return name


def _require_distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise ValueError("names a topic twice")
    return names


StartAt = Annotated[str | datetime | Offsets, PlainValidator(_read_start)]
Topics = Annotated[
    tuple[Annotated[str, AfterValidator(_is_topic)], ...],
    AfterValidator(require_items),
    AfterValidator(_require_distinct),
]


class SourceRegistryOptions(RegistryOptions):
    """[source.NAME.registry]. keys: whether keys that begin as framed ones do are read by their schema, too."""

    keys: bool = True


class KafkaSourceOptions(SourceOptions):
    """[source.NAME] type = "kafka".

    topics: names, or regular expressions that begin with ^. batch_size, batch_bytes: upper bounds of a micro-batch in
    records and bytes. batch_flush_interval: the longest wait of a record for more of them. instance_id: a name of this
    instance in its group that stays over restarts. start_at: where partitions are read from if the group has no offsets
    yet; a mapping holds the offsets of some. drain_timeout: how long a rebalance waits for the sinks. registry: where
    the schemas of records are that have the frame of a schema registry.
    """

    hosts: Hosts
    topics: Topics
    group_id: str = Field(alias="groupID", min_length=1, max_length=255)
    instance_id: Annotated[str, _INSTANCE_ID] = Field(default="", max_length=255)
    batch_size: int = Field(default=10_000, gt=0, le=_MOST_RECORDS)
    batch_bytes: Annotated[PositiveByteSize, Field(le=1 << 30)] = 4 << 20
    batch_flush_interval: PositiveDuration = 1.0
    start_at: StartAt = "earliest"
    dead_letter_topic: str = ""
    timeout: Annotated[PositiveDuration, refuse_longer_than("5m", "librdkafka")] = 10.0
    drain_timeout: Annotated[PositiveDuration, refuse_longer_than("4m", "max.poll.interval.ms")] = 60.0
    kafka: Mapping[str, Property] = Field(default_factory=dict, repr=False)
    registry: SourceRegistryOptions | None = None

    def make_client_properties(self) -> dict[str, Property]:
        """librdkafka's configuration of every client: a consumer, and what asks the brokers."""
        ours: dict[str, Property] = {
            "bootstrap.servers": ",".join(self.hosts),
            "client.id": "psql-streamer",
            # Errors reach the log through error_cb.
            "log_level": 6 if self.debug else 0,
        }
        return ours | dict(self.kafka)

    @property
    def isolation_level(self) -> IsolationLevel:
        """Of what the source reads: librdkafka's isolation.level."""
        given = self.kafka.get("isolation.level")
        return IsolationLevel.READ_UNCOMMITTED if given == "read_uncommitted" else IsolationLevel.READ_COMMITTED

    @property
    def session_timeout(self) -> float:
        """For how long a group waits for a member that is silent, in seconds."""
        return float(self.make_consumer_properties()["session.timeout.ms"]) / 1000

    def make_consumer_properties(self) -> dict[str, Property]:
        """The same for the consumer."""
        ours: dict[str, Property] = {
            "group.id": self.group_id,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            # A stored offset that the broker does not have is an error, and never a jump.
            "auto.offset.reset": "error",
            # Behind the last record there may be offsets that no record has: the ends of transactions.
            "enable.partition.eof": True,
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": 30_000 if self.instance_id else 10_000,
            # Partitions that are added, and topics that a pattern matches from now on, are found within this time.
            "topic.metadata.refresh.interval.ms": 30_000,
            "fetch.wait.max.ms": 100,
            "fetch.queue.backoff.ms": 10,
            "queued.max.messages.kbytes": max(1024, self.batch_bytes * 2 >> 10),
            # Bytes on the wire: compressed records take several times as many when they wait in the client. A longer
            # record comes all the same (Kafka protocol, KIP-74).
            "max.partition.fetch.bytes": max(64 << 10, self.batch_bytes >> 3),
            # One answer of a broker, with all its partitions. The client wants it to be message.max.bytes at least.
            "fetch.max.bytes": max(1 << 20, self.batch_bytes, int(self.kafka.get("message.max.bytes", 0))),
            # Of each partition; with less, the next ones are fetched.
            "queued.min.messages": max(100, self.batch_size >> 2),
            # A byte that has changed on a broker's disk is noticed.
            "check.crcs": True,
        }
        if self.instance_id:
            ours["group.instance.id"] = self.instance_id
        return ours | self.make_client_properties()

    def list_reads(self) -> Iterator[str]:
        """See SourceOptions.list_reads."""
        for host in self.hosts:
            yield from (f"{host}/{topic}" for topic in self.topics)

    def list_resources(self) -> Iterable[str]:
        """Each topic, on every host: one source of the group reads it, a second one would have other partitions."""
        for topic in self.topics:
            for host in self.hosts:
                yield f'topic "{topic}" in group "{self.group_id}" on {normalize_address(host)}'

    def find_shared(self, other: PartOptions) -> str:
        """A topic that one source of the group names and a pattern of the other one matches."""
        if not isinstance(other, KafkaSourceOptions) or other.group_id != self.group_id:
            return ""
        hosts = {normalize_address(host) for host in self.hosts} & {normalize_address(host) for host in other.hosts}
        named = {one for one in (*self.topics, *other.topics) if not one.startswith(PATTERN_MARK)}
        named -= {*self.topics} & {*other.topics}
        shared = {*select_subscribed(self.topics, named)}.intersection(select_subscribed(other.topics, named))
        if not hosts or not shared:
            return ""
        return f'topic "{min(shared)}" in group "{self.group_id}" on {min(hosts)}'

    @model_validator(mode="after")
    def _dead_letters_have_one_topic(self) -> Self:
        if self.dead_letter_topic:
            check_topic("deadLetterTopic", self.dead_letter_topic)
        if self.dead_letter_topic and select_subscribed(self.topics, [self.dead_letter_topic]):
            raise ValueError("deadLetterTopic is one of the topics: its records would be put there again and again")
        return self

    @model_validator(mode="after")
    def _start_is_of_the_topics(self) -> Self:
        if isinstance(self.start_at, Mapping):
            given = {partition.topic for partition in self.start_at}
            if others := sorted(given.difference(select_subscribed(self.topics, given))):
                raise ValueError(f"startAt names topics that are not in topics: {', '.join(others)}")
        return self

    @model_validator(mode="after")
    def _client_takes_the_properties(self) -> Self:
        for name in self.kafka:
            if name in _OURS:
                raise ValueError(f'kafka."{name}" cannot be set: {_OURS[name]}')
        # Without brokers a client validates its properties and connects nowhere.
        properties = self.make_consumer_properties() | {"log_level": 0}
        del properties["bootstrap.servers"]
        try:
            consumer = Consumer(properties)
        except KafkaException as error:
            if shortage := explain_shortage(error):
                raise shortage from None
            unreadable = "; ".join(find_unreadable_files(self.kafka))
            raise ValueError(unreadable or f"kafka: {error.args[0].str()}") from None
        try:
            consumer.subscribe(list(self.topics))
        except KafkaException as error:
            raise ValueError(f"topics: {error.args[0].str()}") from None
        finally:
            with suppress(KafkaException, RuntimeError):
                consumer.close()
        if self.dead_letter_topic:
            letters = DeadLetters("", self.dead_letter_topic, properties)
            try:
                letters.open()
            except SourceRefused as error:
                raise ValueError(str(error)) from None
            letters.close()
        return self
