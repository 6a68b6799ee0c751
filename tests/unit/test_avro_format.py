"""The format `debezium-avro` and its registry: what is asked there, and what becomes of the answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from psql_streamer.embedded.ports import free_ports
from psql_streamer.errors import SinkError, SinkRefused, SinkUnavailable
from psql_streamer.events.avro.format import DebeziumAvro, DebeziumAvroOptions
from psql_streamer.events.encoder import Encoder
from psql_streamer.events.options import EventOptions
from psql_streamer.events.routing import Router
from psql_streamer.registry.frames import find_frame
from tests.encoding import JSON_FORMATS, encoder_of
from tests.registry_server import RegistryServer, registry_server
from tests.unit.test_addressed_events import INSERT, batch, rows

ONE_ROW = batch(rows(INSERT))
NOT_FOUND = 404, {"error_code": 40401, "message": "Subject not found"}


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with registry_server() as running:
        yield running


def encoder(url: str, **options: Any) -> Encoder:
    made = DebeziumAvroOptions.model_validate({"registry": {"url": url, "timeout": "1s"}} | options)
    return Encoder(DebeziumAvro(made), Router({}, "", "t"), {})


def section(**keys: Any) -> EventOptions:
    found = {"type": "kafka", "sources": ["db1"], "format": "debezium-avro"} | keys
    return EventOptions.choose_options(found).model_validate(found)


@pytest.mark.parametrize(
    ("subject", "key", "value"),
    [
        ("topic", "t-key", "t-value"),
        ("record", "db1.public.orders.Key", "db1.public.orders.Envelope"),
        ("topicRecord", "t-db1.public.orders.Key", "t-db1.public.orders.Envelope"),
    ],
)
def test_schemas_are_registered_under_the_names_that_are_asked_for(
    server: RegistryServer, subject: str, key: str, value: str
) -> None:
    for number, name in enumerate((key, value), start=7):
        server.answers[f"/subjects/{name}/versions/latest"] = NOT_FOUND
        server.answers[f"POST /subjects/{name}/versions"] = {"id": number}
    records = encoder(server.url, subject=subject).encode(ONE_ROW)
    frames = [find_frame(column[0].as_py()) for column in (records.keys, records.values)]
    assert [frame and frame.schema for frame in frames] == [7, 8]
    assert [one for one in server.asked if one.startswith("POST")] == [
        f"POST /subjects/{key}/versions",
        f"POST /subjects/{value}/versions",
    ]


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ((503, {}), SinkUnavailable),
        ((401, {"error_code": 401}), SinkRefused),
    ],
)
def test_what_the_registry_says_holds_up_or_stops_the_sink(
    server: RegistryServer, fault: tuple[int, Any], error: type[SinkError]
) -> None:
    server.fault = lambda: fault
    with pytest.raises(error, match="schema registry"):
        encoder(server.url).encode(ONE_ROW)


def test_a_schema_that_the_registry_does_not_take_stops_the_sink(server: RegistryServer) -> None:
    server.answers["POST /subjects/t-key/versions"] = 422, {"error_code": 42201, "message": "Invalid schema"}
    with pytest.raises(SinkRefused, match="t-key"):
        encoder(server.url).encode(ONE_ROW)


def test_a_batch_that_was_held_up_is_encoded_when_it_comes_again(server: RegistryServer) -> None:
    waiting = encoder(server.url)
    server.fault = lambda: (503, {})
    with pytest.raises(SinkUnavailable):
        waiting.encode(ONE_ROW)
    server.fault = None
    for number, part in enumerate(("key", "value")):
        server.answers[f"POST /subjects/t-{part}/versions"] = {"id": number}
    assert len(waiting.encode(ONE_ROW)) == 1


def test_check_says_what_is_wrong_with_the_registry_and_registers_nothing(server: RegistryServer) -> None:
    nobody = f"http://127.0.0.1:{free_ports(1)[0]}"

    def find(*urls: str) -> list[tuple[bool, str]]:
        made = DebeziumAvroOptions.model_validate({"registry": {"url": urls}})
        return [(problem.stops, problem.what) for problem in DebeziumAvro(made).find_problems()]

    assert find(server.url) == []
    assert [stops for stops, _ in find(server.url, nobody)] == [False]
    [(stops, what)] = find(nobody)
    assert stops
    assert nobody in what
    assert not [one for one in server.asked if one.startswith("POST")]


def test_people_read_the_same_events_in_json_without_the_registry() -> None:
    nobody = f"http://127.0.0.1:{free_ports(1)[0]}"
    readable = encoder(nobody).make_readable()
    expected = encoder_of("debezium", Router({}, "", "t"), {}).encode(ONE_ROW)
    found = readable.encode(ONE_ROW)
    assert (found.keys.to_pylist(), found.values.to_pylist()) == (
        expected.keys.to_pylist(),
        expected.values.to_pylist(),
    )


@pytest.mark.parametrize("form", JSON_FORMATS)
def test_other_formats_are_readable_themselves(form: str) -> None:
    made = encoder_of(form, Router({}, "", "t"), {})
    assert made.make_readable() is made


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({}, "registry"),
        ({"registry": {}}, "registry.url"),
        ({"registry": {"url": "http://r"}, "subject": "topics"}, "subject"),
        ({"registry": {"url": "http://r"}, "autoregister": True}, "autoregister"),
    ],
)
def test_options_that_cannot_be_used_are_told_at_their_key(given: dict[str, Any], what: str) -> None:
    with pytest.raises(ValidationError) as found:
        DebeziumAvroOptions.model_validate(given)
    assert [".".join(map(str, error["loc"])) for error in found.value.errors()] == [what]


@pytest.mark.parametrize(
    ("keys", "shared"),
    [
        ({"topicPrefix": "p"}, ""),
        ({"topicFallback": "all"}, "all"),
        ({"tableTopicMapping": {"a": "one", "b": "two"}}, ""),
        ({"tableTopicMapping": {"a": "one", "b": "one"}}, "one"),
        ({"tableTopicMapping": {"a_*": "one"}}, "one"),
        ({"tableTopicMapping": {"a_*": "{table}"}}, ""),
    ],
)
def test_topics_that_tables_share_are_warned_of_unless_subjects_tell_records_apart(
    keys: dict[str, Any], shared: str
) -> None:
    registry = {"url": "http://localhost:8081"}
    [*warnings] = section(formatOptions={"registry": registry}, **keys).list_warnings()
    if not shared:
        assert warnings == []
        return
    [warning] = warnings
    assert f"topic {shared}," in warning
    assert 'subject = "topicRecord"' in warning
    apart = section(formatOptions={"registry": registry, "subject": "topicRecord"}, **keys)
    assert [*apart.list_warnings()] == []


def test_the_schema_that_is_registered_is_that_of_the_event(server: RegistryServer) -> None:
    for number, part in enumerate(("key", "value")):
        server.answers[f"POST /subjects/t-{part}/versions"] = {"id": number}
    encoder(server.url).encode(ONE_ROW)
    names = [json.loads(posted["schema"])["name"] for posted in server.posted]
    assert names == ["Key", "Envelope"]
