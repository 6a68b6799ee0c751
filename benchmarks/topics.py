"""Kafka as the witness: how many records its topics have, and when the last of them came.

The topics' timestamps are the broker's (LogAppendTime), so the moment of the last record does not depend on how often
somebody looks. All clocks are this machine's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from benchmarks.failures import BenchmarkFailed

_LARGEST_RECORD = "4194304"
_LOOK_SECONDS = 0.005


_INDEX_BYTES = str(256 << 10)


@dataclass(frozen=True)
class Topics:
    """Topics of one benchmark, of as many partitions each."""

    hosts: str
    names: tuple[str, ...]
    partitions: int

    def make(self) -> None:
        """Return when they are there and every partition has a leader."""
        config = {
            "message.timestamp.type": "LogAppendTime",
            "max.message.bytes": _LARGEST_RECORD,
            # The first append to a partition touches its two index files, which the broker maps in their full size of
            # 10 MB. The kernel then reads ahead, and clears as many pages: 8 MB where the disk's read_ahead_kb is 8192.
            "segment.index.bytes": _INDEX_BYTES,
            # A minute as shipped: files would go while the next benchmark runs.
            "file.delete.delay.ms": "0",
        }
        new = [NewTopic(name, self.partitions, replication_factor=1, config=config) for name in self.names]
        admin = self._admin()
        for made in admin.create_topics(new, request_timeout=60).values():
            made.result()
        deadline = time.monotonic() + 60
        while not self._have_leaders(admin):
            if time.monotonic() > deadline:
                raise BenchmarkFailed(f"{len(self.names)} topics were not made within a minute")
            time.sleep(0.1)

    def remove(self) -> None:
        """Let the broker have its memory and disk back."""
        admin = self._admin()
        for removed in admin.delete_topics(list(self.names), request_timeout=60).values():
            removed.result()

    def wait_for(self, records: int, watch: Callable[[], None], seconds: float = 600.0) -> float:
        """The time (time.time) at which the last of so many records came. watch: called at every look."""
        admin, deadline = self._admin(), time.monotonic() + seconds
        # A look at a partition costs this process and the broker some 40 us each, which the service could have had.
        pause = 0.04 + 0.001 * len(self.names) * self.partitions
        while (count := sum(self._offsets(admin, OffsetSpec.latest()))) < records:
            if time.monotonic() > deadline:
                raise BenchmarkFailed(f"{count:,} of {records:,} records came within {seconds:.0f} s")
            watch()
            time.sleep(pause)
        return max(self._timestamps(admin)) / 1000

    def count(self) -> int:
        """How many records there are."""
        return sum(self._offsets(self._admin(), OffsetSpec.latest()))

    def wait_for_more(self, there: int, watch: Callable[[], None], seconds: float = 120.0) -> int:
        """How many there are as soon as there are more than these. watch: called at every look."""
        admin, deadline = self._admin(), time.monotonic() + seconds
        while (count := sum(self._offsets(admin, OffsetSpec.latest()))) <= there:
            if time.monotonic() > deadline:
                raise BenchmarkFailed(f"no record came within {seconds:.0f} s")
            watch()
            time.sleep(_LOOK_SECONDS)
        return count

    def require(self, records: int, *, committed: bool = False) -> None:
        """There are exactly so many. committed: for those who read what is committed; brokers count the ends of
        transactions, too.
        """
        count = self._count_committed() if committed else self.count()
        if count != records:
            raise BenchmarkFailed(f"{count:,} records for {records:,} rows")

    def _count_committed(self) -> int:
        consumer = Consumer(
            {
                "bootstrap.servers": self.hosts,
                "group.id": "benchmarks",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        places = [TopicPartition(name, at, 0) for name in self.names for at in range(self.partitions)]
        consumer.assign(places)
        count, left = 0, len(places)
        while left:
            for message in consumer.consume(10_000, 1.0):
                is_end = message.error() is not None
                left -= is_end
                count += not is_end
        consumer.close()
        return count

    def _have_leaders(self, admin: AdminClient) -> bool:
        try:
            return len(self._offsets(admin, OffsetSpec.latest())) == len(self.names) * self.partitions
        except KafkaException:
            return False

    def _offsets(self, admin: AdminClient, which: OffsetSpec) -> list[int]:
        return [result.offset for result in self._ask(admin, which)]

    def _timestamps(self, admin: AdminClient) -> list[int]:
        return [result.timestamp for result in self._ask(admin, OffsetSpec.max_timestamp())]

    def _ask(self, admin: AdminClient, which: OffsetSpec) -> list[Any]:
        partitions = [TopicPartition(name, at) for name in self.names for at in range(self.partitions)]
        futures = admin.list_offsets(dict.fromkeys(partitions, which), request_timeout=30)
        return [future.result() for future in futures.values()]

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.hosts, "log_level": 0})
