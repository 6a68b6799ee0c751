"""Positions of a Kafka source: of each partition the offset of the record that comes next, and of each topic its id."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import nsmallest
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple

from confluent_kafka import TopicPartition

from psql_streamer.event_reader.parsed import Message
from psql_streamer.model import Position

_MOST_PARTITIONS_SHOWN = 3

_ID = "id"
"""Stands beside the numbers of a topic's partitions."""


class Partition(NamedTuple):
    """A partition of a topic."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.number}]"


Offsets = Mapping[Partition, int]


def to_partitions(partitions: Iterable[TopicPartition]) -> set[Partition]:
    """Those that the client's objects are about."""
    return {Partition(one.topic, one.partition) for one in partitions}


TopicIds = Mapping[str, str]
"""Topic -> the id that it got when it was made: offsets of a topic that was made anew are others."""


def to_position(offsets: Offsets, ids: TopicIds = MappingProxyType({})) -> Position:
    """As it is stored, and shown: `orders[0]@1234, orders[1]@99`. ids: of its topics, as far as they are known."""
    data: dict[str, dict[str, int | str]] = {}
    for (topic, number), offset in sorted(offsets.items()):
        data.setdefault(topic, {})[str(number)] = offset
    for topic, of_topic in data.items():
        if topic in ids:
            of_topic[_ID] = ids[topic]
    return Position(data, _show_offsets(offsets))


def move_position(position: Position, moved: Offsets, offsets: Offsets, ids: TopicIds) -> Position:
    """The position behind more records, as to_position makes it of all offsets, for the price of those that have moved.

    position: that to_position or this made. moved: the offsets that are others now. offsets: all, with these.
    """
    data = dict(position.data)
    for (topic, number), offset in moved.items():
        of_topic = data.get(topic, {})
        if str(number) not in of_topic or (topic in ids and _ID not in of_topic):
            return to_position(offsets, ids)
        if of_topic is position.data[topic]:
            of_topic = data[topic] = dict(of_topic)
        of_topic[str(number)] = offset
    return Position(data, _show_first(islice(_walk_offsets(data), _MOST_PARTITIONS_SHOWN), len(offsets)))


def to_offsets(position: Position | None) -> dict[Partition, int]:
    """What a position holds."""
    return {} if position is None else dict(_walk_offsets(position.data))


def _walk_offsets(data: Mapping[str, Any]) -> Iterator[tuple[Partition, int]]:
    """data: of a position."""
    for topic, of_topic in data.items():
        for number, offset in of_topic.items():
            if number != _ID:
                yield Partition(topic, int(number)), int(offset)


def to_topic_ids(position: Position | None) -> dict[str, str]:
    """The ids of the topics that a position is about; earlier versions stored none."""
    topics = {} if position is None else position.data
    return {topic: str(partitions[_ID]) for topic, partitions in topics.items() if _ID in partitions}


def has_reached(offsets: Offsets, mark: Offsets) -> bool:
    """Whether everything in front of the mark lies in front of the offsets."""
    return all(offsets.get(partition, -1) >= offset for partition, offset in mark.items())


def advance(offsets: Offsets, messages: Iterable[Message]) -> dict[Partition, int]:
    """The offsets behind these records, which follow the offsets."""
    found = dict(offsets)
    for message in messages:
        found[Partition(message.topic(), message.partition())] = message.offset() + 1
    return found


def _show_offsets(offsets: Offsets) -> str:
    return _show_first(nsmallest(_MOST_PARTITIONS_SHOWN, offsets.items()), len(offsets))


def _show_first(first: Iterable[tuple[Partition, int]], count: int) -> str:
    return _join_first((f"{partition}@{offset}" for partition, offset in first), count) if count else "no partitions"


def compute_total_lag(lags: Mapping[Partition, int]) -> int | None:
    """The records that are left of all partitions; None while it has none, or the end of one is not known (-1)."""
    return sum(lags.values()) if lags and min(lags.values()) >= 0 else None


def list_partitions(partitions: Iterable[Partition]) -> str:
    """`orders[0], orders[1] and 5 more`."""
    ordered = sorted(partitions)
    return _join_first(map(str, ordered[:_MOST_PARTITIONS_SHOWN]), len(ordered))


def _join_first(first: Iterable[str], count: int) -> str:
    """The first ones of so many, and how many more there are."""
    more = f" and {count - _MOST_PARTITIONS_SHOWN} more" if count > _MOST_PARTITIONS_SHOWN else ""
    return ", ".join(first) + more
