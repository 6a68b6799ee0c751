"""A Kafka source whose brokers go away, change places, and give more than was asked for."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from psql_streamer.embedded.kafka import EmbeddedKafka
from psql_streamer.errors import SourceRefused, SourceUnavailable
from psql_streamer.model import Batch
from sources.kafka import open_transactions, pausing, standstill, troubles, watch
from sources.kafka.ends import find_ends
from sources.kafka.member_state import MemberState
from sources.kafka.offsets import Partition
from sources.kafka.options import KafkaSourceOptions
from sources.kafka.source import KafkaSource
from tests.event_topics import commits, committed, event, read_rows, source_of, write
from tests.kafka_sinks import create_topic
from tests.mock_brokers import FETCH, FIND_COORDINATOR, JOIN_GROUP, LIST_OFFSETS, OFFSET_COMMIT, MockBrokers
from tests.source_at_work import wait_for
from tests.started_source import started

PASSED = "the brokers answer again"


@contextmanager
def reading(brokers: MockBrokers, **options: Any) -> Iterator[KafkaSource]:
    """A source of the topic `orders`. These brokers do not tell ids of topics, so nobody asks for them first."""
    source = source_of(brokers.bootstrap, "orders", group="orders", **{"timeout": "500ms", **options})
    source.start(None)
    try:
        yield source
    finally:
        source.stop()


def troubles_until_they_passed(caplog: pytest.LogCaptureFixture) -> list[list[str]]:
    """What the log says of trouble with the brokers, without the time that an attempt took. Each list ends where they
    answer again.
    """
    found: list[list[str]] = [[]]
    for record in caplog.records:
        if record.name == troubles.__name__:
            if PASSED in record.getMessage():
                found.append([])
            else:
                found[-1].append(record.getMessage().partition(" (after ")[0])
    return found


def test_a_broker_that_is_killed_and_comes_back_is_read_on(
    broker: EmbeddedKafka, topic_prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    create_topic(broker.bootstrap, topic_prefix)
    write(broker.bootstrap, topic_prefix, [event(number) for number in range(1, 6)])
    caplog.set_level(logging.INFO)
    patient = {"session.timeout.ms": 60_000}  # however long the broker takes to come back
    with started(source_of(broker.bootstrap, topic_prefix, group=topic_prefix, kafka=patient)) as source:
        first = read_rows(source, 5)
        broker.stop(kill=True)
        wait_for(lambda: source.read(0.1) is None and "127.0.0.1" in source.status().reason, "word of the broker")
        source.confirm(first[-1].position)
        broker.start()
        write(broker.bootstrap, topic_prefix, [event(number) for number in range(6, 10)])
        second = read_rows(source, 4, timeout=60)
        assert commits([*first, *second]) == list(range(1, 10))
        source.confirm(second[-1].position)
        wait_for(lambda: source.read(0.1) is None and source.status().ok, "word that all is well")
    assert committed(broker.bootstrap, topic_prefix, topic_prefix) == 9
    logged = troubles_until_they_passed(caplog)
    assert any("Connection refused" in trouble for one in logged for trouble in one)
    assert len(logged) > 1, f"the log does not say that {PASSED}"
    for one in logged:
        assert len(one) == len(set(one)), "a trouble is logged once until it has passed, and not for each attempt"


def test_a_record_that_has_changed_on_the_brokers_disk_ends_the_session_with_the_reason(
    broker: EmbeddedKafka, topic_prefix: str
) -> None:
    """The checksum of a batch covers its records, and not the number of its format: that is the 17th byte of a batch,
    whose length without itself and the 8 bytes in front is there (https://kafka.apache.org/documentation/#recordbatch).
    """
    records, number = f"{topic_prefix}-records", f"{topic_prefix}-format"
    for topic in (records, number):
        create_topic(broker.bootstrap, topic)
        for commit, note in ((1, "first"), (2, "as it was"), (3, "third")):
            write(broker.bootstrap, topic, [event(commit, note=note)])
        (segment,) = broker.data_dir.glob(f"{topic}-0/*.log")
        kept = segment.read_bytes()
        with segment.open("r+b") as file:
            file.seek(kept.index(b"as it was") if topic == records else 12 + int.from_bytes(kept[8:12]) + 16)
            file.write(b"AS" if topic == records else b"\x09")
    for topic, said in ((records, "failed CRC32C check"), (number, "Unsupported Message")):
        with started(source_of(broker.bootstrap, topic, group=topic)) as source:
            (batch,) = read_rows(source, 1)
            source.confirm(batch.position)
            with pytest.raises(SourceUnavailable, match=f"{said}.*damaged"):
                read_rows(source, 1)
        assert commits([batch]) == [1]
        assert committed(broker.bootstrap, topic, topic) == 1, "what is in front of it is not read again"


@pytest.mark.behaviour("G3")
def test_dead_letters_wait_for_a_topic_that_does_not_exist_and_status_and_log_say_so(
    topic_prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    dead = f"{topic_prefix}-dead"
    with EmbeddedKafka(properties={"auto.create.topics.enable": "false"}) as broker:
        create_topic(broker.bootstrap, topic_prefix)
        write(broker.bootstrap, topic_prefix, [event(1), b"no event", event(2)])
        with started(source_of(broker.bootstrap, topic_prefix, group=topic_prefix, deadLetterTopic=dead)) as source:
            said = f'1 dead letters wait for topic "{dead}": it does not exist'
            wait_for(lambda: source.read(0.1) is None and said in source.status().reason, "the reason")
            for _ in range(10):  # written anew, which has no answer yet
                assert source.read(0.1) is None
                assert said in source.status().reason
            [line] = [line for line in caplog.messages if "dead letters" in line]
            assert line == f"source.{source.name}: {said}: create it"
            create_topic(broker.bootstrap, dead)
            assert commits(read_rows(source, 2)) == [1, 2]
            assert source.stats()["dead_lettered"] == 1
            assert "dead letters" not in source.status().reason


def test_a_trouble_is_logged_once_until_it_has_passed(caplog: pytest.LogCaptureFixture) -> None:
    def refused(milliseconds: int) -> KafkaError:
        reason = f"127.0.0.1:1/1: Connection refused (after {milliseconds}ms in state CONNECT)"
        return KafkaError(KafkaError._TRANSPORT, reason)

    caplog.set_level(logging.INFO)
    with MockBrokers() as brokers:
        given = {"type": "kafka", "hosts": [brokers.bootstrap], "topics": ["orders"], "groupID": "orders"}
        state = MemberState(KafkaSourceOptions.model_validate(given), {}, "")
        noted = troubles.Troubles("hop", "orders", [brokers.bootstrap], state)
        consumer = Consumer({"bootstrap.servers": brokers.bootstrap, "group.id": "orders"})
        try:
            for milliseconds in (1, 2):
                noted.note(refused(milliseconds))
            assert "Connection refused" in state.summarize().problem
            noted.look_whether_passed(consumer)
            assert not state.summarize().problem
            noted.note(refused(3))
        finally:
            consumer.close()
    assert [len(one) for one in troubles_until_they_passed(caplog)] == [1, 1]


def test_a_partition_that_another_broker_leads_from_now_on_is_read_on() -> None:
    with MockBrokers(3) as brokers:
        brokers.create("orders", 1)
        brokers.lead("orders", 0, 1)
        write(brokers.bootstrap, "orders", [event(number) for number in range(1, 4)])
        with reading(brokers) as source:
            first = read_rows(source, 3)
            brokers.lead("orders", 0, 2)
            write(brokers.bootstrap, "orders", [event(number) for number in range(4, 7)])
            assert commits([*first, *read_rows(source, 3)]) == [1, 2, 3, 4, 5, 6]


@pytest.mark.soak
def test_a_leader_that_is_away_while_other_brokers_answer_is_on_status_until_it_answers_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watch, "_ENDS_ANSWER_SECONDS", 0.5)
    caplog.set_level(logging.INFO)
    with MockBrokers(3) as brokers:
        brokers.create("orders", 2)
        brokers.lead("orders", 0, 2)
        brokers.lead("orders", 1, 3)
        with reading(brokers) as source:
            wait_for(lambda: _read_on(source) == [] and source.stats().get("lag_records") == 0, "both partitions")
            brokers.take_down(3)
            said = "the leader of orders[1] does not answer: look at the brokers; "
            wait_for(lambda: _read_on(source) == [] and said in source.status().reason, "word of it")
            assert (source.status().ok, "lag_records" in source.stats()) == (False, False)
            assert f"source.hop: {said[:-2]}" in caplog.messages
            brokers.bring_up(3)
            wait_for(lambda: _read_on(source) == [] and source.status().ok, "that all is well")
            assert source.stats()["lag_records"] == 0
            assert "source.hop: reads again" in caplog.messages


@pytest.mark.soak
def test_a_leader_that_is_away_keeps_no_other_partition_from_being_read() -> None:
    with MockBrokers(3) as brokers:
        brokers.create("orders", 2)
        brokers.lead("orders", 0, 3)
        brokers.lead("orders", 1, 2)
        for partition in (0, 1):
            write(brokers.bootstrap, "orders", [event(partition + 1)], partition)
        brokers.take_down(2)
        with reading(brokers, timeout="1s") as source:
            assert commits(read_rows(source, 1)) == [1]
            brokers.bring_up(2)
            assert commits(read_rows(source, 1)) == [2]


@pytest.mark.parametrize(
    ("request_kind", "error", "why"),
    [
        (FIND_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, "its coordinator may be away"),
        pytest.param(
            *(JOIN_GROUP, KafkaError.GROUP_MAX_SIZE_REACHED, "Consumer group has reached maximum size"),
            marks=pytest.mark.soak,
        ),
    ],
)
def test_a_group_that_does_not_take_the_member_in_is_on_status(
    request_kind: int, error: int, why: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(standstill, "JOIN_SECONDS", 2.0)
    with MockBrokers() as brokers:
        brokers.create("orders", 1)
        write(brokers.bootstrap, "orders", [event(1)])
        brokers.answer(request_kind, *[error] * 1000)
        with reading(brokers) as source:
            said = "group orders has not taken this instance in for "
            wait_for(lambda: _read_on(source) == [] and said in source.status().reason, "word of it")
            assert (source.status().ok, why in source.status().reason) == (False, True), source.status().reason
            assert sum(said in line for line in caplog.messages) == 1
            brokers.answer_well(request_kind)
            assert commits(read_rows(source, 1)) == [1]
            wait_for(lambda: source.status().ok, "that all is well")


def test_a_session_timeout_that_brokers_refuse_stops_the_source_with_what_to_do() -> None:
    with MockBrokers() as brokers:
        brokers.create("orders", 1)
        brokers.answer(JOIN_GROUP, *[KafkaError.INVALID_SESSION_TIMEOUT] * 10)
        said = r'Invalid session timeout: set kafka."session.timeout.ms" within'
        with reading(brokers) as source, pytest.raises(SourceRefused, match=said):
            read_rows(source, 1, timeout=15)


@pytest.mark.soak
def test_a_partition_of_which_nothing_comes_though_records_are_there_is_on_status(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(standstill, "STILL_SECONDS", 1.0)
    monkeypatch.setattr(watch, "_ENDS_SECONDS", 0.5)
    with MockBrokers() as brokers:
        brokers.create("orders", 1)
        with reading(brokers) as source:
            wait_for(lambda: _read_on(source) == [] and source.stats().get("lag_records") == 0, "the partition")
            brokers.answer(FETCH, *[KafkaError.KAFKA_STORAGE_ERROR] * 1000)
            write(brokers.bootstrap, "orders", [event(number) for number in range(1, 4)])
            said = "nothing comes of orders[0], where 3 records are left"
            wait_for(lambda: _read_on(source) == [] and said in source.status().reason, "word of it")
            assert not source.status().ok
            brokers.answer_well(FETCH)
            assert commits(read_rows(source, 3)) == [1, 2, 3]
            wait_for(lambda: source.status().ok, "that all is well")


def test_records_behind_a_transaction_that_stays_open_are_on_status_until_it_ends(
    kafka: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(open_transactions, "LONG_SECONDS", 1.0)
    monkeypatch.setattr(watch, "_ENDS_SECONDS", 0.5)
    create_topic(kafka, topic_prefix)
    write(kafka, topic_prefix, [event(1)])
    writer = Producer({"bootstrap.servers": kafka, "transactional.id": topic_prefix})
    writer.init_transactions(30)
    writer.begin_transaction()
    writer.produce(topic_prefix, json.dumps(event(2)).encode(), b"{}")
    writer.flush(30)
    write(kafka, topic_prefix, [event(number) for number in (3, 4, 5)])
    with started(source_of(kafka, topic_prefix, group=topic_prefix)) as source:
        assert commits(read_rows(source, 1)) == [1]
        said = f"4 records of {topic_prefix}[0] wait for a transaction that has been open for "
        wait_for(lambda: _read_on(source) == [] and said in source.status().reason, "word of it")
        assert not source.status().ok
        assert sum(said in line for line in caplog.messages) == 1
        writer.abort_transaction(30)
        assert commits(read_rows(source, 3)) == [3, 4, 5]
        wait_for(lambda: _read_on(source) == [] and source.status().ok, "that all is well")


def test_ends_of_which_a_leader_says_nothing_are_no_ends() -> None:
    with MockBrokers(2) as brokers:
        brokers.create("orders", 2)
        brokers.lead("orders", 0, 1)
        brokers.lead("orders", 1, 2)
        admin = AdminClient({"bootstrap.servers": brokers.bootstrap, "log_level": 0})
        both = [Partition("orders", 0), Partition("orders", 1)]
        assert find_ends(admin, both, 10) == dict.fromkeys(both, (0, 0))
        brokers.take_down(2)
        with pytest.raises(KafkaException, match=r"no answer from the leader of orders\[1\]"):
            find_ends(admin, both, 0.5)


def test_a_rebalance_asks_for_the_ends_of_all_partitions_at_once() -> None:
    with MockBrokers() as brokers:
        brokers.create("orders", 30)
        brokers.track_requests()
        with reading(brokers) as source:
            wait_for(lambda: _read_on(source) == [] and len(source.stats()["partitions"]) == 30, "all partitions")
        assert 2 <= brokers.count_requests(LIST_OFFSETS) <= 6


def test_the_lag_of_a_source_that_nobody_reads_increases(
    kafka: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_ENDS_SECONDS", 0.5)
    monkeypatch.setattr(pausing, "_AFTER_SECONDS", 0.1)
    create_topic(kafka, topic_prefix)
    write(kafka, topic_prefix, [event(number, note="x" * 1000) for number in range(1, 101)])
    with started(source_of(kafka, topic_prefix, batchBytes="10kB")) as source:
        wait_for(lambda: source.stats().get("lag_records") == 100, "the lag")
        wait_for(lambda: source._group._pausing._is_paused, "the pause")  # type: ignore[union-attr]
        write(kafka, topic_prefix, [event(number) for number in range(101, 111)])
        wait_for(lambda: source.stats()["lag_records"] == 110, "the new records")


@pytest.mark.parametrize("in_time", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_a_commit_that_is_refused_for_its_generation_waits_for_the_sinks(in_time: bool) -> None:
    """Brokers answer a commit behind the request to join that was sent in front of it."""
    with MockBrokers() as brokers:
        brokers.create("orders", 1)
        write(brokers.bootstrap, "orders", [event(number) for number in range(1, 4)])
        session = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 1000}
        with reading(brokers, kafka=session) as source:
            first = read_rows(source, 3)
            write(brokers.bootstrap, "orders", [event(number) for number in range(4, 7)])
            second = read_rows(source, 3)
            brokers.answer(OFFSET_COMMIT, *[KafkaError.ILLEGAL_GENERATION] * 3)
            source.confirm(first[-1].position)
            waits = "a rebalance waits until every sink has the records of orders[0]"
            wait_for(lambda: source.read(0.1) is None and waits in source.status().reason, "the drain")
            if not in_time:
                with pytest.raises(SourceRefused, match="another instance may read that again"):
                    read_rows(source, 1)
                return
            source.confirm(second[-1].position)
            brokers.answer_well(OFFSET_COMMIT)
            write(brokers.bootstrap, "orders", [event(number) for number in range(7, 10)])
            seen: set[int] = set()
            wait_for(lambda: seen.update(commits(_read_on(source))) or {7, 8, 9} <= seen, "what came later")
            assert source.failure is None


def _read_on(source: KafkaSource) -> list[Batch]:
    batch = source.read(0.2)
    return [] if batch is None else [batch]


def test_a_record_that_is_larger_than_what_is_fetched_at_once_is_read(kafka: str, topic_prefix: str) -> None:
    create_topic(kafka, topic_prefix)
    notes = {1: "small", 2: "x" * 900_000, 3: "small"}
    write(kafka, topic_prefix, [event(number, note=note) for number, note in notes.items()])
    fetch = {"fetch.message.max.bytes": 2000, "fetch.max.bytes": 1_000_000, "message.max.bytes": 1_000_000}
    with started(source_of(kafka, topic_prefix, batchBytes="10kB", kafka=fetch)) as source:
        batches = read_rows(source, 3)
    rows = [changes.after.columns[1].to_pylist() for batch in batches for changes in batch.changes]
    assert [value.decode() for row in rows for value in row] == list(notes.values())
