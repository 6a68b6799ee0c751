"""Batches that are compressed and batches that are not go through two clients of librdkafka's, in their order."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from psql_streamer.errors import SinkUnavailable
from psql_streamer.events.records import Records
from psql_streamer.model import Batch
from tests.kafka_reader import consume
from tests.kafka_sinks import (
    BATCH,
    Canned,
    Row,
    by_partition,
    create_topic,
    random_bytes,
    started,
    wait_until,
    write_until_it_works,
)
from tests.mock_brokers import MockBrokers, start_two_leaders

RANDOM, ALIKE = random_bytes(300_000), b"the same " * 300_000


class Turns(Canned):
    """A batch of random values, one of values that are alike, and so on; each value begins with its number."""

    def __init__(self, topic: str, rows: int = 100, more: Sequence[Row] = ()) -> None:
        super().__init__([])
        self._topic, self._rows, self._more = topic, rows, more
        self.encoded = 0

    def encode(self, batch: Batch) -> Records:  # noqa: ARG002 - the turn decides
        source = ALIKE if self.encoded % 2 else RANDOM
        first = self.encoded * self._rows
        self.encoded += 1
        rows: list[Row] = [
            (self._topic, b"%d" % (at % 7), b"%07d" % (first + at) + source[at * 2000 : at * 2000 + 2000])
            for at in range(self._rows)
        ]
        return Canned([*rows, *self._more]).records


def numbers_by_key(bootstrap: str, topic: str) -> dict[bytes, list[int]]:
    """The numbers of the values of each key, in the order of its partition."""
    found: dict[bytes, list[int]] = {}
    for records in by_partition(consume(bootstrap, [topic])).values():
        for record in records:
            found.setdefault(record.key or b"", []).append(int((record.value or b"")[:7]))
    return found


def in_order(turns: Turns, rows: int = 100) -> dict[bytes, Sequence[int]]:
    numbers = [(first * rows + at, at % 7) for first in range(turns.encoded) for at in range(rows)]
    return {b"%d" % key: [number for number, of in numbers if of == key] for key in range(7)}


def test_what_compressing_makes_no_smaller_is_sent_as_it_is_and_every_key_keeps_its_order(
    kafka: str, topic_prefix: str
) -> None:
    topic, turns = create_topic(kafka, topic_prefix, partitions=3), Turns(topic_prefix)
    with started(kafka, turns) as sink:
        for _ in range(10):
            sink.write(replace(BATCH))
        assert sink.stats()["events"] == 1000
        assert sink.stats()["uncompressed"] == 500
    assert numbers_by_key(kafka, topic) == in_order(turns)


def test_requests_become_smaller_where_a_topic_takes_no_larger_ones(kafka: str, topic_prefix: str) -> None:
    topic = create_topic(kafka, topic_prefix, partitions=3, max_message_bytes="20000")
    turns = Turns(topic)
    with started(kafka, turns) as sink:
        for _ in range(4):
            sink.write(replace(BATCH))
        assert sink.stats()["request_bytes"] == 15_625
        assert sink.stats()["uncompressed"] == 200
    found = numbers_by_key(kafka, topic)
    assert {key: list(dict.fromkeys(numbers)) for key, numbers in found.items()} == in_order(turns)


@pytest.mark.parametrize("others", [0, 10], ids=["topics asked for one by one", "all topics at once"])
def test_both_clients_know_of_partitions_that_are_added(kafka: str, topic_prefix: str, others: int) -> None:
    topic = create_topic(kafka, topic_prefix)
    more: list[Row] = [(create_topic(kafka, f"{topic_prefix}-{i}"), b"key", b"value") for i in range(others)]
    with started(kafka, Turns(topic, more=more), rebalanceInterval="1h") as sink:
        for _ in range(4):
            sink.write(replace(BATCH))
        admin = AdminClient({"bootstrap.servers": kafka})
        admin.create_partitions([NewPartitions(topic, 8)])[topic].result()
        wait_until(lambda: len(admin.list_topics(timeout=10).topics[topic].partitions) == 8)
        assert sink._topics is not None
        sink._topics.forget()  # as after rebalanceInterval, at which each client also asks, but at a time of its own
        sink.write(replace(BATCH))
        sink.write(replace(BATCH))
        assert sink.stats()["uncompressed"] == 3 * (100 + others)
    assert len(by_partition(consume(kafka, [topic]))) > 2


@pytest.fixture
def brokers() -> Iterator[MockBrokers]:
    with start_two_leaders() as cluster:
        yield cluster


def test_nothing_is_lost_repeated_or_overtaken_while_a_broker_is_away(brokers: MockBrokers) -> None:
    turns = Turns("t")
    with started(brokers.bootstrap, turns, timeout="150ms", maxAttempts=2) as sink:
        for away in (1, 2, 2, 1):
            write_until_it_works(sink, replace(BATCH))  # the other client may have yet to connect again
            brokers.take_down(away)
            batch = replace(BATCH)
            with pytest.raises(SinkUnavailable):
                sink.write(batch)
            brokers.bring_up(away)
            write_until_it_works(sink, batch)
            write_until_it_works(sink, replace(BATCH))
    assert numbers_by_key(brokers.bootstrap, "t") == in_order(turns)


@pytest.mark.parametrize("partitions", [1, 3])
def test_the_first_records_of_a_new_client_do_not_wait_for_its_second_attempt_to_get_a_number(
    kafka: str, topic_prefix: str, partitions: int
) -> None:
    create_topic(kafka, topic_prefix, partitions=partitions)
    shortest = 1.0
    for _ in range(12):
        if shortest < 0.45:  # beside other load a broker may be met too late; without the meeting it always is
            break
        with started(kafka, Turns(topic_prefix)) as sink:
            sink.write(replace(BATCH))  # makes the topic known
            sink.write(replace(BATCH))
            assert sink._delivery is not None
            sink._delivery.abandon()
            began = time.monotonic()
            sink.write(replace(BATCH))  # by a client that does not compress, and that is new
            shortest = min(shortest, time.monotonic() - began)
    assert shortest < 0.45, "librdkafka asks again after 0.5 s"
