"""What the Kafka sink writes, and what becomes of a record that Kafka never takes."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from psql_streamer.embedded.mock_kafka import MockKafka
from psql_streamer.errors import SinkRefused
from psql_streamer.model import LogicalMessage
from psql_streamer.name_counts import MOST_PREFIXES
from sinks.kafka import request_size
from tests.kafka_reader import consume
from tests.kafka_sinks import (
    BATCH,
    Canned,
    Row,
    by_partition,
    create_topic,
    random_bytes,
    set_topic_option,
    started,
    wait_until,
)


@pytest.mark.behaviour("K1")
def test_every_record_is_in_kafka_when_write_returns(kafka: str, topic_prefix: str) -> None:
    topic = create_topic(kafka, topic_prefix, partitions=6)
    rows: list[Row] = [(topic, b"%d" % (i % 100), b"value %d" % i) for i in range(20_000)]
    with started(kafka, Canned(rows)) as sink:
        sink.write(BATCH)
        found = consume(kafka, [topic])
        assert sorted((r.key, r.value) for r in found) == sorted((key, value) for _, key, value in rows)
        assert sink.stats()["events"] == 20_000
        assert sink.status().ok


@pytest.mark.behaviour("K2")
def test_records_of_one_key_keep_their_order(kafka: str, topic_prefix: str) -> None:
    topic = create_topic(kafka, topic_prefix, partitions=6)
    with started(kafka, Canned([(topic, b"%d" % (i % 100), b"%d" % i) for i in range(20_000)])) as sink:
        sink.write(BATCH)
    for records in by_partition(consume(kafka, [topic])).values():
        latest: dict[bytes | None, int] = {}
        for record in records:
            assert int(record.value or b"") > latest.get(record.key, -1)
            latest[record.key] = int(record.value or b"")


def test_keys_land_where_the_clients_own_java_compatible_partitioner_puts_them(kafka: str, topic_prefix: str) -> None:
    ours, theirs = (create_topic(kafka, f"{topic_prefix}.{name}", partitions=7) for name in ("ours", "theirs"))
    keys = [b"", b"a", b'{"id":1}', *(b'{"id":%d,"region":"%s"}' % (i, b"x" * (i % 9)) for i in range(2000))]
    with started(kafka, Canned([(ours, key, b"") for key in keys])) as sink:
        sink.write(BATCH)
    other = Producer({"bootstrap.servers": kafka, "partitioner": "murmur2"})
    for key in keys:
        other.produce(theirs, b"", key)
    other.flush()
    found = consume(kafka, [ours, theirs])
    assert {(r.key, r.partition) for r in found if r.topic == ours} == {
        (r.key, r.partition) for r in found if r.topic == theirs
    }


def test_a_tombstone_and_a_record_without_a_key_arrive_as_such(kafka: str, topic_prefix: str) -> None:
    topic = create_topic(kafka, topic_prefix, partitions=2)
    with started(kafka, Canned([(topic, b"k", None), (topic, None, b"v")])) as sink:
        sink.write(BATCH)
    assert {(r.key, r.value) for r in consume(kafka, [topic])} == {(b"k", None), (None, b"v")}


def test_headers_are_written_and_null_ones_left_out(kafka: str, topic_prefix: str) -> None:
    topic = create_topic(kafka, topic_prefix)
    headers = {"op": [b"insert", b"update"], "key_change": [None, b"true"]}
    with started(kafka, Canned([(topic, b"1", b"a"), (topic, b"1", b"b")], headers)) as sink:
        sink.write(BATCH)
    assert [r.headers for r in consume(kafka, [topic])] == [
        {"op": b"insert"},
        {"op": b"update", "key_change": b"true"},
    ]


def test_a_topic_that_the_broker_creates_by_itself_is_written_in_the_first_write(kafka: str, topic_prefix: str) -> None:
    with started(kafka, Canned([(topic_prefix, b"1", b"a")])) as sink:
        sink.write(BATCH)
    assert len(consume(kafka, [topic_prefix])) == 1


def test_create_topics_makes_them_as_asked(kafka: str, topic_prefix: str) -> None:
    section = {"partitions": 5, "replicationFactor": 1, "config": {"cleanup.policy": "compact"}}
    with started(kafka, Canned([(topic_prefix, b"1", b"a")]), createTopics=section) as sink:
        sink.write(BATCH)
    metadata = AdminClient({"bootstrap.servers": kafka}).list_topics(timeout=10)
    assert len(metadata.topics[topic_prefix].partitions) == 5


def test_an_own_partitioner_is_left_in_charge(kafka: str, topic_prefix: str) -> None:
    topic = create_topic(kafka, topic_prefix, partitions=5)
    keys = [b"%d" % i for i in range(500)]
    with started(kafka, Canned([(topic, key, b"") for key in keys]), kafka={"partitioner": "fnv1a"}) as sink:
        sink.write(BATCH)
    partitions = {r.key: r.partition for r in consume(kafka, [topic])}
    assert all(partitions[key] == _fnv1a_sarama(key) % 5 for key in keys)


def _fnv1a_sarama(key: bytes) -> int:
    """FNV-1a as Sarama partitions by it: the hash as a signed number, its magnitude."""
    h = 0x811C9DC5
    for byte in key:
        h = (h ^ byte) * 0x01000193 & 0xFFFFFFFF
    return 0x100000000 - h if h >> 31 else h


def test_batches_larger_than_the_clients_queue_go_through_it(kafka: str, topic_prefix: str) -> None:
    topic = create_topic(kafka, topic_prefix, partitions=2)
    rows: list[Row] = [(topic, b"%d" % i, b"x" * 100) for i in range(5000)]
    with started(kafka, Canned(rows), kafka={"queue.buffering.max.messages": 100}) as sink:
        sink.write(BATCH)
    assert len(consume(kafka, [topic])) == 5000


@pytest.mark.parametrize("acks", [0, 1])
def test_weaker_acknowledgements_are_possible(kafka: str, topic_prefix: str, acks: int) -> None:
    topic = create_topic(kafka, topic_prefix)
    with started(kafka, Canned([(topic, b"%d" % i, b"") for i in range(100)]), requiredAcks=acks) as sink:
        sink.write(BATCH)
        wait_until(lambda: len(consume(kafka, [topic])) == 100)


@pytest.mark.behaviour("K4")
@pytest.mark.parametrize(
    ("headers", "size"),
    [({}, 5_001), ({"op": [b"insert", b"insert"]}, 5_007)],
    ids=["without headers", "with headers"],
)
def test_a_record_too_large_stops_with_its_identity_and_both_choices(
    kafka: str, topic_prefix: str, headers: dict[str, list[bytes | None]], size: int
) -> None:
    topic = create_topic(kafka, topic_prefix, max_message_bytes="2000")
    rows: list[Row] = [(topic, b"k", b"fits"), (topic, b"k", random_bytes(5000))]
    with started(kafka, Canned(rows, headers), compression="none") as sink:
        with pytest.raises(SinkRefused) as refused:
            sink.write(BATCH)
        assert not sink.status().ok
    said = str(refused.value)
    for part in (
        topic,
        "public.orders",
        "16/B374D848",
        "change 1",
        f"{size} bytes",
        "max.message.bytes",
        "deadLetterTopic",
    ):
        assert part in said


@pytest.mark.behaviour("K4")
def test_a_record_too_large_goes_to_the_dead_letter_topic_and_its_neighbours_to_theirs(
    kafka: str, topic_prefix: str
) -> None:
    topic = create_topic(kafka, f"{topic_prefix}.orders", max_message_bytes="2000")
    dead = create_topic(kafka, f"{topic_prefix}.dead")
    large = random_bytes(5000)
    rows: list[Row] = [(topic, b"k", b"%03d" % i + (large if i in (50, 150) else b"")) for i in range(200)]
    with started(kafka, Canned(rows), compression="none", deadLetterTopic=dead) as sink:
        sink.write(BATCH)
        assert sink.stats()["dead_lettered"] == 2
        assert "request_bytes" not in sink.stats()
        assert sink.stats()["events"] == 198
    found = consume(kafka, [topic, dead])
    values = [r.value for r in found if r.topic == topic]
    written = [value for _, _, value in rows if len(value or b"") == 3]
    assert list(dict.fromkeys(values)) == written
    assert list(dict.fromkeys(reversed(values))) == written[::-1], "a repeat came before what it should follow"
    letters = [r for r in found if r.topic == dead]
    assert [(r.key, r.value) for r in letters] == [(b"k", b"050" + large), (b"k", b"150" + large)]
    assert letters[0].headers == {
        "dead_letter_reason": b"Broker: Message size too large",
        "dead_letter_topic": topic.encode(),
        "dead_letter_table": b"public.orders",
        "dead_letter_commit_lsn": b"16/B374D848",
        "dead_letter_seq": b"50",
    }


@pytest.mark.parametrize("acks", [-1, 1])
@pytest.mark.parametrize("large", [(), (300, 1_900)], ids=["none too large", "two too large"])
def test_a_topic_that_takes_small_requests_alone_gets_them_from_the_second_batch_on(
    kafka: str, topic_prefix: str, caplog: pytest.LogCaptureFixture, large: tuple[int, ...], acks: int
) -> None:
    topic = create_topic(kafka, f"{topic_prefix}.orders", partitions=3, max_message_bytes="20000")
    dead = create_topic(kafka, f"{topic_prefix}.dead")
    noise = random_bytes(150 * 2_000)
    rows: list[Row] = [(topic, b"%d" % (i % 50), b"%d " % i + noise[150 * i : 150 * i + 150]) for i in range(2_000)]
    for at in large:
        rows[at] = (topic, rows[at][1], b"%d " % at + random_bytes(25_000))
    with started(kafka, Canned(rows), deadLetterTopic=dead, requiredAcks=acks) as sink:
        sink.write(BATCH)
        assert any('set "batch.size" = 15625' in record.getMessage() for record in caplog.records)
        assert sink.stats()["request_bytes"] == 15_625
        caplog.clear()
        before = len(consume(kafka, [topic]))
        sink.write(BATCH)
        assert sink.stats()["dead_lettered"] == 2 * len(large)
    said = {record.getMessage() for record in caplog.records}
    assert said == ({f"2 records went to topic {dead}"} if large else set())
    found = consume(kafka, [topic])
    kept = [value for at, (_, _, value) in enumerate(rows) if at not in large]
    assert len(found) - before == len(kept), "the second batch was written once"
    for records in by_partition(found).values():
        mine = {record.value for record in records}
        values = [record.value for record in records]
        written = [value for value in kept if value in mine]
        assert values[-len(written) :] == written
        first = values[: -len(written)]
        assert list(dict.fromkeys(reversed(first))) == written[::-1], "the last repeat of each stands in order"
    letters = [(r.value or b"")[:10].split()[0] for r in consume(kafka, [dead])]
    assert sorted(letters) == sorted([b"%d" % at for at in large] * 2)


@pytest.mark.parametrize("raised", [True, False])
def test_requests_are_large_again_after_a_while_if_the_topic_takes_them_by_then(
    kafka: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch, raised: bool
) -> None:
    monkeypatch.setattr(request_size, "_SMALL_SECONDS", 0.0)
    topic = create_topic(kafka, topic_prefix, max_message_bytes="20000")
    noise = random_bytes(300_000)
    rows: list[Row] = [(topic, b"k", b"%d " % i + noise[150 * i : 150 * i + 150]) for i in range(2_000)]
    with started(kafka, Canned(rows)) as sink:
        sink.write(BATCH)
        assert sink.stats()["request_bytes"] == 15_625
        if raised:
            set_topic_option(kafka, topic, "max.message.bytes", "2000000")
        sink.write(BATCH)
        before = len(consume(kafka, [topic]))
        sink.write(BATCH)
        assert sink.stats().get("request_bytes") == (None if raised else 15_625)
    values = [record.value for record in consume(kafka, [topic])[before:]]
    written = [value for _, _, value in rows]
    assert list(dict.fromkeys(reversed(values))) == written[::-1], "the last repeat of each stands in order"
    assert not raised or values == written, "the batch was written once"


def test_a_topic_whose_segments_are_smaller_than_requests_gets_smaller_ones(
    kafka: str, topic_prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = create_topic(kafka, topic_prefix, max_message_bytes="5000000", segment_bytes="1048576")
    noise = random_bytes(2_000_000)
    rows: list[Row] = [(topic, b"%d" % i, noise[1_000 * i : 1_000 * (i + 1)]) for i in range(2_000)]
    with started(kafka, Canned(rows), compression="none", kafka={"batch.size": 4_000_000}) as sink:
        sink.write(BATCH)
        assert sink.stats()["request_bytes"] == 1_000_000
        assert "one by one" not in caplog.text
        before = len(consume(kafka, [topic]))
        sink.write(BATCH)
    assert len(consume(kafka, [topic])) == before + len(rows), "the second batch was written once"


def test_large_records_in_each_batch_are_known_at_once_from_the_third_one_on(
    kafka: str, topic_prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = create_topic(kafka, f"{topic_prefix}.orders", max_message_bytes="300000")
    dead = create_topic(kafka, f"{topic_prefix}.dead")
    large = random_bytes(400_000)
    rows: list[Row] = [(topic, b"%d" % i, large if i == 20 else b"%d" % i) for i in range(100)]
    with started(kafka, Canned(rows), deadLetterTopic=dead) as sink:
        sink.write(BATCH)
        assert "request_bytes" not in sink.stats()
        sink.write(BATCH)
        assert sink.stats()["request_bytes"] == 250_000
        caplog.clear()
        sink.write(BATCH)
        assert sink.stats()["dead_lettered"] == 3
    assert "writing with up to" not in caplog.text
    assert "one by one" not in caplog.text


def test_a_record_too_large_for_the_dead_letter_topic_as_well_is_cut_and_says_so(kafka: str, topic_prefix: str) -> None:
    topic = create_topic(kafka, f"{topic_prefix}.orders", max_message_bytes="2000")
    dead = create_topic(kafka, f"{topic_prefix}.dead", max_message_bytes="2000")
    large = random_bytes(9000)
    with started(kafka, Canned([(topic, b"k", large)]), compression="none", deadLetterTopic=dead) as sink:
        sink.write(BATCH)
    (letter,) = consume(kafka, [dead])
    assert letter.value is not None
    assert 500 < len(letter.value) < 2000
    assert large.startswith(letter.value)
    assert letter.headers["dead_letter_truncated_from"] == b"9001"


def test_headers_that_are_too_large_for_the_dead_letter_topic_as_well_are_cut(kafka: str, topic_prefix: str) -> None:
    topic = create_topic(kafka, f"{topic_prefix}.orders", max_message_bytes="2000")
    dead = create_topic(kafka, f"{topic_prefix}.dead", max_message_bytes="2000")
    large, other = random_bytes(9000), random_bytes(3000)
    canned = Canned([(topic, b"k", b"value")], {"trace": [large], "other": [other]})
    with started(kafka, canned, compression="none", deadLetterTopic=dead) as sink:
        sink.write(BATCH)
    (letter,) = consume(kafka, [dead])
    trace, rest = (letter.headers[name] or b"" for name in ("trace", "other"))
    assert isinstance(trace, bytes)
    assert isinstance(rest, bytes)
    assert large.startswith(trace)
    assert other.startswith(rest)
    assert 400 < len(trace) + len(rest) < 2000
    assert (letter.key, letter.value) == (b"k", b"value")
    assert letter.headers["dead_letter_truncated_from"] == b"12006"


@pytest.mark.parametrize(
    ("setting", "key", "remedy"),
    [
        ({"max_message_bytes": "10"}, b"k", "raise the topic's max.message.bytes"),
        ({"cleanup_policy": "compact"}, None, "look at the topic's settings"),
    ],
)
def test_a_dead_letter_topic_that_rejects_a_record_is_not_said_to_be_missing(
    kafka: str,
    topic_prefix: str,
    setting: dict[str, str],
    key: bytes | None,
    remedy: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = create_topic(kafka, f"{topic_prefix}.orders", **setting)
    dead = create_topic(kafka, f"{topic_prefix}.dead", **setting)
    with (
        started(kafka, Canned([(topic, key, b"value")]), deadLetterTopic=dead) as sink,
        pytest.raises(SinkRefused, match=f'topic "{dead}" rejects a record .*{remedy}') as refused,
    ):
        sink.write(BATCH)
    assert "deadLetterTopic" not in str(refused.value)
    assert "0 records went to" not in caplog.text


@pytest.mark.behaviour("K4")
def test_a_record_that_the_topic_does_not_allow_takes_none_of_its_request_with_it(
    kafka: str, topic_prefix: str
) -> None:
    compacted = create_topic(kafka, f"{topic_prefix}.compacted", cleanup_policy="compact")
    dead = create_topic(kafka, f"{topic_prefix}.dead")
    rows: list[Row] = [(compacted, None if i == 7 else b"%d" % i, b"%d" % i) for i in range(20)]
    with started(kafka, Canned(rows), deadLetterTopic=dead) as sink:
        sink.write(BATCH)
    found = consume(kafka, [compacted, dead])
    assert {r.value for r in found if r.topic == compacted} == {b"%d" % i for i in range(20) if i != 7}
    assert [r.value for r in found if r.topic == dead] == [b"7"]


def test_a_message_whose_prefix_is_too_large_for_a_record_is_put_aside(kafka: str, topic_prefix: str) -> None:
    topic, dead = (create_topic(kafka, f"{topic_prefix}.{name}") for name in ("m", "dead"))
    prefix = random_bytes(1_500_000).hex()
    batch = replace(BATCH, messages=(LogicalMessage(prefix, b"x", 0, -1, 0x900, -1),))
    with started(kafka, None, messageTopic=topic, deadLetterTopic=dead) as sink:
        sink.write(batch)
        assert sink.stats()["dead_lettered"] == 1
    [letter] = consume(kafka, [dead])
    assert letter.headers["dead_letter_table"] == (prefix[:63] + "...").encode()


@pytest.mark.parametrize("section", [{}, {"createTopics": {"partitions": 1}}])
def test_a_message_whose_topic_brokers_do_not_make_is_skipped_and_the_rest_is_written(
    kafka: str, topic_prefix: str, section: dict[str, Any]
) -> None:
    there = create_topic(kafka, f"{topic_prefix}.m.a")
    prefixes = ("a", ".a", "_a", "_a")
    messages = tuple(LogicalMessage(prefix, b"x", at, -1, 0x900 + at, -1) for at, prefix in enumerate(prefixes))
    with started(kafka, None, messageTopic=f"{topic_prefix}.m{{prefix}}", **section) as sink:
        sink.write(replace(BATCH, messages=messages))
        assert sink.stats()["skipped"] == {"message _a": 2}
        assert sink.stats()["events"] == 2
        assert sink.status().ok
    assert len(consume(kafka, [there, f"{topic_prefix}.ma"])) == 2


def test_a_table_whose_topic_brokers_do_not_make_stops_the_sink_with_the_topic_in_its_way(
    kafka: str, topic_prefix: str
) -> None:
    there = create_topic(kafka, f"{topic_prefix}.a")
    says = (
        f'topic "{topic_prefix}_a" cannot be created: it differs from "{there}" in . and _ alone: .*tableTopicMapping'
    )
    with started(kafka, Canned([(f"{topic_prefix}_a", b"1", b"a")])) as sink, pytest.raises(SinkRefused, match=says):
        sink.write(BATCH)


def test_a_large_record_that_compresses_well_is_no_problem(kafka: str, topic_prefix: str) -> None:
    topic = create_topic(kafka, topic_prefix)
    with started(kafka, Canned([(topic, b"k", b"x" * 5_000_000)])) as sink:
        sink.write(BATCH)
    assert [len(r.value or b"") for r in consume(kafka, [topic])] == [5_000_000]


@pytest.mark.behaviour("O7")
def test_what_has_no_topic_is_counted_by_table_and_logged_once(
    kafka: str, topic_prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    encoder = Canned([(topic_prefix, b"1", b"a")])
    skipped, messages = {"public.audit": 3}, {"heartbeat": 1}
    encoder.records = replace(encoder.records, skipped=skipped, skipped_messages=messages, excluded=5)
    with started(kafka, encoder) as sink:
        sink.write(BATCH)
        sink.write(BATCH)
        assert sink.stats()["skipped"] == {"public.audit": 6, "message heartbeat": 2}
        assert sink.stats()["excluded"] == 10
    assert told(caplog).count("public.audit has no topic and is skipped: see tableTopicMapping") == 1
    assert told(caplog).count('messages with prefix "heartbeat" have no topic and are skipped: see messageTopic') == 1


def test_prefixes_without_a_topic_are_bounded_in_number_and_hide_no_table(
    mock_kafka: MockKafka, topic_prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    encoder = Canned([(topic_prefix, b"1", b"a")])
    with started(mock_kafka.bootstrap, encoder, messageTopic="{prefix}") as sink:
        for first in range(0, 1000, 100):
            messages = {f"request {number}": 1 for number in range(first, first + 100)}
            encoder.records = replace(encoder.records, skipped_messages=messages)
            sink.write(BATCH)
        encoder.records = replace(encoder.records, skipped={"public.audit": 3}, skipped_messages={})
        sink.write(BATCH)
        skipped = sink.stats()["skipped"]
    assert skipped["public.audit"] == 3
    assert sum(skipped.values()) == 1003
    assert len(skipped) == MOST_PREFIXES + 2
    assert skipped["message (others)"] == 1000 - MOST_PREFIXES
    told = [record.message for record in caplog.records if "prefix" in record.message]
    assert told[0].startswith('messages with prefix "request 0" are skipped: Kafka does not allow the topic')
    assert len(told) == MOST_PREFIXES + 1
    many = f"messages with more than {MOST_PREFIXES} prefixes are skipped"
    assert told[-1] == f"{many}: the others are counted as (others)"


@pytest.mark.behaviour("O7")
def test_values_that_the_format_cannot_hold_are_counted_by_column_and_logged_once(
    kafka: str, topic_prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    encoder = Canned([(topic_prefix, b"1", b"a")])
    encoder.records = replace(encoder.records, nulled={"public.t.n": 2})
    with started(kafka, encoder, format="debezium") as sink:
        sink.write(BATCH)
        sink.write(BATCH)
        assert sink.stats()["nulled"] == {"public.t.n": 4}
    said = "public.t.n has a value that format debezium cannot hold: it, or a part of it, is null"
    assert told(caplog).count(said) == 1


@pytest.mark.behaviour("O7")
def test_values_that_a_changed_key_leaves_behind_are_counted_by_column_and_logged_once(
    kafka: str, topic_prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    encoder = Canned([(topic_prefix, b"1", b"a")])
    encoder.records = replace(encoder.records, left_behind={"public.t.body": 2})
    with started(kafka, encoder) as sink:
        sink.write(BATCH)
        sink.write(BATCH)
        assert sink.stats()["left_behind"] == {"public.t.body": 4}
    [said] = [
        one.message for one in caplog.records if one.message.startswith("public.t.body: an update changed the key")
    ]
    assert said.endswith("and ask for a snapshot of the table")


@pytest.mark.behaviour("O6")
def test_logs_name_events_and_never_show_their_values(
    kafka: str, topic_prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = create_topic(kafka, topic_prefix)
    with caplog.at_level(logging.DEBUG), started(kafka, Canned([(topic, b"geheim", b"geheim")]), verbose=True) as sink:
        sink.write(BATCH)
    assert f"public.orders, commit 16/B374D848, change 0, to {topic}" in told(caplog)
    assert "geheim" not in told(caplog)


def told(caplog: pytest.LogCaptureFixture) -> str:
    """What was logged, a line each, whatever format other tests have left behind."""
    return "\n".join(record.getMessage() for record in caplog.records)
