"""Whether topics are those that were read before: one that was deleted and made again has other records at its
offsets.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from confluent_kafka.admin import AdminClient

from psql_streamer.errors import PositionRefused, SourceError, SourceUnavailable
from psql_streamer.shown_commands import show_command
from sources.kafka.offsets import TopicIds
from sources.kafka.options import KafkaSourceOptions
from sources.kafka.subscribed import Descriptions, ask_descriptions, collect_topic_ids, find_topic_ids


class SameTopics:
    """ids: of topics that were read, to which those of others are added."""

    def __init__(self, name: str, options: KafkaSourceOptions, ids: dict[str, str], admin: AdminClient) -> None:
        self._name = name
        self._options = options
        self._ids = ids
        self._admin = admin
        self._asked: Descriptions = {}

    def require(self, topics: Collection[str]) -> None:
        """Raise PositionRefused if one of these was made anew. Where brokers do not answer, nothing is said of it."""
        try:
            found = find_topic_ids(self._admin, topics, self._options.timeout)
        except SourceUnavailable:
            return
        self._compare(found)

    def ask(self, topics: Collection[str]) -> None:
        """Ask brokers for what `look` compares, without waiting: one that is silent would keep the others back."""
        if not self._asked:
            self._asked = ask_descriptions(self._admin, topics, self._options.timeout)

    def look(self) -> None:
        """The same as require for what was asked, as soon as brokers have answered."""
        if self._asked and all(one.done() for one in self._asked.values()):
            asked, self._asked = self._asked, {}
            try:
                found = collect_topic_ids(asked, self._options.timeout)
            except SourceUnavailable:
                return
            self._compare(found)

    def _compare(self, found: TopicIds) -> None:
        for topic, one in found.items():
            if self._ids.setdefault(topic, one) != one:
                raise make_made_anew_error(topic, self._options.group_id, self._name)

    def find_existing(self, topics: Collection[str], timeout: float = math.inf) -> Collection[str]:
        """Those of these that exist; all, where brokers do not say it. timeout: what they get for it at most."""
        try:
            return find_topic_ids(self._admin, topics, min(timeout, self._options.timeout)).keys()
        except SourceError:
            return topics


def make_made_anew_error(topic: str, group: str, source: str) -> PositionRefused:
    """The refusal of offsets of a topic that is no more."""
    return PositionRefused(describe_made_anew(topic), describe_made_anew_remedy(group, source))


def describe_made_anew(topic: str) -> str:
    """What is said of a topic with another id than the one that was read."""
    return f"topic {topic} was deleted and made again: its offsets are others"


def describe_made_anew_remedy(group: str, source: str) -> str:
    """What to do about it."""
    command = show_command("position", "forget", source)
    return f"stop every instance, delete the offsets of group {group} for it, and run {command}"
