"""Which topics a member asks its group for: those that exist. Others are asked for as soon as they are made."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection

from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient

from psql_streamer.errors import SourceUnavailable
from sources.kafka.member_state import MemberState
from sources.kafka.options import KafkaSourceOptions
from sources.kafka.subscribed import describe, find_missing, find_unmatched

_ABSENT_SECONDS = 1.0
"""Between two looks for topics that do not exist."""

_PATTERNS_SECONDS = 5.0
"""The same while no topic is read, and some may match a pattern: brokers then list all that they have."""

_LIST_SECONDS = 1.0
"""The time that they get for it: meanwhile the member does not poll."""

log = logging.getLogger(__name__)


class Subscription:
    """name: of the source. subscribe: asks the group for topics and patterns. For the member's thread, and for the one
    that starts it.
    """

    def __init__(
        self,
        name: str,
        options: KafkaSourceOptions,
        state: MemberState,
        admin: AdminClient,
        subscribe: Callable[[Consumer, list[str]], None],
    ) -> None:
        self._name = name
        self._options = options
        self._state = state
        self._admin = admin
        self._subscribe = subscribe
        self._missing: set[str] = set()
        self._look_at = 0.0

    def begin(self, consumer: Consumer, found: Collection[str]) -> None:
        """Ask for the topics. found: all that brokers show. SourceRefused: one may not be described."""
        options = self._options
        self._missing = set(find_missing(options.topics, found))
        self._missing -= self._find_made()
        self._state.note_absent(self._missing, find_unmatched(options.topics, found))
        self.ask(consumer)

    def look(self, consumer: Consumer) -> None:
        """Whether topics were made meanwhile. Where brokers do not answer, nothing is said of it."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + (_ABSENT_SECONDS if self._missing else _PATTERNS_SECONDS)
        try:
            if self._missing:
                self._look_for_missing(consumer)
            if not self._state.partitions:
                found = consumer.list_topics(timeout=_LIST_SECONDS).topics
                self._state.note_absent(self._missing, find_unmatched(self._options.topics, found))
        except (SourceUnavailable, KafkaException):
            return

    def ask(self, consumer: Consumer) -> None:
        """Ask the group for the topics that exist."""
        if topics := [topic for topic in self._options.topics if topic not in self._missing]:
            self._subscribe(consumer, topics)

    def _look_for_missing(self, consumer: Consumer) -> None:
        if made := self._find_made():
            log.info("source.%s: topics exist now: %s", self._name, ", ".join(sorted(made)))
            self._missing -= made
            self._state.note_absent(self._missing, ())
            self.ask(consumer)

    def _find_made(self) -> set[str]:
        """Those of the missing topics that exist."""
        found = describe(self._admin, self._missing, self._options.timeout)
        return {topic for topic, one in found.items() if one is not None}
