"""What is written again after a failure: what was not acknowledged, and what must not come before that."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from psql_streamer.errors import SinkUnavailable
from sinks.kafka import delivery
from sinks.kafka.clients import Clients
from sinks.kafka.producer import PartitionState
from sinks.kafka.sink import KafkaSink
from tests.kafka_reader import consume
from tests.kafka_sinks import BATCH, Canned, Row, by_partition, random_bytes, started, write_until_it_works
from tests.mock_brokers import PRODUCE, MockBrokers, start_two_leaders

ROWS: list[Row] = [("t", b"%d" % (i % 50), b"%d" % i) for i in range(500)]
IMPATIENT: dict[str, Any] = {"timeout": "150ms", "maxAttempts": 2}


@pytest.fixture
def brokers() -> Iterator[MockBrokers]:
    with start_two_leaders() as cluster:
        yield cluster


def written(brokers: MockBrokers, topic: str = "t") -> dict[int, list[int]]:
    """Partition -> the numbers in it, in order, repeats and all."""
    held = by_partition(consume(brokers.bootstrap, [topic]))
    return {partition: [int(record.value or b"") for record in records] for partition, records in held.items()}


def numbers(found: dict[int, list[int]]) -> list[int]:
    return [number for held in found.values() for number in held]


def once(found: dict[int, list[int]]) -> bool:
    return sorted(numbers(found)) == list(range(len(ROWS)))


def fails(sink: KafkaSink, times: int, match: str = "not acknowledged") -> None:
    """So many writes fail with these words, beside those that failed because a broker that is down was asked first."""
    deadline = time.monotonic() + 20
    while times:
        assert time.monotonic() < deadline
        with pytest.raises(SinkUnavailable, match=f"{match}|no metadata") as failed:
            sink.write(BATCH)
        times -= "no metadata" not in str(failed.value)


@pytest.mark.behaviour("K3")
def test_while_one_broker_is_away_nothing_is_repeated_at_the_others(brokers: MockBrokers) -> None:
    with started(brokers.bootstrap, Canned(ROWS), **IMPATIENT) as sink:
        brokers.take_down(2)
        fails(sink, 3)
        brokers.bring_up(2)
        write_until_it_works(sink)
        assert once(written(brokers))
        assert sink.stats()["events"] == 500
        assert sink.stats()["bytes"] == sum(len(key or b"") + len(value or b"") for _, key, value in ROWS)
        assert sink.stats()["batches"] == 1


@pytest.mark.behaviour("K3")
def test_a_partition_without_a_leader_is_named_and_repeats_nothing(brokers: MockBrokers) -> None:
    with started(brokers.bootstrap, Canned(ROWS), **IMPATIENT) as sink:
        brokers.take_down_leader("t", 1, 2)
        fails(sink, 2, re.escape('not acknowledged, none for 0.3 s (partition 1 of topic "t" has no leader)'))
        assert not sink.status().ok
        brokers.lead("t", 1, 1)
        write_until_it_works(sink)
        assert sink.status().ok
        assert once(written(brokers))


@pytest.mark.behaviour("K3")
def test_brokers_that_take_long_are_waited_for_and_not_asked_twice(brokers: MockBrokers) -> None:
    with started(
        brokers.bootstrap, Canned(ROWS), timeout="150ms", maxAttempts=1, kafka={"socket.timeout.ms": 60_000}
    ) as sink:
        sink.write(BATCH)
        brokers.delay(2, 600)
        fails(sink, 1)
        write_until_it_works(sink)
        brokers.delay(2, 0)
        assert all(count == 2 for count in Counter(numbers(written(brokers))).values())


def test_brokers_that_tell_nothing_of_their_partitions_may_hold_the_client_back_by_a_quota(
    brokers: MockBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that is throttled gets no answer to a question, either, and says nothing of it."""
    monkeypatch.setattr(delivery, "_METADATA_SECONDS", 0.2)
    waits = {"timeout": "150ms", "maxAttempts": 1, "kafka": {"socket.timeout.ms": 60_000}}
    with started(brokers.bootstrap, Canned(ROWS), **waits) as sink:
        sink.write(BATCH)
        brokers.delay(1, 2_000)
        brokers.delay(2, 2_000)
        fails(sink, 1, r"not acknowledged, none for 0.15 s: .*quotas of the client")
        brokers.delay(1, 0)
        brokers.delay(2, 0)
        write_until_it_works(sink)


def test_too_few_replicas_are_waited_for_by_one_client_whose_repeats_brokers_know(brokers: MockBrokers) -> None:
    with started(brokers.bootstrap, Canned(ROWS), **IMPATIENT) as sink:
        brokers.answer(PRODUCE, *[KafkaError.NOT_ENOUGH_REPLICAS] * 500)
        fails(sink, 2, r"500 records were not acknowledged, none for 0.3 s: compare min.insync.replicas of the topics")
        brokers.answer_well(PRODUCE)
        write_until_it_works(sink)
        assert once(written(brokers))


OUT_OF_SYNC = r" \(partition 0 of .* has 2 of its 3 replicas in sync, .*"


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ({"requiredAcks": -1}, OUT_OF_SYNC),
        ({"kafka": {"acks": "all"}}, OUT_OF_SYNC),
        ({"requiredAcks": 1}, ": look at the network, "),
    ],
    ids=str,
)
def test_replicas_are_told_of_where_an_acknowledgement_waits_for_them(
    brokers: MockBrokers, monkeypatch: pytest.MonkeyPatch, section: dict[str, Any], told: str
) -> None:
    """min.insync.replicas of a topic is for requiredAcks = -1 alone."""
    lacking = {"t": [PartitionState(led=True, replicas=3, in_sync=2)] * 2}
    monkeypatch.setattr(Clients, "read_partition_states", lambda *_: lacking)
    with started(brokers.bootstrap, Canned(ROWS), **section, **IMPATIENT) as sink:
        brokers.answer(PRODUCE, *[KafkaError.REQUEST_TIMED_OUT] * 500)
        fails(sink, 2, f"500 records were not acknowledged, none for 0.3 s{told}")
        brokers.answer_well(PRODUCE)
        write_until_it_works(sink)


def test_a_client_that_gets_nothing_through_is_replaced_in_the_end(brokers: MockBrokers) -> None:
    with started(brokers.bootstrap, Canned(ROWS), timeout="150ms", maxAttempts=1) as sink:
        brokers.take_down(2)
        fails(sink, 1)
        assert sink._delivery is not None
        first = sink._delivery._producer
        fails(sink, 8)
        assert sink._delivery._producer is first
        fails(sink, 1)
        assert sink._delivery._producer is not first
        brokers.bring_up(2)
        write_until_it_works(sink)
        assert once(written(brokers))


@pytest.mark.behaviour("K3")
def test_what_a_client_had_that_failed_for_good_is_all_that_is_repeated(brokers: MockBrokers) -> None:
    with started(brokers.bootstrap, Canned(ROWS)) as sink:
        brokers.delay(2, 300)
        brokers.answer(PRODUCE, 0, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER)
        fails(sink, 1, "failed for good")
        brokers.delay(2, 0)
        write_until_it_works(sink)
        found = written(brokers)
    repeats = Counter(len(held) > len(set(held)) for held in found.values())
    assert repeats[True] <= 1, "both partitions were written again"
    assert set(numbers(found)) == set(range(500))
    for held in found.values():
        assert [number for place, number in enumerate(held) if number not in held[place + 1 :]] == sorted(set(held))


def test_a_batch_larger_than_the_queue_goes_on_where_it_stopped(brokers: MockBrokers) -> None:
    section = IMPATIENT | {"kafka": {"queue.buffering.max.messages": 60}}
    with started(brokers.bootstrap, Canned(ROWS), **section) as sink:
        brokers.take_down(2)
        fails(sink, 2)
        brokers.bring_up(2)
        write_until_it_works(sink)
        assert once(written(brokers))


def test_a_search_for_rejected_records_goes_on_where_it_stopped(brokers: MockBrokers) -> None:
    with started(brokers.bootstrap, Canned(ROWS[:20]), deadLetterTopic="dead", **IMPATIENT) as sink:
        brokers.lead("t", 0, 2)
        brokers.answer(PRODUCE, KafkaError.MSG_SIZE_TOO_LARGE, 0, *[KafkaError.NOT_ENOUGH_REPLICAS] * 200)
        fails(sink, 2)
        brokers.answer_well(PRODUCE)
        write_until_it_works(sink)
        assert sink.stats()["dead_lettered"] == 0
        for held in written(brokers).values():
            assert len(held) <= 2 * len(set(held))
            assert [n for place, n in enumerate(held) if n not in held[place + 1 :]] == sorted(set(held))


def test_dead_letters_that_arrived_are_not_repeated_while_others_wait(brokers: MockBrokers) -> None:
    brokers.create("dead", 2)
    brokers.lead("dead", 0, 1)
    brokers.lead("dead", 1, 2)
    rows: list[Row] = [("t", b"%d" % i, random_bytes(5000)) for i in range(20)]
    section = IMPATIENT | {"kafka": {"message.max.bytes": 2000, "sticky.partitioning.linger.ms": 0}}
    with started(brokers.bootstrap, Canned(rows), deadLetterTopic="dead", compression="none", **section) as sink:
        brokers.take_down(2)
        fails(sink, 2)
        brokers.bring_up(2)
        write_until_it_works(sink)
        assert sink.stats()["dead_lettered"] == 20
        keys = [record.key for record in consume(brokers.bootstrap, ["dead"])]
        assert sorted(keys, key=str) == sorted((key for _, key, _ in rows), key=str)


def test_another_batch_gets_a_client_that_has_nothing_of_the_one_before(brokers: MockBrokers) -> None:
    encoder = Canned(ROWS)
    with started(brokers.bootstrap, encoder, **IMPATIENT) as sink:
        brokers.take_down(2)
        fails(sink, 1)
        encoder.records = Canned([("t", key, b"1000") for key in {key for _, key, _ in ROWS}]).records
        brokers.bring_up(2)
        write_until_it_works(sink, replace(BATCH))
        assert set(written(brokers)[1]) == {1000}


def test_a_record_larger_than_the_whole_queue_is_put_aside_and_its_neighbours_are_written(brokers: MockBrokers) -> None:
    rows: list[Row] = [("t", b"k", b"x" * (5000 if i == 3 else 10)) for i in range(6)]
    section = {"deadLetterTopic": "dead", "kafka": {"queue.buffering.max.kbytes": 2}}
    with started(brokers.bootstrap, Canned(rows), **section) as sink:
        sink.write(BATCH)
        assert sink.stats()["dead_lettered"] == 1
    assert len(consume(brokers.bootstrap, ["t"])) == 5
    (letter,) = consume(brokers.bootstrap, ["dead"])
    assert letter.headers["dead_letter_truncated_from"] == b"5001"


def test_a_batch_without_records_does_not_make_a_sink_well(brokers: MockBrokers) -> None:
    encoder = Canned(ROWS)
    with started(brokers.bootstrap, encoder, **IMPATIENT) as sink:
        brokers.take_down(2)
        fails(sink, 1)
        encoder.records = Canned([]).records
        sink.write(replace(BATCH))
        assert not sink.status().ok
