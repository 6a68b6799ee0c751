"""A producer that takes records by columns and leaves their bytes where they are until they are delivered."""

from __future__ import annotations

import ctypes
import logging
import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException
from numpy.typing import NDArray

from psql_streamer.batching import REPORTS_LOOK_SECONDS
from psql_streamer.errors import SinkUnavailable
from psql_streamer.model import Index
from sinks.kafka import librdkafka
from sinks.kafka.librdkafka import EVENT_DELIVERY, EVENT_ERROR, EVENT_LOG, MESSAGE, rdkafka, rdkafka_at_once
from sinks.kafka.outgoing import Outgoing, Run, find_runs, lay_out, lay_out_fields

_LAID_OUT_RECORDS = 1000
"""How many records with headers or timestamps are laid out together; the arguments of each take 72 bytes a header."""

_GIL_HELD_RECORDS = 100
"""Up to this many records a call keeps the interpreter's lock: it is over before another thread could have run."""

_CLOSE_SECONDS = 3.0
"""The time that `close` waits for another thread's call to end, and `give_up` for the client."""

_MISCOUNTED = (KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC)
"""Records without a partition: rd_kafka_produce_batch refuses them, and leaves them in the count of its queue."""

_SEVERITIES = (*[logging.CRITICAL] * 3, logging.ERROR, logging.WARNING, logging.INFO, logging.INFO, logging.DEBUG)
"""Levels by syslog's numbers."""


class Failed(NamedTuple):
    """A record that was queued and not delivered. place: its index in Outgoing."""

    place: int
    error: KafkaError


class Written(NamedTuple):
    """A record that was delivered, and where it lies. offset: below 0 where the broker says none (acks = 0)."""

    place: int
    partition: int
    offset: int


Report: TypeAlias = Failed | Written

Topics: TypeAlias = Mapping[int, librdkafka.Handle]
"""rd_kafka_topic_t by the number of a topic in Outgoing."""


class TopicMetadata(NamedTuple):
    """What the brokers say of a topic."""

    partitions: int
    error: KafkaError | None


class PartitionState(NamedTuple):
    """What the brokers say of a partition. led: whether it has a leader. in_sync: how many of its replicas are."""

    led: bool
    replicas: int
    in_sync: int


class Producer:
    """A client of librdkafka's. For one thread, but `close`, which any may call.

    Of a client that is not idempotent every record is reported, because a request that is sent again may come behind
    the next one. Else what is neither reported nor outstanding was delivered.

    properties: librdkafka's. on_error: takes what the client says of its connections; an error that is fatal to the
    client is raised instead, by `poll`. log: for what it logs.
    KafkaException when a property is not one, or the client cannot start. SinkUnavailable from any method once closed.
    """

    def __init__(
        self, properties: Mapping[str, str], on_error: Callable[[KafkaError], None], log: logging.Logger
    ) -> None:
        self._on_error = on_error
        self._log = log
        self._reports_all = not librdkafka.is_idempotent(properties)
        only_errors = str(not self._reports_all).lower()
        conf = librdkafka.make_configuration(
            {**properties, "delivery.report.only.error": only_errors, "log.queue": "true"}
        )
        rdkafka.conf_set_events(conf, EVENT_DELIVERY | EVENT_ERROR | EVENT_LOG)
        self._client = librdkafka.make_client(conf)
        self._queue = rdkafka.queue_get_main(self._client)
        rdkafka.set_log_queue(self._client, None)
        self._topics: dict[str, librdkafka.Handle] = {}
        self._lent: list[pa.BinaryArray] = []
        self._reports: list[Report] = []
        self._miscounted = 0
        self._in_use = threading.RLock()

    @property
    def outstanding(self) -> int:
        """How many records are neither delivered nor reported as failed."""
        with self._in_use:
            return int(rdkafka_at_once.outq_len(self._open())) - self._miscounted

    @property
    def miscounts(self) -> bool:
        """Whether its queue will never be empty again, because librdkafka counts what it did not take."""
        return self._miscounted > 0

    @property
    def holds_records(self) -> bool:
        """Whether it keeps records in memory: a `poll` behind the last acknowledgement lets go of them."""
        return bool(self._lent)

    def produce(self, records: Outgoing, at: Index) -> NDArray[np.int32]:
        """Queue the records at these places, in this order; for each 0 or why it was not queued.

        Those of one topic stand together. Once the queue is full, no later record is queued either, so that the order
        stays.
        """
        with self._in_use:
            self._open()
            pieces = list(find_runs(records, at))
            topics = {number: self._look_up_topic(records.topic_names[number]) for number, _, _ in pieces}
            self._lent += (records.keys, records.values)
            if records.headers or records.timestamps is not None:
                return self._produce_one_by_one(topics, records, at)
            return self._produce_together(topics, pieces, records, at)

    def flush(self, seconds: float) -> list[Report]:
        """Send what is queued and wait for its fate, for so long at most; then as `poll`."""
        # librdkafka waits for its reports to be taken, too: where they are many, it waits in short turns.
        turn = min(seconds, REPORTS_LOOK_SECONDS) if self._reports_all else seconds
        deadline = time.monotonic() + seconds
        while True:
            with self._in_use:
                rdkafka.flush(self._open(), round(turn * 1000))
                reports = self.poll()
                if reports or not self.outstanding or time.monotonic() >= deadline:
                    return reports

    def poll(self) -> list[Report]:
        """What became of records since the last call. KafkaException when the client failed for good; the call after
        it gives the reports."""
        with self._in_use:
            self._open()
            while event := rdkafka_at_once.queue_poll(self._queue, 0):
                try:
                    self._take(event)
                finally:
                    rdkafka.event_destroy(event)
            if not self.outstanding:
                self._lent.clear()
        reports, self._reports = self._reports, []
        return reports

    def give_up(self) -> list[Report] | None:
        """Forget every outstanding record: each is reported as failed. None if the client does not say in time."""
        with self._in_use:
            rdkafka.purge(self._open(), librdkafka.PURGE_ALL)
        reports: list[Report] = []
        deadline = time.monotonic() + _CLOSE_SECONDS
        while self.outstanding and time.monotonic() < deadline:
            with suppress(KafkaException):  # that it failed for good is why it is given up
                reports += self.flush(REPORTS_LOOK_SECONDS)
        return None if self.outstanding else reports + self._reports

    def open(self, topic: str) -> None:
        """Make the topic known to the client, which asks the brokers for it. KafkaException for a name that is none."""
        with self._in_use:
            self._open()
            self._look_up_topic(topic)

    def read_metadata(self, topic: str | None, timeout: float) -> Mapping[str, TopicMetadata]:
        """What brokers say of one topic, which may create it (auto.create.topics.enable); None: of all that exist.

        KafkaException when no broker answers within `timeout` seconds.
        """
        with self._in_use:
            client = self._open()
            only = None if topic is None else self._look_up_topic(topic)
            return _parse_metadata(librdkafka.read_metadata(client, only, round(timeout * 1000)))

    def read_metadata_together(self, topics: Iterable[str], timeout: float) -> Mapping[str, TopicMetadata]:
        """What brokers say of these topics and others: one question, which may create them. Raises as `metadata`."""
        with self._in_use:
            client = self._open()
            for topic in topics:
                self._look_up_topic(topic)
            return _parse_metadata(librdkafka.read_metadata(client, None, round(timeout * 1000), known=True))

    def read_partition_states(self, topics: Container[str], timeout: float) -> Mapping[str, Sequence[PartitionState]]:
        """The partitions by number of those of these topics that exist. Makes no topic, and raises as `metadata`."""
        with self._in_use:
            found = librdkafka.read_partitions(self._open(), topics, round(timeout * 1000))
        return {name: [PartitionState(*state) for state in states] for name, states in found.items()}

    def close(self) -> None:
        """Forget what is not delivered, disconnect, and let go of its memory. The second time nothing happens."""
        if not self._in_use.acquire(timeout=_CLOSE_SECONDS):
            self._log.warning("the Kafka client is still waiting for a broker, and is left to the process's end")
            return
        try:
            if self._client is not None:
                self._destroy()
        finally:
            self._in_use.release()

    def _open(self) -> librdkafka.Handle:
        """The client, which nobody closes while `_in_use` is held."""
        if self._client is None:
            raise SinkUnavailable("the Kafka client is closed")
        return self._client

    def _destroy(self) -> None:
        rdkafka.purge(self._client, librdkafka.PURGE_ALL)
        for topic in self._topics.values():
            rdkafka.topic_destroy(topic)
        rdkafka.queue_destroy(self._queue)
        rdkafka.destroy(self._client)  # returns when no thread of the client's is left that could read what was lent
        self._client = None
        self._lent.clear()

    def _look_up_topic(self, name: str) -> librdkafka.Handle:
        if name not in self._topics:
            handle = rdkafka.topic_new(self._client, name.encode(), None)
            if not handle:
                raise KafkaException(KafkaError(rdkafka.last_error()))
            self._topics[name] = handle
        return self._topics[name]

    def _take(self, event: librdkafka.Handle) -> None:
        kind = rdkafka.event_type(event)
        if kind == EVENT_DELIVERY:
            self._reports += map(_report, librdkafka.list_messages(event))
        elif kind == EVENT_LOG:
            severity, text = librdkafka.read_log_line(event)
            self._log.log(_SEVERITIES[min(severity, 7)], "%s", text)
        elif kind == EVENT_ERROR:
            error = librdkafka.read_error(event)
            if rdkafka.event_error_is_fatal(event):
                raise KafkaException(error)
            self._on_error(error)

    def _produce_together(
        self, topics: Topics, pieces: Sequence[Run], records: Outgoing, at: Index
    ) -> NDArray[np.int32]:
        messages = lay_out(records, at)
        first = messages.ctypes.data
        for topic, start, end in pieces:
            produce = rdkafka_at_once.produce_batch if end - start < _GIL_HELD_RECORDS else rdkafka.produce_batch
            address = first + start * MESSAGE.itemsize
            taken = produce(topics[topic], -1, librdkafka.EACH_ITS_PARTITION, address, end - start)
            if taken < end - start and self._is_full(messages["error"][start:end]):
                messages["error"][end:] = KafkaError._QUEUE_FULL
                break
        return np.ascontiguousarray(messages["error"])

    def _is_full(self, errors: NDArray[np.int32]) -> bool:
        """Whether the queue is why records were not taken; counts those that stay in its count."""
        self._miscounted += int(np.count_nonzero(np.isin(errors, _MISCOUNTED)))
        return bool(errors[-1] == KafkaError._QUEUE_FULL)

    def _produce_one_by_one(self, topics: Topics, records: Outgoing, at: Index) -> NDArray[np.int32]:
        """One call a record: librdkafka has none that takes a batch with headers or timestamps."""
        errors = np.zeros(len(at), np.int32)
        names = {name: ctypes.create_string_buffer(name.encode()) for name in records.headers}
        addresses = {name: ctypes.addressof(text) for name, text in names.items()}
        handles = np.zeros(len(records.topic_names), np.uint64)
        handles[list(topics)] = list(topics.values())
        for start in range(0, len(at), _LAID_OUT_RECORDS):
            fields = lay_out_fields(handles, records, at[start : start + _LAID_OUT_RECORDS], addresses)
            for place, error in enumerate(self._produce_each(fields), start):
                if error:
                    errors[place] = error
                if error == KafkaError._QUEUE_FULL:
                    errors[place:] = error
                    return errors
        return errors

    def _produce_each(self, fields: NDArray[np.void]) -> Iterator[int]:
        first, width, produce = fields.ctypes.data, fields.shape[1], rdkafka_at_once.produceva
        for address in range(first, first + fields.nbytes, fields.strides[0]):
            error = produce(self._client, address, width)
            yield 0 if error is None else _take_error_code(error)


def _parse_metadata(topics: Iterable[tuple[str, int, int]]) -> Mapping[str, TopicMetadata]:
    return {name: TopicMetadata(partitions, KafkaError(code) if code else None) for name, partitions, code in topics}


def _report(message: librdkafka.Message) -> Report:
    place = message.opaque or 0
    return (
        Failed(place, KafkaError(message.error)) if message.error else Written(place, message.partition, message.offset)
    )


def _take_error_code(error: librdkafka.Handle) -> int:
    code = int(rdkafka.error_code(error))
    rdkafka.error_destroy(error)
    return code
