"""The Kafka sink when brokers are away, restart, or refuse it."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from confluent_kafka.admin import AdminClient

from psql_streamer.embedded.kafka import EmbeddedKafka
from psql_streamer.errors import SinkUnavailable
from psql_streamer.interfaces import Severity
from psql_streamer.model import LogicalMessage, Relation, ReplicaIdentity
from psql_streamer.testing.batches import make_batch
from sinks.kafka.sink import KafkaSink
from tests.columns import postgres_column, postgres_table
from tests.kafka_reader import consume
from tests.kafka_sinks import (
    BATCH,
    Canned,
    Row,
    by_partition,
    create_topic,
    options,
    random_bytes,
    started,
    wait_until,
    write_until_it_works,
)


@pytest.mark.slow
def test_brokers_that_are_away_are_unavailable_and_the_same_batch_succeeds_when_they_are_back(
    broker: EmbeddedKafka,
    topic_prefix: str,
) -> None:
    topic = create_topic(broker.bootstrap, topic_prefix, partitions=3)
    rows: list[Row] = [(topic, b"%d" % i, b"value") for i in range(1000)]
    with started(broker.bootstrap, Canned(rows), timeout="300ms") as sink:
        sink.write(BATCH)
        broker.stop(kill=True)
        with pytest.raises(SinkUnavailable, match=r"not acknowledged.*(refused|transport|Disconnected|closed)"):
            sink.write(BATCH)
        assert not sink.status().ok
        with pytest.raises(SinkUnavailable, match="not acknowledged"):
            sink.write(BATCH)
        broker.start()
        write_until_it_works(sink)
        assert sink.status().ok
        assert sink.stats()["retries"] >= 2
    keys = Counter(r.key for r in consume(broker.bootstrap, [topic]))
    assert keys == {key: 2 for _, key, _ in rows}


@pytest.mark.slow
def test_a_broker_that_stands_still_in_the_middle_of_a_batch_gets_nothing_twice(
    broker: EmbeddedKafka, topic_prefix: str
) -> None:
    topic = create_topic(broker.bootstrap, topic_prefix, partitions=3)
    rows: list[Row] = [(topic, b"%d" % (i % 100), b"%d" % i) for i in range(100_000)]
    section = {"timeout": "1s", "kafka": {"queue.buffering.max.messages": 500}}
    with started(broker.bootstrap, Canned(rows), **section) as sink:
        pid = broker.pid
        stop = threading.Timer(
            0.05, os.kill, (pid, signal.SIGSTOP)
        )  # the batch has 200 turns of a millisecond and more
        stop.start()
        try:
            with pytest.raises(SinkUnavailable, match="not acknowledged"):
                sink.write(BATCH)
        finally:
            stop.join()
            os.kill(pid, signal.SIGCONT)
        write_until_it_works(sink)
    values = Counter(record.value for record in consume(broker.bootstrap, [topic]))
    assert values == {value: 1 for _, _, value in rows}


@pytest.mark.slow
def test_a_broker_that_restarts_under_a_write_delays_it_and_loses_nothing(
    broker: EmbeddedKafka, topic_prefix: str
) -> None:
    topic = create_topic(broker.bootstrap, topic_prefix, partitions=3)
    rows: list[Row] = [(topic, b"%d" % (i % 10), b"%d" % i) for i in range(20_000)]
    with started(broker.bootstrap, Canned(rows), maxAttempts=30) as sink:
        sink.write(BATCH)
        broker.stop()
        restart = threading.Thread(target=broker.start)
        restart.start()
        write_until_it_works(sink)
        restart.join()
    for records in by_partition(consume(broker.bootstrap, [topic])).values():
        last = {r.key: r.value for r in records}
        assert all(value == b"%d" % (19_990 + int(key or b"")) for key, value in last.items())


@pytest.fixture(scope="module")
def strict_broker() -> Iterator[str]:
    """bootstrap.servers of a broker that makes no topics."""
    with EmbeddedKafka(properties={"auto.create.topics.enable": "false"}) as broker:
        yield broker.bootstrap


def test_a_topic_that_nobody_creates_is_named_with_the_command_that_does(strict_broker: str) -> None:
    command = f"kafka-topics.sh --bootstrap-server {strict_broker} --create --topic"
    with started(strict_broker, Canned([("absent", b"1", b"a")]), timeout="200ms") as sink:
        with pytest.raises(SinkUnavailable, match=rf'"absent" does not exist.*{re.escape(command)} absent'):
            sink.write(BATCH)
        create_topic(strict_broker, "absent")
        sink.write(BATCH)
    (finding,) = KafkaSink("kafka1", options(strict_broker), Canned([])).check()
    assert finding.severity is Severity.ERROR
    assert f"{command} events" in finding.remedy


def test_a_topic_of_which_all_is_written_may_be_deleted_before_its_dead_letters_are(strict_broker: str) -> None:
    create_topic(strict_broker, "written")
    rows: list[Row] = [("written", b"%d" % i, random_bytes(5000) if i == 7 else b"v") for i in range(40)]
    section = {"timeout": "1s", "compression": "none", "kafka": {"message.max.bytes": 2000}}
    with started(strict_broker, Canned(rows), deadLetterTopic="letters", **section) as sink:
        with pytest.raises(SinkUnavailable, match='"letters" does not exist'):
            sink.write(BATCH)
        admin = AdminClient({"bootstrap.servers": strict_broker})  # named, because its futures die with it
        admin.delete_topics(["written"])["written"].result()
        create_topic(strict_broker, "letters")
        sink.write(BATCH)
        assert (sink.stats()["events"], sink.stats()["dead_lettered"]) == (39, 1)
    assert len(consume(strict_broker, ["letters"])) == 1


def test_a_dead_letter_topic_that_is_deleted_under_the_sink_is_made_again(strict_broker: str) -> None:
    topic = create_topic(strict_broker, "made-again", max_message_bytes="2000")
    dead, canned = "made-again-dead", Canned([(topic, b"k", random_bytes(5000))])
    with started(strict_broker, canned, timeout="300ms", createTopics={}, deadLetterTopic=dead) as sink:
        sink.write(BATCH)
        admin = AdminClient({"bootstrap.servers": strict_broker})
        admin.delete_topics([dead])[dead].result()
        wait_until(lambda: dead not in admin.list_topics(timeout=10).topics)
        write_until_it_works(sink, seconds=20.0)
    assert [record.key for record in consume(strict_broker, [dead])] == [b"k"]


def test_a_deleted_dead_letter_topic_that_nobody_creates_is_named_with_the_command_that_does(
    strict_broker: str,
) -> None:
    topic = create_topic(strict_broker, "named", max_message_bytes="2000")
    dead = create_topic(strict_broker, "named-dead")
    canned = Canned([(topic, b"k", random_bytes(5000))])
    with started(strict_broker, canned, timeout="300ms", deadLetterTopic=dead) as sink:
        sink.write(BATCH)
        admin = AdminClient({"bootstrap.servers": strict_broker})
        admin.delete_topics([dead])[dead].result()
        wait_until(lambda: dead not in admin.list_topics(timeout=10).topics)
        with pytest.raises(SinkUnavailable, match=r'topic "named-dead" does not exist\): create it again'):
            sink.write(BATCH)
        with pytest.raises(SinkUnavailable, match="--create --topic named-dead"):
            sink.write(BATCH)
        create_topic(strict_broker, dead)
        write_until_it_works(sink)


def test_a_message_is_skipped_whose_topic_became_impossible_while_another_batch_waited(strict_broker: str) -> None:
    """The records of all batches were put together before, with the message's among them."""
    create_topic(strict_broker, "made.m_a")
    impossible = LogicalMessage("_a", b"x", 0, -1, 0x900, -1)
    batches = [replace(BATCH, messages=(impossible,)), make_batch([{"id": 1}], "id")]
    section = {"timeout": "200ms", "messageTopic": "made.m{prefix}", "topicFallback": "made.late"}
    with started(strict_broker, None, **section) as sink:
        write = sink.begin_write(iter(batches))
        with pytest.raises(SinkUnavailable, match=r'"made\.late" does not exist'):
            write()
        admin = AdminClient({"bootstrap.servers": strict_broker})
        admin.delete_topics(["made.m_a"])["made.m_a"].result()
        create_topic(strict_broker, "made.m.a")
        create_topic(strict_broker, "made.late")
        write()
        assert sink.stats()["skipped"] == {"message _a": 1}
        assert sink.stats()["events"] == 1
    assert len(consume(strict_broker, ["made.late"])) == 1


def table(name: str) -> Relation:
    return postgres_table(1, "public", name, ReplicaIdentity.DEFAULT, (postgres_column("id", 23, key=True),))


def test_check_lists_the_topics_of_published_tables_that_nobody_creates(strict_broker: str) -> None:
    section = {"topicPrefix": "cdc", "topicFallback": "", "schemaTopic": "{source}-shapes", "sources": ["db1", "db2"]}
    sink = KafkaSink("kafka1", options(strict_broker, **section), Canned([]))
    create_topic(strict_broker, "cdc.public.t0")
    tables = [table(f"t{number}") for number in range(15)]
    assert list(sink.review({"db1": tables})) == [], "a review alone asks no server"
    problems = [finding.problem for finding in sink.check()]
    assert [problem.partition(" does")[0] for problem in problems[:2]] == ['topic "db1-shapes"', 'topic "db2-shapes"']
    (finding,) = sink.review({"db1": tables})
    assert finding.severity is Severity.ERROR
    assert finding.problem.startswith("14 topics of published tables do not exist and brokers create no topics: ")
    assert finding.problem.endswith("cdc.public.t9, cdc.public.t10 and 4 more")
    assert f"--bootstrap-server {strict_broker}" in finding.remedy
    made = KafkaSink("kafka1", options(strict_broker, createTopics={}, **section), Canned([]))
    assert [*made.check(), *made.review({"db1": tables})] == []


def test_many_missing_topics_are_summed_up(strict_broker: str) -> None:
    mapping = {f"t{number}": f"missing-{number}" for number in range(30)}
    section = {"tableTopicMapping": mapping, "topicFallback": ""}
    problems = [found.problem for found in KafkaSink("k", options(strict_broker, **section), Canned([])).check()]
    assert len(problems) == 11
    assert problems[-1] == "20 more findings like the one before"


@pytest.mark.soak
def test_what_a_client_complained_of_while_it_was_idle_is_not_told_as_the_reason_of_a_silence_later(
    broker: EmbeddedKafka, topic_prefix: str
) -> None:
    topic = create_topic(broker.bootstrap, topic_prefix)
    alike = Canned([(topic, b"1", b"the same " * 1000)] * 100)
    noise = Canned([(topic, b"1", random_bytes(300_000))])
    with started(broker.bootstrap, alike, timeout="1s", maxAttempts=2, rebalanceInterval="1h") as sink:
        for encoder in (alike, noise):
            sink._writer._encoder = encoder
            sink.write(replace(BATCH))
        assert sink._delivery is not None
        assert sink._delivery._plain is not None, "a client for what is sent as it is"
        clients = (sink._delivery._producer, sink._delivery._plain)
        broker.stop(kill=True)
        wait_until(lambda: all(client.outstanding for client in clients))  # complaints that wait to be heard
        broker.start()
        wait_until(lambda: all(client.read_metadata(topic, 5)[topic].partitions for client in clients))
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            with pytest.raises(SinkUnavailable) as raised:
                sink.write(batch := replace(BATCH))
        finally:
            os.kill(broker.pid, signal.SIGCONT)
        assert "Connection refused" not in raised.value.what.partition(" (before them the client said: ")[0]
        write_until_it_works(sink, batch)


def test_interrupt_ends_a_write_that_waits_for_brokers(broker: EmbeddedKafka, topic_prefix: str) -> None:
    topic = create_topic(broker.bootstrap, topic_prefix)
    with started(broker.bootstrap, Canned([(topic, b"1", b"a")]), timeout="1m") as sink:
        sink.write(BATCH)
        broker.stop(kill=True)
        raised: list[BaseException] = []

        def write() -> None:
            try:
                sink.write(BATCH)
            except SinkUnavailable as error:
                raised.append(error)

        writer = threading.Thread(target=write)
        writer.start()
        time.sleep(0.3)  # so that the write is waiting; earlier would do as well, and test less
        sink.interrupt()
        writer.join(5)
        assert not writer.is_alive()
        assert "interrupted" in str(raised[0])


@pytest.mark.soak
def test_a_record_that_a_client_kept_for_longer_than_the_topic_takes_is_written_with_the_time_of_now(
    broker: EmbeddedKafka, topic_prefix: str
) -> None:
    topic = create_topic(broker.bootstrap, topic_prefix, message_timestamp_before_max_ms="1000")
    rows: list[Row] = [(topic, b"1", b"value")]
    with started(broker.bootstrap, Canned(rows), timeout="600ms", maxAttempts=2) as sink:
        sink.write(BATCH)
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            with pytest.raises(SinkUnavailable, match="1 records were not acknowledged, none for 1"):
                sink.write(BATCH)
        finally:
            os.kill(broker.pid, signal.SIGCONT)
        write_until_it_works(sink)
    values = [record.value for record in consume(broker.bootstrap, [topic])]
    assert len(values) >= 2
    assert set(values) == {b"value"}
