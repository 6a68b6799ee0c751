"""Batches that a Kafka sink writes together: each record once, in order, and each rejection told of its own batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from psql_streamer.embedded.mock_kafka import MockKafka
from psql_streamer.errors import SinkRefused, SinkUnavailable
from psql_streamer.events.records import Records
from psql_streamer.interfaces import Transaction
from psql_streamer.lsn import Lsn
from psql_streamer.model import Batch, LogicalMessage, Rejection
from psql_streamer.pgoutput.wal_position import WalPosition
from tests.kafka_reader import consume
from tests.kafka_sinks import BATCH, Canned, Row, create_topic, random_bytes, started, values_by_topic
from tests.mock_brokers import PRODUCE, MockBrokers
from tests.spark_changes import batch, shop

BATCHES = tuple(replace(BATCH, position=WalPosition(Lsn(at)).position) for at in (0x1000, 0x2000, 0x3000))


class OneEach(Canned):
    """Gives each of BATCHES the records of its own."""

    def __init__(self, parts: Sequence[Canned]) -> None:
        self._of = {id(batch): part for batch, part in zip(BATCHES, parts, strict=False)}

    def encode(self, batch: Batch) -> Records:
        return self._of[id(batch)].encode(batch)


def put_aside(rule: str) -> Batch:
    """Four changes, and as many that a rule put aside."""
    return replace(batch(shop()), rejections=(Rejection(shop(), "a reason", None, rule),))


def test_records_of_all_batches_arrive_once_and_in_order_in_each_topic(mock_kafka: MockKafka) -> None:
    first: list[Row] = [(f"t{i % 3}", b"k", b"a%d" % i) for i in range(90)]
    second: list[Row] = [(f"t{4 - i % 3}", b"k", b"b%d" % i) for i in range(90)]
    third: list[Row] = [("t2", b"k", None), ("t9", None, b"c")]
    headed = Canned(third, {"note": [b"tombstone", None]})
    names = ["t0", "t1", "t2", "t3", "t4", "t9"]
    with started(mock_kafka.bootstrap, OneEach([Canned(first), Canned(second), headed])) as sink:
        sink.begin_write(iter(BATCHES))()
        assert (sink.stats()["events"], sink.stats()["batches"]) == (182, 3)
        assert str(BATCHES[-1].position) in sink.status().reason
    found = consume(mock_kafka.bootstrap, names)
    written = values_by_topic(found)
    for name in names:
        assert written[name] == [value for topic, _, value in [*first, *second, *third] if topic == name]
    assert [record.headers for record in found if record.headers] == [{"note": b"tombstone"}]
    assert len([record for record in found if record.key is None]) == 1


def test_what_was_not_acknowledged_is_written_again_in_order() -> None:
    names = ["t0", "t1", "t2"]
    rows: list[list[Row]] = [[(names[i % 3], b"k", b"%d %d" % (batch, i)) for i in range(60)] for batch in range(3)]
    with MockBrokers() as brokers:
        for name in names:
            brokers.create(name, 1)
        with started(brokers.bootstrap, OneEach([Canned(some) for some in rows])) as sink:
            sink.begin_write(iter(BATCHES))()
            brokers.answer(PRODUCE, 0, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER)
            write = sink.begin_write(iter(BATCHES))
            with pytest.raises(SinkUnavailable, match="failed for good"):
                write()
            assert sink.stats()["events"] == 180
            brokers.answer_well(PRODUCE)
            write()
            assert sink.stats()["events"] == 360
        found = values_by_topic(consume(brokers.bootstrap, names))
    for name in names:
        expected = [value for some in rows for topic, _, value in some if topic == name]
        assert found[name][:60] == expected
        assert found[name][-60:] == expected


def test_a_record_that_is_rejected_is_the_dead_letter_of_its_own_batch(kafka: str, topic_prefix: str) -> None:
    topic = create_topic(kafka, f"{topic_prefix}.t", max_message_bytes="20000")
    dead = create_topic(kafka, f"{topic_prefix}.dead")
    small: list[Row] = [(topic, b"k", b"a%d" % i) for i in range(20)]
    large: list[Row] = [(topic, b"k", b"b0"), (topic, b"large", random_bytes(40_000)), (topic, b"k", b"b1")]
    encoder = OneEach([Canned(small), Canned(large), Canned([(topic, b"k", b"c")])])
    with started(kafka, encoder, deadLetterTopic=dead) as sink:
        sink.begin_write(iter(BATCHES))()
        assert (sink.stats()["events"], sink.stats()["dead_lettered"]) == (23, 1)
    values = values_by_topic(consume(kafka, [topic]))[topic]
    assert list(dict.fromkeys(values)) == [*(value for _, _, value in small), b"b0", b"b1", b"c"]
    (letter,) = consume(kafka, [dead])
    assert (letter.key, letter.headers["dead_letter_seq"]) == (b"large", b"1")


def test_a_record_that_is_rejected_without_a_dead_letter_topic_names_its_place_in_its_batch(
    kafka: str, topic_prefix: str
) -> None:
    topic = create_topic(kafka, f"{topic_prefix}.t", max_message_bytes="20000")
    large: list[Row] = [(topic, b"k", b"b0"), (topic, b"k", random_bytes(40_000))]
    encoder = OneEach([Canned([(topic, b"k", b"a%d" % i) for i in range(20)]), Canned(large)])
    with started(kafka, encoder) as sink, pytest.raises(SinkRefused, match=r"change 1\b.*max\.message\.bytes"):
        sink.begin_write(iter(BATCHES[:2]))()


@pytest.mark.parametrize("exactly_once", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_what_is_put_aside_skipped_or_rejected_of_each_batch_is_so_once(
    kafka: str, topic_prefix: str, exactly_once: bool
) -> None:
    events, messages = (
        create_topic(kafka, f"{topic_prefix}.{name}", max_message_bytes="5000") for name in ("e", "m.a")
    )
    dead = create_topic(kafka, f"{topic_prefix}.dead")
    contents = ((".a", b"1"), ("_a", b"2"), (".a", random_bytes(20_000)), ("_a", b"3"), (".a", b"4"))
    noted = tuple(LogicalMessage(name, text, at, -1, 0x900 + at, -1) for at, (name, text) in enumerate(contents))
    batches = [put_aside("first"), replace(BATCH, messages=noted), put_aside("third"), replace(BATCH, messages=noted)]
    section: dict[str, Any] = {"topicFallback": events, "messageTopic": f"{topic_prefix}.m{{prefix}}"}
    if exactly_once:
        section |= {"exactlyOnce": True, "transactionalId": topic_prefix}
    with started(kafka, None, deadLetterTopic=dead, compression="none", **section) as sink:
        if exactly_once:
            sink.write_transaction(Transaction(batches, {"db1": b"{}"}))
        else:
            sink.begin_write(iter(batches))()
        stats = sink.stats()
    assert (stats["events"], stats["batches"], stats["dead_lettered"]) == (12, 4, 10)
    assert stats["skipped"] == {"message _a": 4}
    found = consume(kafka, [events, messages, dead], isolation_level="read_committed")
    assert Counter(record.topic for record in found) == {events: 8, messages: 4, dead: 10}
    rules = Counter(record.headers.get("dead_letter_rule") for record in found if record.topic == dead)
    assert rules == {b"first": 4, b"third": 4, None: 2}


def test_a_batch_that_cannot_be_encoded_yet_costs_and_repeats_none_of_the_others(mock_kafka: MockKafka) -> None:
    class LateSecond(OneEach):
        attempts = 0

        def encode(self, batch: Batch) -> Records:
            if batch is BATCHES[1]:
                self.attempts += 1
                if self.attempts < 3:
                    raise SinkUnavailable("no usable answer from the schema registry")
            return super().encode(batch)

    rows: list[list[Row]] = [[("late", b"k", b"%d %d" % (batch, i)) for i in range(50)] for batch in range(3)]
    with started(mock_kafka.bootstrap, LateSecond([Canned(some) for some in rows])) as sink:
        write = sink.begin_write(iter(BATCHES))
        for _ in range(2):
            with pytest.raises(SinkUnavailable, match="schema registry"):
                write()
        write()
        assert (sink.stats()["events"], sink.stats()["batches"]) == (150, 3)
    found = values_by_topic(consume(mock_kafka.bootstrap, ["late"]))
    assert found == {"late": [value for some in rows for _, _, value in some]}


@pytest.mark.parametrize(
    ("topics", "keys", "rows", "wanted"),
    [(1, 1, 4000, 160), (100, 1, 4000, 4000), (200, 1, 4000, 8000), (100, 500, 4000, 16000), (32, 1, 32, 1)],
)
def test_as_many_rows_are_wanted_as_give_a_request_forty_records(
    mock_kafka: MockKafka, topics: int, keys: int, rows: int, wanted: int
) -> None:
    """Topics have 4 partitions, of which one key is in one."""
    records: list[Row] = [(f"t{i % topics}", b"%d" % (i // topics % keys), b"v") for i in range(rows)]
    with started(mock_kafka.bootstrap, Canned(records)) as sink:
        assert sink.rows_at_once == 1
        sink.write(BATCH)
        assert sink.rows_at_once == wanted


def test_it_is_known_before_the_first_write_how_many_topics_records_go_to(mock_kafka: MockKafka) -> None:
    """Each has a partition at least. In the first write the number is not asked of brokers yet."""
    records: list[Row] = [(f"t{i % 200}", b"k", b"v") for i in range(4000)]
    wanted: list[int] = []

    def offered() -> Iterator[Batch]:
        for one in BATCHES:
            yield one
            wanted.append(sink.rows_at_once)

    with started(mock_kafka.bootstrap, Canned(records)) as sink:
        sink.begin_write(offered())()
    assert wanted == [8000] * len(BATCHES)


def test_as_many_are_wanted_behind_several_batches_as_behind_one_of_them(mock_kafka: MockKafka) -> None:
    records: list[Row] = [(f"t{i % 200}", b"k", b"v") for i in range(4000)]
    with started(mock_kafka.bootstrap, Canned(records)) as sink:
        sink.begin_write(iter(BATCHES))()
        assert sink.rows_at_once == 8000
