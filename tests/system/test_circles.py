"""A sink in the cluster that its source reads, by another address: what would be written and read without end."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from psql_streamer import preflight
from psql_streamer.config import load
from psql_streamer.interfaces import Severity, TopicsRead
from sinks.kafka.sink import KafkaSink
from tests.event_topics import committed, event, source_of, write
from tests.kafka_reader import consume
from tests.kafka_sinks import Canned, create_topic, options
from tests.sections import kafka_section, topics_section
from tests.service import Service


def other_address(kafka: str) -> str:
    return kafka.replace("127.0.0.1", "localhost")


def circle(kafka: str, topic: str, topics: list[str]) -> str:
    """The source reads what the sink writes."""
    return topics_section(kafka, topics, topic) + kafka_section(other_address(kafka), topic, sources=["hop"])


def problems(file: Path) -> Mapping[str, list[tuple[Severity, str]]]:
    """What `check` says of each part."""
    reports = preflight.check(load(file, {}))
    return {one.part: [(found.severity, found.problem) for found in one.findings] for one in reports}


@pytest.mark.parametrize("form", ["{}.orders", r"^{}\..*"], ids=["a name", "a pattern"])
def test_a_sink_that_writes_what_its_source_reads_by_another_address_is_refused(
    kafka: str, topic_prefix: str, tmp_path: Path, form: str
) -> None:
    create_topic(kafka, f"{topic_prefix}.orders")
    write(kafka, f"{topic_prefix}.orders", [event(1)])
    topic = form.format(topic_prefix)
    with Service(tmp_path, circle(kafka, topic_prefix, [topic])) as service:
        [(severity, said)] = problems(service.config)["sink.k"]
        assert severity is Severity.ERROR
        assert f'may write to topic "{topic}", which source.hop reads in the same cluster' in said
        service.start(wait=False)
        assert service.wait() == 1
        assert f'may write to topic "{topic}", which source.hop reads in the same cluster' in service.tail()
        assert "give the topics other names" in service.tail()
    assert committed(kafka, topic_prefix, f"{topic_prefix}.orders") < 0


def test_a_pattern_that_no_topic_matches_yet_is_refused_too(kafka: str, topic_prefix: str, tmp_path: Path) -> None:
    with Service(tmp_path, circle(kafka, topic_prefix, [rf"^{topic_prefix}\..*"])) as service:
        service.start(wait=False)
        assert service.wait() == 1
        assert "reads in the same cluster" in service.tail()


def test_a_file_of_the_go_service_with_a_circle_starts_with_a_warning(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    create_topic(kafka, topic_prefix)
    sections = topics_section(kafka, [topic_prefix], topic_prefix)
    sections += kafka_section(other_address(kafka), topic_prefix, sources=["hop"]).replace(
        f'topicPrefix = "{topic_prefix}"', f'topicFallback = "{topic_prefix}"'
    )
    with Service(tmp_path, sections) as service:
        service.config.write_text(service.config.read_text().replace("lmdb = ", "boltdb = "))
        [(severity, said)] = problems(service.config)["sink.k"]
        assert (severity, "in the same cluster" in said) == (Severity.WARNING, True)
        service.start()
        assert "in the same cluster: its events would never end" in service.tail()
        write(kafka, topic_prefix, [event(1)])
        service.until(lambda: len(consume(kafka, [topic_prefix])) > 3, "the same event again and again")
        assert service.stop() == 0


def test_clusters_with_one_id_are_told_apart_by_the_ids_of_their_topics(kafka: str, topic_prefix: str) -> None:
    """Copies of one compose file have one cluster id."""
    create_topic(kafka, topic_prefix)
    source = source_of(kafka, topic_prefix)
    source.read_stream_identity()
    read = source.describe_topics_read()
    assert read is not None
    sink = KafkaSink("k", options(other_address(kafka), topicFallback=topic_prefix), Canned([]))
    assert sink.find_circle(read) == topic_prefix
    assert sink.find_circle(TopicsRead(read.cluster, read.names, {})) == topic_prefix, "there is no topic yet"
    assert not sink.find_circle(TopicsRead(read.cluster, read.names, {topic_prefix: "another"}))
    assert not sink.find_circle(TopicsRead("another", read.names, {}))
    assert not sink.find_circle(TopicsRead(read.cluster, ("another",), {}))
