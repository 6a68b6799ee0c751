"""Records that came together, and how far they lead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from psql_streamer.event_reader.parsed import Message
from sources.kafka.offsets import Partition

_RECORD_BYTES = 250
"""Bytes of a record's object beside its value, key and headers."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Records that came together. size: bytes that they hold. offsets: of each partition the one behind its last."""

    messages: list[Message]
    size: int
    offsets: dict[Partition, int]

    @classmethod
    def collect(cls, messages: list[Message]) -> Taken:
        """These records."""
        size = sum(map(len, messages)) + sum([len(key) for message in messages if (key := message.key())])
        with_headers = [headers for message in messages if (headers := message.headers())]
        size += sum(len(name) + len(value or b"") for headers in with_headers for name, value in headers)
        offsets = {place: message.offset() + 1 for place, message in _find_last(messages)}
        return cls(messages, size + _RECORD_BYTES * len(messages), offsets)

    def with_more(self, more: Taken) -> Taken:
        """With others behind them."""
        return Taken(self.messages + more.messages, self.size + more.size, self.offsets | more.offsets)

    def cut(self, most: int) -> Iterator[Taken]:
        """In pieces of at most so many bytes each, but for single records."""
        if self.size <= most or len(self.messages) == 1:
            if self.messages:
                yield self
            return
        middle = len(self.messages) // 2
        for half in (self.messages[:middle], self.messages[middle:]):
            yield from Taken.collect(half).cut(most)

    def without(self, partitions: AbstractSet[Partition]) -> Taken:
        """But those of some partitions."""
        if not self.offsets.keys() & partitions:
            return self
        return Taken.collect(
            [message for message in self.messages if (message.topic(), message.partition()) not in partitions]
        )


def _find_last(messages: Sequence[Message]) -> Iterable[tuple[Partition, Message]]:
    """The last record of each partition: it is the one that stays in a dictionary."""
    topics = {message.topic() for message in messages}
    if len(topics) == 1:
        [topic] = topics
        last = {message.partition(): message for message in messages}
        return [(Partition(topic, number), message) for number, message in last.items()]
    return {Partition(message.topic(), message.partition()): message for message in messages}.items()


def measure_record(message: Message) -> int:
    """Bytes that one record holds."""
    headers = sum(len(name) + len(value or b"") for name, value in message.headers() or ())
    return len(message) + len(message.key() or b"") + headers + _RECORD_BYTES
