"""Records that came together, and how far they lead."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from psql_streamer.event_reader.parsed import Message
from sources.kafka.offsets import Partition


@dataclass(frozen=True, slots=True)
class Taken:
    """Records that came together. size: bytes of their values. offsets: of each partition the one behind its last."""

    messages: list[Message]
    size: int
    offsets: dict[Partition, int]

    @classmethod
    def of(cls, messages: list[Message]) -> Taken:
        """These records."""
        behind = {(message.topic(), message.partition()): message.offset() + 1 for message in messages}
        return cls(messages, sum(map(len, messages)), {Partition(*place): offset for place, offset in behind.items()})

    def followed_by(self, more: Taken) -> Taken:
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
            yield from Taken.of(half).cut(most)

    def without(self, partitions: AbstractSet[Partition]) -> Taken:
        """But those of some partitions."""
        if not self.offsets.keys() & partitions:
            return self
        return Taken.of(
            [message for message in self.messages if (message.topic(), message.partition()) not in partitions]
        )
