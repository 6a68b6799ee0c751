"""Partitions of which nothing is fetched for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, TopicPartition


class Pausing:
    """For the member's thread."""

    def __init__(self) -> None:
        self._is_paused = False

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
