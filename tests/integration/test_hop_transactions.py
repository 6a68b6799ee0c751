"""A Kafka source whose offsets the transactions of its sink commit, and one whose sink writes to another cluster."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from psql_streamer.errors import SinkRefused, SinkUnavailable, SourceRefused, SourceUnavailable
from psql_streamer.interfaces import ConsumedOffsets, Transaction, TransactionWriter
from psql_streamer.model import Batch, Position
from sinks.kafka import transactions
from sinks.kafka.sink import KafkaSink
from sources.kafka.committing import OUR_COMMIT
from sources.kafka.source import KafkaSource
from tests.event_topics import commits, committed, event, read_rows, source_of, write
from tests.fold import parse
from tests.kafka_reader import consume
from tests.kafka_sinks import create_topic
from tests.kafka_sinks import started as started_sink
from tests.source_at_work import wait_for
from tests.started_source import started

SECONDS_OF_POLLS = 0.5
"""Several polls, each of which commits what is due."""


@pytest.fixture
def topic(kafka: str, topic_prefix: str) -> str:
    return create_topic(kafka, topic_prefix, partitions=2)


def sink_of(kafka: str, topic: str) -> AbstractContextManager[KafkaSink]:
    """It copies the topic in transactions."""
    return started_sink(kafka, None, topicPrefix=f"{topic}-copy", exactlyOnce=True, transactionalId=f"{topic}-once")


def joined(bootstrap: str, topic: str, sink: KafkaSink, **section: object) -> KafkaSource:
    """A source, not started, whose only sink this is."""
    source = source_of(bootstrap, topic, group=topic, **section)
    writer = sink.find_writer()
    assert writer is not None
    source.serve_transactions(writer)
    return source


def copied(kafka: str, topic: str) -> list[int]:
    """The commit numbers that readers of what is committed see in the copy."""
    records = consume(kafka, [f"{topic}-copy.public.orders"], isolation_level="read_committed")
    return sorted(parse(record)["CommitLSN"] for record in records)


def transaction(batches: Sequence[Batch], consumed: Callable[[], ConsumedOffsets | None]) -> Transaction:
    def listed() -> Sequence[ConsumedOffsets]:
        offsets = consumed()
        return [] if offsets is None else [offsets]

    return Transaction(batches, {}, listed)


def set_offset(kafka: str, topic: str, offset: int, partition: int = 0) -> None:
    """As an operator sets it."""
    admin = AdminClient({"bootstrap.servers": kafka})
    reset = ConsumerGroupTopicPartitions(topic, [TopicPartition(topic, partition, offset)])
    admin.alter_consumer_group_offsets([reset])[topic].result(30)


@pytest.mark.behaviour("G6")
def test_the_transaction_commits_the_offsets_and_the_source_commits_none(kafka: str, topic: str) -> None:
    write(kafka, topic, [event(number) for number in range(1, 6)], 0)
    with sink_of(kafka, topic) as sink, started(joined(kafka, topic, sink)) as source:
        assert source.keeps_place_in_transactions
        batches = read_rows(source, 5)
        position = batches[-1].position
        source.confirm(position)
        time.sleep(SECONDS_OF_POLLS)
        assert committed(kafka, topic, topic) < 1
        sink.write_transaction(transaction(batches, lambda: source.find_consumed_offsets(position)))
        assert committed(kafka, topic, topic) == 5
    assert copied(kafka, topic) == [1, 2, 3, 4, 5]
    assert committed(kafka, topic, topic) == 5, "a clean stop commits nothing, either"


@pytest.mark.behaviour("G6")
def test_events_of_partitions_that_another_instance_got_are_not_written_any_more(
    kafka: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for partition in range(2):
        write(kafka, topic, [event(partition + 1)], partition)
    with (
        sink_of(kafka, topic) as sink,
        started(joined(kafka, topic, sink, drainTimeout="1s")) as first,
    ):
        batches = read_rows(first, 2)
        position = batches[-1].position
        before = first.find_consumed_offsets(position)
        with started(source_of(kafka, topic, group=topic)) as second:
            wait_for(lambda: first.failure, "the first instance to give up")
            read_rows(second, 1)
            with pytest.raises(SourceRefused, match="another instance may read that again"):
                sink.write_transaction(transaction(batches, lambda: first.find_consumed_offsets(position)))
            refused = transaction(batches, lambda: before)
            with pytest.raises(SinkUnavailable, match="refused the offsets of the consumer group's member"):
                sink.write_transaction(refused)
            monkeypatch.setattr(transactions, "_REFUSED_SECONDS", 0.0)
            with pytest.raises(SinkRefused, match="start this instance again"):
                sink.write_transaction(refused)
    assert copied(kafka, topic) == []
    assert committed(kafka, topic, topic) < 0


@pytest.mark.soak
@pytest.mark.behaviour("G6")
def test_events_of_partitions_that_stay_are_written_though_the_group_goes_on(kafka: str, topic: str) -> None:
    """What was taken in the generation before is committed in the one that follows it."""
    for partition in range(2):
        write(kafka, topic, [event(partition + 1)], partition)
    with sink_of(kafka, topic) as sink, started(joined(kafka, topic, sink)) as first:
        batches = read_rows(first, 2)
        position = batches[-1].position
        old = first.find_consumed_offsets(position)
        with started(source_of(kafka, topic, group=topic)) as second:
            wait_for(lambda: "rebalance waits" in first.status().reason, "the first instance to drain")
            with pytest.raises(SinkUnavailable, match="refused the offsets of the consumer group's member"):
                sink.write_transaction(transaction(batches, lambda: old))
            sink.write_transaction(transaction(batches, lambda: first.find_consumed_offsets(position)))
            first.confirm(position)
            wait_for(lambda: len(second.stats()["partitions"]) == 1, "the second instance's share")
            assert second.read(SECONDS_OF_POLLS) is None
    assert copied(kafka, topic) == [1, 2]
    asked = Consumer({"bootstrap.servers": kafka, "group.id": topic})
    for one in asked.committed([TopicPartition(topic, number) for number in range(2)], timeout=20):
        assert re.fullmatch("psql-streamer topic=[A-Za-z0-9+/]{22}", one.metadata or "")


@pytest.mark.behaviour("G6")
@pytest.mark.parametrize("member", [{}, {"instanceId": "one"}], ids=["without a name", "with a name"])
def test_events_on_their_way_are_written_though_their_topic_is_deleted(
    kafka: str, topic_prefix: str, member: dict[str, str]
) -> None:
    """Brokers take no offset of it, and those of another topic that are in the same transaction."""
    gone, stays = f"{topic_prefix}.from.gone", f"{topic_prefix}.from.stays"
    for number, name in enumerate((gone, stays), 1):
        write(kafka, create_topic(kafka, name), [event(number)])
    soon = {"topic.metadata.refresh.interval.ms": 300, "heartbeat.interval.ms": 200}
    section = {"topics": [rf"^{topic_prefix}\.from\..*"], "kafka": soon, **member}
    with sink_of(kafka, topic_prefix) as sink, started(joined(kafka, topic_prefix, sink, **section)) as source:
        batches = read_rows(source, 2)
        position = batches[-1].position
        admin = AdminClient({"bootstrap.servers": kafka})
        admin.delete_topics([gone])[gone].result(30)
        wait_for(lambda: f"{gone}[0]" not in source.stats()["partitions"], "word of the deletion")

        def is_written() -> bool:
            try:
                sink.write_transaction(transaction(batches, lambda: source.find_consumed_offsets(position)))
            except (SinkUnavailable, SourceUnavailable):
                return False
            return True

        wait_for(is_written, "the transaction")
        source.confirm(position)
        source.start(position)
        assert committed(kafka, topic_prefix, stays) == 1
        write(kafka, stays, [event(3)])
        assert commits(read_rows(source, 1)) == [3]
    assert copied(kafka, topic_prefix) == [1, 2]


def test_a_session_that_ends_waits_for_what_is_on_its_way(kafka: str, topic: str) -> None:
    """The member stays in the group until then: another instance would read these records again."""
    write(kafka, topic, [event(number) for number in range(1, 6)], 0)
    with sink_of(kafka, topic) as sink, started(joined(kafka, topic, sink)) as source:
        batches = read_rows(source, 5)
        position = batches[-1].position
        assert source._group is not None
        source._group.state.fail(SourceUnavailable("the brokers went away"))
        again = threading.Thread(target=lambda: source.start(position))
        again.start()
        again.join(SECONDS_OF_POLLS)
        assert again.is_alive()
        sink.write_transaction(transaction(batches, lambda: source.find_consumed_offsets(position)))
        source.confirm(position)
        again.join(30)
        write(kafka, topic, [event(6)], 0)
        assert commits(read_rows(source, 1)) == [6]
    assert copied(kafka, topic) == [1, 2, 3, 4, 5]


@pytest.mark.soak
def test_a_session_that_an_error_of_the_client_ends_takes_part_in_rebalances_until_all_is_written(
    kafka: str, topic: str
) -> None:
    for partition in range(2):
        write(kafka, topic, [event(partition + 1)], partition)
    with sink_of(kafka, topic) as sink, started(joined(kafka, topic, sink)) as first:
        batches = read_rows(first, 2)
        position = batches[-1].position
        assert first._group is not None
        first._group._polling.poll = fail_once_more  # type: ignore[method-assign]
        wait_for(lambda: "went away" in first.status().reason, "the end of the session")
        with started(source_of(kafka, topic, group=topic)) as second:
            wait_for(lambda: "rebalance waits" in first.status().reason, "the first instance to drain", 20)
            sink.write_transaction(transaction(batches, lambda: first.find_consumed_offsets(position)))
            first.confirm(position)
            first.stop()
            wait_for(lambda: len(second.stats()["partitions"]) == 2, "the second instance's share")
            assert second.read(SECONDS_OF_POLLS) is None
    assert copied(kafka, topic) == [1, 2]


def fail_once_more(*_: object) -> None:
    raise KafkaException(KafkaError(KafkaError._TRANSPORT, "the brokers went away"))


def test_a_session_that_ends_waits_no_longer_than_for_a_rebalance(kafka: str, topic: str) -> None:
    write(kafka, topic, [event(1)], 0)
    with sink_of(kafka, topic) as sink, started(joined(kafka, topic, sink, drainTimeout="300ms")) as source:
        batches = read_rows(source, 1)
        position = batches[-1].position
        with pytest.raises(SourceRefused, match=r"not every sink has what was read of .*\[0\]"):
            source.start(position)
        with pytest.raises(SourceRefused):
            sink.write_transaction(transaction(batches, lambda: source.find_consumed_offsets(position)))
    assert copied(kafka, topic) == []


def test_an_offset_that_an_operator_set_back_is_not_overtaken_by_older_positions(kafka: str, topic: str) -> None:
    for partition in range(2):
        write(kafka, topic, [event(10 * partition + number) for number in range(1, 6)], partition)
    with sink_of(kafka, topic) as sink:
        with started(joined(kafka, topic, sink)) as source:
            batches = read_rows(source, 10)
            position = batches[-1].position
            sink.write_transaction(transaction(batches, lambda: source.find_consumed_offsets(position)))
            source.confirm(position)
        for partition in range(2):
            set_offset(kafka, topic, 2, partition)
        with started(joined(kafka, topic, sink, batchSize=1, batchBytes="1kB"), position) as source:
            found = read_rows(source, 6)
            told: dict[int, int] = {}
            for count in range(1, len(found) + 1):
                numbers = commits(found[:count])
                offsets = source.find_consumed_offsets(found[count - 1].position)
                assert offsets is not None
                told |= {partition: offset for _, partition, offset, _ in offsets.offsets}
                assert told == _behind(numbers)


def _behind(numbers: Sequence[int]) -> dict[int, int]:
    """The offsets behind these events, of which partition 1 has those above 10."""
    return {number // 10: number % 10 for number in sorted(numbers)}


@pytest.mark.behaviour("G6")
def test_offsets_that_an_open_transaction_may_change_are_waited_for(kafka: str, topic: str) -> None:
    """An instance was killed while it committed, and another one gets its partitions."""
    write(kafka, topic, [event(number) for number in range(1, 6)], 0)
    outsider = Consumer({"bootstrap.servers": kafka, "group.id": topic, "log_level": 0})
    killed = Producer({"bootstrap.servers": kafka, "transactional.id": f"{topic}-killed"})
    killed.init_transactions(30)
    killed.begin_transaction()
    offsets = [TopicPartition(topic, 0, 3, OUR_COMMIT)]
    killed.send_offsets_to_transaction(offsets, outsider.consumer_group_metadata(), 30)
    with sink_of(kafka, topic) as sink, started(joined(kafka, topic, sink, timeout="1s")) as source:
        wait_for(lambda: "waits for the group's offsets" in source.status().reason, "word of the transaction")
        assert source.read(SECONDS_OF_POLLS) is None
        killed.commit_transaction(30)
        assert commits(read_rows(source, 2)) == [4, 5]
    outsider.close()


def test_offsets_of_open_transactions_are_not_to_be_seen(kafka: str, topic: str) -> None:
    with sink_of(kafka, topic) as sink:
        source = joined(kafka, topic, sink, kafka={"isolation.level": "read_uncommitted"})
        with pytest.raises(SourceRefused, match=r"isolation\.level = read_uncommitted"), started(source):
            pass


@pytest.mark.behaviour("G6")
@pytest.mark.parametrize(
    ("set_back_to", "writer", "first"),
    [(-1, "one", 6), (1, "one", 2), (-1, "another", 4)],
    ids=["older commit of its own", "offset of an operator", "older commit of another instance"],
)
def test_with_a_sink_in_another_cluster_the_position_counts_where_nobody_else_has_committed(
    kafka: str, topic: str, set_back_to: int, writer: str, first: int
) -> None:
    write(kafka, topic, [event(number) for number in range(1, 7)], 0)
    position = Position({topic: {"0": 5}}, "")
    source = source_of(kafka, topic, group=topic)
    source.serve_transactions(TransactionWriter("one", "another cluster"))
    with started(source):
        assert not source.keeps_place_in_transactions
        batches = read_rows(source, 6)
        assert source.find_consumed_offsets(batches[-1].position) is None
        source.confirm(Position({topic: {"0": 3}}, ""))
        wait_for(lambda: committed(kafka, topic, topic) == 3, "the commit")
    if set_back_to >= 0:
        set_offset(kafka, topic, set_back_to)
    following = source_of(kafka, topic, group=topic)
    following.serve_transactions(TransactionWriter(writer, "another cluster"))
    with started(following, position):
        assert commits(read_rows(following, 1))[0] == first
