"""Delivery in transactions: what was handed over since the last begin is written together, or not at all.

A transaction ends with the first record of it that fails, whatever the reason: brokers take a transaction without gaps.
Then all of it is written again by a new client, which takes over the transactional id: brokers end what the client
before has left open. (rd_kafka_abort_transaction does not do: behind a request that was rejected the client skips
sequence numbers, so that its next transaction fails, too.)
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from confluent_kafka import KafkaError, KafkaException

from psql_streamer.batching import TRANSACTION_LOOK_SECONDS
from psql_streamer.errors import SinkError, SinkUnavailable
from psql_streamer.interfaces import ConsumedOffsets
from sinks.kafka.clients import Clients
from sinks.kafka.delivery import GONE_REMEDY, ONE_A_REQUEST, Delivery
from sinks.kafka.errors import REJECTED, make_sink_error
from sinks.kafka.findings import show_names
from sinks.kafka.librdkafka import resolve_properties
from sinks.kafka.producer import Failed
from sinks.kafka.rejections import find_rejected, find_without_key
from sinks.kafka.shipment import Shipment
from sinks.kafka.transactional_producer import TransactionalProducer

_MEMBER_IS_GONE = (
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.STALE_MEMBER_EPOCH,
)
"""The member of the consumer group that has consumed the records does not have their partitions any more."""


_ENDED_BY_BROKERS = (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)
"""The client is not the last one any more that brokers have given the transactional id, or the transaction has taken
too long: they do not say which.
"""

_ENDED_REMEDY = 'if transactions take longer than kafka."transaction.timeout.ms", raise it'

_UNFINISHED_REMEDY = (
    "they have not ended the transaction before in all of its partitions: it passes when they have; look for those "
    "without a leader, and at the brokers' logs"
)

_TIMEOUT = "transaction.timeout.ms"
_SINGLY_TIMEOUT_MS = 900_000
"""The time for a transaction of one record a request: what brokers allow, unless their transaction.max.timeout.ms says
otherwise. A request takes milliseconds, and a transaction may have 100,000 records.
"""


class TransactionSpoiled(SinkUnavailable):
    """Kafka rejects a record of the transaction. It is known by now which one it is, or will be with the next attempt:
    the transaction can be written again at once.
    """


class MemberIsGone(SinkUnavailable):
    """Brokers do not take the offsets of a consumer group, because it has moved on since its member gave them."""


class TransactionEnded(SinkUnavailable):
    """Brokers take nothing more of the client: another one has been given the transactional id, or they have ended the
    transaction.
    """


class TransactionalDelivery(Delivery):
    """As Delivery, between `begin` and `commit`. After any error `abandon` comes first, then `initialize`.

    transactional_id: by which brokers know the clients that follow each other. find_unwritable: asks brokers which of
    some topics they let nobody write to, for a message.
    """

    singles_out = False

    def __init__(
        self,
        properties: Mapping[str, str],
        delivery_timeout: float,
        log: logging.Logger,
        transactional_id: str,
        find_unwritable: Callable[[Sequence[str]], Sequence[str]],
    ) -> None:
        self._id = transactional_id
        self._find_unwritable = find_unwritable
        self._singly = self._is_initialized = False
        self._may_take_long = True
        self._known: set[str] = set()
        self._delivered: list[Shipment] = []
        super().__init__({**properties, "transactional.id": transactional_id}, delivery_timeout, log)

    def initialize(self) -> None:
        """Take over the transactional id, unless this client has it. Nothing is left open behind it."""
        if not self._is_initialized:
            self._require_producer()
            self._repeat("did not give the transactional id", self._initialize)
            self._is_initialized = True

    @property
    def is_initialized(self) -> bool:
        """Whether this client has the transactional id, as far as it knows."""
        return self._is_initialized

    def separate(self, singly: bool) -> None:
        """Write one record a request from now on, to find those that Kafka rejects, or not; with a new client."""
        if singly != self._singly or self._has_other_size:
            self._singly = singly
            self.abandon()

    def begin(self) -> None:
        """Begin a transaction. `initialize` was called."""
        self._repeat("did not begin a transaction", lambda _: self._client.begin_transaction())

    def send_offsets(self, consumed: Sequence[ConsumedOffsets]) -> None:
        """Commit offsets of consumer groups with the transaction."""
        for one in consumed:
            if one.offsets:
                self._repeat("did not take the consumer group's offsets", self._make_offsets_sender(one))

    def commit(self) -> None:
        """Make what was delivered since `begin` visible. After an error it may be visible or not."""
        self._repeat("did not commit the transaction", self._client.commit_transaction)
        self._size.settle(self._delivered)
        self._delivered.clear()

    def listen(self) -> None:
        """As Delivery. A client that has failed for good says so again when the next transaction begins."""
        self._listen()
        self._complaints.age()

    def abandon(self) -> None:
        self._is_initialized = False
        self._known.clear()
        self._delivered.clear()
        super().abandon()

    def _make_producer(self, more: Mapping[str, str]) -> Clients:
        of_singles = self._make_single_properties() if self._singly else {}
        properties = {**self._properties, **self._size.properties, **more, **of_singles}
        self._bytes = self._size.bytes
        with self._convert_start_errors():
            client = self._client = TransactionalProducer(properties, self._complaints.add, self._log)
            return Clients(lambda: client, self._log, most=1)

    def _make_single_properties(self) -> Mapping[str, str]:
        if not self._may_take_long:
            return ONE_A_REQUEST
        given = int(resolve_properties(self._properties, [_TIMEOUT])[_TIMEOUT])
        return {**ONE_A_REQUEST, _TIMEOUT: str(max(given, _SINGLY_TIMEOUT_MS))}

    def _initialize(self, seconds: float) -> None:
        try:
            self._client.init_transactions(seconds)
        except KafkaException as raised:
            refused = raised.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT
            if not (refused and self._singly and self._may_take_long):
                raise
            self._may_take_long = False
            self.abandon()
            self._client.init_transactions(seconds)

    def _choose_producer(self, shipment: Shipment) -> Clients:  # noqa: ARG002 - a transaction has one client
        return self._producer

    def _hand_over(self, producer: Clients, shipment: Shipment) -> None:
        self._learn([name for name in shipment.records.topic_names if name not in self._known])
        super()._hand_over(producer, shipment)

    def _learn(self, topics: Sequence[str]) -> None:
        """Make the client know the topics' partitions. For a record of a topic that it does not know yet, it would add
        partition -1 to the transaction, which brokers then refuse.
        """
        if not topics:
            return
        found = self.read_metadata_together(topics, self._delivery_timeout)
        for topic in topics:
            if not found[topic].partitions:
                raise SinkUnavailable(f'topic "{topic}" is not there any more')
        self._known.update(topics)

    def _judge(self, producer: Clients, shipment: Shipment) -> None:
        failed = shipment.land()
        if not failed:
            self._complaints.settle()
            return
        if not any(failure.error.code() in REJECTED for failure in failed):
            raise self._find_fatal_error() or self._describe(producer, shipment, failed)
        rejected = list(find_rejected(failed, shipment.records, self._bytes, singly=self._singly))
        rejected += find_without_key(rejected, shipment.records)
        shipment.rejected.update({failure.place: failure.error for failure in rejected})
        if not rejected and self._size.lower(failed, shipment):
            raise TransactionSpoiled("Kafka takes no request of this size")
        shipment.singly = shipment.singly or not rejected
        raise TransactionSpoiled(f"Kafka rejects {len(rejected) or 'some'} of the records, and the transaction with it")

    def _settle_size(self, shipment: Shipment) -> None:
        """When the transaction has been committed: its client is not replaced before."""
        if self._size.is_tried:
            self._delivered.append(shipment)

    def _describe(self, producer: Clients, shipment: Shipment, failed: list[Failed]) -> SinkError:
        """Brokers fail the transaction for one topic, too, and its records are those of all topics."""
        reason = self._client.transaction_error
        if reason is None:
            return self._make_undelivered_error(shipment, failed)
        if reason.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return self._describe_deletion(producer, shipment, failed)
        records = shipment.records
        topics = list(dict.fromkeys(records.topic_names[records.topics[failure.place]] for failure in failed))
        if reason.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            with suppress(KafkaException):
                topics = list(self._find_unwritable(records.topic_names)) or topics
        names = show_names([f'"{topic}"' for topic in topics])
        what = f"{len(failed)} records were not delivered, because the transaction failed, with topic {names}"
        return self._make_error(what, reason)

    def _describe_deletion(self, producer: Clients, shipment: Shipment, failed: list[Failed]) -> SinkError:
        topics, gone = shipment.records.topic_names, list[str]()
        with suppress(KafkaException):
            there = producer.read_partition_states(set(topics), self._delivery_timeout)
            gone = [f'"{topic}"' for topic in topics if topic not in there]
        what = f"{len(failed)} records were not delivered, because the transaction failed"
        if not gone:
            return SinkUnavailable(f"{what}: one of its {len(topics)} topics was deleted, and is there again")
        return SinkUnavailable(f"{what}, in which topic {show_names(gone)} does not exist any more", GONE_REMEDY)

    def _serve(self, producer: Clients, shipment: Shipment, seconds: float) -> None:
        """Behind a record that failed the client sends nothing of the transaction any more: the rest fails with it."""
        try:
            super()._serve(producer, shipment, seconds)
        except SinkError:
            raise self._find_fatal_error() or SinkUnavailable("the Kafka client failed for good") from None
        if shipment.has_failed:
            shipment.report(producer.give_up() or ())

    def _replace(self, producer: Clients, shipment: Shipment) -> None:
        """Nothing of the transaction is kept, and its client is not replaced before it has said why."""

    def _repeat(self, what: str, call: Callable[[float], None]) -> None:
        """Call until the brokers have answered, for as long as for a delivery."""
        deadline = time.monotonic() + self._delivery_timeout
        while True:
            try:
                call(TRANSACTION_LOOK_SECONDS)
            except KafkaException as raised:
                error: KafkaError = raised.args[0]
                self._listen()
                if not error.retriable() or time.monotonic() > deadline:
                    raise self._find_fatal_error() or self._explain(what, error) from None
            else:
                return
            self.wait(0)

    def _listen(self) -> None:
        """Take what the client says of its connections: the call that waited for them names no reason."""
        try:
            self._producer.poll()
        except KafkaException:
            return

    def _explain(self, what: str, error: KafkaError) -> SinkError:
        if error.code() in _MEMBER_IS_GONE:
            return MemberIsGone(f"brokers refused the offsets of the consumer group's member: {error.str()}")
        if error.code() in _ENDED_BY_BROKERS:
            return _make_ended_error(error)
        what = f'brokers {what} (transactionalId "{self._id}")'
        if error.code() == KafkaError.CONCURRENT_TRANSACTIONS:
            return SinkUnavailable(f"{what}: {error.str()}", _UNFINISHED_REMEDY)
        return self._make_error(what, error)

    def _find_fatal_error(self) -> SinkError | None:
        error = self._client.fatal_error
        if error is None:
            return None
        if error.code() in _ENDED_BY_BROKERS:
            return _make_ended_error(error)
        return make_sink_error(f'the client with transactionalId "{self._id}" has failed', error)

    def _make_offsets_sender(self, consumed: ConsumedOffsets) -> Callable[[float], None]:
        return lambda seconds: self._client.send_offsets(consumed, seconds)


def _make_ended_error(error: KafkaError) -> TransactionEnded:
    return TransactionEnded(f"brokers have ended the transaction: {error.str()}", _ENDED_REMEDY)
