"""The Kafka sink: encodes a batch, routes it, and returns when every event is durable."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from confluent_kafka.admin import AdminClient
from numpy.typing import NDArray

from psql_streamer.binary_columns import nbytes
from psql_streamer.errors import SinkError, SinkRefused, SinkUnavailable, StreamerError
from psql_streamer.events.records import Records
from psql_streamer.events.source_fields import fields_of
from psql_streamer.interfaces import AliveKeys, Finding, KeysRequest, Published, Sink, Status
from psql_streamer.model import Batch, Marker, Stats
from psql_streamer.name_counts import MOST_PREFIXES, OTHERS, NameCounts
from sinks.kafka.alive_keys import find_alive_keys
from sinks.kafka.check import KafkaCheck
from sinks.kafka.dead_letters import DeadLetters, advice, describe
from sinks.kafka.delivery import Delivery, Rejections
from sinks.kafka.options import KafkaSinkOptions
from sinks.kafka.outgoing import Outgoing
from sinks.kafka.partitioner import NO_PARTITION, partitions
from sinks.kafka.rejected_rows import RejectedRows
from sinks.kafka.review import KafkaReview
from sinks.kafka.shipment import Shipment
from sinks.kafka.topics import TopicRefused, Topics

_MOST_NAMES = 2000
"""Tables, and columns, that are counted by themselves."""

_NO_MESSAGE_TOPIC = 'messages with prefix "%s" have no topic and are skipped: see messageTopic'
_NO_LEGAL_TOPIC = 'messages with prefix "%s" are skipped: Kafka does not allow the topic that messageTopic makes of it'
_MANY_PREFIXES = "messages with more than %d prefixes are skipped: the others are counted as %s"


class Encoder(Protocol):
    """Makes records of a batch; psql_streamer.events has the formats."""

    def encode(self, batch: Batch) -> Records:
        """The batch's records, in commit order."""

    def stop(self) -> None:
        """Release what it holds."""


@dataclass(slots=True)
class _Unfinished:
    """A batch on its way: its records, how far they are, and what is done with those that were rejected."""

    batch: Batch
    records: Records
    shipment: Shipment
    letters: DeadLetters | None = None
    rejected_rows: RejectedRows | None = None


class KafkaSink(Sink):
    """Writes to Kafka; a batch is done when every record of it is acknowledged, or dead-lettered.

    encoder: makes the records; None for the one that the options describe.
    """

    Options = KafkaSinkOptions

    def __init__(self, name: str, options: KafkaSinkOptions, encoder: Encoder | None = None) -> None:
        super().__init__(name, options)
        self._options = options
        self._encoder = encoder or options.make_encoder()
        self._check = KafkaCheck(name, options)
        self._own_partitioner = "partitioner" not in options.kafka
        self._delivery: Delivery | None = None
        self._topics: Topics | None = None
        self._unfinished: _Unfinished | None = None
        self._debug = options.debug
        self._log = logging.getLogger(f"psql_streamer.sink.{name}")
        self._state = Status(True, "not started")
        self._counts = dict.fromkeys(("events", "bytes", "batches", "excluded", "dead_lettered", "retries"), 0)
        self._skipped = NameCounts(_MOST_NAMES)
        self._skipped_messages = NameCounts(MOST_PREFIXES)
        self._nulled = NameCounts(_MOST_NAMES)

    def check(self) -> Iterable[Finding]:
        """Whether the brokers answer, and whether the topics that the section names exist and may be written."""
        return self._check.findings()

    def review(self, published: Published) -> Iterable[Finding]:
        """Which entries fit no table, and what the first row of a table would stop the sink with; behind `check`, which
        topics of tables do not exist.
        """
        review = KafkaReview(self._options, published)
        yield from review.findings()
        yield from self._check.absent(review.topics())

    def alive_keys(self, request: KeysRequest) -> AliveKeys:
        """Those of the table's topics."""
        return find_alive_keys(self.name, self._options, request, self._log)

    def start(self) -> None:
        """Make the client and ask the brokers for their metadata: a wrong address or password shows now."""
        self.stop()
        options = self._options
        self._delivery = Delivery(options.properties(), options.delivery_timeout, self._log)
        self._topics = Topics(
            self._delivery,
            host=options.hosts[0],
            timeout=options.timeout,
            interval=options.rebalance_interval,
            appear_timeout=options.delivery_timeout,
            create=options.create_topics,
            admin=lambda: AdminClient({**options.admin_properties()}),
        )
        try:
            self._delivery.metadata(None, options.timeout)
        except SinkError as error:
            self.stop()
            self._state = Status(False, str(error))
            raise
        self._state = Status(True, "started, nothing written yet")

    def write(self, batch: Batch) -> None:
        """See Sink.write. SinkRefused for a record that Kafka rejects when there is no dead-letter topic.

        Given the same batch again after SinkUnavailable, it goes on with the records that are not acknowledged.
        """
        started = time.monotonic()
        try:
            unfinished = self._begun(batch)
            rejected = self._write(unfinished)
        except StreamerError as error:
            self._counts["retries"] += isinstance(error, SinkUnavailable)
            self._state = Status(False, str(error))
            raise
        self._unfinished = None
        self._count(unfinished.records, len(rejected))
        if self._state.ok or len(unfinished.records):  # a batch without records says nothing of the brokers
            self._state = Status(True, f"wrote up to {batch.position}")
        if self._debug:
            seconds = time.monotonic() - started
            self._log.info("wrote %d records in %.1f ms", len(unfinished.records), seconds * 1000)

    def interrupt(self) -> None:
        """See Sink.interrupt."""
        if self._delivery is not None:
            self._delivery.interrupt()

    def stop(self) -> None:
        """See Sink.stop."""
        if self._delivery is not None:
            self._delivery.close()
        self._delivery = self._topics = self._unfinished = None
        self._encoder.stop()

    def status(self) -> Status:
        """Whether the last write worked."""
        return self._state

    def stats(self) -> Stats:
        """events and bytes acknowledged, batches, dead_lettered, retries; excluded and, by table, skipped: changes that
        have no topic, as it was wanted or for want of a rule; nulled: values that the format cannot hold, by column.

        Logical messages are in skipped as `message PREFIX`. All names are bounded in number: the rest is (others).
        """
        messages = {f"message {prefix}": count for prefix, count in self._skipped_messages.snapshot().items()}
        return {**self._counts, "skipped": self._skipped.snapshot() | messages, "nulled": self._nulled.snapshot()}

    def set_debug(self, on: bool) -> None:
        """With debug, a line per batch."""
        self._debug = on

    def _begun(self, batch: Batch) -> _Unfinished:
        """What is left of the batch, all of it when it comes for the first time."""
        if self._unfinished is None or self._unfinished.batch is not batch:
            if self._unfinished is not None and self._delivery is not None:
                self._delivery.abandon()
            records = self._encoder.encode(batch)
            self._unfinished = _Unfinished(batch, records, Shipment(_outgoing(records)))
        return self._unfinished

    def _write(self, unfinished: _Unfinished) -> Rejections:
        """Deliver, and put aside what is rejected; returns what was put aside."""
        if self._delivery is None or self._topics is None:
            raise SinkRefused("the sink is not started")
        try:
            self._write_rejected_rows(self._delivery, self._topics, unfinished)
            self._skip_impossible_messages(self._topics, unfinished)
            rejected = self._deliver(self._delivery, self._topics, unfinished.shipment)
            if rejected:
                self._put_aside(self._delivery, self._topics, unfinished, rejected)
        except SinkUnavailable:
            self._topics.forget()
            raise
        if self._options.verbose:
            self._log_each(unfinished.records)
        return rejected

    def _deliver(self, delivery: Delivery, topics: Topics, shipment: Shipment) -> Rejections:
        delivery.settle(shipment)
        if shipment.waiting:
            shipment.direct(self._partitions(shipment.records, topics))
        return delivery.deliver(shipment)

    def _skip_impossible_messages(self, topics: Topics, unfinished: _Unfinished) -> None:
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
                unfinished.records, unfinished.shipment = records, Shipment(_outgoing(records))
            else:
                return

    def _write_rejected_rows(self, delivery: Delivery, topics: Topics, unfinished: _Unfinished) -> None:
        """What handlers put aside goes to the dead-letter topic, and counts like what Kafka rejects."""
        topic = self._options.dead_letter_topic
        if not unfinished.batch.rejections:
            return
        if unfinished.rejected_rows is None:
            unfinished.rejected_rows = RejectedRows(topic, self._encoder.encode, unfinished.batch)
        if topic and unfinished.rejected_rows:
            topics.partitions((topic,))
        for records in unfinished.rejected_rows.deliver(delivery):
            self._counts["dead_lettered"] += len(records)
            self._skip(records)
            self._log.warning("%d rows that a rule put aside went to topic %s", len(records), topic)

    def _partitions(self, records: Outgoing, topics: Topics) -> NDArray[np.int32]:
        """Where each record goes, by what is known of the topics now."""
        counts = topics.partitions(records.topic_names)
        if not self._own_partitioner:
            return records.partitions
        return partitions(records.keys, counts[records.topics])

    def _put_aside(self, delivery: Delivery, topics: Topics, unfinished: _Unfinished, rejected: Rejections) -> None:
        topic, records = self._options.dead_letter_topic, unfinished.records
        if topic:
            if unfinished.letters is None:
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

    def _count(self, records: Records, dead_lettered: int) -> None:
        self._counts["events"] += len(records) - dead_lettered
        self._counts["bytes"] += nbytes(records.keys) + nbytes(records.values)
        self._counts["batches"] += 1
        self._counts["dead_lettered"] += dead_lettered
        self._counts["excluded"] += records.excluded
        if records.skipped or records.skipped_messages:
            self._skip(records)
        for column in self._nulled.add(records.nulled) if records.nulled else ():
            who = column or f"a column beyond the first {_MOST_NAMES}"
            told = "%s has a value that format %s cannot hold: it, or a part of it, is null"
            self._log.warning(told, who, self._options.format)

    def _skip(self, records: Records) -> None:
        """Count what has no topic, and tell it of each table and prefix once."""
        for table in self._skipped.add(records.skipped):
            who = table or f"a table beyond the first {_MOST_NAMES}"
            self._log.warning("%s has no topic and is skipped: see tableTopicMapping", who)
        why = _NO_LEGAL_TOPIC if self._options.message_topic else _NO_MESSAGE_TOPIC
        for prefix in self._skipped_messages.add(records.skipped_messages):
            if prefix is None:
                self._log.warning(_MANY_PREFIXES, MOST_PREFIXES, OTHERS)
            else:
                self._log.warning(why, prefix)

    def _log_each(self, records: Records) -> None:
        for index in range(len(records)):
            table, topic = records.table_of(index), records.topic_of(index)
            commit = fields_of(records.source).show_commit(int(records.commit[index]))
            self._log.info("%s, commit %s, change %d, to %s", table, commit, records.seq[index], topic)


def _messages_to(topic: str, records: Records) -> Counter[str]:
    """The logical messages to a topic by prefix; none when something else goes there, too."""
    at = np.flatnonzero(records.topics == records.topic_names.index(topic))
    if (records.op[at] != Marker.MESSAGE).any():
        return Counter()
    return Counter(records.table_of(index) for index in at.tolist())


def _outgoing(records: Records) -> Outgoing:
    """The records, not directed to any partition yet."""
    undirected = np.full(len(records), NO_PARTITION, np.int32)
    return Outgoing(records.topic_names, records.topics, records.keys, records.values, undirected, records.headers)
