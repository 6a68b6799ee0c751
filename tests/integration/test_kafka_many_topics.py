"""Batches whose records go to many topics, and topics that are missing by the hundred."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions
from confluent_kafka.cimpl import NewTopic

from psql_streamer.embedded.mock_kafka import MockKafka
from psql_streamer.errors import SinkUnavailable
from sinks.kafka import clients
from sinks.kafka.delivery import Delivery
from sinks.kafka.options import CreateTopics
from sinks.kafka.producer import Producer, TopicMetadata
from sinks.kafka.sink import KafkaSink
from sinks.kafka.topics import TopicRefused, Topics
from tests.kafka_reader import consume
from tests.kafka_sinks import BATCH, Canned, Row, options, started, values_by_topic, wait_until
from tests.mock_brokers import PRODUCE, MockBrokers


class CountingAdmin:
    """An AdminClient that remembers how many topics each of its requests made."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self.made: list[int] = []

    def create_topics(self, new: list[Any], **settings: Any) -> dict[str, Any]:
        self.made.append(len(new))
        return dict(self._admin.create_topics(new, **settings))


@pytest.fixture
def delivery_to() -> Iterator[Callable[[str], Delivery]]:
    made: list[Delivery] = []

    def deliver_to(bootstrap: str) -> Delivery:
        made.append(Delivery(options(bootstrap).make_properties(), 10.0, logging.getLogger(__name__)))
        return made[-1]

    yield deliver_to
    for delivery in made:
        delivery.close()


def topics_of(
    delivery: Delivery, admin: Any = None, create: CreateTopics | None = None, appear_timeout: float = 10
) -> Topics:
    waits = {"timeout": 10.0, "interval": 15.0, "appear_timeout": appear_timeout}
    return Topics(delivery, host="host:9092", create=create, admin=lambda: cast("AdminClient", admin), **waits)


def count_naps(delivery: Delivery, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    naps: list[float] = []
    wait = delivery.wait

    def nap(seconds: float) -> None:
        naps.append(seconds)
        wait(seconds)

    monkeypatch.setattr(delivery, "wait", nap)
    return naps


def test_a_batch_over_a_thousand_topics_arrives_whole_and_in_order_in_each(mock_kafka: MockKafka) -> None:
    names = [f"t{number}" for number in range(1000)]
    rows: list[Row] = [(names[i * 7 % 1000], b"the same partition", b"%d" % i) for i in range(4000)]
    with started(mock_kafka.bootstrap, Canned(rows)) as sink:
        sink.write(BATCH)
        assert sink.stats()["events"] == 4000
        assert number_of_clients(sink) == 1000 // clients.TOPICS_A_CLIENT
    assert values_by_topic(consume(mock_kafka.bootstrap, names)) == values_by_topic_of(rows, names)


def values_by_topic_of(rows: list[Row], topics: list[str]) -> dict[str, list[bytes | None]]:
    values: dict[str, list[bytes | None]] = {name: [] for name in topics}
    for topic, _, value in rows:
        values.get(topic, []).append(value)
    return values


def test_records_that_are_acknowledged_are_not_kept_in_memory_whichever_client_was_done_last(
    mock_kafka: MockKafka,
) -> None:
    names = [f"kept{number}" for number in range(1000)]
    rows: list[Row] = [(names[i % 1000], b"key", b"value") for i in range(4000)]
    with started(mock_kafka.bootstrap, Canned(rows)) as sink:
        for _ in range(20):
            sink.write(replace(BATCH))
            assert sink._delivery is not None
            assert not sink._delivery._producer.holds_records
        assert number_of_clients(sink) == 1000 // clients.TOPICS_A_CLIENT


def number_of_clients(sink: KafkaSink) -> int:
    assert sink._delivery is not None
    return len(sink._delivery._producer._all)


@pytest.mark.parametrize("headed", [False, True], ids=["without headers", "with headers"])
@pytest.mark.parametrize("a_client", [3, 10])
def test_a_queue_that_ends_amid_the_topics_is_filled_again_and_again(
    mock_kafka: MockKafka, monkeypatch: pytest.MonkeyPatch, a_client: int, headed: bool
) -> None:
    monkeypatch.setattr(clients, "TOPICS_A_CLIENT", a_client)
    names = [f"t{number}" for number in range(10)]
    rows: list[Row] = [(names[i * 7 % 10], b"the same partition", b"%d" % i) for i in range(500)]
    headers: dict[str, list[bytes | None]] = {"place": [value for _, _, value in rows]} if headed else {}
    with started(mock_kafka.bootstrap, Canned(rows, headers), kafka={"queue.buffering.max.messages": 30}) as sink:
        sink.write(BATCH)
    found = consume(mock_kafka.bootstrap, names)
    assert all(record.headers == ({"place": record.value} if headed else {}) for record in found)
    assert values_by_topic(found) == values_by_topic_of(rows, names)


def test_clients_are_bounded_in_number(mock_kafka: MockKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "TOPICS_A_CLIENT", 1)
    monkeypatch.setattr(clients, "MOST_CLIENTS", 3)
    with started(mock_kafka.bootstrap, Canned([(f"t{i}", b"k", b"v") for i in range(7)])) as sink:
        sink.write(BATCH)
        assert number_of_clients(sink) == 3


def test_partitions_that_are_added_are_known_to_every_client(
    kafka: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "TOPICS_A_CLIENT", 7)
    admin, topics = AdminClient({"bootstrap.servers": kafka}), [f"{topic_prefix}.{number}" for number in range(20)]
    for made in admin.create_topics([NewTopic(topic, 2, 1) for topic in topics]).values():
        made.result()
    rows: list[Row] = [(topic, b"%d" % i, b"v") for topic in topics for i in range(50)]
    # librdkafka itself looks as seldom as it can: only what the sink tells each client counts.
    with started(
        kafka, Canned(rows), rebalanceInterval="100ms", kafka={"topic.metadata.refresh.interval.ms": 3_600_000}
    ) as sink:
        sink.write(BATCH)
        for more in admin.create_partitions([NewPartitions(topic, 5) for topic in topics]).values():
            more.result()
        wait_until(lambda: all(len(admin.list_topics(timeout=10).topics[topic].partitions) == 5 for topic in topics))
        time.sleep(0.2)  # the interval at which the sink looks
        sink.write(BATCH)
    assert {(r.topic, r.partition) for r in consume(kafka, topics)} == {(t, p) for t in topics for p in range(5)}


def test_a_client_that_fails_for_good_costs_the_others_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "TOPICS_A_CLIENT", 1)
    names = ["t0", "t1", "t2"]
    rows: list[Row] = [(names[i % 3], b"the same partition", b"%d" % i) for i in range(90)]
    with MockBrokers() as brokers:
        for name in names:
            brokers.create(name, 1)
        with started(brokers.bootstrap, Canned(rows)) as sink:
            sink.write(BATCH)
            brokers.answer(PRODUCE, 0, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER)
            with pytest.raises(SinkUnavailable, match="failed for good"):
                sink.write(BATCH)
            brokers.answer_well(PRODUCE)
            sink.write(BATCH)
        found = values_by_topic(consume(brokers.bootstrap, names))
    for name, expected in values_by_topic_of(rows, names).items():
        assert found[name][:30] == expected
        assert found[name][-30:] == expected
        assert len(found[name]) in (60, 90)


def test_a_further_client_that_does_not_start_is_made_when_the_batch_is_written_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such as for want of threads, or while the file of a certificate is replaced."""
    monkeypatch.setattr(clients, "TOPICS_A_CLIENT", 5)
    names, made = [f"t{number}" for number in range(20)], count()

    def make(*arguments: Any) -> Producer:
        if next(made) == 2:
            raise KafkaException(KafkaError(KafkaError._CRIT_SYS_RESOURCE))
        return Producer(*arguments)

    monkeypatch.setattr("sinks.kafka.delivery.Producer", make)
    rows: list[Row] = [(names[i % 20], b"the same partition", b"%d" % i) for i in range(200)]
    with MockBrokers() as brokers:
        for name in names:
            brokers.create(name, 1)
        with started(brokers.bootstrap, Canned(rows)) as sink:
            with pytest.raises(SinkUnavailable, match="the Kafka client does not start"):
                sink.write(BATCH)
            sink.write(BATCH)
            assert number_of_clients(sink) == 4
        assert values_by_topic(consume(brokers.bootstrap, names)) == values_by_topic_of(rows, names)


def test_a_client_that_does_not_start_in_place_of_one_that_failed_is_made_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = count()

    def make(*arguments: Any) -> Producer:
        if next(made) in (1, 2):
            raise KafkaException(KafkaError(KafkaError._CRIT_SYS_RESOURCE))
        return Producer(*arguments)

    monkeypatch.setattr("sinks.kafka.delivery.Producer", make)
    with MockBrokers() as brokers:
        brokers.create("t", 1)
        with started(brokers.bootstrap, Canned([("t", b"k", b"v")])) as sink:
            brokers.answer(PRODUCE, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER)
            for _ in range(2):
                with pytest.raises(SinkUnavailable, match="the Kafka client does not start"):
                    sink.write(BATCH)
            sink.write(BATCH)
        assert len(consume(brokers.bootstrap, ["t"])) == 1


def test_brokers_that_do_not_answer_are_waited_for_once_however_many_clients_are_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stop waits for these questions, too."""
    monkeypatch.setattr(clients, "TOPICS_A_CLIENT", 1)
    monkeypatch.setattr(clients, "_FIRST_METADATA_SECONDS", 1.0)
    with MockBrokers() as brokers:
        brokers.delay(1, 30_000)
        of_topics = clients.Clients(
            lambda: Producer({"bootstrap.servers": brokers.bootstrap}, lambda _: None, logging.getLogger(__name__)),
            logging.getLogger(__name__),
        )
        began = time.monotonic()
        of_topics.meet_brokers([f"t{number}" for number in range(16)], 0.1)
        took = time.monotonic() - began
        of_topics.close()
    assert took < 2.5


def test_missing_topics_are_made_with_one_request(
    kafka: str, topic_prefix: str, delivery_to: Callable[[str], Delivery]
) -> None:
    admin, names = CountingAdmin(kafka), tuple(f"{topic_prefix}.{number}" for number in range(40))
    topics = topics_of(delivery_to(kafka), admin, CreateTopics(partitions=2))
    assert topics.count_partitions(names[:1]).tolist() == [2]
    assert topics.count_partitions(names).tolist() == [2] * 40
    assert admin.made == [1, 39]


def test_a_request_makes_no_more_partitions_than_a_controller_takes(
    kafka: str, topic_prefix: str, delivery_to: Callable[[str], Delivery]
) -> None:
    admin, names = CountingAdmin(kafka), tuple(f"{topic_prefix}.{number}" for number in range(3))
    topics = topics_of(delivery_to(kafka), admin, CreateTopics(partitions=4000, config={"no.such": "setting"}))
    with pytest.raises(Exception, match=r"cannot be created.*no\.such"):
        topics.count_partitions(names)
    assert admin.made == [2]


def test_a_topic_that_cannot_be_is_named_and_takes_no_other_with_it(
    kafka: str, topic_prefix: str, delivery_to: Callable[[str], Delivery]
) -> None:
    names = tuple(f"{topic_prefix}.{number}" for number in range(20))
    alike = f"{topic_prefix}_7"
    topics = topics_of(delivery_to(kafka), CountingAdmin(kafka), CreateTopics(partitions=1))
    topics.count_partitions(names[:8])
    with pytest.raises(TopicRefused, match=alike) as refused:
        topics.count_partitions((*names, alike))
    assert refused.value.topic == alike
    assert topics.count_partitions(names).tolist() == [1] * 20


def test_topics_that_brokers_make_when_asked_are_waited_for_together(
    mock_kafka: MockKafka, delivery_to: Callable[[str], Delivery], monkeypatch: pytest.MonkeyPatch
) -> None:
    delivery = delivery_to(mock_kafka.bootstrap)
    naps = count_naps(delivery, monkeypatch)
    assert topics_of(delivery).count_partitions(tuple(f"t{number}" for number in range(200))).all()
    assert len(naps) < 20


def test_topics_that_nobody_makes_are_counted(
    mock_kafka: MockKafka, delivery_to: Callable[[str], Delivery], monkeypatch: pytest.MonkeyPatch
) -> None:
    delivery = delivery_to(mock_kafka.bootstrap)
    monkeypatch.setattr(
        delivery, "read_metadata_together", lambda names, _: delivery.read_metadata(None, 10) | absent(names)
    )
    with pytest.raises(SinkUnavailable, match=r'topic "t0" does not exist, and 29 more do not: .*--topic t0'):
        topics_of(delivery, appear_timeout=0.2).count_partitions(tuple(f"t{number}" for number in range(30)))


def test_topics_that_were_created_and_do_not_appear_are_not_said_to_lack_what_creates_them(
    kafka: str, topic_prefix: str, delivery_to: Callable[[str], Delivery], monkeypatch: pytest.MonkeyPatch
) -> None:
    delivery, names = delivery_to(kafka), [f"{topic_prefix}.{number}" for number in range(20)]
    monkeypatch.setattr(delivery, "read_metadata", lambda *_: {})
    monkeypatch.setattr(delivery, "read_metadata_together", lambda *_: absent(names))
    topics = topics_of(delivery, CountingAdmin(kafka), CreateTopics(partitions=1), appear_timeout=0.2)
    with pytest.raises(SinkUnavailable, match=r"\.0\" was created and does not appear, and 19 more") as raised:
        topics.count_partitions(tuple(names))
    assert "createTopics" not in str(raised.value)


def absent(names: list[str]) -> dict[str, Any]:
    return {name: TopicMetadata(0, None) for name in names}
