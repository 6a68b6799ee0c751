"""What a client says of its membership in a consumer group, as brokers want it with offsets that others commit for it.

Brokers compare two things with what they know: the member's id, and the number of the group's generation. They compare
nothing where both are missing, as they are for a client that has just been thrown out. Such offsets would count even
though another member has the partitions.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from confluent_kafka import Consumer

from sinks.kafka.librdkafka import Pointer, rdkafka


@dataclass(frozen=True, slots=True)
class Membership:
    """member: its id; another one means that the group has gone on without it. generation: of the group; it increases
    each time that the group shares its partitions anew. metadata: librdkafka's, for
    rd_kafka_consumer_group_metadata_read.
    """

    member: str
    generation: int
    metadata: bytes


def find_membership(consumer: Consumer) -> Membership | None:
    """The client's of now; None when it is no member. Called within a rebalance, it does not change before the
    rebalance's function returns, but that the client may be thrown out.
    """
    found = _read_membership(consumer)
    return found if found.generation >= 0 and found.member else None


def find_member(consumer: Consumer) -> str:
    """The client's id in the group. Where it has lost its partitions, it has one only if brokers refused its
    generation: whoever was thrown out, or was silent for too long, gets another one (librdkafka 2.16).
    """
    return _read_membership(consumer).member


def _read_membership(consumer: Consumer) -> Membership:
    metadata = consumer.consumer_group_metadata()
    assert isinstance(metadata, bytes)  # noqa: S101 - the client has a group
    group = Pointer()
    failed = rdkafka.consumer_group_metadata_read(ctypes.byref(group), metadata, len(metadata))
    assert not failed  # noqa: S101 - the same library has written it
    try:
        generation = int(rdkafka.consumer_group_metadata_generation_id(group))
        return Membership((rdkafka.consumer_group_metadata_member_id(group) or b"").decode(), generation, metadata)
    finally:
        rdkafka.consumer_group_metadata_destroy(group)
