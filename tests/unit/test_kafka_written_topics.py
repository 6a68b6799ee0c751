"""What a Kafka sink knows of topics from one start to the next, and tells of them. Brokers are asked elsewhere."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from psql_streamer.errors import StoreError
from psql_streamer.interfaces import SinkMemory
from sinks.kafka import written_topics
from sinks.kafka.written_topics import WrittenTopics
from tests.kafka_sinks import wait_until

LOG = logging.getLogger("psql_streamer.sink.kafka1")
NO_ID = "A" * 22


@dataclass
class Brokers:
    """Topics with their ids."""

    ids: Mapping[str, str]
    cluster: str | None = "c1"
    questions: list[list[str]] = field(default_factory=list)

    def describe_cluster(self, **_: Any) -> Future[Any]:
        return answer(SimpleNamespace(cluster_id=self.cluster))

    def describe_topics(self, topics: TopicCollection, **_: Any) -> dict[str, Future[Any]]:
        self.questions.append(topics.topic_names)
        return {name: self._describe(name) for name in topics.topic_names}

    def _describe(self, name: str) -> Future[Any]:
        if name in self.ids:
            return answer(SimpleNamespace(topic_id=self.ids[name]))
        gone: Future[Any] = Future()
        gone.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
        return gone


def answer(value: object) -> Future[Any]:
    given: Future[Any] = Future()
    given.set_result(value)
    return given


class Memory(SinkMemory):
    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.puts = 0

    def read(self) -> Mapping[str, str]:
        return dict(self.texts)

    def put(self, texts: Mapping[str, str]) -> None:
        self.puts += 1
        self.texts = {name: text for name, text in {**self.texts, **texts}.items() if text}


@contextmanager
def watching(brokers: Brokers, memory: SinkMemory, interval: float = 0.01) -> Iterator[WrittenTopics]:
    watched = WrittenTopics(lambda: cast("AdminClient", brokers), 1.0, interval, memory, LOG)
    watched.start()
    try:
        yield watched
    finally:
        watched.stop()


def look(brokers: Brokers, memory: SinkMemory, *topics: str) -> WrittenTopics:
    """One session that writes to topics, or to none, until it has asked for all that it knows twice."""
    brokers.questions.clear()
    with watching(brokers, memory) as watched:
        watched.look(topics)
        wait_until(lambda: len(brokers.questions) > 1)
    return watched


def test_a_topic_that_is_new_or_the_same_is_not_told_of() -> None:
    memory = Memory()
    assert not look(Brokers({"a": "1"}), memory, "a").describe_losses()
    assert not look(Brokers({"a": "1", "b": "2"}), memory, "b").describe_losses()
    assert memory.texts == {"": "c1", "a": "1", "b": "2"}
    assert memory.puts == 2, "nothing is written while nothing is new"


def test_a_topic_that_is_gone_is_told_of_when_it_is_there_again() -> None:
    memory = Memory()
    look(Brokers({"a": "1"}), memory, "a")
    assert not look(Brokers({}), memory).describe_losses()
    watched = look(Brokers({"a": "2"}), memory)
    assert watched.made_again == 1
    assert 'topic "a" was deleted and made again' in watched.describe_losses()


def test_brokers_that_give_no_ids_say_nothing_of_topics_before_and_behind_an_upgrade() -> None:
    memory = Memory()
    for one in (NO_ID, "1", NO_ID, "1"):
        assert not look(Brokers({"a": one}), memory, "a").describe_losses()


def test_topics_of_another_cluster_are_not_said_to_be_made_again(caplog: pytest.LogCaptureFixture) -> None:
    memory = Memory()
    look(Brokers({"a": "1", "b": "2"}), memory, "a", "b")
    watched = look(Brokers({"a": "3"}, cluster="c2"), memory, "a")
    assert watched.made_again == 0
    assert watched.describe_losses().startswith("the brokers are of another cluster than before")
    assert memory.texts == {"": "c2", "a": "3"}
    assert not look(Brokers({"a": "3", "b": "4"}, cluster="c2"), memory, "a", "b").describe_losses()
    assert caplog.text.count("another cluster") == 1


def test_brokers_that_do_not_name_their_cluster_are_those_of_before() -> None:
    memory = Memory()
    look(Brokers({"a": "1"}, cluster=None), memory, "a")
    assert look(Brokers({"a": "2"}, cluster=None), memory).made_again == 1


def test_many_topics_are_asked_for_and_remembered_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(written_topics, "_PAUSE_SECONDS", 0.0)
    ids, memory = {f"t{number}": f"{number}" for number in range(5000)}, Memory()
    brokers = Brokers(ids)
    with watching(brokers, memory, interval=60.0) as watched:
        watched.look(tuple(ids))
        wait_until(lambda: memory.texts == {"": "c1", **ids})
    assert [len(asked) for asked in brokers.questions] == [500] * 10
    assert memory.puts == 10
    brokers = Brokers({**ids, "t4999": "other"})
    with watching(brokers, memory, interval=60.0) as watched:
        wait_until(lambda: watched.made_again == 1)


def test_no_more_topics_are_remembered_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(written_topics, "MOST_REMEMBERED_TOPICS", 2)
    memory, ids = Memory(), {"a": "1", "b": "2", "c": "3"}
    look(Brokers(ids), memory, *ids)
    assert memory.texts == {"": "c1", "a": "1", "b": "2"}
    assert look(Brokers({**ids, "b": "4"}), memory, *ids).made_again == 1
    assert memory.texts == {"": "c1", "a": "1", "b": "4"}


def test_ids_that_cannot_be_stored_are_told_of_and_topics_are_watched_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Full(Memory):
        def put(self, texts: Mapping[str, str]) -> None:  # noqa: ARG002 - there is no room for any
            raise StoreError("lmdb: positions is full", "raise lmdbMapSize")

    brokers = Brokers({"a": "1"})
    with watching(brokers, Full()) as watched:
        watched.look(("a",))
        wait_until(lambda: len(brokers.questions) > 1)
        brokers.ids = {"a": "2"}
        wait_until(lambda: watched.made_again == 1)
    assert (
        "topics that are made again are not told of behind a restart: lmdb: positions is full: raise lmdbMapSize"
        in caplog.text
    )


def test_a_stop_does_not_wait_for_answers_that_do_not_come() -> None:
    asked = threading.Event()

    class Silent(Brokers):
        def describe_cluster(self, **_: Any) -> Future[Any]:
            asked.set()
            return Future()

    with watching(Silent({"a": "1"}), Memory()) as watched:
        watched.look(("a",))
        assert asked.wait(30)
    assert not watched._thread.is_alive()
