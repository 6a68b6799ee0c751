"""Writes batches in transactions, each with a note of how far it brings their sources: exactly once.

A transaction that fails is written again, all of it, by a new client. Before that, the note that was committed last
says whether a commit without an answer was made, and whether another instance has taken over. A client that brokers
refuse may also be one whose transaction took longer than transaction.timeout.ms.

Brokers confirm a commit before each of its partitions shows it: where one was deleted or has no leader they may take
seconds, in which they answer nothing to the next transaction. The note that is shown until then is an earlier one.
"""

from __future__ import annotations

import itertools
import logging
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from psql_streamer.errors import SinkRefused, StreamerError
from psql_streamer.interfaces import Transaction
from sinks.kafka.batch_writer import BatchWriter, Begun, Unfinished
from sinks.kafka.position_topic import NOTHING_NOTED, Noted, PositionTopic
from sinks.kafka.shipment import Shipment
from sinks.kafka.topics import Topics
from sinks.kafka.transactional_delivery import (
    MemberIsGone,
    TransactionalDelivery,
    TransactionEnded,
    TransactionSpoiled,
)

_REFUSED_SECONDS = 120.0
"""The time for which brokers may refuse the offsets that a source gives. In a rebalance they do so until the source's
client has heard of the group's new generation, which takes it a moment."""

_TAKE_OVER_SECONDS = 3.0
"""The time that another instance gets, between its taking over of the transactional id and the commit of its first
transaction. Until then this one cannot tell it from brokers that have ended a transaction, and would take over in turn.
"""


@dataclass(slots=True)
class _Open:
    """A transaction that is not known to be committed. unfinished: its batches, when their records were made.
    noted: what it notes. refused_at: when brokers refused a source's offsets for the first time; 0.0: they have not.
    was_ended: by brokers, who may have given the transactional id to another instance.
    """

    transaction: Transaction
    noted: Noted
    unfinished: Unfinished | None = None
    refused_at: float = 0.0
    was_ended: bool = False

    @property
    def wants_singly(self) -> bool:
        return self.unfinished is not None and self.unfinished.wants_singly

    def note_refusal(self, error: MemberIsGone) -> None:
        """SinkRefused when it has lasted too long for a rebalance."""
        self.refused_at = self.refused_at or time.monotonic()
        if time.monotonic() - self.refused_at > _REFUSED_SECONDS:
            raise SinkRefused(
                f"{error.what} (for {_REFUSED_SECONDS:.0f} s)",
                "start this instance again; if it stays so, see whether source and sink have clusters with the same id",
            )


class Transactions:
    """delivery: its client's. writer: of batches. topic: where notes are. log: for what is written again.

    given_up: how many attempts were, to write a transaction. _noted_before: by whoever was there before this instance.
    """

    def __init__(
        self, delivery: TransactionalDelivery, writer: BatchWriter, topic: PositionTopic, log: logging.Logger
    ) -> None:
        self._delivery = delivery
        self._writer = writer
        self._topic = topic
        self._log = log
        self.given_up = 0
        self._noted = self._noted_before = NOTHING_NOTED
        self._session = secrets.token_hex(8)
        self._numbers = itertools.count(1)
        self._open: _Open | None = None

    def begin_session(self) -> None:
        """Take over from the instance before, and read what it noted. SinkUnavailable, SinkRefused.

        A transaction without events, which notes the same, tells that instance that it was taken over from.
        """
        self._topic.make(self._delivery)
        self._delivery.initialize()
        self._noted_before = self._topic.read()
        mine = self._make_note(self._noted_before.notes)
        self._delivery.begin()
        self._deliver_note(mine)
        self._delivery.commit()
        self._noted = mine

    def find_note(self, source: str) -> bytes | None:
        """What the last transaction that is known to be committed noted of a source."""
        return self._noted.notes.get(source)

    def write(self, transaction: Transaction, topics: Topics) -> Sequence[Begun]:
        """See Sink.write_transaction; returns how its batches ended."""
        if self._open is None or self._open.transaction is not transaction:
            self._delivery.listen()
            self._open = _Open(transaction, self._make_note({**self._noted.notes, **transaction.notes}))
        if self._open.unfinished is None:
            # In front of the transaction: what a format waits for fails no transaction, and takes none of its time.
            unfinished = Unfinished(iter(transaction.batches))
            self._writer.make_records(unfinished)
            self._open.unfinished = unfinished
        self._write(self._open, self._open.unfinished, topics)
        self._noted, finished = self._open.noted, self._open.unfinished
        self._open = None
        return () if finished is None else finished.begun

    def _write(self, one: _Open, unfinished: Unfinished, topics: Topics) -> None:
        while True:
            try:
                self._delivery.separate(one.wants_singly)
                if self._delivery.is_initialized or not self._is_committed(one):
                    self._attempt(one, unfinished, topics)
            except TransactionSpoiled as error:
                self._log.warning("the transaction is written again: %s", error)
                self._give_up(one)
                self._delivery.separate(one.wants_singly)
                self._delivery.initialize()
            except StreamerError as error:
                one.was_ended = isinstance(error, TransactionEnded)
                self._give_up(one)
                if isinstance(error, MemberIsGone):
                    one.note_refusal(error)
                raise
            else:
                return

    def _attempt(self, one: _Open, unfinished: Unfinished, topics: Topics) -> None:
        delivery = self._delivery
        delivery.begin()
        self._writer.write(delivery, topics, unfinished)
        self._deliver_note(one.noted)
        delivery.send_offsets(one.transaction.consumed())
        delivery.commit()

    def _deliver_note(self, noted: Noted) -> None:
        """SinkRefused when Kafka rejects the record: without it nothing may be committed."""
        shipment = Shipment(self._topic.to_record(noted))
        try:
            self._delivery.deliver(shipment)
        except TransactionSpoiled:
            if not shipment.rejected:
                raise
        for error in shipment.rejected.values():
            raise self._topic.refuse(shipment.records, error)

    def _is_committed(self, one: _Open) -> bool:
        """Whether the attempt before was committed without an answer. SinkRefused when another instance was at work."""
        if one.was_ended:
            self._delivery.wait(_TAKE_OVER_SECONDS)
        self._topic.require(self._delivery)
        shown = self._topic.peek()
        if not self._may_be_behind(shown):
            self._require_own(shown, one)  # before that instance is taken over from
        self._delivery.initialize()
        found = self._topic.read()
        self._require_own(found, one)
        if found.token == one.noted.token:
            self._log.info("the transaction was committed, though brokers did not say so")
        return found.token == one.noted.token

    def _may_be_behind(self, shown: Noted) -> bool:
        """Whether it is of this instance, or of the one before: what was committed behind it may not be shown yet."""
        return shown.token == self._noted_before.token or shown.token.startswith(self._session)

    def _require_own(self, found: Noted, one: _Open) -> None:
        if found == NOTHING_NOTED:
            raise self._topic.make_missing_error()
        if found.token not in (self._noted.token, one.noted.token):
            raise SinkRefused(
                f'another instance has taken over transactionalId "{self._topic.transactional_id}", and writes',
                "stop one of the two, or give it a transactionalId of its own",
            )

    def _make_note(self, notes: Mapping[str, bytes]) -> Noted:
        return Noted(f"{self._session}-{next(self._numbers)}", notes)

    def _give_up(self, one: _Open) -> None:
        self.given_up += 1
        if one.unfinished is not None:  # before the next client is made, which may fail
            one.unfinished.write_again()
        self._delivery.abandon()
