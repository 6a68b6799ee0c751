"""The keys of a table that its topics have: those whose last record is no delete."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from psql_streamer.errors import SinkRefused
from psql_streamer.interfaces import KeysRequest
from psql_streamer.model import Batch
from psql_streamer.snapshot.key_documents import read_key_documents
from psql_streamer.snapshots import KeyForm
from sinks.kafka.sink import KafkaSink
from tests.decoding import SOURCE
from tests.kafka_sinks import Canned, create_topic, options, started
from tests.snapshots import NOTES, chunk, gone

FORMATS: list[tuple[str, dict[str, Any]]] = [
    ("event", {}),
    ("envelope", {}),
    ("flat", {}),
    ("debezium", {}),
    ("debezium", {"debeziumSchemas": True}),
]


@pytest.fixture
def topic(kafka: str, topic_prefix: str) -> str:
    create_topic(kafka, f"{topic_prefix}.public.notes", partitions=3)
    return f"{topic_prefix}.public.notes"


@contextmanager
def writing(kafka: str, topic: str, **section: Any) -> Iterator[KafkaSink]:
    with started(kafka, None, topicPrefix=topic.partition(".public")[0], topicFallback="", **section) as sink:
        yield sink


def request(**more: Any) -> KeysRequest:
    return KeysRequest(SOURCE.name, "public", "notes", **{"topic": None, "mixed": False, "on_wait": print, **more})


def alive(sink: KafkaSink, **more: Any) -> list[str]:
    """The values of the keys."""
    found = sink.find_alive_keys(request(**more))
    keys = [column for column in NOTES.columns if column.key]
    return sorted(value for (value,) in read_key_documents(list(found.documents), keys, found.form, 0))


def rows(*ids: int) -> Batch:
    return chunk([(b"%d" % number, b"x", None) for number in ids])


@pytest.mark.parametrize(("form", "section"), FORMATS)
def test_a_key_is_alive_unless_its_last_record_is_a_delete(
    kafka: str, topic: str, form: str, section: dict[str, Any]
) -> None:
    with writing(kafka, topic, format=form, sources=[SOURCE.name], **section) as sink:
        assert alive(sink) == []
        for batch in (rows(*range(100)), gone([(b"7",), (b"8",)]), rows(8), gone([(b"200",)])):
            sink.write(batch)
        assert sink.find_alive_keys(request()).form is (KeyForm.DEBEZIUM if form == "debezium" else KeyForm.JSON)
        assert alive(sink) == sorted(str(number) for number in range(100) if number != 7)
        assert alive(sink, topic=topic) == alive(sink)
        with pytest.raises(SinkRefused, match=r"does not write public\.notes to elsewhere"):
            alive(sink, topic="elsewhere")


@pytest.mark.parametrize(("form", "section"), FORMATS)
def test_a_topic_of_several_tables_is_refused(kafka: str, topic: str, form: str, section: dict[str, Any]) -> None:
    mapping = {"*.*": topic}
    with started(kafka, None, format=form, sources=[SOURCE.name], tableTopicMapping=mapping, **section) as sink:
        sink.write(rows(1))
        sink.write(chunk([(b"1", b"x", None)], relation=replace(NOTES, id="7", table="others")))
        with pytest.raises(SinkRefused, match=r"is of public\.others: the topic has events of several tables"):
            alive(sink)


@pytest.mark.parametrize("form", ["event", "envelope", "debezium"])
def test_a_topic_of_several_databases_is_refused_unless_all_are_meant(kafka: str, topic: str, form: str) -> None:
    with writing(kafka, topic, format=form, sources=[SOURCE.name]) as sink:
        sink.write(rows(1))
        sink.write(replace(rows(2), source=replace(SOURCE, database="another")))
        with pytest.raises(SinkRefused, match="is of another host, database or source than"):
            alive(sink)
        assert alive(sink, mixed=True) == ["1", "2"]
        if form != "event":
            with pytest.raises(SinkRefused, match="is of another host, database or source than another"):
                list(sink.find_alive_keys(replace(request(), source="another")).documents)


def test_flat_does_not_say_whose_rows_it_has_so_one_source_alone_may_write_there(kafka: str, topic: str) -> None:
    with writing(kafka, topic, format="flat", sources=[SOURCE.name, "other"]) as sink:
        sink.write(rows(1))
        with pytest.raises(SinkRefused, match=r"writes public\.notes of source other to the same topic"):
            alive(sink)
        assert alive(sink, mixed=True) == ["1"]


def test_what_is_no_record_of_the_format_is_refused_by_its_place(kafka: str, topic: str) -> None:
    encoder = Canned([(topic, b'{"id":1}', b"secret")])
    with started(kafka, encoder, topicPrefix=topic.partition(".public")[0], topicFallback="") as sink:
        sink.write(rows(1))
        with pytest.raises(
            SinkRefused, match=rf"the record at offset 0 of {topic}, partition \d, is no event"
        ) as caught:
            alive(sink)
        assert "secret" not in str(caught.value)


def test_topics_that_are_none_are_refused(kafka: str, topic_prefix: str) -> None:
    sink = KafkaSink("k", options(kafka, topicPrefix=topic_prefix, topicFallback="", excludeTables=["public.notes"]))
    with pytest.raises(SinkRefused, match=r"sink k writes public\.notes to no topic"):
        alive(sink)
    sink = KafkaSink("k", options(kafka, topicPrefix=topic_prefix, topicFallback=""))
    with pytest.raises(SinkRefused, match=rf"topic {topic_prefix}\.public\.notes: .*nknown topic"):
        alive(sink)
