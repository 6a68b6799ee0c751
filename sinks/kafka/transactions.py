"""Writes batches in transactions, each with a note of how far it brings their sources: exactly once.

A transaction that fails is written again, all of it. A commit without an answer may have been made or not: the note
that was committed last says which of the two.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

from psql_streamer.errors import StreamerError
from psql_streamer.interfaces import Transaction
from sinks.kafka.batch_writer import BatchWriter, Unfinished
from sinks.kafka.position_topic import NOTHING_NOTED, Noted, PositionTopic
from sinks.kafka.shipment import Shipment
from sinks.kafka.topics import Topics
from sinks.kafka.transactional_delivery import TransactionalDelivery, TransactionSpoiled


@dataclass(slots=True)
class _Open:
    """A transaction that is not known to be committed. begun: its batches as far as their records were made.
    noted: what it notes. in_doubt: whether it may have been committed.
    """

    transaction: Transaction
    noted: Noted
    begun: list[Unfinished] = field(default_factory=list)
    in_doubt: bool = False

    @property
    def wants_singly(self) -> bool:
        return any(one.wants_singly for one in self.begun)


class Transactions:
    """delivery: its client's. writer: of batches. topic: where notes are. log: for what is written again.

    given_up: how many attempts were, to write a transaction.
    """

    def __init__(
        self, delivery: TransactionalDelivery, writer: BatchWriter, topic: PositionTopic, log: logging.Logger
    ) -> None:
        self._delivery = delivery
        self._writer = writer
        self._topic = topic
        self._log = log
        self.given_up = 0
        self._noted = NOTHING_NOTED
        self._open: _Open | None = None

    def begin_session(self) -> None:
        """Take over from the instance before, and read what it noted. SinkUnavailable, SinkRefused."""
        self._topic.make(self._delivery)
        self._delivery.initialize()
        self._noted = self._topic.read()

    def find_note(self, source: str) -> bytes | None:
        """What the last transaction that is known to be committed noted of a source."""
        return self._noted.notes.get(source)

    def write(self, transaction: Transaction, topics: Topics) -> Sequence[Unfinished]:
        """See Sink.write_transaction; returns how its batches ended."""
        if self._open is None or self._open.transaction is not transaction:
            noted = Noted(secrets.token_hex(8), {**self._noted.notes, **transaction.notes})
            self._open = _Open(transaction, noted)
        self._write(self._open, topics)
        self._noted, finished = self._open.noted, self._open.begun
        self._open = None
        return finished

    def _write(self, one: _Open, topics: Topics) -> None:
        while True:
            try:
                if not (one.in_doubt and self._is_committed(one)):
                    self._attempt(one, topics)
            except TransactionSpoiled as error:
                self._log.warning("the transaction is written again: %s", error)
                self._give_up(one)
            except StreamerError:
                self._give_up(one)
                raise
            else:
                return

    def _attempt(self, one: _Open, topics: Topics) -> None:
        delivery, batches = self._delivery, one.transaction.batches
        delivery.begin(one.wants_singly)
        for unfinished in one.begun:
            self._writer.write(delivery, topics, unfinished)
        for batch in batches[len(one.begun) :]:
            one.begun.append(self._writer.begin(batch))
            self._writer.write(delivery, topics, one.begun[-1])
        delivery.deliver(Shipment(self._topic.to_record(one.noted)))
        delivery.send_offsets(one.transaction.consumed)
        one.in_doubt = True
        delivery.commit()

    def _is_committed(self, one: _Open) -> bool:
        self._delivery.initialize()
        is_committed = self._topic.read().token == one.noted.token
        if is_committed:
            self._log.info("the transaction was committed, though brokers did not say so")
        one.in_doubt = False
        return is_committed

    def _give_up(self, one: _Open) -> None:
        self.given_up += 1
        self._delivery.abandon()
        for unfinished in one.begun:
            unfinished.write_again()
