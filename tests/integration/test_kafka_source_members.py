"""Members of a group that come back under their instanceId, or anew: nothing is left that nobody reads."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from sources.kafka.beginnings import Beginnings
from sources.kafka.committing import Committing
from sources.kafka.source import KafkaSource
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
    """Whether these are the ones that it reads; what comes is read meanwhile."""
    source.read(0.1)
    return set(source.stats()["partitions"]) == set(partitions)


def make(kafka: str, topic: str, number: int) -> None:
    """The topic, with one event."""
    create_topic(kafka, topic)
    write(kafka, topic, [event(number)])


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


def test_a_topic_that_left_the_configuration_is_not_read_when_a_member_is_back_under_its_name(
    kafka: str, topic_prefix: str
) -> None:
    left, stays = f"{topic_prefix}.left", f"{topic_prefix}.stays"
    make(kafka, left, 1)
    make(kafka, stays, 2)
    read_and_stop(static(kafka, topic_prefix, [left, stays]), 2)
    write(kafka, left, [event(3)])
    write(kafka, stays, [event(4)])
    with started(static(kafka, topic_prefix, [stays])) as source:
        assert commits(read_rows(source, 1)) == [4]
        wait_for(lambda: has(source, f"{stays}[0]"), "the topic that stays alone")
        assert source.stats()["records"] == 1


def test_a_partition_that_goes_in_the_poll_that_brought_it_does_not_abort_the_process(
    kafka: str, topic_prefix: str
) -> None:
    """With a startAt for which topics are listed within the callback of the client."""
    make(kafka, topic_prefix, 1)
    source = source_of(kafka, topic_prefix, group=topic_prefix, startAt="latest")
    admin = AdminClient({"bootstrap.servers": kafka})
    beginnings = Beginnings(source._settings, {}, False, Committing(), {topic_prefix}, admin)
    consumer, gone = Consumer(source._settings.consumer_properties()), list[TopicPartition]()

    def assign(_: Consumer, partitions: list[TopicPartition]) -> None:
        assert [one.offset for one in beginnings.begin(consumer)] == [1]
        consumer.incremental_assign(partitions)
        consumer.unsubscribe()

    consumer.subscribe([topic_prefix], on_assign=assign, on_revoke=lambda _, partitions: gone.extend(partitions))
    wait_for(lambda: consumer.poll(1.0) is None and bool(gone), "the partition to go")
    consumer.close()
