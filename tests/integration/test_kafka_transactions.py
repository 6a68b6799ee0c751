"""The Kafka sink with exactlyOnce: readers of what is committed see each batch once, whatever goes wrong."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from psql_streamer.embedded.kafka import EmbeddedKafka
from psql_streamer.errors import SinkRefused, SinkUnavailable
from psql_streamer.interfaces import Transaction
from sinks.kafka import request_size
from sinks.kafka.position_topic import Noted, PositionTopic
from sinks.kafka.sink import KafkaSink
from sinks.kafka.transactional_delivery import TransactionalDelivery
from sinks.kafka.transactional_producer import TransactionalProducer
from tests.kafka_reader import Record, consume
from tests.kafka_sinks import (
    BATCH,
    Canned,
    Row,
    create_topic,
    random_bytes,
    set_topic_option,
    started,
    wait_until,
)

Start = Callable[..., AbstractContextManager[KafkaSink]]


@pytest.fixture(scope="module", autouse=True)
def _transactions_are_known(kafka: str) -> None:
    """Brokers that are asked for a transactional id for the first time make their log of transactions."""
    Producer({"bootstrap.servers": kafka, "transactional.id": "first"}).init_transactions(60)


@pytest.fixture
def start(topic_prefix: str) -> Start:
    """Starts a sink that writes rows in transactions."""

    def begin(bootstrap: str, rows: list[Row], **section: object) -> AbstractContextManager[KafkaSink]:
        once = {"exactlyOnce": True, "transactionalId": f"{topic_prefix}-once", "compression": "none"}
        return started(bootstrap, Canned(rows), **once, **section)

    return begin


def transaction(number: int = 1, batches: int = 1, source: str = "db1") -> Transaction:
    return Transaction([replace(BATCH) for _ in range(batches)], {source: json.dumps({"number": number}).encode()})


def noted(sink: KafkaSink, source: str = "db1") -> object:
    note = sink.find_note(source)
    return None if note is None else json.loads(note)["number"]


def committed(bootstrap: str, *topics: str) -> list[Record]:
    return consume(bootstrap, topics, isolation_level="read_committed")


@contextmanager
def ended_by_interrupt(sink: KafkaSink, seconds: float = 30) -> Iterator[None]:
    """A write that would never end fails."""
    timer = threading.Timer(seconds, sink.interrupt)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


@contextmanager
def started_in_the_end(start: Callable[[], AbstractContextManager[KafkaSink]]) -> Iterator[KafkaSink]:
    """A broker that has just come up may not answer in time."""
    sinks: list[KafkaSink] = []

    def works() -> bool:
        try:
            sinks.append(stack.enter_context(start()))
        except SinkUnavailable:
            return False
        return True

    with ExitStack() as stack:
        wait_until(works, 60)
        yield sinks[0]


def write_until_it_works(sink: KafkaSink, one: Transaction) -> None:
    wrote = []

    def works() -> bool:
        try:
            sink.write_transaction(one)
        except SinkUnavailable:
            return False
        wrote.append(one)
        return True

    wait_until(works, 60)


@pytest.mark.behaviour("K10")
def test_batches_and_the_note_are_seen_together_and_the_next_instance_finds_the_note(
    kafka: str, topic_prefix: str, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = create_topic(kafka, topic_prefix, partitions=3)
    rows: list[Row] = [(topic, b"%d" % i, b"value") for i in range(100)]
    seen = []

    def commit(self: TransactionalProducer, seconds: float) -> None:
        seen.append(len(committed(kafka, topic)))
        commit_transaction(self, seconds)

    commit_transaction = TransactionalProducer.commit_transaction
    with start(kafka, rows) as sink:
        monkeypatch.setattr(TransactionalProducer, "commit_transaction", commit)
        assert sink.find_note("db1") is None
        sink.write_transaction(transaction(1, batches=3))
        assert sink.stats()["events"] == 300
        assert sink.stats()["transactions"] == 1
        sink.write_transaction(transaction(2))
    assert seen == [0, 300], "before a commit nothing of its transaction is there"
    assert len(committed(kafka, topic)) == 400
    with start(kafka, rows) as sink:
        assert noted(sink) == 2


def test_a_note_of_one_source_leaves_those_of_others(kafka: str, topic_prefix: str, start: Start) -> None:
    rows: list[Row] = [(create_topic(kafka, topic_prefix), b"1", b"value")]
    with start(kafka, rows) as sink:
        sink.write_transaction(transaction(1, source="db1"))
        sink.write_transaction(transaction(2, source="db2"))
    with start(kafka, rows) as sink:
        sink.write_transaction(transaction(3, source="db2"))
        assert (noted(sink, "db1"), noted(sink, "db2")) == (1, 3)
    with start(kafka, rows) as sink:
        assert (noted(sink, "db1"), noted(sink, "db2")) == (1, 3)


def test_a_note_is_found_behind_many_transactions_that_were_given_up(
    kafka: str, topic_prefix: str, start: Start
) -> None:
    rows: list[Row] = [(create_topic(kafka, topic_prefix), b"1", b"value")]
    with start(kafka, rows) as sink:
        sink.write_transaction(transaction(7))
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": f"{topic_prefix}-once"})
    producer.init_transactions()
    for _ in range(150):
        producer.begin_transaction()
        producer.produce(f"{topic_prefix}-once.position", b"{}", f"{topic_prefix}-once", partition=0)
        producer.flush()
        producer.abort_transaction()
    with start(kafka, rows) as sink:
        assert noted(sink) == 7


@pytest.mark.behaviour("K10")
@pytest.mark.parametrize("is_made", [True, False])
def test_a_commit_without_an_answer_is_found_out_about_and_not_made_twice(
    kafka: str, topic_prefix: str, start: Start, monkeypatch: pytest.MonkeyPatch, is_made: bool
) -> None:
    topic = create_topic(kafka, topic_prefix)
    rows: list[Row] = [(topic, b"%d" % i, b"value") for i in range(100)]
    one = transaction(1)

    def commit(self: TransactionalProducer, seconds: float) -> None:
        monkeypatch.undo()
        if is_made:
            commit_transaction(self, seconds)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    commit_transaction = TransactionalProducer.commit_transaction
    with start(kafka, rows) as sink:
        monkeypatch.setattr(TransactionalProducer, "commit_transaction", commit)
        with pytest.raises(SinkUnavailable, match="did not commit the transaction"):
            sink.write_transaction(one)
        sink.write_transaction(one)
        assert sink.stats()["events"] == 100
        sink.write_transaction(transaction(2))
    assert len(committed(kafka, topic)) == 200


def test_all_of_a_transaction_is_written_again_though_the_next_client_does_not_start_at_once(
    kafka: str, topic_prefix: str, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = create_topic(kafka, topic_prefix)

    def fail(*_: object) -> None:
        monkeypatch.undo()
        monkeypatch.setattr("sinks.kafka.transactional_delivery.TransactionalProducer", refuse)
        raise SinkUnavailable("brokers are away")

    def refuse(*_: object) -> None:
        monkeypatch.undo()
        raise KafkaException(KafkaError(KafkaError._CRIT_SYS_RESOURCE))

    with start(kafka, [(topic, b"k", b"1"), (topic, b"k", b"2")]) as sink:
        one = transaction()
        monkeypatch.setattr(TransactionalDelivery, "commit", fail)
        with pytest.raises(SinkUnavailable, match="the Kafka client does not start"):
            sink.write_transaction(one)
        write_until_it_works(sink, one)
    assert [record.value for record in committed(kafka, topic)] == [b"1", b"2"]


@pytest.mark.behaviour("K10")
def test_what_kafka_rejects_goes_to_the_dead_letters_once_and_the_rest_of_its_transaction_is_written_once(
    kafka: str, topic_prefix: str, start: Start
) -> None:
    topic = create_topic(kafka, topic_prefix, partitions=3, max_message_bytes="10000")
    dead = create_topic(kafka, f"{topic_prefix}-dead", max_message_bytes="6000")
    large = {b"77"}
    rows: list[Row] = [(topic, b"%d" % i, random_bytes(20_000) if b"%d" % i in large else b"v") for i in range(200)]
    with start(kafka, rows, deadLetterTopic=dead) as sink:
        sink.write_transaction(transaction(1, batches=2))
        assert sink.stats()["dead_lettered"] == 2
        assert sink.stats()["events"] == 398
        assert sink.stats()["transactions_written_again"] > 0
    found = Counter(record.key for record in committed(kafka, topic))
    assert found == {key: 2 for _, key, _ in rows if key not in large}
    letters = committed(kafka, dead)
    assert Counter(letter.key for letter in letters) == dict.fromkeys(large, 2)
    assert {letter.headers["dead_letter_truncated_from"] for letter in letters} == {b"20002"}


def test_a_record_that_kafka_rejects_is_found_though_more_wait_than_the_client_takes(
    kafka: str, topic_prefix: str, start: Start
) -> None:
    topic = create_topic(kafka, topic_prefix)
    dead = create_topic(kafka, f"{topic_prefix}-dead")
    rows: list[Row] = [(topic, b"%d" % i, random_bytes(2_000_000) if i == 3 else b"value") for i in range(10_000)]
    with start(kafka, rows, deadLetterTopic=dead, kafka={"queue.buffering.max.messages": 2_000}) as sink:
        sink.write_transaction(transaction())
        assert sink.stats()["retries"] == 0
    assert {record.key for record in committed(kafka, dead)} == {b"3"}
    assert len(committed(kafka, topic)) == len(rows) - 1


@pytest.mark.parametrize("limited", ["topic", pytest.param("dead-letter topic", marks=pytest.mark.soak)])
def test_a_record_that_is_smaller_than_the_smallest_request_is_found_one_by_one(
    kafka: str, topic_prefix: str, start: Start, limited: str
) -> None:
    """The size of requests does not tell it from those around it."""
    small, any_size = {"max_message_bytes": "3000"}, {"cleanup_policy": "compact"}
    topic = create_topic(kafka, topic_prefix, **(small if limited == "topic" else any_size))
    dead = create_topic(kafka, f"{topic_prefix}-dead", **({} if limited == "topic" else small))
    key = b"key" if limited == "topic" else None
    rows: list[Row] = [(topic, key, random_bytes(3_500) if i == 7 else b"%d" % i) for i in range(40)]
    with start(kafka, rows, deadLetterTopic=dead) as sink, ended_by_interrupt(sink):
        sink.write_transaction(transaction())
        assert sink.stats()["dead_lettered"] == (1 if limited == "topic" else 40)
        assert sink.stats()["transactions_written_again"] < 10
    letters, found = committed(kafka, dead), committed(kafka, topic)
    assert sorted(len(letter.value or b"") > 1000 for letter in letters)[-2:] in ([True], [False, True])
    assert len(found) == 40 - len(letters)


def test_records_without_a_key_in_a_compacted_topic_are_found_among_the_others(
    kafka: str, topic_prefix: str, start: Start
) -> None:
    topic = create_topic(kafka, topic_prefix, cleanup_policy="compact")
    dead = create_topic(kafka, f"{topic_prefix}-dead")
    rows: list[Row] = [(topic, None if i % 50 == 7 else b"%d" % i, b"%d" % i) for i in range(200)]
    with start(kafka, rows, deadLetterTopic=dead) as sink:
        sink.write_transaction(transaction())
    assert {record.value for record in committed(kafka, dead)} == {b"7", b"57", b"107", b"157"}
    assert Counter(record.key for record in committed(kafka, topic)) == {key: 1 for _, key, _ in rows if key}


def test_what_kafka_rejects_without_a_place_for_it_stops_the_sink(kafka: str, topic_prefix: str, start: Start) -> None:
    topic = create_topic(kafka, topic_prefix, max_message_bytes="10000")
    with (
        start(kafka, [(topic, b"1", b"v"), (topic, b"2", random_bytes(20_000))]) as sink,
        pytest.raises(SinkRefused, match=r"rejects a record of 20001 bytes.*set deadLetterTopic"),
    ):
        sink.write_transaction(transaction())
    assert not committed(kafka, topic)


@pytest.mark.behaviour("K10")
def test_an_instance_that_was_taken_over_from_stops_and_says_so(kafka: str, topic_prefix: str, start: Start) -> None:
    topic = create_topic(kafka, topic_prefix)
    with start(kafka, [(topic, b"1", b"first")]) as first, start(kafka, [(topic, b"1", b"second")]) as second:
        second.write_transaction(transaction(2))
        one = transaction(1)
        with pytest.raises(SinkUnavailable):  # brokers do not say why they refuse it
            first.write_transaction(one)
        with pytest.raises(SinkRefused, match=r"another instance has taken over transactionalId.*stop one of the two"):
            first.write_transaction(one)
        second.write_transaction(transaction(3))
    assert [record.value for record in committed(kafka, topic)] == [b"second", b"second"]


@pytest.mark.behaviour("K10")
def test_an_instance_takes_over_from_one_that_writes_without_a_pause(
    kafka: str, topic_prefix: str, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[Row] = [(create_topic(kafka, topic_prefix), b"1", b"value")]
    read, ends = PositionTopic.read, []
    is_there = threading.Event()

    def wait_until_the_other_one_is_there(seconds: float) -> None:
        """In a load of other tests the other one may take longer than it gets."""
        TransactionalDelivery.wait(delivery, seconds)
        assert not seconds or is_there.wait(60)

    def read_slowly(self: PositionTopic) -> Noted:
        time.sleep(0.5)
        return read(self)

    def write() -> None:
        for number in itertools.count():
            try:
                write_until_it_works(first, transaction(number))
            except SinkRefused as error:
                ends.append(str(error))
                return

    with start(kafka, rows) as first:
        delivery = first._delivery
        assert isinstance(delivery, TransactionalDelivery)
        monkeypatch.setattr(delivery, "wait", wait_until_the_other_one_is_there)
        writing = threading.Thread(target=write, daemon=True)
        writing.start()
        wait_until(lambda: bool(first.stats()["transactions"] > 10))
        monkeypatch.setattr(PositionTopic, "read", read_slowly)
        with start(kafka, rows) as second:
            is_there.set()
            number = 0
            while writing.is_alive():
                second.write_transaction(transaction(number := number + 1))
                assert number < 5_000, "it does not stop"
            assert second.stats()["retries"] == 0
        writing.join()
    assert re.match("another instance has taken over", ends[0])


def test_a_client_that_brokers_refuse_though_no_other_instance_writes_goes_on(
    kafka: str, topic_prefix: str, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind transaction.timeout.ms: brokers then end the transaction and let the client write no more."""
    monkeypatch.setattr("sinks.kafka.transactions._TAKE_OVER_SECONDS", 0.1)
    topic = create_topic(kafka, topic_prefix)
    one = transaction(1)
    with start(kafka, [(topic, b"1", b"value")]) as sink:
        fencing = Producer({"bootstrap.servers": kafka, "transactional.id": f"{topic_prefix}-once"})
        fencing.init_transactions()
        with pytest.raises(SinkUnavailable, match=r"brokers have ended the transaction.*transaction.timeout.ms"):
            sink.write_transaction(one)
        sink.write_transaction(one)
        sink.write_transaction(transaction(2))
    assert len(committed(kafka, topic)) == 2


@pytest.mark.parametrize("written_before", [0, 2])
def test_a_client_that_brokers_refuse_goes_on_though_its_last_commits_are_not_shown_yet(
    kafka: str, topic_prefix: str, start: Start, monkeypatch: pytest.MonkeyPatch, written_before: int
) -> None:
    """As behind the deletion of a topic of the last transaction. An earlier note was taken for another instance's."""
    monkeypatch.setattr("sinks.kafka.transactions._TAKE_OVER_SECONDS", 0.1)
    notes, topic = f"{topic_prefix}-once.position", create_topic(kafka, topic_prefix)
    create_topic(kafka, notes)
    holding = Producer({"bootstrap.servers": kafka, "transactional.id": f"{topic_prefix}-other"})
    holding.init_transactions()
    fencing = Producer({"bootstrap.servers": kafka, "transactional.id": f"{topic_prefix}-once"})
    with start(kafka, [(topic, b"1", b"value")], timeout="1s") as sink:
        for number in range(written_before):
            sink.write_transaction(transaction(number))
        holding.begin_transaction()
        holding.produce(notes, b"x", b"x", partition=0)
        holding.flush()
        for number in range(2):
            sink.write_transaction(transaction(number))
        fencing.init_transactions()
        one = transaction(4)
        with pytest.raises(SinkUnavailable, match="brokers have ended the transaction"):
            sink.write_transaction(one)
        with pytest.raises(SinkUnavailable, match="transaction that is open"):
            sink.write_transaction(one)
        holding.abort_transaction()
        write_until_it_works(sink, one)
        assert noted(sink) == 4
    assert len(committed(kafka, topic)) == written_before + 3


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_topic_that_is_deleted_among_others_is_the_one_that_is_named(
    kafka: str, topic_prefix: str, start: Start, monkeypatch: pytest.MonkeyPatch, is_made_again: bool
) -> None:
    """Brokers fail the transaction, and with it the records of all topics."""
    admin, topics = AdminClient({"bootstrap.servers": kafka}), [f"{topic_prefix}-{number}" for number in range(5)]
    for topic in topics:
        create_topic(kafka, topic)
    rows: list[Row] = [(topic, b"1", b"value") for topic in topics]
    one = transaction(2)

    def learn_and_delete(self: TransactionalDelivery, names: list[str]) -> None:
        learn(self, names)
        if topics[3] in names:
            monkeypatch.setattr(TransactionalDelivery, "_learn", learn)
            admin.delete_topics([topics[3]])[topics[3]].result()

    def describe(self: TransactionalDelivery, *failure: Any) -> Exception:
        if is_made_again:
            create_topic(kafka, topics[3])
        return describe_deletion(self, *failure)

    learn, describe_deletion = TransactionalDelivery._learn, TransactionalDelivery._describe_deletion
    monkeypatch.setattr(TransactionalDelivery, "_learn", learn_and_delete)
    monkeypatch.setattr(TransactionalDelivery, "_describe_deletion", describe)
    told = "one of its 5 topics was deleted, and is there again"
    # Also where brokers do not fail the transaction, and acknowledge nothing.
    missing = rf'topic "{topics[3]}" does not exist\b.*: create it again'
    with start(kafka, rows) as sink, ended_by_interrupt(sink):
        with pytest.raises(SinkUnavailable, match=f"{told}|{missing}" if is_made_again else missing):
            sink.write_transaction(one)
        if topics[3] not in admin.list_topics(timeout=5).topics:
            create_topic(kafka, topics[3])
        write_until_it_works(sink, one)
    assert Counter(record.topic for record in committed(kafka, *topics)) == dict.fromkeys(topics, 1)


def test_a_position_topic_with_other_records_is_refused(kafka: str, topic_prefix: str, start: Start) -> None:
    create_topic(kafka, f"{topic_prefix}-once.position")
    producer = Producer({"bootstrap.servers": kafka})
    producer.produce(f"{topic_prefix}-once.position", b"something", f"{topic_prefix}-once")
    producer.flush()
    with pytest.raises(SinkRefused, match="no position of psql-streamer's"), start(kafka, []):
        pass


def test_positions_that_kafka_rejects_stop_the_sink_and_nothing_is_committed_without_them(
    kafka: str, topic_prefix: str, start: Start
) -> None:
    topic = create_topic(kafka, topic_prefix)
    create_topic(kafka, f"{topic_prefix}-once.position", max_message_bytes="2000")
    with start(kafka, [(topic, b"1", b"value")]) as sink:
        sink.write_transaction(transaction(1))
        large = Transaction([replace(BATCH)], {"db1": json.dumps({"number": random_bytes(3_000).hex()}).encode()})
        with (
            ended_by_interrupt(sink),
            pytest.raises(SinkRefused, match=r"positions, of 60\d\d bytes: .*raise the topic's max.message.bytes"),
        ):
            sink.write_transaction(large)
    assert len(committed(kafka, topic)) == 1


def test_the_position_topic_that_the_sink_makes_takes_the_shapes_of_a_thousand_tables(
    kafka: str, topic_prefix: str, start: Start
) -> None:
    shapes = random_bytes(3_000_000).hex()
    with start(kafka, [(create_topic(kafka, topic_prefix), b"1", b"value")]) as sink, ended_by_interrupt(sink):
        sink.write_transaction(Transaction([replace(BATCH)], {"db1": json.dumps({"number": shapes}).encode()}))
    with start(kafka, []) as sink:
        assert noted(sink) == shapes


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_position_topic_that_is_deleted_while_the_sink_runs_stops_it_and_the_next_start_makes_another_one(
    kafka: str, topic_prefix: str, start: Start, is_made_again: bool
) -> None:
    topic = create_topic(kafka, topic_prefix)
    rows: list[Row] = [(topic, b"1", b"value")]
    with start(kafka, rows, timeout="1s") as sink:
        sink.write_transaction(transaction(1))
        admin, name = AdminClient({"bootstrap.servers": kafka}), f"{topic_prefix}-once.position"
        admin.delete_topics([name])[name].result()
        one = transaction(2)
        with pytest.raises(SinkUnavailable, match="does not exist"):
            sink.write_transaction(one)
        if is_made_again:
            create_topic(kafka, name)
        with pytest.raises(SinkRefused, match=r"does not have the positions any more.*start the service again"):
            sink.write_transaction(one)
    with start(kafka, rows) as sink:
        sink.write_transaction(transaction(3))
        assert noted(sink) == 3
    assert len(committed(kafka, topic)) == 2


def test_a_transaction_of_somebody_else_in_the_position_topic_is_not_taken_for_its_end(
    kafka: str, topic_prefix: str, start: Start
) -> None:
    rows: list[Row] = [(create_topic(kafka, topic_prefix), b"1", b"value")]
    with start(kafka, rows) as sink:
        sink.write_transaction(transaction(1))
        producer = Producer({"bootstrap.servers": kafka, "transactional.id": f"{topic_prefix}-other"})
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce(f"{topic_prefix}-once.position", b"x", b"x", partition=0)
        producer.flush()
        sink.write_transaction(transaction(2))
    with pytest.raises(SinkUnavailable, match="transaction that is open"), start(kafka, rows, timeout="1s"):
        pass
    producer.abort_transaction()
    with start(kafka, rows) as sink:
        assert noted(sink) == 2


def test_a_broker_that_falls_silent_is_not_taken_for_a_transaction_of_somebody_else_in_the_position_topic(
    broker: EmbeddedKafka, topic_prefix: str, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(broker.bootstrap, topic_prefix)
    begin = partial(start, broker.bootstrap, [(topic_prefix, b"1", b"a")], timeout="1s", maxAttempts=2)
    with started_in_the_end(begin) as sink:
        write_until_it_works(sink, transaction())
        assert sink._transactions is not None
        notes = sink._transactions._topic
        find_bounds = notes._find_bounds

        def find_and_freeze(*, whole: bool) -> tuple[int, int]:
            found = find_bounds(whole=whole)
            os.kill(broker.pid, signal.SIGSTOP)
            return found

        monkeypatch.setattr(notes, "_find_bounds", find_and_freeze)
        try:
            with pytest.raises(SinkUnavailable, match="cannot be read: nothing came of it for 2 s"):
                notes.read()
        finally:
            os.kill(broker.pid, signal.SIGCONT)


@pytest.mark.soak
def test_what_the_client_complained_of_between_transactions_is_not_told_as_the_reason_of_a_silence_later(
    broker: EmbeddedKafka, topic_prefix: str, start: Start
) -> None:
    topic = create_topic(broker.bootstrap, topic_prefix)
    section = {"timeout": "1s", "maxAttempts": 2, "rebalanceInterval": "1h"}
    with started_in_the_end(partial(start, broker.bootstrap, [(topic, b"1", b"a")], **section)) as sink:
        write_until_it_works(sink, transaction())
        delivery = sink._delivery
        assert delivery is not None
        broker.stop(kill=True)
        wait_until(lambda: bool(delivery._producer.outstanding))  # complaints that wait to be heard
        broker.start()
        wait_until(lambda: bool(delivery._producer.read_metadata(topic, 5)[topic].partitions))
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            with pytest.raises(SinkUnavailable) as raised:
                sink.write_transaction(one := transaction(2))
        finally:
            os.kill(broker.pid, signal.SIGCONT)
        assert "Connection refused" not in raised.value.what.partition(" (before them the client said: ")[0]
        write_until_it_works(sink, one)


def test_a_topic_that_takes_small_requests_alone_gets_them(
    kafka: str, topic_prefix: str, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    topic = create_topic(kafka, topic_prefix, max_message_bytes="20000")
    dead = create_topic(kafka, f"{topic_prefix}-dead")
    noise = random_bytes(150 * 2_000)
    rows: list[Row] = [(topic, b"%d" % i, noise[150 * i : 150 * (i + 1)]) for i in range(2_000)]
    rows[1_500] = (topic, b"1500", random_bytes(25_000))
    with start(kafka, rows, deadLetterTopic=dead) as sink:
        sink.write_transaction(transaction())
        assert any('set "batch.size" = 15625' in record.getMessage() for record in caplog.records)
        spoiled = sink.stats()["transactions_written_again"]
        sink.write_transaction(transaction(2))
        assert sink.stats()["transactions_written_again"] == spoiled + 1, "for the large record alone"
    assert [record.key for record in committed(kafka, dead)] == [b"1500"] * 2
    expected = [key for _, key, _ in rows if key != b"1500"] * 2
    assert [record.key for record in committed(kafka, topic)] == expected


def test_transactions_have_large_requests_again_after_a_while_if_the_topic_takes_them_by_then(
    kafka: str, topic_prefix: str, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_size, "_SMALL_SECONDS", 0.0)
    topic = create_topic(kafka, topic_prefix, max_message_bytes="20000")
    noise = random_bytes(150 * 2_000)
    rows: list[Row] = [(topic, b"%d" % i, noise[150 * i : 150 * (i + 1)]) for i in range(2_000)]
    with start(kafka, rows) as sink:
        sink.write_transaction(transaction())
        assert sink.stats()["request_bytes"] == 15_625
        set_topic_option(kafka, topic, "max.message.bytes", "2000000")
        sink.write_transaction(transaction(2))
        spoiled = sink.stats()["transactions_written_again"]
        sink.write_transaction(transaction(3))
        assert "request_bytes" not in sink.stats()
        assert sink.stats()["transactions_written_again"] == spoiled
    assert [record.key for record in committed(kafka, topic)] == [key for _, key, _ in rows] * 3


@pytest.mark.soak
def test_dead_letters_that_are_cut_make_no_requests_smaller(
    kafka: str, topic_prefix: str, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    topic = create_topic(kafka, topic_prefix, max_message_bytes="10000")
    dead = create_topic(kafka, f"{topic_prefix}-dead", max_message_bytes="6000")
    rows: list[Row] = [(topic, b"%d" % i, random_bytes(20_000) if i in (3, 4, 5) else b"v") for i in range(100)]
    with start(kafka, rows, deadLetterTopic=dead) as sink:
        sink.write_transaction(transaction())
        assert "request_bytes" not in sink.stats()
    assert 'set "batch.size"' not in caplog.text
    assert {letter.key for letter in committed(kafka, dead)} == {b"3", b"4", b"5"}
    assert len(committed(kafka, topic)) == 97


SMALL_REQUESTS = {"batch.size": 4096}
"""So small that which of a request's records is too large is found by writing them one by one."""


@pytest.mark.soak
def test_records_that_are_written_one_by_one_may_take_longer_than_a_transaction_may(
    kafka: str, topic_prefix: str, start: Start
) -> None:
    """Brokers look for transactions that have taken too long every ten seconds."""
    topic = create_topic(kafka, topic_prefix, max_message_bytes="2000")
    dead = create_topic(kafka, f"{topic_prefix}-dead")
    rows: list[Row] = [(topic, b"%d" % i, random_bytes(3_000) if i == 99_000 else b"v") for i in range(100_000)]
    short = {**SMALL_REQUESTS, "transaction.timeout.ms": 2_000}
    with start(kafka, rows, deadLetterTopic=dead, timeout="1s", kafka=short) as sink:
        sink.write_transaction(transaction())
    assert len(committed(kafka, topic)) == len(rows) - 1


@pytest.mark.parametrize("allowed", [900_000, pytest.param(60_000, marks=pytest.mark.soak)])
def test_records_that_are_written_one_by_one_have_the_time_that_brokers_allow(
    kafka: str, topic_prefix: str, start: Start, monkeypatch: pytest.MonkeyPatch, allowed: int
) -> None:
    topic = create_topic(kafka, topic_prefix, max_message_bytes="2000")
    dead = create_topic(kafka, f"{topic_prefix}-dead")
    rows: list[Row] = [(topic, b"%d" % i, random_bytes(3_000) if i == 7 else b"v") for i in range(20)]
    given: list[int] = []

    class Limited(TransactionalProducer):
        def __init__(self, properties: Mapping[str, str], *others: Any) -> None:
            self._asked = int(properties.get("transaction.timeout.ms", 60_000))
            super().__init__(properties, *others)

        def init_transactions(self, seconds: float) -> None:
            if self._asked > allowed:
                raise KafkaException(KafkaError(KafkaError.INVALID_TRANSACTION_TIMEOUT))
            super().init_transactions(seconds)
            given.append(self._asked)

    monkeypatch.setattr("sinks.kafka.transactional_delivery.TransactionalProducer", Limited)
    with start(kafka, rows, deadLetterTopic=dead, kafka=SMALL_REQUESTS) as sink:
        sink.write_transaction(transaction())
        sink.write_transaction(transaction(2))
    assert {record.key for record in committed(kafka, dead)} == {b"7"}
    assert given[:2] == [60_000, allowed]
    assert len(committed(kafka, topic)) == 38


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["killed", pytest.param("standing still", marks=pytest.mark.soak)])
def test_a_broker_that_fails_in_the_middle_of_transactions_leaves_each_of_them_written_once(
    broker: EmbeddedKafka, topic_prefix: str, start: Start, fault: str
) -> None:
    topic = create_topic(broker.bootstrap, topic_prefix, partitions=3)
    rows: list[Row] = [(topic, b"%d" % i, b"value") for i in range(2_000)]
    done = threading.Event()

    def fail() -> Iterator[None]:
        while not done.wait(0.7):
            if fault == "killed":
                broker.stop(kill=True)
                broker.start()
            else:
                os.kill(broker.pid, signal.SIGSTOP)
                done.wait(4.0)
                os.kill(broker.pid, signal.SIGCONT)
            yield

    with started_in_the_end(lambda: start(broker.bootstrap, rows, timeout="1s")) as sink:
        sink.write_transaction(transaction(0))
        failing = fail()
        faults = threading.Thread(target=lambda: [next(failing) for _ in range(2)])
        faults.start()
        number = 0
        while faults.is_alive():
            number += 1
            write_until_it_works(sink, transaction(number))
        done.set()
        faults.join()
        assert sink.stats()["retries"] > 0
    with started_in_the_end(lambda: start(broker.bootstrap, rows)) as sink:
        assert noted(sink) == number
    assert Counter(record.key for record in committed(broker.bootstrap, topic)) == {
        key: number + 1 for _, key, _ in rows
    }


def test_records_that_the_client_itself_finds_too_large_spoil_no_transaction(
    kafka: str, topic_prefix: str, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, dead = create_topic(kafka, topic_prefix), create_topic(kafka, f"{topic_prefix}-dead")
    rows: list[Row] = [(topic, b"1", b"v"), (topic, b"2", random_bytes(20_000)), (topic, b"3", b"v")]
    begun = []
    begin = TransactionalProducer.begin_transaction
    monkeypatch.setattr(TransactionalProducer, "begin_transaction", lambda self: begun.append(1) or begin(self))
    with start(kafka, rows, deadLetterTopic=dead, kafka={"message.max.bytes": 10_000}) as sink:
        sink.write_transaction(transaction())
    assert {record.key for record in committed(kafka, topic)} == {b"1", b"3"}
    assert len(committed(kafka, dead)) == 1
    assert len(begun) == 2, "the one of the start, and this one"
