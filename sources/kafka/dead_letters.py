"""Records that are no events, put aside into a topic of the source's own cluster before their position counts."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from psql_streamer.errors import SourceRefused
from psql_streamer.event_reader.reader import Refused
from sinks.kafka.errors import REJECTED
from sinks.kafka.options import Property
from sources.kafka.errors import MISSING, REFUSED, make_source_error

log = logging.getLogger(__name__)

_OF_CONSUMERS = ("group.id", "group.instance.id", "session.timeout.ms", "partition.assignment.strategy")

_DEFAULTS: Mapping[str, Property] = {"topic.metadata.propagation.max.ms": 5000}
"""So long a topic that the brokers do not have is looked for before a letter fails, and the log says so."""

HEADER_PREFIX = "dead_letter_"
"""What the names of our headers begin with; the record's own headers stay in front of them."""


class DeadLetters:
    """source: its name. topic: where they go. properties: of the client, which is made with the first letter."""

    def __init__(self, source: str, topic: str, properties: Mapping[str, Property]) -> None:
        self._source = source
        self._topic = topic
        ours = {"enable.idempotence": True, "acks": "all", "linger.ms": 5, "queue.buffering.max.messages": 1_000_000}
        given = {name: value for name, value in properties.items() if name not in _OF_CONSUMERS}
        self._properties = {**_DEFAULTS, **given, **ours}
        self._producer: Producer | None = None
        self._failed: list[tuple[Refused, KafkaError]] = []
        self._why = ""
        self.problem = ""

    def open(self) -> None:
        """Make the client, if there is none. Raises SourceRefused for properties that it does not take."""
        try:
            self._producer = self._producer or Producer(self._properties)
        except KafkaException as error:
            raise SourceRefused(
                f"dead letters cannot be written with these properties: {error.args[0].str()}",
                "look at the source's [kafka] table",
            ) from None

    def add(self, refused: Sequence[Refused]) -> None:
        """Write these. Raises SourceRefused for one that the client cannot take."""
        self.open()
        for one in refused:
            self._produce(one)

    def settle(self, timeout: float) -> bool:
        """Whether all are durable, after at most so many seconds; `problem` says why not. What failed is written again.

        Raises SourceRefused when the brokers will not take them before somebody changes something.
        """
        assert self._producer is not None  # noqa: S101 - add made it
        left = self._producer.flush(timeout) + len(self._failed)
        failed, self._failed = self._failed, []
        for one, error in failed:
            if error.code() in REJECTED:
                raise self._make_refusal(one, error.str())
            if error.code() in REFUSED:
                raise make_source_error(f'dead letters cannot be written to topic "{self._topic}"', error)
            self._produce(one)
        if self._failed:  # at once
            self._look_for_topic(timeout)
        self._note_problem(left, _describe(failed[0][1]) if failed else self._why)
        return not left

    def _look_for_topic(self, timeout: float) -> None:
        """Ask the brokers whether the topic is there now, which the client that knows it to be missing does not do by
        itself; and wait a moment.
        """
        assert self._producer is not None  # noqa: S101 - add made it
        with suppress(KafkaException):
            self._producer.list_topics(self._topic, timeout)
        self._producer.poll(timeout)

    def _note_problem(self, left: int, why: str) -> None:
        """left: how many are not durable. why: what is known of the reason; it counts until they are."""
        before, self._why = self._why, why if left else ""
        self.problem = f'{left} dead letters wait for topic "{self._topic}": {why or "no answer yet"}' if left else ""
        if self._why != before and self._why:
            log.warning("source.%s: %s", self._source, self.problem)

    def close(self) -> None:
        """Give up what is not confirmed."""
        producer, self._producer = self._producer, None
        self._failed, self._why, self.problem = [], "", ""
        if producer is not None:
            producer.purge()
            producer.flush(0)

    def _produce(self, one: Refused) -> None:
        message = one.message
        origin = {
            "topic": message.topic(),
            "partition": str(message.partition()),
            "offset": str(message.offset()),
            "reason": one.reason,
        }
        ours = [(HEADER_PREFIX + name, text.encode()) for name, text in origin.items()]
        assert self._producer is not None  # noqa: S101 - deliver made it
        headers = [*(message.headers() or ()), *ours]
        note = partial(self._note, one)
        while True:
            try:
                self._producer.produce(self._topic, message.value(), message.key(), headers=headers, on_delivery=note)
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as error:
                if error.args[0].code() not in MISSING:
                    raise self._make_refusal(one, error.args[0].str()) from None
                self._failed.append((one, error.args[0]))
                return
            else:
                return

    def _make_refusal(self, one: Refused, why: str) -> SourceRefused:
        message = one.message
        return SourceRefused(
            f"the dead letter of {message.topic()}[{message.partition()}]@{message.offset()} cannot be written "
            f'to topic "{self._topic}": {why}',
            "raise max.message.bytes of that topic and message.max.bytes of the source's [kafka] table, or set the "
            "group's offset behind the record",
        )

    def _note(self, one: Refused, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failed.append((one, error))


def _describe(error: KafkaError) -> str:
    return "it does not exist: create it" if error.code() in MISSING else error.str()
