"""Topics that are written to: whether one was deleted and made again meanwhile, which brokers do not say by themselves.

Where brokers make topics (auto.create.topics.enable), one that is deleted under the sink is there again with the next
record, and no record fails. What was in it is gone all the same. So is that of a topic that was made again while the
service was stopped: its id is remembered beside the positions.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, wait
from itertools import islice

from confluent_kafka import KafkaException, TopicCollection, Uuid
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported, but not in its __all__
    AdminClient,
    DescribeClusterResult,
    TopicDescription,
)

from psql_streamer.errors import StoreError
from psql_streamer.interfaces import SinkMemory
from psql_streamer.shown_commands import show_command

TOPICS_A_QUESTION = 500
"""Topics that are asked for at once; of more, each gets its turn."""

MOST_REMEMBERED_TOPICS = 20_000
"""Topics whose ids are on disk: rules name topics as they like. Those beyond are watched while the service runs."""

_PAUSE_SECONDS = 1.0
"""Between two questions, while there are topics of which nothing is known: an answer of 500 topics takes time, too."""

_ANSWER_LOOK_SECONDS = 0.05
"""Between two looks at whether answers have come."""

_STOP_SECONDS = 1.0
"""The time that a stop waits for the thread: its disk may hang."""

_CLUSTER = ""
"""Under this name, which no topic has, the cluster is remembered whose topics have these ids."""

_NO_ID = str(Uuid(0, 0))
"""What brokers before Kafka 2.8 say of every topic."""


class WrittenTopics:
    """Compares the ids of topics that are written to, every `interval` seconds, in a thread of its own.

    make_admin: a client that asks. timeout: seconds that brokers get for an answer. memory: what is known from before;
    None: nothing is, and nothing is remembered. log: where a topic that was made again is told of.
    """

    def __init__(
        self,
        make_admin: Callable[[], AdminClient],
        timeout: float,
        interval: float,
        memory: SinkMemory | None,
        log: logging.Logger,
    ) -> None:
        self._make_admin = make_admin
        self._timeout = timeout
        self._interval = interval
        self._memory = memory
        self._log = log
        self._last: tuple[str, ...] = ()
        self._new: dict[str, None] = {}
        self._known: dict[str, None] = {}
        self._ids: dict[str, str] = {}
        self._remembered: set[str] = set()
        self._made_again: dict[str, None] = {}
        self._count = 0
        self._other_cluster = False
        self._lock = threading.Lock()
        self._hurry = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="written topics", daemon=True)

    def start(self) -> None:
        """Begin with the topics that are remembered. Raises StoreError."""
        if self._memory is not None:
            self._ids = dict(self._memory.read())
            self._remembered = self._ids.keys() - {_CLUSTER}
            self._new = dict.fromkeys(self._remembered)
        self._thread.start()

    def look(self, topics: tuple[str, ...]) -> None:
        """These were just written to."""
        if topics == self._last:
            return
        self._last = topics
        with self._lock:
            new = [topic for topic in topics if topic not in self._known and topic not in self._new]
            self._new.update(dict.fromkeys(new))
        if new:
            self._hurry.set()

    def hurry(self) -> None:
        """Ask soon: a write has failed, and topics that are gone may be why."""
        self._hurry.set()

    def stop(self) -> None:
        """Ask no more."""
        self._stopping.set()
        self._hurry.set()
        if self._thread.ident is not None:
            self._thread.join(_STOP_SECONDS)

    @property
    def made_again(self) -> int:
        """How often a topic was found to be another one. From any thread."""
        return self._count

    def describe_losses(self) -> str:
        """What consumers may lack, and what to do, for /status; empty for nothing. From any thread."""
        with self._lock:
            topics = list(self._made_again)
        losses = [_describe_other_cluster()] if self._other_cluster else []
        if topics:
            more = f" (and {len(topics) - 1} more topics)" if len(topics) > 1 else ""
            losses.append(f"{_describe_made_again(topics[0])}{more}")
        return "; ".join(losses)

    def _run(self) -> None:
        admin, pause = None, min(_PAUSE_SECONDS, self._interval)
        while not self._stopping.is_set():
            asked_at = time.monotonic()
            if self._new or self._known:
                try:
                    admin = admin or self._make_admin()
                    self._compare(admin)
                except KafkaException as error:
                    self._log.warning("whether topics were made again is not known: %s", error.args[0].str())
            if not self._new:
                self._hurry.wait(self._interval)
                self._hurry.clear()
            self._stopping.wait(asked_at + pause - time.monotonic())

    def _compare(self, admin: AdminClient) -> None:
        names = self._take_turns()
        cluster = admin.describe_cluster(request_timeout=self._timeout)
        asked = admin.describe_topics(TopicCollection(names), request_timeout=self._timeout)
        if not self._await([cluster, *asked.values()]):
            return
        news = self._note_cluster(cluster)
        for topic, one in _read_ids(asked):
            before = self._ids.get(topic)
            if one == before:
                continue
            self._ids[topic] = one
            news[topic] = one
            if before is not None:
                self._note_made_again(topic)
        self._remember(news)

    def _take_turns(self) -> list[str]:
        """Topics of which nothing is known go first; those that are asked for now come behind the others."""
        with self._lock:
            names = list(islice(self._new, TOPICS_A_QUESTION))
            names += islice(self._known, TOPICS_A_QUESTION - len(names))
            for name in names:
                self._new.pop(name, None)
                self._known.pop(name, None)
            self._known.update(dict.fromkeys(names))
        return names

    def _await(self, asked: Iterable[Future[object]]) -> bool:
        """Whether all answers came before the stop."""
        left = set(asked)
        while left and not self._stopping.is_set():
            left = wait(left, _ANSWER_LOOK_SECONDS).not_done
        return not left

    def _note_cluster(self, answer: Future[DescribeClusterResult]) -> dict[str, str]:
        """What is new to remember. Of another cluster's topics nothing is known."""
        try:
            cluster = answer.result().cluster_id
        except KafkaException:
            return {}
        before = self._ids.get(_CLUSTER)
        if not cluster or cluster == before:
            return {}
        news = {_CLUSTER: cluster}
        if before is not None:
            news |= dict.fromkeys(self._ids.keys() - {_CLUSTER}, "")
            self._ids.clear()
            self._other_cluster = True
            self._log.warning("%s", _describe_other_cluster())
        self._ids[_CLUSTER] = cluster
        return news

    def _note_made_again(self, topic: str) -> None:
        with self._lock:
            self._made_again[topic] = None
        self._count += 1
        self._log.warning("%s", _describe_made_again(topic))

    def _remember(self, news: Mapping[str, str]) -> None:
        """On disk, because the topic may be another one at the next start."""
        if self._memory is None:
            return
        room = MOST_REMEMBERED_TOPICS - len(self._remembered)
        new = islice((topic for topic in news if topic != _CLUSTER and topic not in self._remembered), room)
        kept = {*self._remembered, *new, _CLUSTER}
        texts = {name: text for name, text in news.items() if name in kept}
        if not texts:
            return
        try:
            self._memory.put(texts)
        except StoreError as error:
            self._log.warning("topics that are made again are not told of behind a restart: %s", error)
        else:
            self._remembered |= texts.keys() - {_CLUSTER}
            self._remembered -= {name for name, text in texts.items() if not text}


def _read_ids(asked: Mapping[str, Future[TopicDescription]]) -> Iterator[tuple[str, str]]:
    """Of those that exist, may be described and have one."""
    for topic, answer in asked.items():
        try:
            found = str(answer.result().topic_id)
        except KafkaException:
            continue
        if found != _NO_ID:
            yield topic, found


def _describe_made_again(topic: str) -> str:
    command = show_command("snapshot", "start", "--table", "SCHEMA.TABLE")
    return (
        f'topic "{topic}" was deleted and made again: what was written to the one before is gone; {command} sends the '
        "rows of a table anew"
    )


def _describe_other_cluster() -> str:
    command = show_command("snapshot", "start")
    return (
        "the brokers are of another cluster than before: its topics have what is written from now on, unless they were "
        f"copied; {command} sends all rows anew"
    )
