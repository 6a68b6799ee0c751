"""Delivery: hands records to librdkafka and returns when the fate of every one of them is known."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import numpy as np
from confluent_kafka import KafkaError, KafkaException

from psql_streamer.batching import DELIVERY_LOOK_SECONDS, NEXT_LOOK_SECONDS
from psql_streamer.errors import SinkError, SinkUnavailable
from sinks.kafka.clients import Clients
from sinks.kafka.compression import UNCOMPRESSED, Compression
from sinks.kafka.connection_errors import explain_silence
from sinks.kafka.errors import REFUSED, REJECTED, make_sink_error
from sinks.kafka.first_requests import select_first_requests
from sinks.kafka.librdkafka import is_idempotent, resolve_properties
from sinks.kafka.producer import Failed, Producer, TopicMetadata
from sinks.kafka.rejections import find_rejected
from sinks.kafka.request_size import RequestSize
from sinks.kafka.shipment import Shipment
from sinks.kafka.standstill import describe_troubles, lacks_partition

_MOST_STANDSTILLS = 10
"""Standstills in a row, after which a new client takes over: it reads certificates from their files anew."""

_UNHEARD_SECONDS = 0.1
"""The time without a write in which a client may have said something: while it is written, each write hears it."""

_LATER_LOOK = 1.125
"""How much longer each look for a next batch takes than the one before: about an eighth of the time that was waited so
far, and no later comes the batch. Looking at the same pace for ever would keep a core busy while brokers are away.
"""

_METADATA_SECONDS = 1.0
"""Seconds that brokers get to answer a question: of a new client, and for the state of the partitions when nothing
moves.
"""

_ACKS = "acks"
_ALL_REPLICAS = ("-1", "")
"""Its values for which brokers heed min.insync.replicas: `all` as librdkafka spells it, which is also its default."""

_STANDSTILL_REMEDY = (
    "compare min.insync.replicas of the topics with their replicas, and look at the brokers' logs, and at quotas of "
    "the client (producer_byte_rate)"
)
"""What to do about brokers that answer, but acknowledge nothing: librdkafka does not say what keeps it trying."""

GONE_REMEDY = "create it again, or set createTopics"
"""What to do about a topic that was deleted while records are on their way to it."""

_SILENCE_REMEDY = "look at the network, at the brokers' logs, and at quotas of the client (producer_byte_rate)"
"""What to do about brokers that do not answer a question, either, though no connection is lost: so is a client that
brokers hold back. And about those that do, where nobody waits for replicas.
"""

ONE_A_REQUEST = {
    "batch.num.messages": "1",
    "linger.ms": "0",
    "max.in.flight.requests.per.connection": "1",
}
"""Properties with which an error of a request is that of one record."""

Rejections = Mapping[int, KafkaError]
"""Index of a record -> why it can never be delivered."""


class Delivery:
    """A producer, replaced when it fails for good. Not for several threads, except `interrupt`.

    properties: librdkafka's. delivery_timeout: seconds without a single acknowledgement after which a wait is given up.
    log: for what the client says.
    """

    singles_out: bool = True
    """Whether records that may well be rejected are written one by one from the start."""

    def __init__(self, properties: Mapping[str, str], delivery_timeout: float, log: logging.Logger) -> None:
        self._properties = properties
        self._delivery_timeout = delivery_timeout
        self._log = log
        self._interrupted = threading.Event()
        self._complaints = _Complaints(log, properties["bootstrap.servers"].split(","))
        self._standstills = 0
        self._size = RequestSize(properties, log)
        self._is_idempotent = is_idempotent(properties)
        self._waits_for_replicas = resolve_properties(properties, [_ACKS])[_ACKS] in _ALL_REPLICAS
        self._compression = Compression(properties)
        self._lacks_producer = False
        self._producer = self._make_producer({})
        self._plain: Clients | None = None
        self._single: Clients | None = None
        self._delivered_at = 0.0

    def deliver(self, shipment: Shipment, begin_next: Callable[[], bool] | None = None) -> Rejections:
        """Return when all are durable but those returned. Records of one partition keep their order.

        begin_next: called while requests are under way, until it returns True. Raises SinkUnavailable or SinkRefused:
        given the same shipment again, it goes on with what is not acknowledged.
        """
        while shipment.waiting or shipment.under_way:
            producer = self._choose_producer(shipment)
            self._hand_over(producer, shipment)
            self._settle(producer, lambda left: left == 0, shipment, begin_next)
            if producer.holds_records:  # one of several, which was not done yet when it was asked last
                self._serve(producer, shipment, DELIVERY_LOOK_SECONDS)
            self._judge(producer, shipment)
            if shipment.singly and not shipment.waiting:
                self._close_single()
        self._settle_size(shipment)
        self._delivered_at = time.monotonic()
        return shipment.rejected

    def settle(self, shipment: Shipment) -> None:
        """Wait for what is under way from an attempt before this one. Raises as `deliver` does."""
        if shipment.under_way:
            producer = self._choose_producer(shipment)
            self._settle(producer, lambda left: left == 0, shipment)
            self._judge(producer, shipment)

    def listen(self) -> None:
        """Take what clients said while nothing was written: it does not explain what comes. Nothing is under way."""
        if time.monotonic() - self._delivered_at > _UNHEARD_SECONDS:
            try:
                for client in (self._require_producer(), self._plain):
                    if client is not None:
                        client.poll()
            except KafkaException:
                self.abandon()
        self._complaints.age()

    def read_metadata(self, topic: str | None, timeout: float) -> Mapping[str, TopicMetadata]:
        """See Producer.read_metadata. SinkUnavailable or SinkRefused when the brokers do not answer."""
        with self._convert_metadata_errors(timeout):
            found = self._require_producer().read_metadata(topic, timeout)
        if self._plain is not None:
            self._plain.look_again(None if topic is None else (topic,), timeout)
        return found

    def read_metadata_together(self, topics: Sequence[str], timeout: float) -> Mapping[str, TopicMetadata]:
        """See Producer.read_metadata_together. Raises as `metadata` does."""
        with self._convert_metadata_errors(timeout):
            found = self._require_producer().read_metadata_together(topics, timeout)
        if self._plain is not None:
            self._plain.look_again(topics, timeout)
        return found

    def wait(self, seconds: float) -> None:
        """Sleep, unless interrupted: then SinkUnavailable."""
        if self._interrupted.wait(seconds):
            raise SinkUnavailable("interrupted before every record was acknowledged")

    @property
    def lowered_request_bytes(self) -> int | None:
        """The most that a request has; None where it is what the properties say. From any thread."""
        return self._size.bytes if self._size.properties else None

    def interrupt(self) -> None:
        """Make whatever waits raise SinkUnavailable soon. From any thread, for good."""
        self._interrupted.set()

    def abandon(self) -> None:
        """Forget what is not delivered, and go on with a new client."""
        self.close()
        self._lacks_producer = True
        self._producer = self._make_producer({})
        self._lacks_producer = False

    def close(self) -> None:
        """Forget what is not delivered, and disconnect."""
        self._producer.close()
        if self._plain is not None:
            self._plain.close()
            self._plain = None
        self._close_single()

    @contextmanager
    def _convert_metadata_errors(self, timeout: float) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            with suppress(KafkaException):  # for the complaints
                self._producer.poll()
            self.abandon()
            raise self._make_error(f"brokers gave no metadata within {timeout:g} s", error.args[0]) from None

    def _require_producer(self) -> Clients:
        """Made now if it did not start when the one before was given up."""
        if self._lacks_producer:
            self.abandon()
        return self._producer

    def _choose_producer(self, shipment: Shipment) -> Clients:
        self._require_producer()
        if shipment.client is not None and shipment.client.is_closed:
            shipment.recall()
        if shipment.client is not None:
            return shipment.client
        if not shipment.singly:
            if self._has_other_size:
                self.abandon()
            return self._choose_by_compression(shipment)
        if self._single is None:
            self._single = self._make_producer(ONE_A_REQUEST)
        return self._single

    def _choose_by_compression(self, shipment: Shipment) -> Clients:
        """One that does not compress what that makes no smaller. Nothing is under way, so the order is kept."""
        if shipment.is_compressed is None:
            shipment.is_compressed = self._compression.makes_smaller(shipment.records)
        if self._plain is None and not shipment.is_compressed:
            self._plain = self._make_producer(UNCOMPRESSED)
        return self._producer if self._plain is None or shipment.is_compressed else self._plain

    def _close_single(self) -> None:
        if self._single is not None:
            self._single.close()
            self._single = None

    def _hand_over(self, producer: Clients, shipment: Shipment) -> None:
        """Queue what waits, one request for each partition, in as many turns as the client's queue asks for."""
        producer.meet_brokers(shipment.records.topic_names, _METADATA_SECONDS)
        at = shipment.list_waiting()
        if self._is_idempotent and not shipment.singly:
            at = select_first_requests(shipment.records, at, self._bytes)
        while len(at):
            before = producer.outstanding
            errors = producer.produce(shipment.records, at)
            full = errors == KafkaError._QUEUE_FULL
            if not np.count_nonzero(full):
                shipment.hand_over(producer, at, errors)
                return
            shipment.hand_over(producer, at[~full], errors[~full])
            at = at[full]
            if full.all() and not before:
                too_large = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, "larger than the client's whole queue")
                shipment.reject(int(at[0]), too_large)
                at = at[1:]
            elif left := producer.outstanding:
                self._settle(producer, left.__gt__, shipment)

    def _settle(
        self,
        producer: Clients,
        enough: Callable[[int], bool],
        shipment: Shipment,
        begin_next: Callable[[], bool] | None = None,
    ) -> None:
        """Wait until `enough` of the number that is left; raise when nothing moves any more."""
        # First of all the client is asked to flush: until then incomplete requests wait for linger.ms.
        look = DELIVERY_LOOK_SECONDS if begin_next is None else NEXT_LOOK_SECONDS
        self._serve(producer, shipment, look)
        left = producer.outstanding
        deadline = time.monotonic() + self._delivery_timeout
        while not enough(left):
            if time.monotonic() > deadline:
                raise self._judge_standstill(producer, shipment, left)
            self.wait(0)
            if begin_next is None or begin_next():
                begin_next, look = None, DELIVERY_LOOK_SECONDS
            else:
                look = min(look * _LATER_LOOK, DELIVERY_LOOK_SECONDS)
            self._serve(producer, shipment, look)
            now_left = producer.outstanding  # complaints that wait to be heard are counted, too: it may rise
            if now_left < left:
                left = now_left
                self._standstills = 0
                deadline = time.monotonic() + self._delivery_timeout

    def _serve(self, producer: Clients, shipment: Shipment, seconds: float) -> None:
        """Take delivery reports and complaints; wait for so long at most."""
        try:
            shipment.report(producer.flush(seconds))
        except KafkaException as fatal:
            self._replace(producer, shipment)
            raise self._make_error("the Kafka client failed for good", fatal.args[0]) from None

    def _judge_standstill(self, producer: Clients, shipment: Shipment, left: int) -> SinkError:
        """The error for a wait that is given up. What is under way stays so: the client goes on trying, and what it
        sends again the brokers know by its number. A new client's repeats they do not know.
        """
        self._standstills += 1
        what = f"{left} records were not acknowledged, none for {self._delivery_timeout:g} s"
        hopeless, remedy = self._standstills >= _MOST_STANDSTILLS, _SILENCE_REMEDY
        with suppress(KafkaException):
            states = producer.read_partition_states(set(shipment.records.topic_names), _METADATA_SECONDS)
            why = describe_troubles(shipment, states, self._waits_for_replicas)
            what = f"{what} ({why})" if why else what
            if lacks_partition(shipment, states):
                hopeless, remedy = True, GONE_REMEDY
            elif self._waits_for_replicas:
                remedy = _STANDSTILL_REMEDY
        if hopeless:
            self._replace(producer, shipment)
        if self._complaints.reason is not None:
            return make_sink_error(what, self._complaints.reason)
        return SinkUnavailable(f"{what}{self._complaints.describe_old()}", remedy)

    def _replace(self, producer: Clients, shipment: Shipment) -> None:
        """A new client. What the old one had not delivered waits again, with all that is behind it."""
        self._standstills = 0
        failed = producer.give_up()
        if failed is None:
            shipment.recall()
        else:
            shipment.report(failed)
            self._sort(shipment)
        self.abandon()

    def _judge(self, producer: Clients, shipment: Shipment) -> None:
        """Look at what failed of the records that were under way. Raises if some did for another reason than their own.

        One bad record fails its whole request (KIP-467; a request larger than the topic allows fails likewise), and
        requests behind it were taken. Writing everything from there on once more, one record a request, finds the
        culprits and leaves the others in order. Where the size of requests is the reason, smaller ones are tried first.
        """
        failed = self._sort(shipment)
        others = [failure for failure in failed if failure.error.code() not in REJECTED]
        if producer.miscounts:
            self.abandon()
        if others:
            raise self._make_undelivered_error(shipment, others)
        if failed and not shipment.singly and self._size.lower(failed, shipment):
            return
        if failed:
            shipment.singly = True
            self._log.warning("writing %d records one by one to find those that Kafka rejects", shipment.waiting)
        elif misplaced := shipment.find_misplaced():
            shipment.repeat(misplaced)
            self._log.warning(
                "writing %d records again: the client overtook them when it tried again", shipment.waiting
            )
        self._complaints.settle()

    def _sort(self, shipment: Shipment) -> list[Failed]:
        """Reject what is known to be why its request was rejected. The other failures wait again; they are returned."""
        failed = shipment.land()
        if not failed:
            return failed
        found = find_rejected(failed, shipment.records, self._bytes, singly=shipment.singly)
        own = {failure.place: failure.error for failure in found}
        shipment.rejected.update(own)
        left = [failure for failure in failed if failure.place not in own]
        shipment.repeat(failure.place for failure in left)
        return left

    def _make_undelivered_error(self, shipment: Shipment, failed: list[Failed]) -> SinkError:
        worst = next((failure for failure in failed if failure.error.code() in REFUSED), failed[0])
        topic = shipment.records.topic_names[shipment.records.topics[worst.place]]
        return self._make_error(
            f'{len(failed)} records were not delivered, the first of them to topic "{topic}"', worst.error
        )

    def _make_error(self, what: str, error: KafkaError) -> SinkError:
        """The exception for it, with the client's own reason where it says more than the error does."""
        complaint = self._complaints.reason
        return make_sink_error(what, error if complaint is None or error.code() in REFUSED else complaint)

    def _settle_size(self, shipment: Shipment) -> None:
        self._size.settle([shipment])

    @property
    def _has_other_size(self) -> bool:
        """Whether the client makes requests of another size than it should."""
        return self._bytes != self._size.bytes

    def _make_producer(self, more: Mapping[str, str]) -> Clients:
        properties = {**self._properties, **self._size.properties, **more}
        if not more:
            self._bytes = self._size.bytes

        def make() -> Producer:
            with self._convert_start_errors():  # also of one that comes later, for more topics
                return Producer(properties, self._complaints.add, self._log)

        return Clients(make, self._log)

    @contextmanager
    def _convert_start_errors(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise make_sink_error("the Kafka client does not start", error.args[0]) from None


@dataclass(slots=True)
class _Complaints:
    """What the client said of its connections since records last got through; each complaint is logged once.

    hosts: of the configuration. old: what it said before there was something to write. It may be over: a client that
    has connected says nothing.
    """

    log: logging.Logger
    hosts: Sequence[str]
    reason: KafkaError | None = None
    old: KafkaError | None = None
    logged: set[str] = field(default_factory=set)

    def add(self, error: KafkaError) -> None:
        error = explain_silence(error, self.hosts)
        # "All brokers down" says less than the complaint before it does.
        if self.reason is None or error.code() != KafkaError._ALL_BROKERS_DOWN:
            self.reason = error
        if error.name() not in self.logged:
            self.logged.add(error.name())
            self.log.warning("Kafka: %s", error.str())

    def age(self) -> None:
        """What was said up to now is old."""
        self.old, self.reason = self.reason or self.old, None

    def describe_old(self) -> str:
        """What may have passed, for messages; empty for nothing."""
        return "" if self.old is None else f" (before them the client said: {self.old.str()})"

    def settle(self) -> None:
        self.reason = self.old = None
        self.logged.clear()
