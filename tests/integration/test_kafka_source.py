"""Reading topics that other instances wrote, from a real Kafka."""

from __future__ import annotations

import json
import threading
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription
from confluent_kafka.cimpl import NewPartitions

from psql_streamer.errors import PositionRefused, SourceRefused, SourceUnavailable
from psql_streamer.interfaces import Source
from psql_streamer.model import Batch, Position
from psql_streamer.pipeline.coalescing import merge
from psql_streamer.testing import SourceContract
from sinks.kafka.sink import KafkaSink
from sources.kafka.offsets import Partition, to_offsets
from sources.kafka.source import KafkaSource
from tests.event_topics import (
    commits,
    committed,
    event,
    read_rows,
    source_of,
    write,
    write_in_transactions,
    write_with_header,
)
from tests.kafka_reader import consume
from tests.kafka_sinks import create_topic, options
from tests.kafka_sinks import started as started_sink
from tests.snapshots import INITIAL, ON_DEMAND, chunk
from tests.source_at_work import wait_for
from tests.started_source import started


class TestContract(SourceContract):
    goes_on_where_confirmed = True  # the offsets of its group

    @pytest.fixture(autouse=True)
    def _topic(self, kafka: str, topic_prefix: str) -> None:
        self._kafka, self._name, self._next = kafka, topic_prefix, 1
        create_topic(kafka, topic_prefix)

    def make_source(self) -> Source:
        return source_of(self._kafka, self._name, group=self._name, instanceId="one")

    def make_changes(self) -> int:
        first = self._next
        self._next += 4
        write(self._kafka, self._name, [event(number, note="n") for number in range(first, first + 4)])
        return 4


@pytest.fixture
def topic(kafka: str, topic_prefix: str) -> str:
    create_topic(kafka, topic_prefix)
    return topic_prefix


@pytest.mark.behaviour("G2")
def test_offsets_are_committed_when_the_position_is_confirmed_and_not_before(kafka: str, topic: str) -> None:
    write(kafka, topic, [event(number) for number in range(1, 6)])
    with started(source_of(kafka, topic, group=topic)) as source:
        (batch,) = read_rows(source, 5)
        time.sleep(0.5)  # several polls, each of which commits what is due
        assert committed(kafka, topic, topic) < 1
        source.confirm(batch.position)
        wait_for(lambda: committed(kafka, topic, topic) == 5, "the commit")


def test_a_source_that_was_not_confirmed_reads_the_records_again(kafka: str, topic: str) -> None:
    write(kafka, topic, [event(number) for number in range(1, 4)])
    for _ in range(2):
        with started(source_of(kafka, topic, group=topic)) as source:
            assert commits(read_rows(source, 3)) == [1, 2, 3]


def test_a_clean_stop_commits_and_the_next_start_repeats_nothing(kafka: str, topic: str) -> None:
    write(kafka, topic, [event(number) for number in range(1, 4)])
    with started(source_of(kafka, topic, group=topic)) as source:
        source.confirm(read_rows(source, 3)[-1].position)
    write(kafka, topic, [event(4)])
    with started(source_of(kafka, topic, group=topic)) as source:
        assert commits(read_rows(source, 1)) == [4]


@pytest.mark.behaviour("G2")
def test_a_clean_stop_leaves_the_group_at_once_and_another_member_has_the_partitions(kafka: str, topic: str) -> None:
    write(kafka, topic, [event(number) for number in range(1, 4)])
    with started(_lively(kafka, topic)) as source:
        source.confirm(read_rows(source, 3)[-1].position)
    assert _members(kafka, topic) == 0
    with started(_lively(kafka, topic)) as stays, started(_lively(kafka, topic)) as leaves:
        wait_for(lambda: _members(kafka, topic) == 2 and _is_stable(kafka, topic), "both members")
        wait_for(lambda: stays.stats()["partitions"] or leaves.stats()["partitions"], "the partition")
        if stays.stats()["partitions"]:
            stays, leaves = leaves, stays
        leaves.stop()
        began = time.monotonic()
        assert _members(kafka, topic) == 1
        wait_for(lambda: stays.stats()["partitions"], "the partition")
        assert time.monotonic() - began < 2.0
        write(kafka, topic, [event(4)])
        assert commits(read_rows(stays, 1)) == [4]


@pytest.mark.behaviour("G2")
def test_a_stop_does_not_wait_for_a_group_that_shares_its_partitions(kafka: str, topic: str) -> None:
    write(kafka, topic, [event(1)])
    with ExitStack() as members:
        older = members.enter_context(started(_lively(kafka, topic)))
        took = []
        for pause in (0.05, 0.2, 0.4, 0.6, 0.8, 1.0):
            newer = members.enter_context(started(_lively(kafka, topic)))
            time.sleep(pause)  # into a rebalance: at another moment of it each time
            began = time.monotonic()
            older.stop()
            took.append(time.monotonic() - began)
            older = newer
        # On a busy machine a request to join that is under way may hold one back, for as long as `leave` waits.
        assert sorted(took)[-2] < 3.0
        assert max(took) < 7.0
        assert commits(read_rows(older, 1)) == [1]


@pytest.mark.behaviour("G2")
def test_a_member_without_partitions_leaves_at_a_clean_stop_too(kafka: str, topic: str) -> None:
    with started(_lively(kafka, topic)) as stays, started(_lively(kafka, topic)) as leaves:
        wait_for(lambda: _members(kafka, topic) == 2 and _is_stable(kafka, topic), "both members")
        wait_for(lambda: stays.stats()["partitions"] or leaves.stats()["partitions"], "the partition")
        (leaves if stays.stats()["partitions"] else stays).stop()
        assert _members(kafka, topic) == 1


def _lively(kafka: str, topic: str) -> KafkaSource:
    """It hears of a rebalance soon."""
    return source_of(kafka, topic, group=topic, kafka={"heartbeat.interval.ms": 200})


def _described(kafka: str, group: str) -> ConsumerGroupDescription:
    admin = AdminClient({"bootstrap.servers": kafka})
    return admin.describe_consumer_groups([group])[group].result(30)


def _members(kafka: str, group: str) -> int:
    return len(_described(kafka, group).members)


def _is_stable(kafka: str, group: str) -> bool:
    return _described(kafka, group).state == ConsumerGroupState.STABLE


def _read_five_and_set_the_offset_to_two(kafka: str, topic: str) -> Position:
    """Where the source was when the operator set it back."""
    write(kafka, topic, [event(number) for number in range(1, 6)])
    with started(source_of(kafka, topic, group=topic)) as source:
        position = read_rows(source, 5)[-1].position
        source.confirm(position)
    _set_offset(kafka, TopicPartition(topic, 0, 2))
    return position


def _set_offset(kafka: str, place: TopicPartition) -> None:
    """As an operator sets it, of the group with the topic's name."""
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(place.topic, [place])])[place.topic].result(30)


@pytest.mark.behaviour("G4")
def test_an_offset_that_an_operator_has_set_is_followed_backwards_too(kafka: str, topic: str) -> None:
    position = _read_five_and_set_the_offset_to_two(kafka, topic)
    with started(source_of(kafka, topic, group=topic), position) as source:
        assert commits(read_rows(source, 3)) == [3, 4, 5]


def test_records_that_go_while_it_reads_more_slowly_stop_it_with_the_gap(kafka: str, topic: str) -> None:
    write(kafka, topic, [event(number, note="x" * 2000) for number in range(1, 5001)])
    with started(source_of(kafka, topic, group=topic, batchBytes="50kB")) as source:
        batches = read_rows(source, 1)
        wait_for(lambda: held_bytes(source) > 50_000, "records that were read ahead")
        held = held_bytes(source)
        admin, before = AdminClient({"bootstrap.servers": kafka}), TopicPartition(topic, 0, 4900)
        admin.delete_records([before])[before].result(30)
        source.confirm(batches[-1].position)
        with pytest.raises(PositionRefused) as gap:
            _read_on(source, batches)
    last = commits(batches)[-1]
    assert commits(batches) == list(range(1, last + 1)), "what it had read ahead is delivered"
    assert last * 2000 > held > 0
    assert gap.match(rf"{topic}\[0\]: the records {last} to 4899 are not on the brokers any more")
    assert committed(kafka, topic, topic) == last


@pytest.mark.behaviour("G4")
def test_records_that_the_broker_does_not_have_any_more_stop_it_with_the_gap(kafka: str, topic: str) -> None:
    write(kafka, topic, [event(number) for number in range(1, 6)])
    with started(source_of(kafka, topic, group=topic)) as source:
        source.confirm(read_rows(source, 5)[-1].position)
    write(kafka, topic, [event(number) for number in range(6, 10)])
    admin, place = AdminClient({"bootstrap.servers": kafka}), TopicPartition(topic, 0, 8)
    admin.delete_records([place])[place].result(30)
    said = rf"{topic}\[0\]: the records 5 to 7 are not on the brokers any more"
    with started(source_of(kafka, topic, group=topic)) as source, pytest.raises(PositionRefused, match=said):
        read_rows(source, 1)
    for topics in (topic, f"^{topic}$"):
        assert any("5 to 7" in str(finding) for finding in source_of(kafka, topics, group=topic).check())


@pytest.mark.parametrize(
    ("start_at", "expected", "told"),
    [
        ("earliest", [1, 2, 3], "reads {}[0] from offset 0, because the group has no offset of it"),
        ("latest", [3], "the group has no offsets, startAt sets {}[0]@2"),
    ],
    ids=["earliest", "latest"],
)
def test_it_starts_where_start_at_says_and_a_restart_goes_on_there(
    kafka: str, topic: str, caplog: pytest.LogCaptureFixture, start_at: str, expected: list[int], told: str
) -> None:
    write(kafka, topic, [event(1), event(2)])
    source = source_of(kafka, topic, group=topic, startAt=start_at)
    with caplog.at_level("INFO"), started(source):
        wait_for(lambda: source.stats()["partitions"] or source.read(0.1), "the partitions")
    assert told.format(topic) in caplog.text
    write(kafka, topic, [event(3)])
    with started(source_of(kafka, topic, group=topic, startAt=start_at)) as again:
        assert commits(read_rows(again, len(expected))) == expected


def test_it_starts_at_the_first_record_of_each_partition_that_is_not_older_than_a_time(
    kafka: str, topic_prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A partition whose records are all older is read from its end."""
    create_topic(kafka, topic_prefix, partitions=3)
    start = datetime.now(UTC).replace(microsecond=500_000) - timedelta(hours=1)
    milliseconds = {0: (-2, -1, 0, 1), 1: (5, 6), 2: (-9, -8)}  # from then on, by partition
    producer = Producer({"bootstrap.servers": kafka})
    for partition, moments in milliseconds.items():
        for place, moment in enumerate(moments, 1):
            value = json.dumps(event(10 * partition + place)).encode()
            at = round(start.timestamp() * 1000) + moment
            producer.produce(topic_prefix, value, b'{"id":1}', partition=partition, timestamp=at)
    assert producer.flush(30) == 0
    source = source_of(kafka, topic_prefix, group=topic_prefix, startAt=start.isoformat())
    with caplog.at_level("INFO"), started(source):
        assert sorted(commits(read_rows(source, 4))) == [3, 4, 11, 12]
        write(kafka, topic_prefix, [event(23)], partition=2)
        assert commits(read_rows(source, 1)) == [23]
    [told] = [line for line in caplog.messages if "the group has no offsets" in line]
    assert [f"{topic_prefix}[{partition}]@{offset}" in told for partition, offset in enumerate((2, 0, 2))] == [True] * 3


def test_it_starts_at_offsets_and_partitions_that_are_not_named_at_their_beginning(
    kafka: str, topic_prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    create_topic(kafka, topic_prefix, partitions=2)
    write(kafka, topic_prefix, [event(number) for number in range(1, 5)], partition=0)
    write(kafka, topic_prefix, [event(11)], partition=1)
    start_at = {topic_prefix: {"0": 3}}
    with (
        caplog.at_level("INFO"),
        started(source_of(kafka, topic_prefix, group=topic_prefix, startAt=start_at)) as source,
    ):
        assert sorted(commits(read_rows(source, 2))) == [4, 11]
    assert f"the group has no offsets, startAt sets {topic_prefix}[0]@3" in caplog.text


@pytest.mark.parametrize(
    ("partition", "offset", "said"),
    [(0, 3, "whose records are 0 to 1"), (1, 0, "which does not exist")],
)
def test_a_start_that_is_not_there_is_refused(kafka: str, topic: str, partition: int, offset: int, said: str) -> None:
    write(kafka, topic, [event(1), event(2)])
    start_at = {topic: {str(partition): offset}}
    with (
        started(source_of(kafka, topic, group=topic, startAt=start_at)) as source,
        pytest.raises(PositionRefused, match=said),
    ):
        read_rows(source, 1)
    (finding,) = source_of(kafka, topic, group=topic, startAt=start_at).check()
    assert said in str(finding)
    with started(source_of(kafka, topic, group=topic)) as source:
        source.confirm(read_rows(source, 2)[-1].position)
    assert not list(source_of(kafka, topic, group=topic, startAt=start_at).check()), "the group has offsets"


def test_check_names_an_offset_of_the_group_behind_the_end_of_its_partition(kafka: str, topic: str) -> None:
    write(kafka, topic, [event(1), event(2)])
    _set_offset(kafka, TopicPartition(topic, 0, 3))
    (finding,) = source_of(kafka, topic, group=topic).check()
    assert f"{topic}[0] ends at 2, before offset 3, which was read already" in str(finding)


@pytest.mark.parametrize("by_operator", [True, False])
def test_a_start_behind_records_of_an_open_transaction_is_where_it_goes_on(
    kafka: str, topic: str, by_operator: bool
) -> None:
    write(kafka, topic, [event(1)])
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, json.dumps(event(2)).encode())
    assert producer.flush(30) == 0
    if by_operator:  # kafka-consumer-groups.sh --reset-offsets --to-latest
        _set_offset(kafka, TopicPartition(topic, 0, 2))
    source = source_of(kafka, topic, group=topic, **({} if by_operator else {"startAt": {topic: {"0": 2}}}))
    assert not list(source.check())
    with started(source):
        wait_for(lambda: source.stats()["partitions"] or source.read(0.1), "the partition")
        producer.commit_transaction(30)
        write(kafka, topic, [event(3)])
        assert commits(read_rows(source, 1)) == [3]


def test_partitions_that_a_topic_gets_later_are_read_from_their_beginning(kafka: str, topic: str) -> None:
    write(kafka, topic, [event(1)])
    fast = {"topic.metadata.refresh.interval.ms": 500}
    with started(source_of(kafka, topic, group=topic, startAt="latest", kafka=fast)) as source:
        wait_for(lambda: source.stats()["partitions"] or source.read(0.1), "the partition")
        admin = AdminClient({"bootstrap.servers": kafka})
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
        wait_for(lambda: len(admin.list_topics(topic, timeout=5).topics[topic].partitions) == 2, "two partitions")
        write(kafka, topic, [event(2)], partition=1)
        assert commits(read_rows(source, 1)) == [2]


def test_an_operators_offset_is_followed_also_when_the_session_ends_before_the_first_record(
    kafka: str, topic: str
) -> None:
    position = _read_five_and_set_the_offset_to_two(kafka, topic)
    with started(source_of(kafka, topic, group=topic), position) as source:
        wait_for(lambda: source.stats()["partitions"], "the partition")
    with started(source_of(kafka, topic, group=topic), position) as source:
        assert commits(read_rows(source, 3)) == [3, 4, 5]


@pytest.mark.behaviour("G3")
def test_a_record_that_is_no_event_stops_it_behind_those_in_front_of_it(kafka: str, topic: str) -> None:
    write(kafka, topic, [event(1), b'{"id": 7}', event(2)])
    with started(source_of(kafka, topic, group=topic)) as source:
        (batch,) = read_rows(source, 1)
        assert commits([batch]) == [1]
        assert to_offsets(batch.position) == {Partition(topic, 0): 1}
        assert source.read(0.3) is None
        assert "waits until every sink has what is in front of it" in source.status().reason
        source.confirm(batch.position)
        with pytest.raises(SourceRefused, match=rf"{topic}\[0\]@1 is no event: .*formats") as raised:
            source.read(1.0)
        assert "7" not in str(raised.value).replace(topic, "")


@pytest.mark.behaviour("G3")
def test_with_a_dead_letter_topic_it_is_put_there_with_its_origin_and_the_rest_goes_on(kafka: str, topic: str) -> None:
    dead = f"{topic}-dead"
    create_topic(kafka, dead)
    write(kafka, topic, [event(1), b'{"id": 7}', event(2)])
    with started(source_of(kafka, topic, group=topic, deadLetterTopic=dead)) as source:
        batches = read_rows(source, 2)
        assert commits(batches) == [1, 2]
        assert to_offsets(batches[-1].position) == {Partition(topic, 0): 3}
        assert source.stats()["dead_lettered"] == 1
    (letter,) = consume(kafka, [dead])
    assert letter.value == b'{"id": 7}'
    assert letter.key == b"{}"
    assert (letter.headers["dead_letter_topic"], letter.headers["dead_letter_offset"]) == (topic.encode(), b"1")
    assert letter.headers["dead_letter_partition"] == b"0"
    assert b"formats" in (letter.headers["dead_letter_reason"] or b"")


@pytest.mark.behaviour("G1")
def test_a_tombstone_that_no_record_explains_is_a_dead_letter_if_there_is_a_topic(kafka: str, topic: str) -> None:
    dead = f"{topic}-dead"
    create_topic(kafka, dead)
    write(kafka, topic, [None, event(1)])
    with started(source_of(kafka, topic, deadLetterTopic=dead)) as source:
        assert commits(read_rows(source, 1)) == [1]
        stats = source.stats()
        assert (stats["unknown_tombstones"], stats["dead_lettered"]) == (1, 1)
    (letter,) = consume(kafka, [dead])
    assert (letter.key, letter.value) == (b"{}", None)
    assert letter.headers["dead_letter_offset"] == b"0"
    assert b"of which table" in (letter.headers["dead_letter_reason"] or b"")


@pytest.mark.behaviour("G3")
def test_dead_letters_stand_in_the_order_of_their_records(
    kafka: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    dead = f"{topic}-dead"
    create_topic(kafka, dead)
    write(kafka, topic, [None, b'{"id": 7}', None, event(1), b'{"id": 8}'])
    with started(source_of(kafka, topic, deadLetterTopic=dead)) as source:
        assert commits(read_rows(source, 1)) == [1]
        assert source.stats()["dead_lettered"] == 4
    assert [letter.headers["dead_letter_offset"] for letter in consume(kafka, [dead])] == [b"0", b"1", b"2", b"4"]
    assert "left out" not in caplog.text
    assert f"2 records without a value are put aside to {dead}" in caplog.text


@pytest.mark.behaviour("G1")
def test_a_tombstone_behind_which_a_source_starts_is_explained_by_the_records_in_front_of_it(
    kafka: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    write(kafka, topic, [None, *(event(number) for number in range(1, 40))])
    with started(source_of(kafka, topic, group=topic)) as source:
        source.confirm(read_rows(source, 39)[-1].position)
        stats = source.stats()
        assert (stats["tombstones"], stats["unknown_tombstones"], stats["tombstone_deletes"]) == (1, 1, 0)
    assert "1 records without a value are left out" in caplog.text
    assert f"first: {topic}[0]@0" in caplog.text
    producer = Producer({"bootstrap.servers": kafka})
    for number in (7, 8):
        producer.produce(topic, None, b'{"id":%d}' % number)
    assert producer.flush(30) == 0
    with started(source_of(kafka, topic, group=topic)) as source:
        batches = read_rows(source, 2)
        assert source.stats()["tombstone_deletes"] == 2
    assert set(commits(batches)) == {39}
    rows = [changes.before.columns[0].to_pylist() for batch in batches for changes in batch.changes]
    assert rows == [[b"7", b"8"]]


@pytest.mark.behaviour("G1")
def test_headers_go_out_with_their_rows_and_a_name_that_is_no_text_is_told(
    kafka: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    write_with_header(kafka, topic, json.dumps(event(1)).encode(), b"tenant")
    write_with_header(kafka, topic, json.dumps(event(2)).encode(), b"\xff\xfe")
    write_with_header(kafka, topic, json.dumps(event(3)).encode(), b"seq")
    write(kafka, topic, [event(number) for number in range(4, 50)])
    with started(source_of(kafka, topic)) as source:
        batches = read_rows(source, 49)
        assert source.stats()["headers_left_out"] == 1
    assert sorted(commits(batches)) == list(range(1, 50))
    addresses = [changes.after.addresses for batch in batches for changes in batch.changes]
    given = [held for one in addresses if one is not None for held in one.field("headers").drop_null().to_pylist()]
    assert given == [[(b"tenant", b"")]]
    assert f"the headers of 1 records are left out, because names of them are not UTF-8; first: {topic}[0]@1" in (
        caplog.text
    )


@pytest.mark.behaviour("G1")
@pytest.mark.parametrize("count", [2, 60])
def test_the_timestamps_of_records_go_out_with_their_rows(kafka: str, topic: str, count: int) -> None:
    copy, times = f"{topic}-copy", [1_700_000_000_000 + 60_000 * number for number in range(count)]
    producer = Producer({"bootstrap.servers": kafka})
    for number, moment in enumerate(times):
        producer.produce(topic, json.dumps(event(number + 1)).encode(), b'{"id": %d}' % (number + 1), timestamp=moment)
    assert producer.flush(30) == 0
    with (
        started(source_of(kafka, topic)) as source,
        started_sink(kafka, None, timestamps="record", topicFallback=copy) as sink,
    ):
        for batch in read_rows(source, count):
            sink.write(batch)
    found = {json.loads(record.value or b"")["CommitLSN"]: record.timestamp for record in consume(kafka, [copy])}
    assert found == dict(enumerate(times, 1))


def test_a_dead_letter_whose_headers_cannot_be_read_has_its_origin(kafka: str, topic: str) -> None:
    dead = f"{topic}-dead"
    create_topic(kafka, dead)
    write_with_header(kafka, topic, b'{"id": 7}', b"\xff")
    with started(source_of(kafka, topic, deadLetterTopic=dead)) as source:
        wait_for(lambda: source.read(0.1) is not None and source.stats()["dead_lettered"], "the dead letter")
    (letter,) = consume(kafka, [dead])
    assert dict(letter.headers)["dead_letter_offset"] == b"0"


@pytest.mark.behaviour("G2")
def test_two_instances_share_the_partitions_and_a_rebalance_waits_for_the_sinks(kafka: str, topic_prefix: str) -> None:
    create_topic(kafka, topic_prefix, partitions=2)
    for partition in range(2):
        numbers = range(1 + partition, 21, 2)
        write(kafka, topic_prefix, [event(number) for number in numbers], partition)
    first = source_of(kafka, topic_prefix, group=topic_prefix)
    second = source_of(kafka, topic_prefix, group=topic_prefix)
    with started(first):
        mine = read_rows(first, 20)
        with started(second):
            wait_for(lambda: "rebalance waits" in first.status().reason, "the first instance to drain")
            assert second.read(0.5) is None
            first.confirm(mine[-1].position)
            wait_for(lambda: len(first.stats()["partitions"]) == len(second.stats()["partitions"]) == 1, "shares")
            for partition in range(2):
                write(kafka, topic_prefix, [event(21 + partition)], partition)
            found = commits([*read_rows(first, 1), *read_rows(second, 1)])
    assert sorted(found) == [21, 22]


def test_a_restart_with_an_instance_id_has_its_partitions_back_at_once(kafka: str, topic: str) -> None:
    write(kafka, topic, [event(1)])
    killed = source_of(kafka, topic, group=topic, instanceId="a")
    killed.read_stream_identity()
    killed.start(None)
    read_rows(killed, 1)  # and it never leaves: as if it had been killed
    began = time.monotonic()
    with started(source_of(kafka, topic, group=topic, instanceId="a")) as again:
        read_rows(again, 1)
        assert time.monotonic() - began < 6.0
        with pytest.raises(SourceRefused, match="give each its own"):
            _read_on(killed)
    killed.stop()


def _read_on(source: KafkaSource, batches: list[Batch] | None = None) -> None:
    """batches: what is read is put there, and confirmed."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        batch = source.read(0.2)
        if batch is not None and batches is not None:
            batches.append(batch)
            source.confirm(batch.position)


def held_bytes(source: KafkaSource) -> int:
    """Of records that came from the client and that nobody has taken."""
    assert source._group is not None
    return source._group.state._held.size


def test_while_nobody_reads_it_stays_in_the_group_and_holds_no_more_than_it_may(kafka: str, topic: str) -> None:
    note = "x" * 1000
    write(kafka, topic, [event(number, note=note) for number in range(1, 3000)])
    source = source_of(
        kafka, topic, group=topic, batchBytes="100kB", kafka={"max.poll.interval.ms": 6000, "session.timeout.ms": 6000}
    )
    with started(source):
        first = read_rows(source, 1)
        assert first[-1].nbytes < 1 << 20
        time.sleep(8)
        assert source.stats()["rebalances"] == 1
        # Two batches, and what one poll brings: a batch of records that may be longer than those before them.
        assert 200_000 <= held_bytes(source) < 400_000 < 2999 * len(note)
        rest = read_rows(source, 2999 - sum(map(len, first)))
    assert commits([*first, *rest]) == list(range(1, 3000))


def test_a_topic_that_was_made_anew_is_another_stream(kafka: str, topic: str) -> None:
    source = source_of(kafka, topic)
    identity = source.read_stream_identity()
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.delete_topics([topic])[topic].result(30)
    wait_for(lambda: topic not in admin.list_topics(timeout=5).topics, "the deletion")
    create_topic(kafka, topic)
    assert source.read_stream_identity() != identity


def test_nobody_answers() -> None:
    source = source_of("127.0.0.1:1", "orders", timeout="1s")
    with pytest.raises(SourceUnavailable, match=r"no answer from 127\.0\.0\.1:1"):
        source.read_stream_identity()
    (finding,) = source.check()
    assert "no answer from 127.0.0.1:1 within 1 s" in str(finding)


def test_an_interrupt_ends_a_read(kafka: str, topic: str) -> None:
    with started(source_of(kafka, topic)) as source:
        threading.Timer(0.3, source.interrupt).start()
        began = time.monotonic()
        with pytest.raises(SourceUnavailable, match="interrupted"):
            source.read(20.0)
        assert time.monotonic() - began < 10.0


def test_records_of_transactions_that_were_aborted_are_never_seen(kafka: str, topic: str) -> None:
    write_in_transactions(kafka, topic, [(event(1), False), (event(2), True)])
    with started(source_of(kafka, topic)) as source:
        assert commits(read_rows(source, 1)) == [2]


def test_the_end_of_a_transaction_is_no_record_that_is_left_and_no_gap_when_all_records_are_removed(
    kafka: str, topic: str
) -> None:
    write_in_transactions(kafka, topic, [(event(1), True), (event(2), False)])
    with started(source_of(kafka, topic, group=topic)) as source:
        read_rows(source, 1)
        end = _read_until(source, Partition(topic, 0), 4)
        assert end.idle
        assert committed(kafka, topic, topic) < 0
        wait_for(lambda: source.stats().get("lag_records") == 0, "a lag of 0")
        source.confirm(end.position)
        wait_for(lambda: committed(kafka, topic, topic) == 4, "the commit of what is seen of nobody")
    admin, all_of_it = AdminClient({"bootstrap.servers": kafka}), TopicPartition(topic, 0, -1)
    admin.delete_records([all_of_it])[all_of_it].result(30)
    again = source_of(kafka, topic, group=topic)
    assert not list(again.check())
    with started(again):
        wait_for(lambda: again.read(0.1) or again.stats()["partitions"], "the partition")
        write(kafka, topic, [event(3)])
        assert commits(read_rows(again, 1)) == [3]


@pytest.mark.parametrize("aborted", [False, True])
def test_records_that_were_removed_before_the_group_began_are_not_left_to_be_read(
    kafka: str, topic: str, aborted: bool
) -> None:
    write(kafka, topic, [event(number) for number in range(1, 6)])
    admin, first_five = AdminClient({"bootstrap.servers": kafka}), TopicPartition(topic, 0, 5)
    admin.delete_records([first_five])[first_five].result(30)
    if aborted:
        write_in_transactions(kafka, topic, [(event(6), False)])
    with started(source_of(kafka, topic, group=topic)) as source:
        wait_for(lambda: source.read(0.1) or source.stats().get("lag_records") == 0, "a lag of 0")


def test_what_one_poll_brings_is_one_batch(kafka: str, topic: str) -> None:
    events = [event(number, note="x" * 300) for number in range(1, 3001)]
    write(kafka, topic, events)
    with started(source_of(kafka, topic, batchBytes="200kB")) as source:
        batches = read_rows(source, len(events))
    fitting = 200_000 // (len(json.dumps(events[-1])) + len('{"id": 3000}') + 250)
    assert len(events) / len(batches) > 0.7 * fitting


def _read_until(source: KafkaSource, partition: Partition, offset: int) -> Batch:
    """The batch with this place."""
    found: list[Batch] = []

    def has_come() -> bool:
        if (batch := source.read(0.1)) is not None:
            found.append(batch)
        return bool(found) and to_offsets(found[-1].position)[partition] == offset

    wait_for(has_come, f"offset {offset}")
    return found[-1]


def test_what_is_in_flight_when_it_reconnects_is_committed_when_it_is_confirmed_and_not_before(
    kafka: str, topic: str
) -> None:
    write(kafka, topic, [event(number) for number in range(1, 6)])
    with started(source_of(kafka, topic, group=topic, instanceId="one")) as source:
        position = read_rows(source, 5)[-1].position
        source.start(position)
        wait_for(lambda: source.stats()["partitions"] or source.read(0.1), "the partition")
        time.sleep(0.5)
        assert committed(kafka, topic, topic) < 1
        write(kafka, topic, [event(6)])
        assert commits(read_rows(source, 1)) == [6]
        source.confirm(position)
        wait_for(lambda: committed(kafka, topic, topic) == 5, "the commit")


@pytest.mark.soak
def test_a_rebalance_waits_for_what_was_in_flight_when_it_reconnected(kafka: str, topic_prefix: str) -> None:
    create_topic(kafka, topic_prefix, partitions=2)
    for partition in range(2):
        write(kafka, topic_prefix, [event(partition + 1)], partition)
    first = source_of(kafka, topic_prefix, group=topic_prefix, instanceId="one")
    with started(first):
        position = read_rows(first, 2)[-1].position
        first.start(position)
        wait_for(lambda: len(first.stats()["partitions"]) == 2 or first.read(0.1), "the partitions")
        with started(source_of(kafka, topic_prefix, group=topic_prefix)) as second:
            wait_for(lambda: "rebalance waits" in first.status().reason, "the first instance to drain")
            first.confirm(position)
            wait_for(lambda: len(second.stats()["partitions"]) == 1, "the second instance's share")
            assert second.read(1.0) is None


def test_what_another_instance_may_have_begun_to_repeat_is_repeated_behind_it(kafka: str, topic: str) -> None:
    """Else the last value of a key stays the one that the other instance wrote, which is gone without a commit."""
    write(kafka, topic, [event(number) for number in range(1, 6)])
    with started(source_of(kafka, topic, group=topic)) as source:
        position = read_rows(source, 5)[-1].position
        source._group.close(30)  # type: ignore[union-attr]  # its session ends; a sink is about to write all five
        with started(source_of(kafka, topic, group=topic)) as other:
            assert commits(read_rows(other, 5))[:2] == [1, 2]  # of which its sink writes two
        source.confirm(position)
        source.start(position)
        assert commits(read_rows(source, 5)) == [1, 2, 3, 4, 5]


def test_what_is_repeated_is_committed_when_it_is_durable_for_the_second_time(kafka: str, topic: str) -> None:
    write(kafka, topic, [event(number) for number in range(1, 6)])
    with started(source_of(kafka, topic, group=topic)) as source:
        position = read_rows(source, 5)[-1].position
        source.start(position)
        again = read_rows(source, 5)
        assert commits(again) == [1, 2, 3, 4, 5]
        source.confirm(position)
        time.sleep(0.5)
        assert committed(kafka, topic, topic) < 1
        source.confirm(again[-1].position)
        wait_for(lambda: committed(kafka, topic, topic) == 5, "the commit")


def test_an_offset_that_was_not_read_in_this_session_is_not_confirmed(kafka: str, topic_prefix: str) -> None:
    """An operator has set one partition back; the other one's batches carry the old position of both."""
    create_topic(kafka, topic_prefix, partitions=2)
    for partition in range(2):
        write(kafka, topic_prefix, [event(10 * partition + number) for number in range(1, 6)], partition)
    with started(source_of(kafka, topic_prefix, group=topic_prefix)) as source:
        position = read_rows(source, 10)[-1].position
        source.confirm(position)
    _set_offset(kafka, TopicPartition(topic_prefix, 1, 2))
    write(kafka, topic_prefix, [event(6)], 0)
    with started(source_of(kafka, topic_prefix, group=topic_prefix), position) as source:
        source.confirm(position)
        time.sleep(0.5)
        assert committed(kafka, topic_prefix, topic_prefix, 1) == 2
        assert sorted(commits(read_rows(source, 4))) == [6, 13, 14, 15]


def test_topics_of_a_pattern_are_part_of_the_streams_identity(kafka: str, topic_prefix: str) -> None:
    create_topic(kafka, f"{topic_prefix}.one")
    source = source_of(kafka, rf"^{topic_prefix}\..*")
    assert f"topic {topic_prefix}.one" in source.read_stream_identity()


def test_a_topic_that_is_made_anew_while_it_is_read_stops_the_source(kafka: str, topic: str) -> None:
    write(kafka, topic, [event(number) for number in range(1, 4)])
    with started(source_of(kafka, topic, group=topic)) as source:
        source.confirm(read_rows(source, 3)[-1].position)
        admin = AdminClient({"bootstrap.servers": kafka})
        admin.delete_topics([topic])[topic].result(30)
        wait_for(lambda: topic not in admin.list_topics(timeout=5).topics, "the deletion")
        create_topic(kafka, topic)
        write(kafka, topic, [event(number) for number in range(11, 19)])
        with pytest.raises((PositionRefused, SourceUnavailable)):
            _read_on(source)


@pytest.mark.soak
def test_a_partition_that_was_given_up_while_it_was_paused_is_read_again_when_it_comes_back(
    kafka: str, topic_prefix: str
) -> None:
    create_topic(kafka, topic_prefix, partitions=2)
    for partition in range(2):
        numbers = range(1 + partition, 2001, 2)
        write(kafka, topic_prefix, [event(number, note="x" * 300) for number in numbers], partition)
    first = source_of(kafka, topic_prefix, group=topic_prefix, batchBytes="50kB")
    with started(first):
        batches = read_rows(first, 1)
        time.sleep(4)  # it is full, and pauses
        first.confirm(batches[-1].position)
        with started(source_of(kafka, topic_prefix, group=topic_prefix)) as second:
            wait_for(lambda: len(second.stats()["partitions"]) == 1, "the second instance's share")
        deadline = time.monotonic() + 30
        while len(set(commits(batches))) < 2000:
            assert time.monotonic() < deadline, first.status().reason
            if (batch := first.read(0.2)) is not None:
                batches.append(batch)


def test_records_that_compress_well_do_not_fill_the_memory(kafka: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": kafka, "compression.type": "zstd", "linger.ms": 50})
    for number in range(1, 1001):
        producer.produce(topic, json.dumps(event(number, note="x" * 50_000)).encode(), b'{"id":1}')
        producer.poll(0)
    assert producer.flush(30) == 0
    with started(source_of(kafka, topic, batchBytes="1MB")) as source:
        sizes = [batch.nbytes for batch in read_rows(source, 1000)]
    assert max(sizes) < 3 << 20


def test_a_dead_letter_that_its_topic_does_not_take_stops_it_with_the_place_of_the_record(
    kafka: str, topic: str
) -> None:
    dead = f"{topic}-dead"
    create_topic(kafka, dead, **{"max.message.bytes": "1000"})
    write(kafka, topic, [b"x" * 5000])
    with (
        started(source_of(kafka, topic, deadLetterTopic=dead)) as source,
        pytest.raises(SourceRefused, match=rf"the dead letter of {topic}\[0\]@0 cannot be written"),
    ):
        _read_on(source)


def test_a_partition_that_goes_away_with_records_on_their_way_to_sinks_stops_the_instance(
    kafka: str, topic_prefix: str
) -> None:
    """The other instance writes these and newer ones: behind them an old value must not be written."""
    create_topic(kafka, topic_prefix, partitions=2)
    for partition in range(2):
        write(kafka, topic_prefix, [event(partition + 1)], partition)
    with started(source_of(kafka, topic_prefix, group=topic_prefix, drainTimeout="1s")) as first:
        read_rows(first, 2)
        with started(source_of(kafka, topic_prefix, group=topic_prefix)) as second:
            wait_for(lambda: first.failure, "the first instance to give up")
            assert isinstance(first.failure, SourceRefused)
            assert "another instance may read that again" in str(first.failure)
            assert not first.status().ok
            assert set(commits(read_rows(second, 1))) <= {1, 2}


@pytest.mark.behaviour("G1")
@pytest.mark.parametrize("form", ["event", "debezium"])
def test_rows_of_a_snapshot_come_out_of_kafka_as_they_went_in(kafka: str, topic: str, form: str) -> None:
    """Those of `debezium` have what their values do not say in their headers."""
    given = merge([chunk(), chunk(snapshot=ON_DEMAND, number=1)])
    sink = KafkaSink("k", options(kafka, topicFallback=topic, format=form, headers=True))
    sink.start()
    try:
        sink.write(given)
    finally:
        sink.stop()
    with started(source_of(kafka, topic, group=topic)) as source:
        batches = read_rows(source, len(given))
    found = [
        (batch.transactions.snapshots[tx], uuid)
        for batch in batches
        for changes in batch.changes
        if changes.uuid is not None
        for tx, uuid in zip(changes.tx.tolist(), changes.uuid.tolist(), strict=True)
    ]
    (changes,) = given.changes
    assert changes.uuid is not None
    assert found == list(zip([INITIAL] * 3 + [ON_DEMAND] * 3, changes.uuid.tolist(), strict=True))
