"""Where partitions begin and end at the brokers."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # exported

from sources.kafka.offsets import Partition


def find_ends(admin: AdminClient, asked: Sequence[TopicPartition], timeout: float) -> dict[Partition, tuple[int, int]]:
    """Of each partition the first offset, and the one behind its last record, also of a transaction that is open.
    Raises KafkaException.
    """
    if not asked:
        return {}
    first, last = (
        admin.list_offsets(dict.fromkeys(asked, of), request_timeout=timeout)
        for of in (OffsetSpec.earliest(), OffsetSpec.latest())  # type: ignore[no-untyped-call]
    )
    return {
        Partition(one.topic, one.partition): (first[one].result().offset, last[one].result().offset) for one in asked
    }
