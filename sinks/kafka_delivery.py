"""Delivery: hands records to librdkafka and returns when the fate of every one of them is known."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import ClusterMetadata  # type: ignore[attr-defined]  # exported, but not in its __all__

from psql_streamer.errors import SinkUnavailable
from sinks.kafka_errors import REFUSED, REJECTED, sink_error

Headers = list[tuple[str, bytes]]

_NAP = 0.1
"""Seconds between two looks at the clock and at `interrupt` while waiting."""

_PURGE_SECONDS = 1.0
"""Longest wait for the client to hand back what it was told to forget."""

_ONE_A_REQUEST = {
    "batch.num.messages": "1",
    "linger.ms": "0",
    "enable.idempotence": "false",
    "max.in.flight.requests.per.connection": "1",
}


@dataclass(frozen=True, slots=True)
class Rows:
    """Records as librdkafka takes them, one element a record. partitions: -1 leaves it to the client."""

    topics: list[str]
    values: list[bytes | None]
    keys: list[bytes | None]
    partitions: list[int]
    headers: list[Headers] | None = None

    def __len__(self) -> int:
        return len(self.topics)

    def take(self, indexes: Iterable[int]) -> Rows:
        """The records at these places."""
        chosen = list(indexes)
        return Rows(
            [self.topics[i] for i in chosen],
            [self.values[i] for i in chosen],
            [self.keys[i] for i in chosen],
            [self.partitions[i] for i in chosen],
            None if self.headers is None else [self.headers[i] for i in chosen],
        )


Report = Callable[[KafkaError | None, Message], None]
"""A delivery report's taker; Message holds the topic, key and value, not the place in a batch."""

Rejections = Mapping[int, KafkaError]
"""Index of a record -> why it can never be delivered."""


class Delivery:
    """A producer, replaced after every failure. Not for several threads, except `interrupt`.

    properties: librdkafka's. patience: seconds without a single acknowledgement after which all is given up. log: for
    what the client says.
    """

    def __init__(self, properties: Mapping[str, str], patience: float, log: logging.Logger) -> None:
        self._properties = properties
        self._patience = patience
        self._log = log
        self._interrupted = threading.Event()
        self._complaints = _Complaints(log)
        self._failures = _Failures()
        self._producer = self._make_producer({}, self._failures.add)

    def deliver(self, rows: Rows) -> Rejections:
        """Return when all are durable but those returned. Records of one partition keep their order.

        Raises SinkUnavailable or SinkRefused when others failed; what of them was written is then unknown.
        """
        self._failures.clear()
        rejected = self._send(self._producer, rows, None)
        self._finish(self._failures.reports)
        if not self._failures:
            return rejected
        # One bad record fails its whole request (KIP-467; a request larger than the topic allows fails likewise),
        # and requests behind it were taken. Writing everything from there on once more, one record a request,
        # finds the culprits and leaves the others in order.
        suspects = self._failures.suspects(rows)
        self._log.warning("writing %d records one by one to find those that Kafka rejects", len(suspects))
        return rejected | {suspects[i]: error for i, error in self.deliver_singly(rows.take(suspects)).items()}

    def deliver_singly(self, rows: Rows) -> Rejections:
        """As `deliver`, one record a request: slow, but every rejection is the record's own fault."""
        reported: dict[int, tuple[KafkaError, Message]] = {}

        def reporter(index: int) -> Report:
            def report(error: KafkaError | None, message: Message) -> None:
                if error is not None:
                    reported[index] = (error, message)

            return report

        producer = self._make_producer(_ONE_A_REQUEST, None)
        rejected = self._send(producer, rows, map(reporter, range(len(rows))))
        self._finish(reported.values())
        return rejected | {index: error for index, (error, _) in reported.items()}

    def metadata(self, topic: str | None, timeout: float) -> ClusterMetadata:
        """The cluster's metadata; asking for one topic may create it (broker's auto.create.topics.enable)."""
        try:
            metadata: ClusterMetadata = (
                self._producer.list_topics(timeout=timeout)
                if topic is None
                else self._producer.list_topics(topic, timeout=timeout)
            )
        except KafkaException as error:
            self._abandon(self._producer)
            raise self._failure(f"brokers gave no metadata within {timeout:g} s", error.args[0]) from None
        return metadata

    def wait(self, seconds: float) -> None:
        """Sleep, unless interrupted: then SinkUnavailable."""
        if self._interrupted.wait(seconds):
            raise SinkUnavailable("interrupted before every record was acknowledged")

    def interrupt(self) -> None:
        """Make whatever waits raise SinkUnavailable soon. From any thread, for good."""
        self._interrupted.set()

    def close(self) -> None:
        """Abandon what is not delivered and disconnect."""
        _purge(self._producer)

    def _send(self, producer: Producer, rows: Rows, reports: Iterable[Report] | None) -> dict[int, KafkaError]:
        """Produce all and wait for all; returns what the client itself rejected."""
        rejected: dict[int, KafkaError] = {}
        produce = producer.produce
        try:
            for index, arguments in enumerate(_produce_arguments(rows, reports)):
                try:
                    produce(*arguments)
                except (BufferError, KafkaException) as error:
                    self._produce_again(producer, arguments, error, rejected, index)
            self._settle(producer, lambda left: left == 0)
        except BaseException:
            self._abandon(producer)
            raise
        return rejected

    def _produce_again(
        self,
        producer: Producer,
        arguments: tuple[Any, ...],
        error: BufferError | KafkaException,
        rejected: dict[int, KafkaError],
        index: int,
    ) -> None:
        """The queue was full: wait for room. The client refuses the record: note it. Else raise."""
        while isinstance(error, BufferError):
            if not len(producer):
                rejected[index] = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, "larger than the client's whole queue")
                return
            self._settle(producer, len(producer).__gt__)
            try:
                producer.produce(*arguments)
            except (BufferError, KafkaException) as again:
                error = again
            else:
                return
        reason = error.args[0]
        if reason.code() not in REJECTED:
            self._serve(producer, 0)  # a producer that is broken for good says why here only
            raise self._failure(f'cannot write to topic "{arguments[0]}"', reason)
        rejected[index] = reason

    def _settle(self, producer: Producer, enough: Callable[[int], bool]) -> None:
        """Serve delivery reports until `enough` of the number that is left; raise when nothing moves any more."""
        left = len(producer)
        deadline = time.monotonic() + self._patience
        while not enough(left):
            self.wait(0)
            now_left = self._serve(producer, _NAP)
            if now_left < left:
                deadline = time.monotonic() + self._patience
            elif time.monotonic() > deadline:
                raise self._failure(f"{now_left} records were not acknowledged, none for {self._patience:g} s", None)
            left = now_left

    def _serve(self, producer: Producer, seconds: float) -> int:
        """Take delivery reports and complaints; returns how many records are left."""
        try:
            producer.poll(0)
            return producer.flush(seconds)
        except KafkaException as fatal:
            raise self._failure("the Kafka client failed for good", fatal.args[0]) from None

    def _finish(self, reports: Iterable[tuple[KafkaError, Message]]) -> None:
        """Raise if a record failed for any reason but its own; else the connections are well again."""
        others = [report for report in reports if report[0].code() not in REJECTED]
        if others:
            worst, message = next((report for report in others if report[0].code() in REFUSED), others[0])
            what = f'{len(others)} records were not delivered, the first of them to topic "{message.topic()}"'
            raise self._failure(what, worst)
        self._complaints.settle()

    def _failure(self, what: str, error: KafkaError | None) -> Exception:
        """The exception for it, with the client's own reason where it says more than the error does."""
        told = self._complaints.reason
        if told is not None and (error is None or error.code() not in REFUSED):
            return sink_error(what, told)
        return sink_error(what, error) if error is not None else SinkUnavailable(what)

    def _make_producer(self, more: Mapping[str, str], report: Report | None) -> Producer:
        settings: dict[str, Any] = {
            **self._properties,
            **more,
            "error_cb": self._complaints.add,
            "logger": self._log,
            # Reports of success would call into Python for every record; a flush says the same of all of them.
            "delivery.report.only.error": True,
        }
        if report is not None:
            settings["on_delivery"] = report
        try:
            return Producer(settings)
        except KafkaException as error:
            raise sink_error("the Kafka client does not start", error.args[0]) from None

    def _abandon(self, producer: Producer) -> None:
        """Forget what the producer holds. A new one also gets over errors that are fatal to an old one."""
        _purge(producer)
        if producer is self._producer:
            self._producer = self._make_producer({}, self._failures.add)


def _purge(producer: Producer) -> None:
    producer.purge()
    with suppress(KafkaException):  # it is being left, whatever it says
        producer.poll(0)
        producer.flush(_PURGE_SECONDS)


def _produce_arguments(rows: Rows, reports: Iterable[Report] | None) -> Iterable[tuple[Any, ...]]:
    """Producer.produce's arguments, a tuple a record. Positional: the binding parses keywords slower.

    topic, value, key, partition, callback, on_delivery (its other name, looked at when the first is not given
    at all, so that a None in the first hides it), timestamp (0: now), headers.
    """
    what = (rows.topics, rows.values, rows.keys, rows.partitions)
    if reports is None and rows.headers is None:
        return zip(*what, strict=True)
    headers = repeat(None) if rows.headers is None else rows.headers
    return zip(*what, repeat(None) if reports is None else reports, repeat(None), repeat(0), headers)


@dataclass(slots=True)
class _Failures:
    """Delivery reports of one attempt that were not a success."""

    reports: list[tuple[KafkaError, Message]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.reports)

    def add(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.reports.append((error, message))

    def clear(self) -> None:
        self.reports.clear()

    def suspects(self, rows: Rows) -> list[int]:
        """Every record from the first failure of its partition on (a record's partition -1: of its topic)."""
        places = {(m.topic(), m.partition()) for _, m in self.reports}
        failed = {(m.topic(), m.key(), m.value()) for _, m in self.reports}
        started: set[tuple[str, int]] = set()
        chosen = []
        for index, row in enumerate(zip(rows.topics, rows.keys, rows.values, rows.partitions, strict=True)):
            topic, key, value, partition = row
            if (topic, partition) in started or (topic, key, value) in failed:
                chosen.append(index)
                if partition >= 0:
                    started |= {(topic, partition)} & places
        return chosen


@dataclass(slots=True)
class _Complaints:
    """What the client said of its connections since records last got through; each complaint is logged once."""

    log: logging.Logger
    reason: KafkaError | None = None
    logged: set[str] = field(default_factory=set)

    def add(self, error: KafkaError) -> None:
        # "All brokers down" says less than the complaint before it does.
        if self.reason is None or error.code() != KafkaError._ALL_BROKERS_DOWN:
            self.reason = error
        if error.name() not in self.logged:
            self.logged.add(error.name())
            self.log.warning("Kafka: %s", error.str())

    def settle(self) -> None:
        self.reason = None
        self.logged.clear()
