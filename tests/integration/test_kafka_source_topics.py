"""Topics that join a Kafka source, or are deleted and made anew: no record of them is skipped in silence."""

from __future__ import annotations

import json
import time

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from psql_streamer.errors import PositionRefused, SourceError, SourceUnavailable
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


def committed_by(kafka: str, topic: str) -> list[TopicPartition]:
    """What the group of this name has committed of the topic, with its metadata."""
    found = Consumer({"bootstrap.servers": kafka, "group.id": topic}).committed([TopicPartition(topic, 0)], timeout=20)
    return [one for one in found if one.offset > 0]


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


@pytest.mark.behaviour("G4")
def test_offsets_that_another_instance_committed_of_a_topic_that_was_deleted_are_refused(
    kafka: str, topic_prefix: str
) -> None:
    """Brokers forget them with the topic, but that instance may go on for a moment, and commits those that it knows."""
    create_topic(kafka, topic_prefix)
    write(kafka, topic_prefix, [event(number) for number in range(1, 5)])
    source = source_of(kafka, topic_prefix, group=topic_prefix)
    with started(source):
        source.confirm(read_rows(source, 4)[-1].position)
        wait_for(lambda: bool(committed_by(kafka, topic_prefix)), "the commit")
        late = committed_by(kafka, topic_prefix)
    make_anew(kafka, topic_prefix, 11, 18)
    Consumer({"bootstrap.servers": kafka, "group.id": topic_prefix}).commit(offsets=late, asynchronous=False)
    other = source_of(kafka, topic_prefix, group=topic_prefix)
    with started(other), pytest.raises(PositionRefused, match=MADE_ANEW.format(topic_prefix)):
        read_until_it_ends(other)


def test_a_position_without_the_ids_of_its_topics_is_gone_on_from(kafka: str, topic_prefix: str) -> None:
    create_topic(kafka, topic_prefix)
    write(kafka, topic_prefix, [event(number) for number in range(1, 5)])
    with started(source_of(kafka, topic_prefix), Position({topic_prefix: {"0": 2}}, "")) as source:
        (batch,) = read_rows(source, 2)
        assert commits([batch]) == [3, 4]
        assert set(batch.position.data[topic_prefix]) == {"0", "id"}


def test_topics_of_a_pattern_are_read_also_those_that_come_later(kafka: str, topic_prefix: str) -> None:
    create_topic(kafka, f"{topic_prefix}.one")
    write(kafka, f"{topic_prefix}.one", [event(1)])
    with started(pattern_of(kafka, topic_prefix)) as source:
        assert commits(read_rows(source, 1)) == [1]
        create_topic(kafka, f"{topic_prefix}.two")
        write(kafka, f"{topic_prefix}.two", [event(2)])
        assert commits(read_rows(source, 1)) == [2]


def test_a_topic_of_a_pattern_that_is_deleted_ends_the_session_with_what_happened(
    kafka: str, topic_prefix: str
) -> None:
    for name, number in (("one", 1), ("two", 2)):
        create_topic(kafka, f"{topic_prefix}.{name}")
        write(kafka, f"{topic_prefix}.{name}", [event(number)])
    source = pattern_of(kafka, topic_prefix)
    with started(source):
        position = read_rows(source, 2)[-1].position
        source.confirm(position)
        delete_topic(kafka, f"{topic_prefix}.two")
        gone = rf"^topic {topic_prefix}\.two, which a pattern matched, was deleted$"
        with pytest.raises(SourceUnavailable, match=gone):
            read_until_it_ends(source)
        source.start(position)
        write(kafka, f"{topic_prefix}.one", [event(3)])
        assert commits(read_rows(source, 1)) == [3]


@pytest.mark.parametrize("start_at", ["earliest", "latest"])
def test_a_pattern_that_no_topic_matches_is_told_and_waited_for(kafka: str, topic_prefix: str, start_at: str) -> None:
    source = source_of(kafka, rf"^{topic_prefix}\..*", group=topic_prefix, kafka=SOON, startAt=start_at)
    (finding,) = source.check()
    assert str(finding).startswith(rf"warning: no topic matches ^{topic_prefix}\..*: create it, or correct topics")
    with started(source):
        assert source.read(0.5) is None
        status = source.status()
        assert (status.ok, status.reason) == (True, rf"reads nothing yet: no topic matches ^{topic_prefix}\..*")
        create_topic(kafka, f"{topic_prefix}.one")
        write(kafka, f"{topic_prefix}.one", [event(1)])
        assert commits(read_rows(source, 1)) == [1], "what is made later is read from its beginning"
        assert source.status().reason.startswith(f"reads {topic_prefix}.one[0]")


@pytest.mark.parametrize("start_at", ["earliest", "latest"])
def test_topics_that_do_not_exist_are_told_and_waited_for_while_others_are_read(
    kafka: str, topic_prefix: str, start_at: str
) -> None:
    there, missing = f"{topic_prefix}.there", f"{topic_prefix}.missing"
    create_topic(kafka, there)
    source = source_of(kafka, there, missing, group=topic_prefix, startAt=start_at)
    (finding,) = source.check()
    assert str(finding) == (
        f'error: topic "{missing}" does not exist: the source waits until it does: create it, or correct topics'
    )
    with started(source):
        wait_for(lambda: source.read(0.1) or source.stats()["partitions"], "the topic that exists")
        write(kafka, there, [event(1)])
        assert commits(read_rows(source, 1)) == [1]
        status = source.status()
        assert not status.ok
        assert status.reason.startswith(f"waits for topics that do not exist: {missing}; reads {there}[0]")
        create_topic(kafka, missing)
        write(kafka, missing, [event(2)])
        position = read_rows(source, 1)[-1].position
        assert source.status().ok
        source.confirm(position)
    write(kafka, missing, [event(3)])
    with started(source_of(kafka, there, missing, group=topic_prefix, startAt=start_at), stored(position)) as again:
        assert commits(read_rows(again, 1)) == [3]


def test_a_source_none_of_whose_topics_exists_stops_at_once(kafka: str, topic_prefix: str) -> None:
    with started(source_of(kafka, topic_prefix)) as source:
        assert source.read(0.3) is None
        assert source.status().reason == f"waits for topics that do not exist: {topic_prefix}; reads nothing yet"
        began = time.monotonic()
    assert time.monotonic() - began < 2.0


def test_a_topic_that_goes_away_while_it_is_read_is_waited_for_and_not_gone_on_in(
    kafka: str, topic_prefix: str
) -> None:
    create_topic(kafka, topic_prefix)
    write(kafka, topic_prefix, [event(1)])
    with started(source_of(kafka, topic_prefix, group=topic_prefix, kafka=SOON)) as source:
        position = read_rows(source, 1)[-1].position
        delete_topic(kafka, topic_prefix)
        assert read_until_an_error(source, position) == position
        source.read_stream_identity()
        source.start(position)
        assert source.read(0.5) is None
        assert source.status().reason.startswith(f"waits for topics that do not exist: {topic_prefix}")
        create_topic(kafka, topic_prefix)
        write(kafka, topic_prefix, [event(number) for number in range(11, 19)])
        with pytest.raises(PositionRefused, match=MADE_ANEW.format(topic_prefix)):
            read_until_it_ends(source)
