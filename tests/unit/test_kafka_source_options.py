"""The section of a Kafka source: what it refuses, and what it means in librdkafka's terms."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from psql_streamer.config import load
from psql_streamer.config.model import Config
from psql_streamer.errors import ConfigError
from psql_streamer.model import Position
from sources.kafka.offsets import Partition, compute_total_lag, has_reached, to_offsets, to_position, to_topic_ids
from sources.kafka.options import KafkaSourceOptions
from tests.config_files import written

SECTION = {"type": "kafka", "hosts": ["k:9092"], "topics": ["orders"], "groupID": "g"}


def options(**more: Any) -> KafkaSourceOptions:
    return KafkaSourceOptions.model_validate(SECTION | more)


PROBLEMS = {
    "no topic": ({"topics": []}, "name at least one"),
    "a certificate that is not there": (
        {"kafka": {"security.protocol": "ssl", "ssl.certificate.location": "/no/such.pem"}},
        r'kafka\."ssl\.certificate\.location" names a file that cannot be read: no such file or directory',
    ),
    "a topic twice": ({"topics": ["a", "a"]}, "names a topic twice"),
    "a name that is none": ({"topics": ["a b"]}, "a b"),
    "no group": ({"groupID": ""}, "at least 1 character"),
    "a start that is none": ({"startAt": "noon"}, "earliest"),
    "an own dead letter": ({"deadLetterTopic": "orders"}, "is one of the topics"),
    "an own dead letter by a pattern": (
        {"topics": ["^orders.*"], "deadLetterTopic": "orders-dead"},
        "one of the topics",
    ),
    "no regular expression": ({"topics": ["^orders[.*"]}, "is no regular expression"),
    "a class of characters": ({"topics": ["^[[:alpha:]]+"]}, r"write \[a-z\]"),
    "a digit": ({"topics": [r"^orders\.\d+$"]}, r"write \[0-9\]"),
    "the end as Python has it": ({"topics": [r"^orders\Z"]}, "POSIX"),
    "a backslash in a set": ({"topics": [r"^orders[\d]+$"]}, r"write \[0-9\]"),
    "a class among others": ({"topics": ["^orders[_[:alpha:]]+"]}, r"write \[a-z\]"),
    "a group without a number": ({"topics": ["^(?:orders|visits)$"]}, "write it without"),
    "a look ahead": ({"topics": [r"^shop\.(?!archive)"]}, "write it without"),
    "as few as fit": ({"topics": ["^a+?b"]}, "write it without"),
    "more often than the client counts": ({"topics": ["^a{1,99999}$"]}, "topics: "),
    "a time before all": ({"startAt": "1969-12-31T00:00:00Z"}, "before 1970"),
    "a start that is a number": ({"startAt": 17}, "a table of offsets such as"),
    "no offsets at all": ({"startAt": {}}, "is empty"),
    "no offsets of a topic": ({"startAt": {"orders": 5}}, 'no offsets of topic "orders"'),
    "a partition that is none": ({"startAt": {"orders": {"x": 5}}}, '"x" as a partition'),
    "an offset that is none": ({"startAt": {"orders": {"0": -1}}}, r"-1 as the offset of orders\[0\]"),
    "offsets of another topic": ({"startAt": {"visits": {"0": 5}}}, "not in topics: visits"),
    "a client that cannot write dead letters": (
        {"deadLetterTopic": "dead", "kafka": {"max.in.flight": 10}},
        "dead letters cannot be written with these properties",
    ),
    "commits of the client": ({"kafka": {"enable.auto.commit": True}}, "when every sink has the records"),
    "jumps": ({"kafka": {"auto.offset.reset": "latest"}}, "without a word"),
    "a property that is none": ({"kafka": {"fetch.wait": 1}}, "fetch.wait"),
    "a drain past the poll interval": ({"drainTimeout": "5m"}, "longer than 4m"),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_what_cannot_work_is_refused_with_the_reason(name: str) -> None:
    more, expected = PROBLEMS[name]
    with pytest.raises(ValidationError, match=expected):
        options(**more)


@pytest.mark.parametrize("pattern", [r"^shop\.(a|b)[0-9]{1,3}$", r"^\w+\.x", "^[]a]+$", r"^a\(\?", "^a[(]?[?*+]+"])
def test_patterns_that_mean_the_same_to_the_client_are_taken(pattern: str) -> None:
    assert options(topics=[pattern]).topics == (pattern,)


def test_a_start_is_a_word_a_moment_or_offsets() -> None:
    assert options().start_at == "earliest"
    assert options(startAt="2026-11-22T10:00:00Z").start_at == datetime(2026, 11, 22, 10, tzinfo=UTC)
    assert options(startAt={"orders": {"0": 5, "12": 0}}).start_at == {
        Partition("orders", 0): 5,
        Partition("orders", 12): 0,
    }
    assert options(topics=["^or"], startAt={"orders": {"1": 2}}).start_at == {Partition("orders", 1): 2}
    assert options(startAt=datetime(2026, 11, 22, 10)).start_at == datetime(2026, 11, 22, 10, tzinfo=UTC)


def test_offsets_are_committed_by_the_source_alone_and_never_reset() -> None:
    properties = options(instanceId="a", kafka={"fetch.min.bytes": 2}).make_consumer_properties()
    assert properties["enable.auto.commit"] is False
    assert properties["auto.offset.reset"] == "error"
    assert properties["group.instance.id"] == "a"
    assert properties["fetch.min.bytes"] == 2
    assert "group.instance.id" not in options().make_consumer_properties()


def test_positions_go_on_partition_by_partition() -> None:
    offsets = {Partition("b", 1): 7, Partition("a", 0): 5}
    position = to_position(offsets)
    assert (position.data, str(position)) == ({"a": {"0": 5}, "b": {"1": 7}}, "a[0]@5, b[1]@7")
    assert to_offsets(position) == offsets
    assert to_offsets(None) == {}
    with_ids = to_position(offsets, {"a": "x", "another": "y"})
    assert to_offsets(with_ids) == offsets
    assert (to_topic_ids(with_ids), to_topic_ids(position), to_topic_ids(None)) == ({"a": "x"}, {}, {})
    assert has_reached(offsets, {Partition("a", 0): 5})
    assert not has_reached(offsets, {Partition("a", 0): 6})
    assert not has_reached(offsets, {Partition("c", 0): 0})
    assert str(to_position({Partition("t", number): 1 for number in range(5)})).endswith("t[2]@1 and 2 more")
    assert str(Position({}, "")) == ""


CIRCLES = {
    "its own topic": ('topicFallback = "orders"', ["orders"]),
    "a prefix": ('topicPrefix = "shop"', ["shop.orders"]),
    "a placeholder": ('tableTopicMapping = { "*" = "{schema}-{table}" }', ["public-orders"]),
    "a regular expression": ('topicPrefix = "shop"', [r"^shop\\..*"]),
}


def config_of(folder: Path, sink: str, topics: list[str], hosts: str = "k:9092", store: str = "lmdb") -> Config:
    quoted = ", ".join(f'"{topic}"' for topic in topics)
    text = f"""
        http = ":8080"
        {store} = "/x"
        [source.hop]
        type = "kafka"
        hosts = ["{hosts}"]
        topics = [{quoted}]
        groupID = "g"
        [sink.k]
        type = "kafka"
        sources = ["hop"]
        hosts = ["k:9092"]
        {sink}
        """
    return load(written(folder, text), {})


@pytest.mark.parametrize("name", CIRCLES)
def test_a_sink_that_may_write_what_its_source_reads_is_refused(tmp_path: Path, name: str) -> None:
    sink, topics = CIRCLES[name]
    with pytest.raises(ConfigError, match=r"sink\.k: may write to k:9092/.*its events would never end"):
        config_of(tmp_path, sink, topics)
    for spelt in ("K:9092", "k:09092"):
        with pytest.raises(ConfigError, match=r"sink\.k: may write to .*its events would never end"):
            config_of(tmp_path, sink, topics, hosts=spelt)
    config_of(tmp_path, sink, topics, hosts="other:9092")
    config_of(tmp_path, sink, ["another"])


def test_a_file_of_the_go_service_may_write_what_it_reads_and_is_warned(tmp_path: Path) -> None:
    sink, topics = CIRCLES["its own topic"]
    [warning] = [one for one in config_of(tmp_path, sink, topics, store="boltdb").warnings if "never end" in one]
    assert "sink.k: may write to k:9092/orders, which source.hop reads: its events would never end" in warning


@pytest.mark.parametrize("hosts", ['["k:9092"]', '["other:9092", "k:9092"]', '["K:9092"]'])
def test_a_topic_is_read_once_in_a_group(tmp_path: Path, hosts: str) -> None:
    section = '[source.{name}]\ntype = "kafka"\nhosts = {hosts}\ntopics = ["t"]\ngroupID = "g"\n'
    sink = '[sink.n]\ntype = "stub_discard"\nsources = ["a", "b"]\n'
    sections = section.format(name="a", hosts='["k:9092"]') + section.format(name="b", hosts=hosts)
    text = 'http = ":8080"\nlmdb = "/x"\n' + sections + sink
    with pytest.raises(ConfigError, match=r'topic "t" in group "g" on k:9092 is already used by source.a'):
        load(written(tmp_path, text), {})


@pytest.mark.parametrize("pattern", ["^shop[.]orders", "^shop[.:=_]x", "^shop[^.]+$"])
def test_a_set_that_begins_with_a_mark_of_classes_is_taken(pattern: str) -> None:
    given = {"type": "kafka", "hosts": ["k:9092"], "topics": [pattern], "groupID": "g"}
    assert KafkaSourceOptions.model_validate(given).topics == (pattern,)


@pytest.mark.parametrize(
    ("first", "second", "is_shared"),
    [
        ('["shop.orders"]', '["^shop[.].*"]', True),
        ('["^shop[.].*", "x"]', '["y", "shop.orders"]', True),
        ('["^shop[.].*"]', '["stock.orders"]', False),
    ],
)
def test_a_topic_that_a_pattern_of_another_source_matches_is_read_once_in_a_group(
    tmp_path: Path, first: str, second: str, is_shared: bool
) -> None:
    def configure(group: str) -> str:
        section = '[source.{}]\ntype = "kafka"\nhosts = ["k:9092"]\ntopics = {}\ngroupID = "{}"\n'
        sink = '[sink.n]\ntype = "stub_discard"\nsources = ["a", "b"]\n'
        sections = section.format("a", first, "g") + section.format("b", second, group)
        return 'http = ":8080"\nlmdb = "/x"\n' + sections + sink

    load(written(tmp_path, configure("other")), {})
    if is_shared:
        said = r'source.b: topic "shop.orders" in group "g" on k:9092 is already used by source.a: give each its own'
        with pytest.raises(ConfigError, match=said):
            load(written(tmp_path, configure("g")), {})
    else:
        load(written(tmp_path, configure("g")), {})


def test_the_lag_is_known_when_the_end_of_every_partition_is() -> None:
    one, two = Partition("orders", 0), Partition("orders", 1)
    assert compute_total_lag({one: 3, two: 0}) == 3
    assert compute_total_lag({one: 0, two: -1}) is None
    assert compute_total_lag({}) is None
