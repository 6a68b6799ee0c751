"""Records that are no events, put aside into a topic of the source's own cluster before their position counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from psql_streamer.errors import SourceRefused
from psql_streamer.event_reader.reader import Refused
from sinks.kafka.options import Property
from sources.kafka.errors import REFUSED, source_error

HEADER_PREFIX = "dead_letter_"
"""What the names of our headers begin with; the record's own headers stay in front of them."""


class DeadLetters:
    """topic: where they go. properties: of the client, which is made with the first letter."""

    def __init__(self, topic: str, properties: Mapping[str, Property]) -> None:
        self._topic = topic
        self._properties = {**properties, "enable.idempotence": "true", "acks": "all", "linger.ms": "0"}
        self._producer: Producer | None = None
        self._failed: list[tuple[Refused, KafkaError]] = []
        self.problem = ""

    def add(self, refused: Sequence[Refused]) -> None:
        """Write these. Raises SourceRefused for one that the client cannot take."""
        if self._producer is None:
            self._producer = Producer(self._properties)
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
        try:
            self._producer.produce(
                self._topic,
                message.value(),
                message.key(),
                headers=[*(message.headers() or ()), *ours],
                on_delivery=partial(self._note, one),
            )
        except (KafkaException, BufferError) as error:
            raise SourceRefused(
                f"the dead letter of {message.topic()}[{message.partition()}]@{message.offset()} cannot be written "
                f'to topic "{self._topic}": {error}',
                "raise message.max.bytes of the source's [kafka] table, or set the group's offset behind the record",
            ) from None

    def _note(self, one: Refused, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failed.append((one, error))
