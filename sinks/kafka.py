"""The Kafka sink: encodes a batch, routes it, and returns when every event is durable."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable
from typing import Protocol

import numpy as np
from confluent_kafka.admin import AdminClient

from psql_streamer.binary_columns import nbytes
from psql_streamer.errors import SinkError, SinkRefused, SinkUnavailable, StreamerError
from psql_streamer.interfaces import Finding, Sink, Status
from psql_streamer.model import Batch, Lsn, Stats
from psql_streamer.partitioner import NO_PARTITION, partitions
from psql_streamer.records import Records
from sinks.dead_letters import advice, deliver_dead_letters, describe
from sinks.kafka_check import check_kafka
from sinks.kafka_delivery import Delivery, Rejections
from sinks.kafka_options import KafkaSinkOptions
from sinks.kafka_producer import Outgoing
from sinks.kafka_topics import Topics
from sinks.rejected_rows import deliver_rejected_rows


class Encoder(Protocol):
    """Makes records of a batch; psql_streamer.events has the formats."""

    def encode(self, batch: Batch) -> Records:
        """The batch's records, in commit order."""


class KafkaSink(Sink):
    """Writes to Kafka; a batch is done when every record of it is acknowledged, or dead-lettered.

    encoder: makes the records; None for the one that the options describe.
    """

    Options = KafkaSinkOptions

    def __init__(self, name: str, options: KafkaSinkOptions, encoder: Encoder | None = None) -> None:
        super().__init__(name, options)
        self._options = options
        self._encoder = encoder or _encoder(options)
        self._own_partitioner = "partitioner" not in options.kafka
        self._delivery: Delivery | None = None
        self._topics: Topics | None = None
        self._debug = options.debug
        self._log = logging.getLogger(f"psql_streamer.sink.{name}")
        self._state = Status(True, "not started")
        self._counts = dict.fromkeys(("events", "bytes", "batches", "dead_lettered", "retries"), 0)
        self._skipped = Counter[str]()

    @property
    def wants_transaction_metadata(self) -> bool:
        """As Sink.wants_transaction_metadata."""
        return self._options.debezium_transactions

    def check(self) -> Iterable[Finding]:
        """Whether the brokers answer, and whether the topics that the section names exist and may be written."""
        return check_kafka(self.name, self._options)

    def start(self) -> None:
        """Make the client and ask the brokers for their metadata: a wrong address or password shows now."""
        self.stop()
        options = self._options
        self._delivery = Delivery(options.properties(), options.patience, self._log)
        self._topics = Topics(
            self._delivery,
            timeout=options.timeout,
            interval=options.rebalance_interval,
            patience=options.patience,
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
        """As Sink.write. SinkRefused for a record that Kafka rejects when there is no dead-letter topic."""
        started = time.monotonic()
        try:
            records = self._encoder.encode(batch)
            rejected = self._write(records)
            self._write_rejected_rows(batch)
        except StreamerError as error:
            self._counts["retries"] += isinstance(error, SinkUnavailable)
            self._state = Status(False, str(error))
            raise
        self._count(records, len(rejected))
        self._state = Status(True, f"wrote up to {batch.position}")
        if self._debug:
            seconds = time.monotonic() - started
            self._log.info("wrote %d records in %.1f ms", len(records), seconds * 1000)

    def interrupt(self) -> None:
        """As Sink.interrupt."""
        if self._delivery is not None:
            self._delivery.interrupt()

    def stop(self) -> None:
        """As Sink.stop."""
        if self._delivery is not None:
            self._delivery.close()
        self._delivery = self._topics = None

    def status(self) -> Status:
        """Whether the last write worked."""
        return self._state

    def stats(self) -> Stats:
        """events and bytes acknowledged, batches, dead_lettered, retries; skipped for want of a topic, by table."""
        return {**self._counts, "skipped": dict(self._skipped)}

    def set_debug(self, on: bool) -> None:
        """With debug, a line per batch."""
        self._debug = on

    def _write(self, records: Records) -> Rejections:
        """Deliver, and put aside what is rejected; returns what was put aside."""
        if self._delivery is None or self._topics is None:
            raise SinkRefused("the sink is not started")
        if not len(records):
            return {}
        try:
            outgoing = self._outgoing(records, self._topics)
            rejected = self._delivery.deliver(outgoing)
        except SinkUnavailable:
            self._topics.forget()
            raise
        if rejected:
            self._put_aside(self._delivery, self._topics, records, rejected)
        if self._options.verbose:
            self._log_each(records)
        return rejected

    def _write_rejected_rows(self, batch: Batch) -> None:
        """What handlers put aside goes to the dead-letter topic, and counts like what Kafka rejects."""
        topic = self._options.dead_letter_topic
        if not batch.rejections or self._delivery is None or self._topics is None:
            return
        if topic:
            self._topics.partitions([topic])
        for records in deliver_rejected_rows(self._delivery, topic, self._encoder.encode, batch):
            self._counts["dead_lettered"] += len(records)
            self._skipped.update(records.skipped)
            self._log.warning("%d rows that a rule put aside went to topic %s", len(records), topic)

    def _outgoing(self, records: Records, topics: Topics) -> Outgoing:
        chosen = np.full(len(records), NO_PARTITION, np.int32)
        counts = topics.partitions(records.topic_names)
        if self._own_partitioner:
            of_each = np.array([counts[topic] for topic in records.topic_names], np.int32)
            chosen = partitions(records.keys, of_each[records.topics])
        return Outgoing(records.topic_names, records.topics, records.keys, records.values, chosen, records.headers)

    def _put_aside(self, delivery: Delivery, topics: Topics, records: Records, rejected: Rejections) -> None:
        topic = self._options.dead_letter_topic
        if topic:
            topics.partitions([topic])
            refused = deliver_dead_letters(delivery, topic, records, rejected)
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
        for table in records.skipped.keys() - self._skipped.keys():
            self._log.warning("%s has no topic and is skipped: see tableTopicMapping and messageTopic", table)
        self._skipped.update(records.skipped)

    def _log_each(self, records: Records) -> None:
        for index in range(len(records)):
            table, topic = records.table_of(index), records.topic_of(index)
            commit = Lsn(int(records.commit_lsn[index]))
            self._log.info("%s, commit %s, change %d, to %s", table, commit, records.seq[index], topic)


def _encoder(options: KafkaSinkOptions) -> Encoder:
    from psql_streamer.events import Encoder as EventEncoder

    return EventEncoder(
        options.format,
        options.router(),
        options.key_columns,
        options.headers,
        options.debezium_schemas,
        options.unchanged_policy(),
        options.transactions_to,
        options.schema_topic,
    )
