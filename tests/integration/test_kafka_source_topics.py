"""Topics that join a Kafka source, or are deleted and made anew: no record of them is skipped in silence."""

from __future__ import annotations

import json
import time

import pytest
from confluent_kafka.admin import AdminClient

from psql_streamer.errors import PositionRefused, SourceError
from psql_streamer.model import Position
from sources.kafka.source import KafkaSource
from tests.event_topics import commits, event, read_rows, source_of, write
from tests.kafka_sinks import create_topic
from tests.source_at_work import wait_for
from tests.started_source import started

SOON = {"topic.metadata.refresh.interval.ms": 300}

MADE_ANEW = r"topic {} was deleted and made again: its offsets are others.*position forget"


def delete_topic(kafka: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.delete_topics([topic])[topic].result(30)
    wait_for(lambda: topic not in admin.list_topics(timeout=5).topics, "the deletion")


def make_anew(kafka: str, topic: str, first: int, last: int) -> None:
    """The topic, with events of these numbers."""
    delete_topic(kafka, topic)
    create_topic(kafka, topic)
    write(kafka, topic, [event(number) for number in range(first, last + 1)])


def pattern_of(kafka: str, prefix: str) -> KafkaSource:
    return source_of(kafka, rf"^{prefix}\..*", group=prefix, kafka=SOON)


def stored(position: Position) -> Position:
    """As the store gives it back."""
    return Position(json.loads(json.dumps(dict(position.data))), position.shown)


def position_behind_a_topic_that_joined(kafka: str, prefix: str) -> tuple[str, Position]:
    """The topic has had three events, and the source has read them all."""
    create_topic(kafka, f"{prefix}.one")
    write(kafka, f"{prefix}.one", [event(1)])
    joined = f"{prefix}.two"
    with started(pattern_of(kafka, prefix)) as source:
        read_rows(source, 1)
        create_topic(kafka, joined)
        write(kafka, joined, [event(number) for number in range(2, 5)])
        position = read_rows(source, 3)[-1].position
        source.confirm(position)
    return joined, stored(position)


def read_until_it_ends(source: KafkaSource, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        source.read(0.2)


def read_until_an_error(source: KafkaSource, position: Position) -> Position:
    """The last position in front of it."""
    while True:
        try:
            batch = source.read(0.2)
        except SourceError:
            return position
        position = position if batch is None else stored(batch.position)


@pytest.mark.behaviour("G4")
def test_a_topic_that_joined_later_and_was_made_anew_while_nobody_read_is_refused(
    kafka: str, topic_prefix: str
) -> None:
    joined, position = position_behind_a_topic_that_joined(kafka, topic_prefix)
    make_anew(kafka, joined, 11, 18)
    source = pattern_of(kafka, topic_prefix)
    refused = pytest.raises(PositionRefused, match=MADE_ANEW.format(joined))
    with started(source, position), refused:
        read_until_it_ends(source)
    (finding,) = source.check_position(position)
    assert f"topic {joined} was deleted and made again" in str(finding)


@pytest.mark.behaviour("G4")
def test_a_topic_that_was_gone_at_the_start_and_comes_again_is_refused(kafka: str, topic_prefix: str) -> None:
    joined, position = position_behind_a_topic_that_joined(kafka, topic_prefix)
    delete_topic(kafka, joined)
    source = pattern_of(kafka, topic_prefix)
    assert not list(source.check_position(position)), "a topic that is gone has nothing to be read"
    with started(source, position):
        wait_for(lambda: source.read(0.1) or source.stats()["partitions"], "the topic that is left")
        create_topic(kafka, joined)
        write(kafka, joined, [event(number) for number in range(11, 19)])
        with pytest.raises(PositionRefused, match=MADE_ANEW.format(joined)):
            read_until_it_ends(source)


@pytest.mark.behaviour("G4")
def test_a_topic_that_is_made_anew_between_two_polls_is_refused_at_once_or_at_the_next_start(
    kafka: str, topic_prefix: str
) -> None:
    joined, position = position_behind_a_topic_that_joined(kafka, topic_prefix)
    with started(pattern_of(kafka, topic_prefix), position) as source:
        wait_for(lambda: source.read(0.1) or len(source.stats()["partitions"]) == 2, "both partitions")
        make_anew(kafka, joined, 11, 18)
        position = read_until_an_error(source, position)
    again = pattern_of(kafka, topic_prefix)
    with started(again, position), pytest.raises(PositionRefused, match=MADE_ANEW.format(joined)):
        read_until_it_ends(again)


def test_a_position_without_the_ids_of_its_topics_is_gone_on_from(kafka: str, topic_prefix: str) -> None:
    create_topic(kafka, topic_prefix)
    write(kafka, topic_prefix, [event(number) for number in range(1, 5)])
    with started(source_of(kafka, topic_prefix), Position({topic_prefix: {"0": 2}}, "")) as source:
        (batch,) = read_rows(source, 2)
        assert commits([batch]) == [3, 4]
        assert set(batch.position.data[topic_prefix]) == {"0", "id"}
