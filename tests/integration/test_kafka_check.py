"""What `check` finds out about a Kafka sink's brokers and topics."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient

from psql_streamer.interfaces import Severity
from sinks.kafka.sink import KafkaSink
from tests.kafka_sinks import Canned, create_topic, options, set_topic_option


def test_check_is_silent_when_all_is_well(kafka: str, topic_prefix: str) -> None:
    topic = create_topic(kafka, topic_prefix)
    assert not list(KafkaSink("kafka1", options(kafka, topicFallback=topic), Canned([])).check())


def test_check_says_that_nobody_answers_and_creates_no_topic(kafka: str, topic_prefix: str) -> None:
    (finding,) = KafkaSink("kafka1", options("127.0.0.1:1", timeout="500ms"), Canned([])).check()
    assert finding.severity is Severity.ERROR
    assert "127.0.0.1:1" in finding.problem
    assert "refused" in finding.problem
    assert not list(KafkaSink("kafka1", options(kafka, topicFallback=topic_prefix), Canned([])).check())
    assert topic_prefix not in AdminClient({"bootstrap.servers": kafka}).list_topics(timeout=10).topics


def test_check_warns_of_a_topic_that_takes_less_than_a_request(kafka: str, topic_prefix: str) -> None:
    topic = create_topic(kafka, topic_prefix, max_message_bytes="2000")
    (finding,) = KafkaSink("kafka1", options(kafka, topicFallback=topic), Canned([])).check()
    assert finding.severity is Severity.WARNING
    assert '"batch.size" = 2000' in finding.remedy


def test_check_says_what_brokers_refuse_of_the_topics_that_the_sink_is_to_make(kafka: str, topic_prefix: str) -> None:
    section = {"topicFallback": topic_prefix, "createTopics": {"config": {"retention.sm": "1"}}}
    (finding,) = KafkaSink("kafka1", options(kafka, **section), Canned([])).check()
    assert finding.severity is Severity.ERROR
    assert finding.problem.startswith(f'topic "{topic_prefix}" does not exist and cannot be created: ')
    assert "retention.sm" in finding.problem
    assert finding.remedy == "correct createTopics.config"
    right = section | {"createTopics": {"config": {"retention.ms": "1"}}}
    assert not list(KafkaSink("kafka1", options(kafka, **right), Canned([])).check())
    assert topic_prefix not in AdminClient({"bootstrap.servers": kafka}).list_topics(timeout=10).topics


def test_check_warns_of_a_position_topic_that_brokers_made_and_whose_records_they_delete(
    kafka: str, topic_prefix: str
) -> None:
    topic = create_topic(kafka, topic_prefix)
    given = {"topicFallback": topic, "exactlyOnce": True, "transactionalId": topic}
    position = create_topic(kafka, f"{topic}.position")
    (finding,) = KafkaSink("kafka1", options(kafka, **given), Canned([])).check()
    assert finding.severity is Severity.WARNING
    assert finding.problem.startswith(f'topic "{position}" has cleanup.policy "delete": ')
    assert finding.remedy.endswith(f"--alter --topic {position} --add-config cleanup.policy=compact")
    set_topic_option(kafka, position, "cleanup.policy", "compact")
    assert not list(KafkaSink("kafka1", options(kafka, **given), Canned([])).check())
