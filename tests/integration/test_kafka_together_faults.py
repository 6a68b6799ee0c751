"""Batches that a Kafka sink writes together, when brokers give no answer."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from psql_streamer.errors import SinkUnavailable
from psql_streamer.testing import make_batch
from tests.integration.test_kafka_together import BATCHES, OneEach, put_aside
from tests.kafka_reader import consume
from tests.kafka_sinks import Canned, Row, call_until_it_works, random_bytes, started, wait_until
from tests.mock_brokers import MockBrokers
from tests.spark_changes import batch, shop

IMPATIENT: dict[str, Any] = {"timeout": "150ms", "maxAttempts": 2, "deadLetterTopic": "dead"}


@pytest.fixture
def brokers() -> Iterator[MockBrokers]:
    """Broker 1 leads topic events, and broker 2 topic dead."""
    with MockBrokers(2) as cluster:
        for topic, leader in (("events", 1), ("dead", 2)):
            cluster.create(topic, 1)
            cluster.lead(topic, 0, leader)
        yield cluster


def fails(write: Callable[[], None], match: str) -> None:
    """It fails with these words, perhaps after a failure to ask the broker that is down for topics."""

    def failed_so() -> bool:
        with pytest.raises(SinkUnavailable, match=f"{match}|no metadata") as failed:
            write()
        return "no metadata" not in str(failed.value)

    wait_until(failed_so, 20)


def take_both_down_while_dead_letters_are_under_way(brokers: MockBrokers, write: Callable[[], None]) -> None:
    brokers.take_down(2)
    fails(write, "not acknowledged")
    brokers.take_down(1)
    with pytest.raises(SinkUnavailable):
        write()
    brokers.bring_up(1)
    brokers.bring_up(2)


def test_dead_letters_arrive_though_brokers_gave_no_answer_while_they_were_under_way(brokers: MockBrokers) -> None:
    """A client that was given up while it had dead letters says nothing of them."""
    rows: list[list[Row]] = [
        [("events", b"%d %d" % (batch, i), random_bytes(5000) if i == 7 else b"v") for i in range(40)]
        for batch in range(3)
    ]
    section = {"compression": "none", "kafka": {"message.max.bytes": 2000}} | IMPATIENT
    with started(brokers.bootstrap, OneEach([Canned(some) for some in rows]), **section) as sink:
        write = sink.begin_write(iter(BATCHES))
        take_both_down_while_dead_letters_are_under_way(brokers, write)
        call_until_it_works(write)
        assert (sink.stats()["events"], sink.stats()["dead_lettered"]) == (117, 3)
    letters = consume(brokers.bootstrap, ["dead"])
    assert {letter.key for letter in letters} == {b"0 7", b"1 7", b"2 7"}
    assert len(consume(brokers.bootstrap, ["events"])) == 117


@pytest.mark.parametrize("number", [1, 3])
def test_rows_put_aside_arrive_though_brokers_gave_no_answer_while_they_were_under_way(
    brokers: MockBrokers, number: int
) -> None:
    batches = [put_aside(f"rule {at}") for at in range(number)]
    with started(brokers.bootstrap, None, **IMPATIENT) as sink:
        write = sink.begin_write(iter(batches))
        take_both_down_while_dead_letters_are_under_way(brokers, write)
        call_until_it_works(write)
        assert (sink.stats()["events"], sink.stats()["dead_lettered"]) == (4 * number, 4 * number)
    letters = consume(brokers.bootstrap, ["dead"])
    assert {letter.headers["dead_letter_rule"] for letter in letters} == {b"rule %d" % at for at in range(number)}
    assert len(consume(brokers.bootstrap, ["events"])) == 4 * number


def test_rows_put_aside_of_all_batches_are_written_once_though_brokers_went_away_between_them(
    brokers: MockBrokers,
) -> None:
    batches = [put_aside("first"), batch(shop()), put_aside("third")]
    with started(brokers.bootstrap, None, **IMPATIENT) as sink:
        brokers.take_down(1)
        write = sink.begin_write(iter(batches))
        fails(write, "not acknowledged")
        brokers.bring_up(1)
        call_until_it_works(write)
        assert (sink.stats()["events"], sink.stats()["dead_lettered"], sink.stats()["batches"]) == (12, 8, 3)
    rules = Counter(letter.headers["dead_letter_rule"] for letter in consume(brokers.bootstrap, ["dead"]))
    assert rules == {b"first": 4, b"third": 4}
    assert len(consume(brokers.bootstrap, ["events"])) == 12


def test_rows_are_freed_before_their_records_are_acknowledged(brokers: MockBrokers) -> None:
    """What is tried again are the records."""
    batches = [make_batch([{"id": at}], "id") for at in range(3)]
    rows = [weakref.ref(batch.changes) for batch in batches]
    with started(brokers.bootstrap, None, **IMPATIENT) as sink:
        sink.write(batch(shop()))
        brokers.take_down(1)
        write = sink.begin_write(batches.pop(0) for _ in rows)
        fails(write, "not acknowledged")
        assert [one() for one in rows] == [None, None, None]
        brokers.bring_up(1)
        call_until_it_works(write)
        assert (sink.stats()["events"], sink.stats()["batches"]) == (7, 4)
    assert len(consume(brokers.bootstrap, ["events"])) == 7
