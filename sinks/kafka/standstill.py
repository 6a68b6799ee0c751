"""Why nothing is acknowledged: what the brokers say of the partitions that records are under way to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import numpy as np

from sinks.kafka.producer import PartitionState
from sinks.kafka.shipment import Shipment

_MOST_PARTITIONS_NAMED = 3
"""How many partitions a message names."""


def lacks_partition(shipment: Shipment, states: Mapping[str, Sequence[PartitionState]]) -> bool:
    """Whether records are under way to a partition that does not exist: a client waits for it to come back.

    states: of every topic that exists.
    """
    return any(number >= len(states.get(topic, ())) for topic, number in _list_partitions(shipment, states))


def describe_troubles(
    shipment: Shipment, states: Mapping[str, Sequence[PartitionState]], waits_for_replicas: bool
) -> str:
    """What is wrong with the partitions, the first few of them; empty when all of them seem to be well.

    waits_for_replicas: whether an acknowledgement says that the replicas have a record, too.
    """
    partitions = _list_partitions(shipment, states)
    troubles = (_describe_trouble(topic, number, states.get(topic), waits_for_replicas) for topic, number in partitions)
    reasons = dict.fromkeys(trouble for trouble in troubles if trouble)
    more = f" and {len(reasons) - _MOST_PARTITIONS_NAMED} more" if len(reasons) > _MOST_PARTITIONS_NAMED else ""
    return ", ".join(islice(reasons, _MOST_PARTITIONS_NAMED)) + more


def _list_partitions(shipment: Shipment, states: Mapping[str, Sequence[PartitionState]]) -> Iterator[tuple[str, int]]:
    """Topic and number; all of a topic's where the client chose them."""
    at, records = shipment.list_under_way(), shipment.records
    for index, topic in enumerate(records.topic_names):
        numbers = np.unique(records.partitions[at[records.topics[at] == index]]).tolist()
        chosen_by_client = numbers[:1] == [-1]
        known = range(max(1, len(states.get(topic, ()))))
        yield from ((topic, number) for number in (known if chosen_by_client else numbers))


def _describe_trouble(
    topic: str, number: int, states: Sequence[PartitionState] | None, waits_for_replicas: bool
) -> str:
    if states is None:
        return f'topic "{topic}" does not exist'
    if number >= len(states):
        return f'partition {number} of topic "{topic}" does not exist'
    state = states[number]
    if not state.led:
        return f'partition {number} of topic "{topic}" has no leader'
    if waits_for_replicas and state.in_sync < state.replicas:
        in_sync = f"{state.in_sync} of its {state.replicas} replicas in sync"
        return f'partition {number} of topic "{topic}" has {in_sync}, compare min.insync.replicas'
    return ""
