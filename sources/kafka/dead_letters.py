"""Records that are no events, put aside into a topic of the source's own cluster before their position counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from psql_streamer.errors import SourceRefused
from psql_streamer.event_reader.reader import Refused
from sinks.kafka.errors import REJECTED
from sinks.kafka.options import Property
from sources.kafka.errors import REFUSED, source_error

_OF_CONSUMERS = ("group.id", "group.instance.id", "session.timeout.ms", "partition.assignment.strategy")

HEADER_PREFIX = "dead_letter_"
"""What the names of our headers begin with; the record's own headers stay in front of them."""


class DeadLetters:
    """topic: where they go. properties: of the client, which is made with the first letter."""

    def __init__(self, topic: str, properties: Mapping[str, Property]) -> None:
        self._topic = topic
        ours = {"enable.idempotence": True, "acks": "all", "linger.ms": 5, "queue.buffering.max.messages": 1_000_000}
        given = {name: value for name, value in properties.items() if name not in _OF_CONSUMERS}
        self._properties = given | ours
        self._producer: Producer | None = None
        self._failed: list[tuple[Refused, KafkaError]] = []
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
                raise self._refusal(one, error.str())
            if error.code() in REFUSED:
                raise source_error(f'dead letters cannot be written to topic "{self._topic}"', error)
            self._produce(one)
        why = failed[0][1].str() if failed else "no answer yet"
        self.problem = f'{left} dead letters wait for topic "{self._topic}": {why}' if left else ""
        return not left

    def close(self) -> None:
        """Give up what is not confirmed."""
        producer, self._producer = self._producer, None
        self._failed, self.problem = [], ""
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
                raise self._refusal(one, error.args[0].str()) from None
            else:
                return

    def _refusal(self, one: Refused, why: str) -> SourceRefused:
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
