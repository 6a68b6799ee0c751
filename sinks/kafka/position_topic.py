"""The topic in which a sink's transactions say how far they have brought the sources.

Each transaction writes one record, with what is noted of all sources, to partition 0. The last record that was
committed counts. Only one client at a time writes it, the one that has the transactional id.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from msgspec import Raw, Struct

from psql_streamer.errors import SinkRefused, SinkUnavailable
from sinks.kafka.delivery import Delivery
from sinks.kafka.errors import REJECTED, make_sink_error
from sinks.kafka.options import CreateTopics, KafkaSinkOptions
from sinks.kafka.outgoing import Outgoing
from sinks.kafka.topics import Topics

_OFFSETS = (200, 20_000, 1 << 62)
"""How far it looks back from the topic's end. A transaction takes two offsets; one that was given up takes some more.
"""

_SETTINGS = {"cleanup.policy": "compact", "segment.bytes": str(16 << 20), "max.message.bytes": str(8 << 20)}
"""Brokers compact all but the last segment, so a small one keeps the topic small. A record has the shapes of all tables
that are new: some kilobytes for each wide table, before they are compressed.
"""

_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Noted:
    """What a transaction noted. token: no other transaction has it. notes: by source."""

    token: str
    notes: Mapping[str, bytes]


NOTHING_NOTED = Noted("", {})


class PositionTopic:
    """options: of the sink. log: for what the client says."""

    def __init__(self, options: KafkaSinkOptions, log: logging.Logger) -> None:
        self._options = options
        self._log = log
        self._name = options.position_topic_name
        self.transactional_id = options.transactional_id

    def make(self, delivery: Delivery) -> None:
        """Make the topic if there is none. SinkUnavailable, SinkRefused."""
        options = self._options
        Topics(
            delivery,
            host=options.hosts[0],
            timeout=options.timeout,
            interval=options.rebalance_interval,
            appear_timeout=options.delivery_timeout,
            create=make_position_topic_settings(options),
            admin=lambda: AdminClient({**options.make_admin_properties()}),
        ).count_partitions((self._name,))

    def require(self, delivery: Delivery) -> None:
        """SinkRefused when somebody has deleted the topic. SinkUnavailable."""
        if self._name not in delivery.read_metadata(None, self._options.timeout):
            raise self.make_missing_error()

    def make_missing_error(self) -> SinkRefused:
        """The error for a topic that does not have the last note any more."""
        return SinkRefused(
            f'topic "{self._name}" does not have the positions any more that this sink has noted there',
            "start the service again: it goes on at the stored positions, and may repeat the events of the last "
            "transaction; let nobody delete the topic, and keep its cleanup.policy compact",
        )

    def refuse(self, record: Outgoing, error: KafkaError) -> SinkRefused:
        """The error for a note that Kafka rejects."""
        size = len(record.values[0].as_py())
        return SinkRefused(
            f'topic "{self._name}" rejects the record with the positions, of {size} bytes: {error.str()}',
            REJECTED[error.code()],
        )

    def to_record(self, noted: Noted) -> Outgoing:
        """What a transaction writes."""
        notes = {source: Raw(note) for source, note in noted.notes.items()}
        value = msgspec.json.encode(_Written(noted.token, notes))
        key = self.transactional_id.encode()
        first = np.zeros(1, np.int32)
        return Outgoing((self._name,), first, pa.array([key], pa.binary()), pa.array([value], pa.binary()), first)

    def read(self) -> Noted:
        """What the last transaction noted that was committed. Behind TransactionalDelivery.initialize, there is none
        that may be committed yet. SinkUnavailable, SinkRefused.
        """
        return self._read(whole=True)

    def peek(self) -> Noted:
        """The same, while others may be at work: of what is known to be committed."""
        return self._read(whole=False)

    def _read(self, whole: bool) -> Noted:
        consumer = self._make_consumer(IsolationLevel.READ_COMMITTED)
        try:
            first, end = self._find_bounds(whole=whole)
            for offsets in _OFFSETS:
                start = max(first, end - offsets)
                found = self._read_between(consumer, start, end) if start < end else None
                if found is not None or start == first:
                    return NOTHING_NOTED if found is None else self._parse(found)
            return NOTHING_NOTED
        except KafkaException as error:
            said: KafkaError = error.args[0]
            what = f'topic "{self._name}" cannot be read'
            if said.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise SinkRefused(f"{what}: {said.str()}", "grant the sink's user Read and Write on it") from None
            raise make_sink_error(what, said) from None
        finally:
            consumer.close()

    def _find_bounds(self, *, whole: bool) -> tuple[int, int]:
        """The first offset, and the one behind the last record. whole: which a transaction that is open may have
        written.

        AdminClient.list_offsets waits for 3 s where its client is not connected yet.
        """
        consumer = self._make_consumer(IsolationLevel.READ_UNCOMMITTED if whole else IsolationLevel.READ_COMMITTED)
        try:
            partition = TopicPartition(self._name, 0)
            return consumer.get_watermark_offsets(partition, timeout=self._options.delivery_timeout)
        finally:
            consumer.close()

    def _make_consumer(self, isolation: IsolationLevel) -> Consumer:
        settings = {**self._options.make_consumer_properties(), "isolation.level": isolation.name.lower()}
        return Consumer(settings, logger=self._log)

    def _read_between(self, consumer: Consumer, start: int, end: int) -> bytes | None:
        """The last record's value. While another instance writes, a reader comes to no end of the partition."""
        found: bytes | None = None
        is_held_back = False
        consumer.assign([TopicPartition(self._name, 0, start)])
        deadline = time.monotonic() + self._options.delivery_timeout
        while time.monotonic() < deadline:
            message = consumer.poll(_POLL_SECONDS)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found = message.value() if message.key() == self.transactional_id.encode() else found
                deadline = time.monotonic() + self._options.delivery_timeout
                if (message.offset() or 0) >= end - 1:
                    return found
            elif error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                continue  # the client asks for the coordinator of a group that nobody joins; it reads all the same
            elif _require_end(message) >= end:
                return found
            else:
                is_held_back = True
        if not is_held_back:
            raise SinkUnavailable(
                f'topic "{self._name}" cannot be read: nothing came of it for {self._options.delivery_timeout:g} s',
                "look at the network and at the brokers' logs",
            )
        raise SinkUnavailable(
            f'topic "{self._name}" has records of a transaction that is open and not of this sink\'s',
            "give the sink a positionTopic of its own, or wait until brokers end the transaction",
        )

    def _parse(self, value: bytes) -> Noted:
        try:
            written = _decode(value)
        except msgspec.DecodeError:
            raise SinkRefused(
                f'topic "{self._name}" has a record that is no position of psql-streamer\'s',
                "give the sink a positionTopic of its own",
            ) from None
        return Noted(written.transaction, {source: bytes(note) for source, note in written.sources.items()})


def make_position_topic_settings(options: KafkaSinkOptions) -> CreateTopics:
    """How the sink makes the topic."""
    copies = -1 if options.create_topics is None else options.create_topics.replication_factor
    return CreateTopics(partitions=1, replication_factor=copies, config=_SETTINGS)


class _Written(Struct):
    transaction: str
    sources: dict[str, Raw]


_decode = msgspec.json.Decoder(_Written).decode


def _require_end(message: Message) -> int:
    """The offset at which a partition ends for now; another error is raised."""
    error = message.error()
    assert error is not None  # noqa: S101 - the caller looked
    if error.code() != KafkaError._PARTITION_EOF:
        raise KafkaException(error)
    return int(message.offset() or 0)
