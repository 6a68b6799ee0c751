"""Members of a group that come back under their instanceId, or anew: nothing is left that nobody reads."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported
    AdminClient,
    ConsumerGroupDescription,
    TopicMetadata,
)
from confluent_kafka.cimpl import NewPartitions

from psql_streamer.errors import SourceRefused, SourceUnavailable
from psql_streamer.interfaces import Severity
from psql_streamer.model import Position
from sources.kafka import takeover
from sources.kafka.beginnings import Beginnings
from sources.kafka.committing import Committing
from sources.kafka.offsets import Partition
from sources.kafka.source import KafkaSource
from sources.kafka.takeover import Takeover
from tests.event_topics import commits, event, read_rows, source_of, write
from tests.kafka_sinks import create_topic
from tests.source_at_work import wait_for
from tests.started_source import started


def static(kafka: str, group: str, topics: Iterable[str], instance: str = "one") -> KafkaSource:
    """A member with an instanceId; new topics of patterns are found as late as without other settings."""
    return source_of(kafka, *topics, group=group, instanceId=instance)


def read_and_stop(source: KafkaSource, count: int) -> None:
    """What comes is confirmed. The group keeps the member's partitions for it."""
    with started(source):
        source.confirm(read_rows(source, count)[-1].position)


def has(source: KafkaSource, *partitions: str) -> bool:
    """Whether these are the ones that it reads; what comes meanwhile is confirmed."""
    _pass_on(source)
    return set(source.stats()["partitions"]) == set(partitions)


def _pass_on(source: KafkaSource) -> None:
    if (batch := source.read(0.1)) is not None:
        source.confirm(batch.position)


def make(kafka: str, topic: str, number: int) -> None:
    """The topic, with one event."""
    create_topic(kafka, topic)
    write(kafka, topic, [event(number)])


def leave_a_topic(kafka: str, prefix: str) -> str:
    """A member has read two topics, and event 3 comes into the one that leaves the configuration; the one that stays,
    with event 4.
    """
    left, stays = f"{prefix}.left", f"{prefix}.stays"
    make(kafka, left, 1)
    make(kafka, stays, 2)
    read_and_stop(static(kafka, prefix, [left, stays]), 2)
    write(kafka, left, [event(3)])
    write(kafka, stays, [event(4)])
    return stays


@pytest.mark.parametrize("others", [False, True])
def test_topics_that_join_the_configuration_are_read_when_a_member_is_back_under_its_name(
    kafka: str, topic_prefix: str, others: bool
) -> None:
    old, new = f"{topic_prefix}.old", f"{topic_prefix}.new"
    make(kafka, old, 1)
    make(kafka, new, 2)
    if others:
        with started(static(kafka, topic_prefix, [old], "other")) as other:
            wait_for(lambda: has(other, f"{old}[0]"), "the partition")
            with started(static(kafka, topic_prefix, [old])) as source:
                wait_for(lambda: source.read(0.1) is None and source.stats()["rebalances"], "the member")
            with started(static(kafka, topic_prefix, [old, new])) as source:
                assert commits(read_rows(source, 1)) == [2]
                wait_for(lambda: has(source, f"{new}[0]") and has(other, f"{old}[0]"), "shares")
        return
    read_and_stop(static(kafka, topic_prefix, [old]), 1)
    with started(static(kafka, topic_prefix, [old, new])) as source:
        assert commits(read_rows(source, 1)) == [2]
        wait_for(lambda: has(source, f"{old}[0]", f"{new}[0]"), "both topics")


def test_partitions_that_were_added_meanwhile_are_read_when_a_member_is_back_under_its_name(
    kafka: str, topic_prefix: str
) -> None:
    make(kafka, topic_prefix, 1)
    read_and_stop(static(kafka, topic_prefix, [topic_prefix]), 1)
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_partitions([NewPartitions(topic_prefix, 2)])[topic_prefix].result(30)
    write(kafka, topic_prefix, [event(2)], 1)
    with started(static(kafka, topic_prefix, [topic_prefix])) as source:
        assert commits(read_rows(source, 1)) == [2]


def test_topics_of_a_pattern_that_were_made_meanwhile_are_read_when_a_member_is_back_under_its_name(
    kafka: str, topic_prefix: str
) -> None:
    make(kafka, f"{topic_prefix}.one", 1)
    pattern = rf"^{topic_prefix}\..*"
    read_and_stop(static(kafka, topic_prefix, [pattern]), 1)
    make(kafka, f"{topic_prefix}.two", 2)
    with started(static(kafka, topic_prefix, [pattern])) as source:
        assert commits(read_rows(source, 1)) == [2]


def test_a_topic_of_a_pattern_that_is_made_while_a_member_comes_back_is_read_at_once(
    kafka: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not when the client looks for topics the next time, which is minutes later. The old ones are read on."""
    make(kafka, f"{topic_prefix}.one", 1)
    pattern = rf"^{topic_prefix}\..*"
    read_and_stop(static(kafka, topic_prefix, [pattern]), 1)
    _make_while_a_member_joins(kafka, f"{topic_prefix}.two", monkeypatch)
    with started(static(kafka, topic_prefix, [pattern])) as source:
        assert commits(read_rows(source, 1)) == [2]
        write(kafka, f"{topic_prefix}.one", [event(3)])
        assert commits(read_rows(source, 1)) == [3]


def test_a_topic_of_a_pattern_that_is_made_while_a_member_joins_the_first_time_is_read_beside_those_that_it_has(
    kafka: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(kafka, f"{topic_prefix}.one", 1)
    _make_while_a_member_joins(kafka, f"{topic_prefix}.two", monkeypatch)
    with started(static(kafka, topic_prefix, [rf"^{topic_prefix}\..*"])) as source:
        assert sorted(commits(read_rows(source, 2))) == [1, 2]
        wait_for(lambda: has(source, f"{topic_prefix}.one[0]", f"{topic_prefix}.two[0]"), "both topics")


def test_a_topic_that_a_broker_does_not_show_yet_is_read_though_the_client_keeps_it_while_its_group_shares_anew(
    kafka: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another broker has shown it to whoever has shared out the partitions, or a topic was made again since."""
    make(kafka, f"{topic_prefix}.one", 1)
    make(kafka, f"{topic_prefix}.late", 3)
    _make_while_a_member_joins(kafka, f"{topic_prefix}.two", monkeypatch)
    listed, asked = takeover.list_wanted_partitions, list[int]()

    def list_late(wanted: Iterable[str], topics: Mapping[str, TopicMetadata]) -> list[Partition]:
        asked.append(len(topics))
        found = listed(wanted, topics)
        return found if len(asked) > 1 else [one for one in found if one.topic != f"{topic_prefix}.late"]

    monkeypatch.setattr(takeover, "list_wanted_partitions", list_late)
    with started(static(kafka, topic_prefix, [rf"^{topic_prefix}\..*"])) as source:
        assert sorted(commits(read_rows(source, 3))) == [1, 2, 3]
        write(kafka, f"{topic_prefix}.late", [event(4)])
        assert commits(read_rows(source, 1)) == [4]


def _make_while_a_member_joins(kafka: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The group has shared what there was before the topic."""
    describe, made = Takeover._describe, list[str]()

    def describe_behind_a_new_topic(member: Takeover) -> ConsumerGroupDescription:
        if not made:
            made.append(topic)
            make(kafka, topic, 2)
        return describe(member)

    monkeypatch.setattr(Takeover, "_describe", describe_behind_a_new_topic)


def test_a_topic_that_left_the_configuration_is_not_read_when_a_member_is_back_under_its_name(
    kafka: str, topic_prefix: str
) -> None:
    stays = leave_a_topic(kafka, topic_prefix)
    with started(static(kafka, topic_prefix, [stays])) as source:
        assert commits(read_rows(source, 1)) == [4]
        wait_for(lambda: has(source, f"{stays}[0]"), "the topic that stays alone")
        assert source.stats()["records"] == 1


def test_a_topic_that_left_the_configuration_is_not_read_though_another_member_joins_meanwhile(
    kafka: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stays = leave_a_topic(kafka, topic_prefix)
    describe, other = Takeover._describe, static(kafka, topic_prefix, [stays], "other")

    def describe_behind_the_other(member: Takeover) -> ConsumerGroupDescription:
        if other._group is None:
            other.read_stream_identity()
            other.start(None)
            wait_for(lambda: describe(member).state != ConsumerGroupState.STABLE, "a rebalance")
        return describe(member)

    monkeypatch.setattr(Takeover, "_describe", describe_behind_the_other)
    with started(static(kafka, topic_prefix, [stays])) as source:
        found = list[int]()

        def reads() -> bool:
            for one in (source, other):
                # The other one is started by the first one's thread.
                if one._group is not None and (batch := one.read(0.1)) is not None:
                    found.extend(commits([batch]))
                    one.confirm(batch.position)
            partitions = [*source.stats()["partitions"], *other.stats()["partitions"]]
            return bool(found) and partitions == [f"{stays}[0]"]

        wait_for(reads, "the topic that stays alone")
    other.stop()
    assert found == [4]


def test_partitions_that_a_member_will_not_read_are_asked_for_nothing_until_it_gives_them_back(
    kafka: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long that takes: they have no committed offset, and a client that looks for one would end with that."""
    old, new = f"{topic_prefix}.old", f"{topic_prefix}.new"
    make(kafka, old, 1)
    make(kafka, new, 2)
    with started(static(kafka, topic_prefix, [old])) as source:
        assert commits(read_rows(source, 1)) == [1]  # which is not confirmed
    look, may_look_at = Takeover.look, time.monotonic() + 3

    def look_late(member: Takeover, *arguments: Any) -> None:
        if time.monotonic() > may_look_at:
            look(member, *arguments)

    monkeypatch.setattr(Takeover, "look", look_late)
    with started(static(kafka, topic_prefix, [old, new])) as source:
        write(kafka, old, [event(3)])
        assert sorted(commits(read_rows(source, 3))) == [1, 2, 3]


def test_a_partition_that_goes_in_the_poll_that_brought_it_does_not_abort_the_process(
    kafka: str, topic_prefix: str
) -> None:
    """With a startAt for which topics are listed within the callback of the client."""
    make(kafka, topic_prefix, 1)
    source = source_of(kafka, topic_prefix, group=topic_prefix, startAt="latest")
    admin = AdminClient({"bootstrap.servers": kafka})
    beginnings = Beginnings(source.name, source._settings, {}, None, Committing(), {topic_prefix}, admin, {})
    consumer, gone = Consumer(source._settings.make_consumer_properties()), list[TopicPartition]()

    def assign(_: Consumer, partitions: list[TopicPartition]) -> None:
        assert [one.offset for one in beginnings.begin(consumer)] == [1]
        consumer.incremental_assign(partitions)
        consumer.unsubscribe()

    consumer.subscribe([topic_prefix], on_assign=assign, on_revoke=lambda _, partitions: gone.extend(partitions))
    wait_for(lambda: consumer.poll(1.0) is None and bool(gone), "the partition to go")
    consumer.close()


def test_a_member_that_joins_anew_and_does_not_get_what_it_has_on_its_way_stops(kafka: str, topic_prefix: str) -> None:
    """The other instance reads these records again, and newer ones: behind them an old value must not be written."""
    with _two_members(kafka, topic_prefix) as (first, other):
        position = _read_and_lose_the_session(first, kafka, topic_prefix)
        wait_for(lambda: has(other, *(f"{topic_prefix}[{number}]" for number in range(4))), "all partitions")
        first.start(position)
        went = rf"{topic_prefix}.* another instance may read that again"
        with pytest.raises(SourceRefused, match=went):
            wait_for(lambda: _both_read(first, other), "the refusal")


def test_a_member_that_joins_anew_goes_on_if_every_sink_has_what_it_read(kafka: str, topic_prefix: str) -> None:
    with _two_members(kafka, topic_prefix) as (first, other):
        position = _read_and_lose_the_session(first, kafka, topic_prefix)
        wait_for(lambda: has(other, *(f"{topic_prefix}[{number}]" for number in range(4))), "all partitions")
        first.confirm(position)
        first.start(position)
        wait_for(lambda: _both_read(first, other), "shares")
        assert first.status().ok


def _both_read(*sources: KafkaSource) -> bool:
    """Whether each has two partitions; what comes meanwhile is confirmed."""
    for source in sources:
        _pass_on(source)
    return all(len(source.stats()["partitions"]) == 2 for source in sources)


@contextmanager
def _two_members(kafka: str, topic: str) -> Iterator[tuple[KafkaSource, KafkaSource]]:
    """They have two partitions each, and hear of a rebalance soon."""
    create_topic(kafka, topic, partitions=4)
    first, other = (source_of(kafka, topic, group=topic, kafka={"heartbeat.interval.ms": 200}) for _ in range(2))
    with started(first), started(other):
        wait_for(lambda: _both_read(first, other), "shares")
        yield first, other


def _read_and_lose_the_session(source: KafkaSource, kafka: str, topic: str) -> Position:
    """What it has read, and no sink has yet. Its client has left the group."""
    for number in range(4):
        write(kafka, topic, [event(number)], number)
    position = read_rows(source, 2)[-1].position
    assert source._group is not None
    source._group.state.fail(SourceUnavailable("partitions cannot be read"))
    return position


@pytest.mark.behaviour("B8")
@pytest.mark.parametrize(
    "joins", [{"partition.assignment.strategy": "cooperative-sticky"}, {"group.protocol": "consumer"}], ids=str
)
def test_a_member_that_is_no_instance_is_named_while_it_has_partitions(
    kafka: str, topic_prefix: str, joins: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sources.kafka.watch._MEMBERS_SECONDS", 0.2)
    topic = create_topic(kafka, topic_prefix, partitions=2)
    source = source_of(kafka, topic, group=topic)
    other = Consumer({"bootstrap.servers": kafka, "group.id": topic, "client.id": "somebody", **joins})
    other.subscribe([topic])
    try:
        wait_for(lambda: other.poll(0.1) is None and other.assignment(), "the other consumer has partitions")
        (finding,) = source.check()
        assert f'group {topic} gives records to others: client "somebody" has {topic}[0], {topic}[1]' in str(finding)
        assert finding.severity is Severity.ERROR
        with started(source):
            told = f'group {topic} gives records to others: client "somebody" has'
            wait_for(lambda: [other.poll(0.1), _pass_on(source)] and told in source.status().reason, "it is named")
            assert not source.status().ok
            other.close()
            wait_for(lambda: has(source, f"{topic}[0]", f"{topic}[1]") and source.status().ok, "it reads all of it")
    finally:
        other.close()
