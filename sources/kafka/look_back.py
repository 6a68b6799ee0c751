"""Looks at records that lie in front of others in their partition, in no group and without a trace."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Sequence
from typing import cast

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from psql_streamer.errors import SourceUnavailable
from psql_streamer.event_reader.parsed import Message
from sources.kafka.errors import make_source_error
from sources.kafka.options import KafkaSourceOptions
from sources.kafka.taken import measure_record
from sources.kafka.unreadable_headers import replace_unreadable

_OFFSETS = (1_000, 100_000)
"""How far it looks, and how far if nothing with a value is there: brokers remove records of compacted topics."""

_POLL_SECONDS = 0.1

_AT_ONCE = 1_000
"""Records that are taken from the client together."""

log = logging.getLogger(__name__)


class LookBack:
    """Its client is made when it is first asked."""

    def __init__(self, options: KafkaSourceOptions) -> None:
        self._options = options
        self._consumer: Consumer | None = None

    def find_records_before(self, message: Message) -> Sequence[Message]:
        """The last ones with a value in front of it. Raises SourceError."""
        consumer = self._consumer = self._consumer or self._connect()
        partition = TopicPartition(message.topic(), message.partition())
        try:
            oldest, _ = consumer.get_watermark_offsets(partition, timeout=self._options.timeout)
            for offsets in _OFFSETS:
                first = max(oldest, message.offset() - offsets)
                found = self._read(consumer, message, first) if first < message.offset() else ()
                if found or first == oldest:
                    return found
        except KafkaException as error:
            raise make_source_error(
                f"records in front of {_describe_place(message)} cannot be read", error.args[0]
            ) from None
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
            # The next look waits until the broker has answered the last fetch of the one before.
            "fetch.wait.max.ms": 10,
            "auto.offset.reset": "earliest",
        }
        given = {
            name: one for name, one in self._options.make_consumer_properties().items() if name != "group.instance.id"
        }
        return Consumer({**given, **own}, logger=log)

    def _read(self, consumer: Consumer, message: Message, first: int) -> Sequence[Message]:
        """The last ones with a value from this offset on."""
        consumer.assign([TopicPartition(message.topic(), message.partition(), first)])
        found = _Last(self._options.batch_bytes)
        try:
            deadline = time.monotonic() + self._options.timeout
            while time.monotonic() < deadline:
                records, is_end = self._poll(consumer, message.offset())
                found.add(replace_unreadable(one for one in records if one.value() is not None)[0])
                if is_end:
                    return found.messages
                if records:
                    deadline = time.monotonic() + self._options.timeout
        finally:
            consumer.unassign()
        raise SourceUnavailable(f"no answer for records in front of {_describe_place(message)}")

    def _poll(self, consumer: Consumer, end: int) -> tuple[list[Message], bool]:
        """The next records in front of the end, and whether there are no more."""
        good = list[Message]()
        came = consumer.poll(_POLL_SECONDS)
        # What is there already: to wait for so many would be to wait until the time is over.
        for one in [] if came is None else [came, *consumer.consume(_AT_ONCE, 0)]:
            error = one.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            if error is not None or (one.offset() or 0) >= end:
                return good, True
            good.append(cast("Message", one))
        return good, False


class _Last:
    """As many of the last records as some bytes hold, and one at least."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: deque[tuple[Message, int]] = deque()
        self._size = 0

    @property
    def messages(self) -> Sequence[Message]:
        """In their order."""
        return [message for message, _ in self._held]

    def add(self, messages: Sequence[Message]) -> None:
        """Behind the others."""
        for message in messages:
            size = measure_record(message)
            self._held.append((message, size))
            self._size += size
            while self._size > self._most and len(self._held) > 1:
                self._size -= self._held.popleft()[1]


def _describe_place(message: Message) -> str:
    return f"{message.topic()}[{message.partition()}]@{message.offset()}"
