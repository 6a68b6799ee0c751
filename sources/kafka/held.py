"""Records that a member holds until somebody takes them."""

from __future__ import annotations

from collections import deque
from collections.abc import Set as AbstractSet

from sources.kafka.offsets import Partition
from sources.kafka.taken import Taken

_SIZE_UNTIL_KNOWN = 1000


class HeldRecords:
    """most_records, most_bytes: of what is taken at once. size: bytes of all. size_of_record: of those that came last,
    about. Its owner locks it.
    """

    def __init__(self, most_records: int, most_bytes: int) -> None:
        self.size = 0
        self.size_of_record = _SIZE_UNTIL_KNOWN
        self._most_records = most_records
        self._most_bytes = most_bytes
        self._chunks: deque[Taken] = deque()

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def put(self, records: Taken) -> None:
        """Behind the others."""
        if records.messages:
            self.size_of_record = records.size // len(records.messages)
        self._chunks.extend(records.cut(self._most_bytes))
        self.size += records.size

    def put_first(self, records: Taken) -> None:
        """In front of the others: they were taken, and come back."""
        self._chunks.extendleft(reversed(list(records.cut(self._most_bytes))))
        self.size += records.size

    def take(self) -> Taken:
        """At least one chunk, and more while they fit into a batch."""
        taken = self._chunks.popleft()
        while self._chunks and self._fits(taken, self._chunks[0]):
            taken = taken.with_more(self._chunks.popleft())
        self.size -= taken.size
        return taken

    def forget(self, partitions: AbstractSet[Partition]) -> None:
        """Drop the records of these."""
        kept = (chunk.without(partitions) for chunk in self._chunks)
        self._chunks = deque(chunk for chunk in kept if chunk.messages)
        self.size = sum(chunk.size for chunk in self._chunks)

    def _fits(self, taken: Taken, more: Taken) -> bool:
        return (
            len(taken.messages) + len(more.messages) <= self._most_records
            and taken.size + more.size <= self._most_bytes
        )
