"""When a member pauses its partitions: nothing is fetched of them then, and its polls bring no records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, TopicPartition

_AFTER_SECONDS = 3.0
"""The time that the member does without polling while it holds as much as it may. A pause costs fetching anew what the
client has fetched already."""


class Pausing:
    """For the member's thread. now: of a clock that only goes forward."""

    def __init__(self) -> None:
        self._is_paused = False
        self._full_since: float | None = None

    def note_room(self) -> None:
        """There is room for records: the member polls."""
        self._full_since = None

    def is_due(self, now: float) -> bool:
        """There is no room. Whether that is so for long."""
        if self._full_since is None:
            self._full_since = now
        return now - self._full_since >= _AFTER_SECONDS

    @contextmanager
    def pause(self, consumer: Consumer) -> Iterator[None]:
        """Every partition, those included that are given to the member meanwhile."""
        self._is_paused = True
        consumer.pause(consumer.assignment())
        try:
            yield
        finally:
            self._is_paused = False
            consumer.resume(consumer.assignment())

    def apply(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """To partitions that were given to the member: the client keeps the pause of one that was given up before."""
        (consumer.pause if self._is_paused else consumer.resume)(partitions)
