"""Rows that a handler put aside, in Kafka."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from psql_streamer.embedded.mock_kafka import MockKafka
from psql_streamer.errors import SinkRefused, SinkUnavailable
from psql_streamer.model import Batch, Rejection
from psql_streamer.pipeline.coalescing import merge
from sinks.kafka.sink import KafkaSink
from tests.kafka_reader import consume
from tests.kafka_sinks import options
from tests.snapshots import ON_DEMAND, chunk
from tests.spark_changes import batch, shop

REASON = "public.orders, rule 'orders': the value of column meta cannot be coerced to int"


def with_rejections(*others: Rejection) -> Batch:
    """Four changes, and as many that were put aside."""
    return replace(batch(shop()), rejections=(Rejection(shop(), REASON, "meta", "orders"), *others))


def sink(bootstrap: str, **section: Any) -> KafkaSink:
    made = KafkaSink("kafka1", options(bootstrap, **section))
    made.start()
    return made


@pytest.mark.behaviour("K5")
def test_rows_put_aside_go_to_the_dead_letter_topic_as_events_that_say_why(kafka: str, topic_prefix: str) -> None:
    dead = f"{topic_prefix}.dead"
    writing = sink(kafka, topicFallback="", topicPrefix=topic_prefix, deadLetterTopic=dead, format="envelope")
    try:
        writing.write(with_rejections(Rejection(shop(), "another reason", None, "other")))
        assert writing.stats()["events"] == 4
        assert writing.stats()["dead_lettered"] == 8
    finally:
        writing.stop()
    found = consume(kafka, [dead, f"{topic_prefix}.public.orders"])
    events = [record.value or b"" for record in found if record.topic != dead]
    letters = [record for record in found if record.topic == dead]
    assert sorted(letter.value or b"" for letter in letters) == sorted(events * 2)
    [updated, other] = [letter for letter in letters if letter.key == b'{"id":2}']
    assert json.loads(updated.value or b"")["before"]["customer"] == "old bob"
    assert updated.headers == {
        "dead_letter_reason": REASON.encode(),
        "dead_letter_rule": b"orders",
        "dead_letter_column": b"meta",
        "dead_letter_topic": f"{topic_prefix}.public.orders".encode(),
        "dead_letter_table": b"public.orders",
        "dead_letter_commit_lsn": b"16/B374D848",
        "dead_letter_seq": b"1",
    }
    assert other.headers["dead_letter_rule"] == b"other"
    assert "dead_letter_column" not in other.headers


def test_without_a_dead_letter_topic_they_are_refused_and_not_lost(kafka: str, topic_prefix: str) -> None:
    writing = sink(kafka, topicFallback=topic_prefix)
    try:
        with pytest.raises(SinkRefused, match="rule 'orders' puts rows aside and there is no place for them"):
            writing.write(with_rejections())
    finally:
        writing.stop()


@pytest.mark.behaviour("K5")
def test_a_batch_is_not_written_before_its_dead_letters_are(mock_kafka: MockKafka, topic_prefix: str) -> None:
    dead = f"{topic_prefix}.dead"
    writing = sink(mock_kafka.bootstrap, topicFallback=topic_prefix, deadLetterTopic=dead, timeout="300ms")
    try:
        writing.write(with_rejections())
        mock_kafka.close()
        with pytest.raises(SinkUnavailable):
            writing.write(replace(with_rejections(), changes=()))
        assert writing.stats()["dead_lettered"] == 4
    finally:
        writing.stop()


def test_dead_letters_of_rows_of_a_snapshot_name_it(kafka: str, topic_prefix: str) -> None:
    dead = f"{topic_prefix}.dead"
    writing = sink(kafka, topicFallback=topic_prefix, deadLetterTopic=dead, format="debezium")
    given = merge([chunk(snapshot=ON_DEMAND), batch(shop())])
    of_snapshot, of_transaction = (Rejection(changes, REASON, None, "notes") for changes in given.changes)
    try:
        writing.write(replace(given, changes=(), rejections=(of_snapshot, of_transaction)))
    finally:
        writing.stop()
    letters = consume(kafka, [dead])
    reads = [letter for letter in letters if letter.headers["dead_letter_table"] == b"public.notes"]
    assert [letter.headers["dead_letter_snapshot"] for letter in reads] == [ON_DEMAND.id.encode()] * 3
    others = [letter for letter in letters if letter not in reads]
    assert others
    assert not any("dead_letter_snapshot" in letter.headers for letter in others)
