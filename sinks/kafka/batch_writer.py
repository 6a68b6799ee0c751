"""Writes batches: encodes them, directs their records to partitions, delivers them, and puts aside what is rejected."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from psql_streamer.batching import FEW_ROWS, REQUEST_RECORDS, TOGETHER_BYTES, WORK_AHEAD_BYTES
from psql_streamer.binary_columns import bound_bytes
from psql_streamer.errors import SinkRefused, StreamerError
from psql_streamer.events.records import Records
from psql_streamer.model import Batch, Marker
from sinks.kafka.dead_letters import DeadLetters, describe, suggest_remedy
from sinks.kafka.delivery import Delivery, Rejections
from sinks.kafka.options import KafkaSinkOptions
from sinks.kafka.outgoing import Outgoing, join
from sinks.kafka.partitioner import NO_PARTITION, compute_partitions
from sinks.kafka.rejected_rows import RejectedRows
from sinks.kafka.shipment import Shipment
from sinks.kafka.topics import TopicRefused, Topics

_UNDIRECTED = np.full(FEW_ROWS, NO_PARTITION, np.int32)
_UNDIRECTED.flags.writeable = False


class Encoder(Protocol):
    """Makes records of a batch; psql_streamer.events has the formats."""

    def encode(self, batch: Batch) -> Records:
        """The batch's records, in commit order."""

    def make_readable(self) -> Encoder:
        """What makes them in a format that people read."""

    def describe_wait(self) -> str:
        """What it waits for at present; "" for nothing. From any thread."""

    def interrupt(self) -> None:
        """Make an `encode` that waits raise SinkUnavailable soon, until `stop`. From any thread."""

    def stop(self) -> None:
        """Release what it holds."""


@dataclass(slots=True)
class Begun:
    """A batch on its way: its records, and what is done with those that were rejected.

    batch: without its rows, of which the records were made. put_aside: records of rows that handlers put aside, which
    went to the dead-letter topic. dead_lettered: of the batch's own records, those that went there.
    """

    batch: Batch
    records: Records
    letters: DeadLetters | None = None
    rejected_rows: RejectedRows | None = None
    put_aside: list[Records] = field(default_factory=list)
    dead_lettered: int = 0

    @property
    def wants_singly(self) -> bool:
        """Whether records that the dead-letter topic rejects are only found one by one."""
        return any(one is not None and one.wants_singly for one in (self.letters, self.rejected_rows))

    def write_again(self) -> None:
        """Nothing of it was written after all. What Kafka rejects is still known."""
        self.put_aside, self.dead_lettered = [], 0
        for letters in (self.letters, self.rejected_rows):
            if letters is not None:
                letters.write_again()


class Unfinished:
    """Batches on their way as one shipment, so that a partition's records of all of them are in one request.

    batches: taken one by one. The rows of each are let go of when its records are made.
    """

    def __init__(self, batches: Iterator[Batch]) -> None:
        self.begun: list[Begun] = []
        self._batches = batches
        self._next: Batch | None = None
        self._error: Exception | None = None
        self._shipment: Shipment | None = None

    def make_records(self, encode: Callable[[Batch], Records]) -> None:
        """Of all batches. Raises as `encode` does, or as it did before: called again, it goes on with the batch that
        failed.
        """
        if self._error is not None:
            error, self._error = self._error, None
            try:
                raise error
            finally:
                del error  # or it has this frame, and the frame has it, with all records
        while (batch := self._take()) is not None:
            records = encode(batch)
            self.begun.append(Begun(batch.without_rows(), records))
            self._next = batch = None

    def make_records_early(self, encode: Callable[[Batch], Records]) -> None:
        """The same while another write is under way, which nothing of this one concerns: `make_records` raises what
        fails.
        """
        try:
            self.make_records(encode)
        except StreamerError as error:
            # The frames of its traceback lead to the write that waits, whose records would be kept for as long.
            error.__cause__ = error.__context__ = None
            self._error = error.with_traceback(None)
        except Exception as error:  # nobody has foreseen it: the service ends, and the log tells where it came from
            self._error = error

    def _take(self) -> Batch | None:
        """The batch that is next, which stays so until its records are made."""
        if self._next is None:
            self._next = next(self._batches, None)
        return self._next

    @property
    def shipment(self) -> Shipment:
        """The records of all batches, none of them directed to a partition yet when it is asked for first."""
        if self._shipment is None:
            self._shipment = Shipment(join([_to_outgoing(one.records) for one in self.begun]))
        return self._shipment

    @property
    def untouched(self) -> bool:
        """Whether no record was handed to a client, or rejected, yet."""
        return self._shipment is None or self._shipment.untouched

    @property
    def wants_singly(self) -> bool:
        """Whether records that Kafka rejects are only found one by one."""
        singly = self._shipment is not None and self._shipment.singly
        return singly or any(one.wants_singly for one in self.begun)

    def replace_records(self, one: Begun, records: Records) -> None:
        """Other records of a batch; only while nothing is handed over."""
        one.records, self._shipment = records, None

    def group_rejections(self) -> Iterator[tuple[Begun, Rejections]]:
        """What Kafka rejects, by the batch that it is of and by its place there."""
        rejected, first = self.shipment.rejected, 0
        for one in self.begun:
            behind = first + len(one.records)
            if own := {place - first: error for place, error in rejected.items() if first <= place < behind}:
                yield one, own
            first = behind

    def write_again(self) -> None:
        """Nothing of it was written after all. What Kafka rejects is still known."""
        if self._shipment is not None:
            self._shipment = self._shipment.make_fresh_copy()
        for one in self.begun:
            one.write_again()


class BatchWriter:
    """options: of the sink. encoder: makes the records. log: for what is put aside. For one thread.

    rows_at_once: how many rows should be written together, by those that were written last and those that come.
    """

    rows_at_once: int = 1

    def __init__(self, options: KafkaSinkOptions, encoder: Encoder, log: logging.Logger) -> None:
        self._options = options
        self._encoder = encoder
        self._log = log
        self._own_partitioner = "partitioner" not in options.kafka

    def make_records(self, unfinished: Unfinished) -> None:
        """Of all of its batches. Raises SinkUnavailable and SinkRefused, as the format does."""
        unfinished.make_records(self._encode)

    def make_records_early(self, unfinished: Unfinished) -> None:
        """The same while another write is under way. Raises nothing: `make_records` does so later."""
        unfinished.make_records_early(self._encode)

    def write(
        self,
        delivery: Delivery,
        topics: Topics,
        unfinished: Unfinished,
        begin_next: Callable[[], bool] | None = None,
    ) -> None:
        """Deliver what is left of the batches, whose records are made, and put aside what is rejected. Raises as
        Delivery.deliver, and SinkRefused for a record that Kafka rejects when there is no dead-letter topic.

        begin_next: see Sink.attach_next. It is called where a batch of a backlog is written by itself, as long as two
        of its size are few enough bytes.
        """
        for one in unfinished.begun:
            self._write_rejected_rows(delivery, topics, one)
            self._skip_impossible_messages(topics, unfinished, one)
        self._deliver(delivery, topics, unfinished, begin_next if self._may_begin_next(unfinished) else None)
        for one, rejected in unfinished.group_rejections():
            self._put_aside(delivery, topics, one, rejected)

    def _encode(self, batch: Batch) -> Records:
        """Its records, and how many rows such a write should have: each of their topics has a partition at least."""
        records = self._encoder.encode(batch)
        if self._own_partitioner and len(records) > FEW_ROWS:
            self.rows_at_once = max(self.rows_at_once, len(records.topic_names) * REQUEST_RECORDS)
        return records

    def _may_begin_next(self, unfinished: Unfinished) -> bool:
        """Whether there is time for it, and memory: where several batches go together, they are large by themselves."""
        if len(unfinished.begun) > 1:
            return False
        records = unfinished.shipment.records
        return WORK_AHEAD_BYTES <= bound_bytes(records.values) <= TOGETHER_BYTES and self.rows_at_once <= len(records)

    def _deliver(
        self, delivery: Delivery, topics: Topics, unfinished: Unfinished, begin_next: Callable[[], bool] | None
    ) -> None:
        shipment = unfinished.shipment
        delivery.settle(shipment)
        if shipment.waiting:
            counts = topics.count_partitions(shipment.records.topic_names)
            shipment.direct(self._choose_partitions(shipment.records, counts))
            self.rows_at_once = self._count_rows(shipment.records, counts)
        delivery.deliver(shipment, begin_next)

    def _skip_impossible_messages(self, topics: Topics, unfinished: Unfinished, one: Begun) -> None:
        """Leave out messages whose topics brokers do not make, before anything is written."""
        while one.batch.messages and unfinished.untouched:
            try:
                topics.count_partitions(one.records.topic_names)
            except TopicRefused as error:
                records = one.records
                if not (messages := _count_messages(error.topic, records)):
                    raise
                skipped = Counter(records.skipped_messages) + messages
                unfinished.replace_records(one, replace(records.drop_topic(error.topic), skipped_messages=skipped))
            else:
                return

    def _write_rejected_rows(self, delivery: Delivery, topics: Topics, begun: Begun) -> None:
        """What handlers put aside goes to the dead-letter topic, and counts like what Kafka rejects."""
        topic = self._options.dead_letter_topic
        if not begun.batch.rejections:
            return
        if begun.rejected_rows is None:
            begun.rejected_rows = RejectedRows(topic, self._encoder.make_readable().encode, begun.batch)
        if topic and begun.rejected_rows:
            topics.count_partitions((topic,))
        for records in begun.rejected_rows.deliver(delivery):
            begun.put_aside.append(records)
            self._log.warning("%d rows that a rule put aside went to topic %s", len(records), topic)

    def _choose_partitions(self, records: Outgoing, counts: NDArray[np.int32]) -> NDArray[np.int32]:
        """Where each record goes. counts: the partitions of each topic."""
        if not self._own_partitioner:
            return records.partitions
        return compute_partitions(records.keys, counts[records.topics])

    def _count_rows(self, records: Outgoing, counts: NDArray[np.int32]) -> int:
        """As many as give each partition that these records go to a request of REQUEST_RECORDS.

        counts: the partitions of each topic.
        """
        if len(records) <= FEW_ROWS:  # of a slow stream, where no batch waits
            return 1
        partitions = int(counts.sum())
        if self._own_partitioner and partitions * REQUEST_RECORDS > len(records):
            partitions = records.count_partitions()
        return partitions * REQUEST_RECORDS

    def _put_aside(self, delivery: Delivery, topics: Topics, begun: Begun, rejected: Rejections) -> None:
        topic, records = self._options.dead_letter_topic, begun.records
        if begun.dead_lettered == len(rejected):
            return
        if topic:
            if begun.letters is None or len(begun.letters) != len(rejected):
                begun.letters = DeadLetters(topic, records, rejected)
            if not begun.letters.under_way:  # it may be gone since the attempt before
                topics.count_partitions((topic,))
            refused = begun.letters.deliver(delivery)
            if len(refused) < len(rejected):
                self._log.warning("%d records went to topic %s", len(rejected) - len(refused), topic)
        else:
            refused = rejected
        for index, error in refused.items():
            where = topic or records.look_up_topic(index)
            what = f'topic "{where}" rejects {describe(records, index)}: {error.str()}'
            raise SinkRefused(what, suggest_remedy(error, topic))
        begun.dead_lettered = len(rejected)


def _to_outgoing(records: Records) -> Outgoing:
    """The records, not directed to any partition yet."""
    return Outgoing(
        records.topic_names,
        records.topics,
        records.keys,
        records.values,
        _UNDIRECTED[: len(records)] if len(records) <= FEW_ROWS else np.full(len(records), NO_PARTITION, np.int32),
        records.headers,
        records.timestamps,
    )


def _count_messages(topic: str, records: Records) -> Counter[str]:
    """The logical messages to a topic by prefix; none when something else goes there, too."""
    at = np.flatnonzero(records.topics == records.topic_names.index(topic))
    if (records.op[at] != Marker.MESSAGE).any():
        return Counter()
    return Counter(records.look_up_table(index) for index in at.tolist())
