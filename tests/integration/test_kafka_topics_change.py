"""Topics that change under a sink at work: deleted, made anew, with other numbers of partitions."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from psql_streamer.checkpoint.sink_memory import StoredSinkMemory
from psql_streamer.checkpoint.store import Store
from psql_streamer.errors import SinkUnavailable
from tests.kafka_reader import Record, consume
from tests.kafka_sinks import BATCH, Canned, Row, create_topic, started, wait_until, write_until_it_works
from tests.mock_brokers import MockBrokers

ROWS: list[Row] = [("t", b"%d" % (i % 50), b"%d" % i) for i in range(500)]


def rows(topic: str) -> list[Row]:
    return [(topic, key, value) for _, key, value in ROWS]


def values_by_key(found: list[Record]) -> dict[bytes | None, list[int]]:
    told: dict[bytes | None, list[int]] = {}
    for record in found:
        told.setdefault(record.key, []).append(int(record.value or b""))
    return told


EXPECTED = {b"%d" % key: list(range(key, 500, 50)) for key in range(50)}


def delete_topic(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result()
    wait_until(lambda: topic not in admin.list_topics(timeout=10).topics)


@pytest.mark.parametrize(
    ("partitions", "section"),
    [(2, {}), (9, {}), (2, {"requiredAcks": 1}), (2, {"kafka": {"partitioner": "murmur2"}})],
    ids=str,
)
def test_a_topic_made_anew_gets_the_whole_next_batch(
    kafka: str, topic_prefix: str, partitions: int, section: dict[str, Any]
) -> None:
    topic = create_topic(kafka, topic_prefix, partitions=6)
    with started(kafka, Canned(rows(topic)), timeout="500ms", **section) as sink:
        sink.write(BATCH)
        delete_topic(kafka, topic)
        create_topic(kafka, topic, partitions=partitions)
        write_until_it_works(sink)
    assert values_by_key(consume(kafka, [topic])) == EXPECTED


def test_a_topic_that_brokers_make_again_under_the_sink_is_told_of(
    kafka: str, topic_prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing fails where brokers make topics: the rows that were in it would be gone in silence."""
    topic, other = create_topic(kafka, topic_prefix), create_topic(kafka, f"{topic_prefix}.other")
    with started(kafka, Canned([*rows(topic), (other, b"k", b"v")]), rebalanceInterval="100ms") as sink:

        def write_until_told() -> bool:
            write_until_it_works(sink)
            return f'topic "{topic}" was deleted and made again' in caplog.text

        write_until_asked(sink, topic, other)
        admin = AdminClient({"bootstrap.servers": kafka})  # named, because its futures die with it
        admin.delete_topics([topic])[topic].result()
        wait_until(write_until_told)
        for _ in range(10):
            write_until_it_works(sink)
            time.sleep(0.05)
    assert caplog.text.count("was deleted and made again") == 1


def test_a_topic_that_was_made_again_while_the_service_was_stopped_is_told_of_before_anything_is_written(
    kafka: str, topic_prefix: str, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    topic, other = create_topic(kafka, topic_prefix), create_topic(kafka, f"{topic_prefix}.other")
    encoder = Canned([*rows(topic), (other, b"k", b"v")])
    with started(kafka, encoder, StoredSinkMemory(store, "kafka1"), rebalanceInterval="100ms") as sink:
        write_until_asked(sink, topic, other)
        assert sink.stats()["topics_made_again"] == 0
    delete_topic(kafka, topic)
    create_topic(kafka, topic)
    with started(kafka, encoder, StoredSinkMemory(store, "kafka1"), rebalanceInterval="100ms") as sink:
        wait_until(lambda: "was deleted and made again" in sink.status().reason)
        assert sink.stats()["topics_made_again"] == 1
        assert f'topic "{topic}" was deleted and made again' in sink.status().reason
        assert "psql-streamer snapshot start" in sink.status().reason
        assert sink.status().ok
        sink.write(BATCH)
        assert sink.status().reason.startswith("wrote up to")
        assert "was deleted and made again" in sink.status().reason
    with started(kafka, encoder, StoredSinkMemory(store, "kafka1"), rebalanceInterval="100ms") as sink:
        write_until_asked(sink, topic, other)
        assert sink.stats()["topics_made_again"] == 0, "it is told of once"
    assert caplog.text.count("was deleted and made again") == 1


def write_until_asked(sink: Any, *topics: str) -> None:
    """Until the sink knows which topics it writes to."""
    write_until_it_works(sink)
    wait_until(lambda: sink._written_topics._ids.keys() >= {*topics})


@pytest.mark.parametrize("partitions", [1, 2, 6])
def test_a_topic_made_anew_under_a_batch_on_its_way_gets_all_that_was_not_written(partitions: int) -> None:
    with MockBrokers(2) as brokers:
        brokers.create("t", 4)
        for partition in range(4):
            brokers.lead("t", partition, 2)
        with started(brokers.bootstrap, Canned(ROWS), timeout="200ms", rebalanceInterval="100ms") as sink:
            brokers.take_down(2)
            with pytest.raises(SinkUnavailable):
                sink.write(BATCH)
            brokers.delete("t")
            brokers.create("t", partitions)
            for partition in range(partitions):
                brokers.lead("t", partition, 1)
            write_until_it_works(sink)
        brokers.bring_up(2)
        found = values_by_key(consume(brokers.bootstrap, ["t"]))
    assert {key: list(dict.fromkeys(values)) for key, values in found.items()} == EXPECTED


def test_a_topic_that_is_deleted_under_a_batch_on_its_way_is_written_as_soon_as_it_is_there_again() -> None:
    with MockBrokers(2) as brokers:
        brokers.create("t", 4)
        for partition in range(4):
            brokers.lead("t", partition, 2)
        with started(brokers.bootstrap, Canned(ROWS), timeout="150ms", maxAttempts=1) as sink:
            brokers.take_down(2)
            with pytest.raises(SinkUnavailable):
                sink.write(BATCH)
            brokers.delete("t")
            brokers.bring_up(2)
            write_until_it_works(sink)
        assert values_by_key(consume(brokers.bootstrap, ["t"])) == EXPECTED


def test_partitions_that_are_added_are_used_and_nothing_is_lost(kafka: str, topic_prefix: str) -> None:
    topic = create_topic(kafka, topic_prefix, partitions=2)
    with started(kafka, Canned(rows(topic)), rebalanceInterval="100ms") as sink:
        sink.write(BATCH)
        admin = AdminClient({"bootstrap.servers": kafka})
        admin.create_partitions([NewPartitions(topic, 5)])[topic].result()
        wait_until(lambda: len(admin.list_topics(timeout=10).topics[topic].partitions) == 5)
        time.sleep(0.2)  # the interval at which the sink looks
        write_until_it_works(sink)
    found = consume(kafka, [topic])
    assert {record.partition for record in found} == set(range(5))
    assert len(found) == 1000
