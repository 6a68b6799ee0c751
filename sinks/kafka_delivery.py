"""Delivery: hands records to librdkafka and returns when the fate of every one of them is known."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from confluent_kafka import KafkaError, KafkaException
from numpy.typing import NDArray

from psql_streamer.errors import SinkError, SinkUnavailable
from sinks.kafka_errors import REFUSED, REJECTED, sink_error
from sinks.kafka_producer import Failed, Index, Outgoing, Producer, TopicMetadata

_NAP = 0.1
"""Seconds between two looks at the clock and at `interrupt` while waiting."""

_ONE_A_REQUEST = {
    "batch.num.messages": "1",
    "linger.ms": "0",
    "enable.idempotence": "false",
    "max.in.flight.requests.per.connection": "1",
}

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
        self._producer = self._make_producer({})

    def deliver(self, records: Outgoing) -> Rejections:
        """Return when all are durable but those returned. Records of one partition keep their order.

        Raises SinkUnavailable or SinkRefused when others failed; what of them was written is then unknown.
        """
        attempt = self._send(self._producer, records)
        if not attempt.failed:
            return attempt.rejected
        # One bad record fails its whole request (KIP-467; a request larger than the topic allows fails likewise),
        # and requests behind it were taken. Writing everything from there on once more, one record a request,
        # finds the culprits and leaves the others in order.
        suspects = _suspects(records, [failed.place for failed in attempt.failed])
        self._log.warning("writing %d records one by one to find those that Kafka rejects", len(suspects))
        found = self.deliver_singly(records.take(suspects))
        return attempt.rejected | {int(suspects[index]): error for index, error in found.items()}

    def deliver_singly(self, records: Outgoing) -> Rejections:
        """As `deliver`, one record a request: slow, but every rejection is the record's own fault."""
        producer = self._make_producer(_ONE_A_REQUEST)
        try:
            attempt = self._send(producer, records)
        finally:
            producer.close()
        return attempt.rejected | dict(attempt.failed)

    def metadata(self, topic: str | None, timeout: float) -> Mapping[str, TopicMetadata]:
        """As Producer.metadata. SinkUnavailable or SinkRefused when the brokers do not answer."""
        try:
            return self._producer.metadata(topic, timeout)
        except KafkaException as error:
            self._serve(self._producer, 0)
            self._abandon(self._producer)
            raise self._failure(f"brokers gave no metadata within {timeout:g} s", error.args[0]) from None

    def wait(self, seconds: float) -> None:
        """Sleep, unless interrupted: then SinkUnavailable."""
        if self._interrupted.wait(seconds):
            raise SinkUnavailable("interrupted before every record was acknowledged")

    def interrupt(self) -> None:
        """Make whatever waits raise SinkUnavailable soon. From any thread, for good."""
        self._interrupted.set()

    def close(self) -> None:
        """Abandon what is not delivered and disconnect."""
        self._producer.close()

    def _send(self, producer: Producer, records: Outgoing) -> _Attempt:
        """Produce all and wait for all. Raises if a record failed for any reason but its own."""
        attempt = _Attempt()
        try:
            for topic, at in records.by_topic():
                self._produce(producer, topic, records, at, attempt)
            self._settle(producer, lambda left: left == 0, attempt)
        except BaseException:
            self._abandon(producer)
            raise
        self._judge(records, attempt.failed)
        return attempt

    def _produce(self, producer: Producer, topic: str, records: Outgoing, at: Index, attempt: _Attempt) -> None:
        """Queue all, in as many turns as the client's queue asks for; note what the client itself rejects."""
        while len(at):
            before = producer.outstanding
            errors = producer.produce(topic, records, at)
            full = errors == KafkaError._QUEUE_FULL
            for index, code in zip(at[~full].tolist(), errors[~full].tolist(), strict=True) if errors.any() else ():
                if code in REJECTED:
                    attempt.rejected[index] = KafkaError(code)
                elif code:
                    self._serve(producer, 0)  # a producer that is broken for good says why here only
                    raise self._failure(f'cannot write to topic "{topic}"', KafkaError(code))
            at = at[full]
            if full.all() and len(at) and not before:
                too_large = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, "larger than the client's whole queue")
                attempt.rejected[int(at[0])] = too_large
                at = at[1:]
            elif len(at):
                self._settle(producer, producer.outstanding.__gt__, attempt)

    def _settle(self, producer: Producer, enough: Callable[[int], bool], attempt: _Attempt) -> None:
        """Wait until `enough` of the number that is left; raise when nothing moves any more."""
        left = producer.outstanding
        deadline = time.monotonic() + self._patience
        while True:
            attempt.failed += self._serve(producer, _NAP)
            now_left = producer.outstanding
            if enough(now_left):
                return
            if now_left < left:
                deadline = time.monotonic() + self._patience
            elif time.monotonic() > deadline:
                raise self._failure(f"{now_left} records were not acknowledged, none for {self._patience:g} s", None)
            left = now_left
            self.wait(0)

    def _serve(self, producer: Producer, seconds: float) -> list[Failed]:
        """Take delivery reports and complaints."""
        try:
            return producer.flush(seconds) if seconds else producer.poll()
        except KafkaException as fatal:
            raise self._failure("the Kafka client failed for good", fatal.args[0]) from None

    def _judge(self, records: Outgoing, failed: Iterable[Failed]) -> None:
        """Raise if a record failed for any reason but its own; else the connections are well again."""
        others = [one for one in failed if one.error.code() not in REJECTED]
        if others:
            worst = next((one for one in others if one.error.code() in REFUSED), others[0])
            topic = records.topic_names[records.topics[worst.place]]
            what = f'{len(others)} records were not delivered, the first of them to topic "{topic}"'
            raise self._failure(what, worst.error)
        self._complaints.settle()

    def _failure(self, what: str, error: KafkaError | None) -> SinkError:
        """The exception for it, with the client's own reason where it says more than the error does."""
        told = self._complaints.reason
        if told is not None and (error is None or error.code() not in REFUSED):
            return sink_error(what, told)
        return sink_error(what, error) if error is not None else SinkUnavailable(what)

    def _make_producer(self, more: Mapping[str, str]) -> Producer:
        try:
            return Producer({**self._properties, **more}, self._complaints.add, self._log)
        except KafkaException as error:
            raise sink_error("the Kafka client does not start", error.args[0]) from None

    def _abandon(self, producer: Producer) -> None:
        """Forget what the producer holds. A new one also gets over errors that are fatal to an old one."""
        producer.close()
        if producer is self._producer:
            self._producer = self._make_producer({})


@dataclass(slots=True)
class _Attempt:
    """What became of records that were not delivered. rejected: by the client itself; failed: on their way."""

    rejected: dict[int, KafkaError] = field(default_factory=dict)
    failed: list[Failed] = field(default_factory=list)


def _suspects(records: Outgoing, failed: list[int]) -> Index:
    """What failed, and every record behind a failure in its partition."""
    chosen = np.zeros(len(records), np.bool_)
    chosen[failed] = True
    places: NDArray[np.int64] = records.topics.astype(np.int64) << 32 | records.partitions
    for place in np.unique(places[chosen & (records.partitions >= 0)]):
        of_place = np.flatnonzero(places == place)
        chosen[of_place[np.argmax(chosen[of_place]) :]] = True
    return np.flatnonzero(chosen)


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
