"""The `[sink.NAME]` section of a Kafka sink, and what it means in librdkafka's terms."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from secrets import token_hex
from typing import Annotated, Literal, Self

from confluent_kafka import KafkaException
from pydantic import AfterValidator, Field, model_validator

from psql_streamer.batching import CLIENT_QUEUE_BYTES, CLIENT_QUEUE_RECORDS
from psql_streamer.events.options import EventOptions, require_items
from psql_streamer.events.routing import check_topic
from psql_streamer.events.timestamps import Timestamps
from psql_streamer.options import PartOptions, PositiveDuration, refuse_longer_than
from psql_streamer.redaction import is_secret
from psql_streamer.shortage import explain_shortage
from sinks.kafka.librdkafka import is_idempotent, resolve_properties
from sinks.kafka.producer import Producer
from sinks.kafka.properties import find_objections, find_unreadable_files

_MOST_ATTEMPTS = 1_000_000_000
_CLIENT = "librdkafka"

log = logging.getLogger(__name__)

Property = str | int | float | bool
"""A librdkafka property's value as TOML gives it."""


def _check_address(host: str) -> str:
    found = re.fullmatch(r"[^\s,/]+:(\d{1,5})", host)
    if not found or not 0 < int(found[1]) < 1 << 16:
        raise ValueError('is not "host:port"')
    name = host.removesuffix(f":{found[1]}")
    if ":" in name.rpartition("://")[2] and not name.endswith("]"):
        raise ValueError(f'is not "host:port": an IPv6 address stands in brackets: "[{name}]:{found[1]}"')
    return host


def normalize_address(host: str) -> str:
    """A broker's address, in one form for all spellings of it."""
    name, _, port = host.rpartition(":")
    return f"{name.lower()}:{int(port)}"


def _require_distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise ValueError("names a handler twice")
    return names


Hosts = Annotated[tuple[Annotated[str, AfterValidator(_check_address)], ...], AfterValidator(require_items)]
Handlers = Annotated[tuple[str, ...], AfterValidator(require_items), AfterValidator(_require_distinct)]


class CreateTopics(PartOptions):
    """`[sink.NAME.createTopics]`: make missing topics instead of leaving that to the broker.

    partitions, replication_factor: -1 is the broker's default. config: topic settings (`cleanup.policy`).
    """

    partitions: int = Field(default=-1, ge=-1, le=100_000)
    replication_factor: int = Field(default=-1, ge=-1, le=1000)
    config: Mapping[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _no_zeros(self) -> Self:
        if 0 in (self.partitions, self.replication_factor):
            raise ValueError("partitions and replicationFactor are 1 or more, or -1 for the broker's default")
        return self


class KafkaSinkOptions(EventOptions):
    """A Kafka sink's section: the options of events, and those of Kafka alone.

    docs/kafka.md says what each key does, and why its default is what it is.
    """

    hosts: Hosts
    handlers: Handlers = ("spark",)

    timestamps: Timestamps = "write"
    dead_letter_topic: str = ""
    create_topics: CreateTopics | None = None

    timeout: Annotated[PositiveDuration, refuse_longer_than("5m", _CLIENT)] = 2.0
    max_attempts: int = Field(default=3, gt=0, le=_MOST_ATTEMPTS)
    rebalance_interval: Annotated[PositiveDuration, refuse_longer_than("1h", _CLIENT)] = 15.0
    exactly_once: bool = False
    transactional_id: str = ""
    position_topic: str = ""
    required_acks: int = Field(default=-1, ge=-1, le=1000)
    asynchronous: bool = Field(default=False, alias="async")
    batch_size: int | None = Field(default=None, gt=0, le=1_000_000)
    batch_timeout: Annotated[PositiveDuration, refuse_longer_than("15m", _CLIENT)] = 0.005
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "lz4"
    kafka: Mapping[str, Property] = Field(default_factory=dict, repr=False)

    @property
    def delivery_timeout(self) -> float:
        """Seconds without a single acknowledgement after which a delivery has failed."""
        return self.timeout * self.max_attempts

    @property
    def idempotent(self) -> bool:
        """Whether brokers know a request that is sent again by its number. KafkaException for a value that is none."""
        name = "enable.idempotence"
        return is_idempotent({name: _render_property(self.kafka.get(name, self.required_acks == -1))})

    def make_properties(self) -> dict[str, str]:
        """librdkafka's configuration: what the section's keys mean, then whatever `kafka` says."""
        ours: dict[str, Property] = {
            "bootstrap.servers": ",".join(self.hosts),
            "client.id": "psql-streamer",
            "enable.idempotence": self.idempotent,
            "acks": self.required_acks,
            "compression.type": self.compression,
            "linger.ms": self.batch_timeout * 1000,
            # An answer that takes longer than `timeout` costs an attempt: the request is sent again.
            "request.timeout.ms": max(1, round(self.timeout * 1000)),
            "socket.timeout.ms": max(10, round(self.timeout * 1000)),
            # Records do not expire one by one: Delivery gives up when nothing moves, see there.
            "message.timeout.ms": 0,
            "topic.metadata.refresh.interval.ms": max(10, round(self.rebalance_interval * 1000)),
            "queue.buffering.max.messages": CLIENT_QUEUE_RECORDS,
            "queue.buffering.max.kbytes": CLIENT_QUEUE_BYTES >> 10,
            # The broker judges the compressed size; a guess of ours would refuse what it would take.
            "message.max.bytes": CLIENT_QUEUE_BYTES,
            # For records without a key, and the same as ours for the others.
            "partitioner": "murmur2_random",
            # Errors reach the log through error_cb, once each, and not every 50 ms on stderr.
            "log_level": 6 if self.debug else 0,
        }
        if self.batch_size is not None:
            ours["batch.num.messages"] = self.batch_size
        if not self.idempotent:
            # A request that is sent again can come behind the next one. One at a time makes that rare; the client has
            # the next one ready, so it happens all the same, and Delivery looks at the offsets.
            ours["max.in.flight.requests.per.connection"] = 1
        return {name: _render_property(value) for name, value in (ours | dict(self.kafka)).items()}

    def make_admin_properties(self) -> dict[str, str]:
        """The same for an AdminClient, which is a producer inside and must not ask for a producer's privileges."""
        return self.make_properties() | {"enable.idempotence": "false"}

    def make_consumer_properties(self) -> dict[str, Property]:
        """For a Consumer that is assigned its partitions, and is told where they end."""
        given = {name: value for name, value in self.kafka.items() if not _is_of_producers(name)}
        return {
            **given,
            "bootstrap.servers": ",".join(self.hosts),
            "client.id": "psql-streamer",
            "group.id": "psql-streamer",  # wanted by the client; nothing is joined and committed
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
        }

    @property
    def is_exactly_once(self) -> bool:
        """See SinkOptions.is_exactly_once."""
        return self.exactly_once

    @property
    def position_topic_name(self) -> str:
        """Where transactions say how far they bring the sources."""
        return self.position_topic or f"{self.transactional_id}.position"

    def list_own_topics(self) -> Mapping[str, str]:
        """Topics by their keys, which the sink fills with something else than a table's events."""
        given = {
            "deadLetterTopic": self.dead_letter_topic,
            "positionTopic": self.position_topic_name if self.exactly_once else "",
        }
        return {name: topic for name, topic in given.items() if topic}

    def list_resources(self) -> Iterator[str]:
        """See PartOptions.list_resources."""
        yield from super().list_resources()
        if self.exactly_once:
            yield f'transactionalId "{self.transactional_id}"'
            yield f'positionTopic "{self.position_topic_name}"'

    def may_write(self, place: str) -> bool:
        """See SinkOptions.may_write."""
        host, _, read = place.partition("/")
        return normalize_address(host) in map(normalize_address, self.hosts) and self.may_write_to(read)

    def may_write_to(self, read: str) -> bool:
        """Whether events may go to a topic that some source reads; one that begins with ^ is a regular expression."""
        given = (
            *self.list_mapped_topics(),
            self.topic_fallback,
            self.message_topic,
            self.transactions_to,
            self.schema_topic,
            *self.list_own_topics().values(),
        )
        written = [topic for topic in given if topic]
        if self.topic_prefix:
            written.append(f"{self.topic_prefix}.{{table}}")
        return any(_may_be(topic, read) for topic in written)

    @property
    def takes_rejected_rows(self) -> bool:
        """See SinkOptions.takes_rejected_rows."""
        return True

    @property
    def key_of_rejected_rows(self) -> str | None:
        """See SinkOptions.key_of_rejected_rows."""
        return None if self.dead_letter_topic else "deadLetterTopic"

    @property
    def topic_of_rejected_rows(self) -> str:
        """See SinkOptions.topic_of_rejected_rows."""
        return self.dead_letter_topic

    def list_warnings(self) -> Iterator[str]:
        """See PartOptions.list_warnings."""
        if self.required_acks == 0:
            yield "requiredAcks = 0: the broker confirms nothing, a lost event goes unnoticed; use -1"
        elif self.required_acks > 0:
            yield (
                f"requiredAcks = {self.required_acks}: an event can be lost with the broker that confirmed it, "
                "and a retry can repeat it; use -1"
            )
        elif not self.idempotent:
            yield 'kafka."enable.idempotence" = false: a request that is sent again can repeat events; leave it true'
        without_effect = {"transactionalId": self.transactional_id, "positionTopic": self.position_topic}
        for name, value in without_effect.items():
            if value and not self.exactly_once:
                yield f"{name} has no effect without exactlyOnce = true"
        if self.asynchronous:
            yield "async = true has no effect: positions advance only past events that Kafka has confirmed"
        if self.batch_size is not None and self.batch_size < 1000:
            yield f"batchSize = {self.batch_size}: requests this small halve the throughput; without it they hold 10000"
        yield from super().list_warnings()

    @model_validator(mode="after")
    def _dead_letters_have_one_topic(self) -> Self:
        if self.dead_letter_topic:
            check_topic("deadLetterTopic", self.dead_letter_topic)
        return self

    @model_validator(mode="after")
    def _transactions_have_an_id(self) -> Self:
        if not self.exactly_once:
            return self
        if not self.transactional_id:
            raise ValueError(
                "exactlyOnce needs transactionalId: a name that no other instance at these brokers writes with"
            )
        check_topic("positionTopic", self.position_topic_name)
        if self.required_acks != -1:
            raise ValueError(f"exactlyOnce needs requiredAcks = -1, which is {self.required_acks}")
        with suppress(KafkaException):  # a value that is none is told below
            if not self.idempotent:
                raise ValueError('exactlyOnce needs kafka."enable.idempotence" = true')
            longest = resolve_properties(self.make_properties(), ["transaction.timeout.ms"])["transaction.timeout.ms"]
            if self.timeout * 1000 > int(longest):
                raise ValueError(
                    f'with exactlyOnce timeout is at most kafka."transaction.timeout.ms", which is {longest}'
                )
        return self

    @model_validator(mode="after")
    def _client_takes_the_properties(self) -> Self:
        # Without brokers a client validates its properties and connects nowhere.
        properties = self.make_properties() | {"log_level": "0"}
        del properties["bootstrap.servers"]
        problems: list[str] = []
        with suppress(KafkaException):  # what librdkafka itself refuses, it is asked for behind this
            problems += find_objections(self.kafka, properties, self.required_acks)
        if problems:
            raise ValueError("; ".join(problems))
        if self.exactly_once:
            properties["transactional.id"] = self.transactional_id
        if _find_refusal(properties):
            unreadable = "; ".join(find_unreadable_files(self.kafka))
            raise ValueError(unreadable or f"kafka: {_explain_refusal(properties)}")
        return self


_PRODUCERS = (
    "linger.",
    "queue.buffering.",
    "batch.",
    "compression.",
    "message.send.",
    "enable.idempotence",
    "transaction.",
)
_OF_PRODUCERS = (
    "acks",
    "request.required.acks",
    "partitioner",
    "retries",
    "enable.gapless.guarantee",
)


def _is_of_producers(name: str) -> bool:
    """A consumer would complain of it in the log."""
    return name in _OF_PRODUCERS or name.startswith(_PRODUCERS)


def _may_be(written: str, read: str) -> bool:
    """Whether a topic, maybe with placeholders, may be one that is read, by its name or by a regular expression."""
    if read.startswith("^"):
        return bool(re.match(read, re.sub(r"\{[^}]*\}", "x", written)))
    return bool(re.fullmatch(".*".join(map(re.escape, re.split(r"\{[^}]*\}", written))), read))


def _find_refusal(properties: Mapping[str, str]) -> str:
    """librdkafka's words, which may quote a value; none when it takes them. StreamerError where it gets no thread."""
    try:
        Producer(properties, lambda _: None, log).close()
    except KafkaException as error:
        if shortage := explain_shortage(error):
            raise shortage from None
        return str(error.args[0].str())
    return ""


def _explain_refusal(properties: Mapping[str, str]) -> str:
    """librdkafka's words for properties that it refuses, if they are the same whatever the secrets among these are."""
    secret = {name: token_hex() for name in properties if is_secret(name)}
    said = _find_refusal(properties)
    if said == _find_refusal({**properties, **secret}):
        return said
    names = ", ".join(f'"{name}"' for name in secret)
    return f"librdkafka does not take {names} (what it says is not shown, it may hold a part of a secret)"


def _render_property(value: Property) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
