"""Writes one batch: encodes it, directs its records to partitions, delivers them, and puts aside what is rejected."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from psql_streamer.errors import SinkRefused
from psql_streamer.events.records import Records
from psql_streamer.model import Batch, Marker
from sinks.kafka.dead_letters import DeadLetters, advice, describe
from sinks.kafka.delivery import Delivery, Rejections
from sinks.kafka.options import KafkaSinkOptions
from sinks.kafka.outgoing import Outgoing
from sinks.kafka.partitioner import NO_PARTITION, partitions
from sinks.kafka.rejected_rows import RejectedRows
from sinks.kafka.shipment import Shipment
from sinks.kafka.topics import TopicRefused, Topics


class Encoder(Protocol):
    """Makes records of a batch; psql_streamer.events has the formats."""

    def encode(self, batch: Batch) -> Records:
        """The batch's records, in commit order."""

    def stop(self) -> None:
        """Release what it holds."""


@dataclass(slots=True)
class Unfinished:
    """A batch on its way: its records, how far they are, and what is done with those that were rejected.

    put_aside: records of rows that handlers put aside, which went to the dead-letter topic. dead_lettered: of the
    batch's own records, those that went there.
    """

    batch: Batch
    records: Records
    shipment: Shipment
    letters: DeadLetters | None = None
    rejected_rows: RejectedRows | None = None
    put_aside: list[Records] = field(default_factory=list)
    dead_lettered: int = 0

    @classmethod
    def of(cls, batch: Batch, records: Records) -> Unfinished:
        """Of which nothing is written yet."""
        return cls(batch, records, Shipment(to_outgoing(records)))

    @property
    def wants_singly(self) -> bool:
        """Whether records that Kafka rejects are only found one by one."""
        letters = (self.letters, self.rejected_rows)
        return self.shipment.singly or any(one is not None and one.wants_singly for one in letters)

    def write_again(self) -> None:
        """Nothing of it was written after all. What Kafka rejects is still known."""
        self.shipment = self.shipment.of_rest()
        self.put_aside, self.dead_lettered = [], 0
        for letters in (self.letters, self.rejected_rows):
            if letters is not None:
                letters.write_again()


class BatchWriter:
    """options: of the sink. encoder: makes the records. log: for what is put aside. For one thread."""

    def __init__(self, options: KafkaSinkOptions, encoder: Encoder, log: logging.Logger) -> None:
        self._options = options
        self._encoder = encoder
        self._log = log
        self._own_partitioner = "partitioner" not in options.kafka

    def begin(self, batch: Batch) -> Unfinished:
        """Make the batch's records."""
        return Unfinished.of(batch, self._encoder.encode(batch))

    def write(self, delivery: Delivery, topics: Topics, unfinished: Unfinished) -> None:
        """Deliver what is left of the batch, and put aside what is rejected. Raises as Delivery.deliver, and
        SinkRefused for a record that Kafka rejects when there is no dead-letter topic.
        """
        self._write_rejected_rows(delivery, topics, unfinished)
        self._skip_impossible_messages(topics, unfinished)
        rejected = self._deliver(delivery, topics, unfinished.shipment)
        if rejected:
            self._put_aside(delivery, topics, unfinished, rejected)

    def _deliver(self, delivery: Delivery, topics: Topics, shipment: Shipment) -> Rejections:
        delivery.settle(shipment)
        if shipment.waiting:
            shipment.direct(self._partitions(shipment.records, topics))
        return delivery.deliver(shipment)

    def _skip_impossible_messages(self, topics: Topics, unfinished: Unfinished) -> None:
        """Leave out messages whose topics brokers do not make, before anything is written."""
        while unfinished.batch.messages and unfinished.shipment.untouched:
            try:
                topics.partitions(unfinished.records.topic_names)
            except TopicRefused as error:
                records = unfinished.records
                if not (messages := _messages_to(error.topic, records)):
                    raise
                skipped = Counter(records.skipped_messages) + messages
                records = replace(records.drop_topic(error.topic), skipped_messages=skipped)
                unfinished.records, unfinished.shipment = records, Shipment(to_outgoing(records))
            else:
                return

    def _write_rejected_rows(self, delivery: Delivery, topics: Topics, unfinished: Unfinished) -> None:
        """What handlers put aside goes to the dead-letter topic, and counts like what Kafka rejects."""
        topic = self._options.dead_letter_topic
        if not unfinished.batch.rejections:
            return
        if unfinished.rejected_rows is None:
            unfinished.rejected_rows = RejectedRows(topic, self._encoder.encode, unfinished.batch)
        if topic and unfinished.rejected_rows:
            topics.partitions((topic,))
        for records in unfinished.rejected_rows.deliver(delivery):
            unfinished.put_aside.append(records)
            self._log.warning("%d rows that a rule put aside went to topic %s", len(records), topic)

    def _partitions(self, records: Outgoing, topics: Topics) -> NDArray[np.int32]:
        """Where each record goes, by what is known of the topics now."""
        counts = topics.partitions(records.topic_names)
        if not self._own_partitioner:
            return records.partitions
        return partitions(records.keys, counts[records.topics])

    def _put_aside(self, delivery: Delivery, topics: Topics, unfinished: Unfinished, rejected: Rejections) -> None:
        topic, records = self._options.dead_letter_topic, unfinished.records
        if topic:
            if unfinished.letters is None or len(unfinished.letters) != len(rejected):
                topics.partitions((topic,))
                unfinished.letters = DeadLetters(topic, records, rejected)
            refused = unfinished.letters.deliver(delivery)
            self._log.warning("%d records went to topic %s", len(rejected) - len(refused), topic)
        else:
            refused = rejected
        for index, error in refused.items():
            where = topic or records.topic_of(index)
            what = f'topic "{where}" rejects {describe(records, index)}: {error.str()}'
            raise SinkRefused(what, advice(error))
        unfinished.dead_lettered = len(rejected)


def to_outgoing(records: Records) -> Outgoing:
    """The records, not directed to any partition yet."""
    undirected = np.full(len(records), NO_PARTITION, np.int32)
    return Outgoing(
        records.topic_names,
        records.topics,
        records.keys,
        records.values,
        undirected,
        records.headers,
        records.timestamps,
    )


def _messages_to(topic: str, records: Records) -> Counter[str]:
    """The logical messages to a topic by prefix; none when something else goes there, too."""
    at = np.flatnonzero(records.topics == records.topic_names.index(topic))
    if (records.op[at] != Marker.MESSAGE).any():
        return Counter()
    return Counter(records.table_of(index) for index in at.tolist())
