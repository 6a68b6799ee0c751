"""Looks at records that lie in front of others in their partition, in no group and without a trace."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import cast

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from psql_streamer.errors import SourceUnavailable
from psql_streamer.event_reader.parsed import Message
from sources.kafka.errors import source_error
from sources.kafka.options import KafkaSourceOptions
from sources.kafka.unreadable_headers import replace_unreadable

_OFFSETS = (1_000, 100_000)
"""How far it looks, and how far if nothing with a value is there: brokers remove records of compacted topics."""

_AT_ONCE = 1_000
"""Records that are taken from the client together."""

log = logging.getLogger(__name__)


class LookBack:
    """Its client is made when it is first asked."""

    def __init__(self, options: KafkaSourceOptions) -> None:
        self._options = options
        self._consumer: Consumer | None = None

    def records_before(self, message: Message) -> Sequence[Message]:
        """The last ones with a value in front of it. Raises SourceError."""
        consumer = self._consumer = self._consumer or self._connect()
        try:
            for offsets in _OFFSETS:
                found = self._read(consumer, message, offsets)
                if found:
                    return found
        except KafkaException as error:
            raise source_error(f"records in front of {_place(message)} cannot be read", error.args[0]) from None
        return ()

    def close(self) -> None:
        """Leave the brokers."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _connect(self) -> Consumer:
        own = {
            # A consumer that is assigned its partitions joins no group. The client asks for the coordinator of one all
            # the same, which the user may be allowed to do for the source's alone.
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
        given = {name: one for name, one in self._options.consumer_properties().items() if name != "group.instance.id"}
        return Consumer({**given, **own}, logger=log)

    def _read(self, consumer: Consumer, message: Message, offsets: int) -> Sequence[Message]:
        partition = TopicPartition(message.topic(), message.partition())
        low, _ = consumer.get_watermark_offsets(partition, timeout=self._options.timeout)
        partition.offset = max(low, message.offset() - offsets)
        consumer.assign([partition])
        found: list[Message] = []
        try:
            deadline = time.monotonic() + self._options.timeout
            while time.monotonic() < deadline:
                records, is_end = self._poll(consumer, message.offset())
                found = _last_of(found + records, self._options.batch_bytes)
                if records:
                    deadline = time.monotonic() + self._options.timeout
                if is_end:
                    return found
        finally:
            consumer.unassign()
        raise SourceUnavailable(f"no answer for records in front of {_place(message)}")

    def _poll(self, consumer: Consumer, end: int) -> tuple[list[Message], bool]:
        """The next records with a value in front of the end, and whether there are no more."""
        good, is_end = [], False
        for one in consumer.consume(_AT_ONCE, 0.1):
            error = one.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            if error is not None or (one.offset() or 0) >= end:
                is_end = True
            elif not is_end:
                good.append(cast("Message", one))
        return [one for one in replace_unreadable(good)[0] if one.value() is not None], is_end


def _last_of(messages: list[Message], most: int) -> list[Message]:
    """As many of the last ones as these bytes hold."""
    size = 0
    for count, message in enumerate(reversed(messages)):
        size += len(message)
        if size > most:
            return messages[len(messages) - max(1, count) :]
    return messages


def _place(message: Message) -> str:
    return f"{message.topic()}[{message.partition()}]@{message.offset()}"
