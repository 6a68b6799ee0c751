"""Which topics a source reads, and the ids that tell a topic from one of the same name that was made later."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported
    AdminClient,
    TopicDescription,
    TopicMetadata,
)

from psql_streamer.errors import SourceUnavailable
from sources.kafka.errors import make_source_error
from sources.kafka.offsets import Partition

Descriptions = Mapping[str, "Future[TopicDescription]"]

PATTERN_MARK = "^"
"""What a topic begins with that is a regular expression, as librdkafka has it."""


def select_subscribed(wanted: Iterable[str], names: Collection[str]) -> list[str]:
    """Those of the names that are wanted, by their name or by a regular expression."""
    literal = set(wanted)
    patterns = [re.compile(one) for one in literal if one.startswith(PATTERN_MARK)]
    return sorted(name for name in names if name in literal or any(pattern.search(name) for pattern in patterns))


def list_wanted_partitions(wanted: Iterable[str], topics: Mapping[str, TopicMetadata]) -> list[Partition]:
    """All partitions of the topics that are wanted. topics: that exist."""
    return [
        Partition(topic, number) for topic in select_subscribed(wanted, topics) for number in topics[topic].partitions
    ]


def find_missing(wanted: Iterable[str], names: Collection[str]) -> list[str]:
    """Those of what is wanted by its name that are not among the names."""
    return [one for one in wanted if not one.startswith(PATTERN_MARK) and one not in names]


def find_unmatched(wanted: Iterable[str], names: Collection[str]) -> list[str]:
    """The regular expressions among what is wanted that none of the names matches."""
    return [one for one in wanted if one.startswith(PATTERN_MARK) and not select_subscribed([one], names)]


def find_topic_ids(admin: AdminClient, topics: Collection[str], timeout: float) -> dict[str, str]:
    """Topic -> the id that it got when it was made; those that are gone are left out. Raises SourceError;
    SourceUnavailable for brokers that are away.
    """
    return collect_topic_ids(ask_descriptions(admin, topics, timeout), timeout)


def collect_topic_ids(described: Descriptions, timeout: float) -> dict[str, str]:
    """As find_topic_ids."""
    return {topic: found for topic, found in _collect_descriptions(described, timeout).items() if found is not None}


def describe(admin: AdminClient, topics: Collection[str], timeout: float) -> Mapping[str, str | None]:
    """Topic -> its id; None for one that does not exist. Raises as topic_ids: SourceRefused for one that may not be
    described.
    """
    return _collect_descriptions(ask_descriptions(admin, topics, timeout), timeout)


def ask_descriptions(admin: AdminClient, topics: Collection[str], timeout: float) -> Descriptions:
    """What `collect_topic_ids` waits for. timeout: what brokers get for it, in seconds."""
    if not topics:
        return {}
    described: Descriptions = admin.describe_topics(TopicCollection(sorted(topics)), request_timeout=timeout)
    return described


def _collect_descriptions(described: Descriptions, timeout: float) -> Mapping[str, str | None]:
    """As describe."""
    found: dict[str, str | None] = {}
    for topic, future in described.items():
        try:
            found[topic] = str(future.result(timeout + 1).topic_id)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise make_source_error(f"topic {topic} cannot be described", error.args[0]) from None
            found[topic] = None
        except TimeoutError:
            raise SourceUnavailable(f"no description of topics within {timeout:g} s") from None
    return found
