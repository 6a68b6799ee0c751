"""Topics that are written to: whether one was deleted and made again meanwhile, which brokers do not say by themselves.

Where brokers make topics (auto.create.topics.enable), one that is deleted under the sink is there again with the next
record, and no record fails. What was in it is gone all the same.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from itertools import islice

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, TopicDescription  # type: ignore[attr-defined]  # exported

TOPICS_A_QUESTION = 500
"""Topics that are asked for at once; of more, each gets its turn."""


class WrittenTopics:
    """Compares the ids of topics that are written to, every `interval` seconds. For one thread.

    make_admin: a client that asks. timeout: seconds that brokers get for an answer, for which nobody waits. log: where
    a topic that was made again is told of.
    """

    def __init__(
        self, make_admin: Callable[[], AdminClient], timeout: float, interval: float, log: logging.Logger
    ) -> None:
        self._make_admin = make_admin
        self._timeout = timeout
        self._interval = interval
        self._log = log
        self._admin: AdminClient | None = None
        self._last: tuple[str, ...] = ()
        self._turns: dict[str, None] = {}
        self._ids: dict[str, str] = {}
        self._asked: Mapping[str, Future[TopicDescription]] = {}
        self._due = 0.0

    def look(self, topics: tuple[str, ...]) -> None:
        """Take answers that have come, and ask when it is time again. topics: that were just written to."""
        if topics != self._last:
            self._last = topics
            self._turns.update(dict.fromkeys(topics))
        if self._asked:
            self._take_answers()
        elif self._turns and time.monotonic() >= self._due:
            self._ask()

    def hurry(self) -> None:
        """Ask with the next write: one has failed, and topics that are gone may be why."""
        self._due = 0.0

    def _ask(self) -> None:
        self._due = time.monotonic() + self._interval
        names = list(islice(self._turns, TOPICS_A_QUESTION))
        for name in names:
            del self._turns[name]
        self._turns.update(dict.fromkeys(names))  # behind the others
        if self._admin is None:
            self._admin = self._make_admin()
        self._asked = self._admin.describe_topics(TopicCollection(names), request_timeout=self._timeout)

    def _take_answers(self) -> None:
        if not all(one.done() for one in self._asked.values()):
            return
        asked, self._asked = self._asked, {}
        for topic, one in _read_ids(asked):
            before = self._ids.get(topic)
            self._ids[topic] = one
            if before not in (None, one):
                self._log.warning(
                    'topic "%s" was deleted and made again: what was written to the one before is gone', topic
                )


def _read_ids(asked: Mapping[str, Future[TopicDescription]]) -> Iterable[tuple[str, str]]:
    """Of those that exist and may be described."""
    for topic, answer in asked.items():
        try:
            yield topic, str(answer.result().topic_id)
        except KafkaException:
            continue
