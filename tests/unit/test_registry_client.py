"""What is asked of a schema registry, and what becomes of its answers."""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from psql_streamer.embedded.ports import free_ports
from psql_streamer.interfaces import Severity
from psql_streamer.registry import decoding
from psql_streamer.registry.checking import find_problems
from psql_streamer.registry.client import RegistryClient
from psql_streamer.registry.decoding import Decoders
from psql_streamer.registry.errors import RegistryRefused, RegistryUnavailable, SchemaError
from psql_streamer.registry.options import RegistryOptions
from psql_streamer.registry.proto_files import read_proto_files
from tests.registry_records import PROTO_ENVELOPE, PROTO_FILE, PROTO_ROW, avro, envelope, protobuf
from tests.registry_server import MISSING, RegistryServer, registry_server

RECORD = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with registry_server() as running:
        yield running


def options(*urls: str, **more: Any) -> RegistryOptions:
    return RegistryOptions.model_validate({"url": urls, "timeout": "2s"} | more)


def decoders(*urls: str, **more: Any) -> Decoders:
    return Decoders(RegistryClient(options(*urls, **more)))


def nobody() -> str:
    """A URL at which nobody listens."""
    return f"http://127.0.0.1:{free_ports(1)[0]}"


def test_a_schema_is_asked_for_once(server: RegistryServer) -> None:
    server.add(7, RECORD)
    known = decoders(server.url)
    assert [known.find(7)(avro(RECORD, {"id": number})) for number in (1, 2)] == [b'{"id":1}', b'{"id":2}']
    assert server.asked == ["/schemas/ids/7"]


def test_a_path_in_the_url_comes_before_what_is_asked(server: RegistryServer) -> None:
    server.answers["/apis/ccompat/v7/schemas/ids/1"] = {"schema": '"long"'}
    assert decoders(f"{server.url}/apis/ccompat/v7/").find(1)(b"\x02") == b"1"


def test_references_are_followed_each_once_and_in_front_of_who_needs_them(server: RegistryServer) -> None:
    city = {"type": "record", "name": "City", "fields": [{"name": "name", "type": "string"}]}
    home = {"type": "record", "name": "Home", "fields": [{"name": "city", "type": "City"}]}
    both = {
        "type": "record",
        "name": "Both",
        "fields": [{"name": "home", "type": "Home"}, {"name": "city", "type": "City"}],
    }
    of_city = {"name": "City", "subject": "geo/city", "version": 3}
    server.add(1, both, references=[{"name": "Home", "subject": "home", "version": 1}, of_city])
    server.answers["/subjects/home/versions/1"] = {"schema": json.dumps(home), "references": [of_city]}
    server.answers["/subjects/geo%2Fcity/versions/3"] = {"schema": json.dumps(city)}
    written = avro("string", "Ulm") + avro("string", "Bonn")
    assert decoders(server.url).find(1)(written) == b'{"home":{"city":{"name":"Ulm"}},"city":{"name":"Bonn"}}'
    assert len(server.asked) == 3


def test_protobuf_is_asked_for_as_descriptors_with_what_it_imports(server: RegistryServer) -> None:
    files = read_proto_files(PROTO_ENVELOPE, {PROTO_FILE: PROTO_ROW})
    of_row, described = (base64.b64encode(file.SerializeToString()).decode() for file in files)
    reference = {"name": PROTO_FILE, "subject": "row", "version": 4}
    server.add(1, PROTO_ENVELOPE, schemaType="PROTOBUF", references=[reference])
    server.answers["/schemas/ids/1?format=serialized"] = {"schema": described, "references": [reference]}
    server.answers["/subjects/row/versions/4?format=serialized"] = {"schema": of_row}
    found = json.loads(decoders(server.url).find(1)(protobuf(envelope(3, name="n"))))
    assert found == envelope(3, name="n")
    assert server.asked == [
        "/schemas/ids/1",
        "/schemas/ids/1?format=serialized",
        "/subjects/row/versions/4?format=serialized",
    ]


def test_references_in_a_circle_end(server: RegistryServer) -> None:
    server.add(1, RECORD, references=[{"name": "a", "subject": "a", "version": 1}])
    of_a = {"name": "a", "subject": "a", "version": 1}
    server.answers["/subjects/a/versions/1"] = {"schema": json.dumps(RECORD), "references": [of_a]}
    assert decoders(server.url).find(1)(b"\x02") == b'{"id":1}'


@pytest.mark.parametrize(
    ("more", "login"),
    [
        ({}, None),
        ({"user": "u", "password": "p"}, "Basic dTpw"),
        ({"user": "ü"}, "Basic w7w6"),
        ({"token": "t"}, "Bearer t"),
    ],
)
def test_it_logs_in_as_the_options_say(server: RegistryServer, more: dict[str, str], login: str | None) -> None:
    server.add(1, RECORD)
    decoders(server.url, **more).find(1)
    assert server.logins == [login]


def test_a_schema_that_is_not_there_is_no_trouble_of_the_registry_and_is_not_asked_for_at_once_again(
    server: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "_BEHIND_SECONDS", 0.0)
    known = decoders(server.url)
    for _ in range(2):
        with pytest.raises(SchemaError, match=r"does not have it \(40403\)"):
            known.find(9)
    assert server.asked == ["/schemas/ids/9"]
    monkeypatch.setattr(decoding, "_MISSING_SECONDS", 0.0)
    server.add(9, RECORD)
    assert known.find(9)(b"\x02") == b'{"id":1}'


def test_a_schema_that_the_registry_has_a_moment_later_is_waited_for_and_others_that_it_lacks_are_not(
    server: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = decoders(server.url)
    for _ in range(2):
        with pytest.raises(RegistryUnavailable, match="does not have schema 9 yet: it is asked again for 3 s"):
            known.find(9)
    server.add(9, RECORD)
    assert known.find(9)(b"\x02") == b'{"id":1}'
    with pytest.raises(RegistryUnavailable):
        known.find(10)
    monkeypatch.setattr(decoding, "_BEHIND_SECONDS", 0.0)
    with pytest.raises(SchemaError, match=r"does not have it \(40403\)"):
        known.find(10)
    monkeypatch.undo()
    with pytest.raises(SchemaError, match=r"does not have it \(40403\)"):
        known.find(11)


def test_a_registry_that_fails_meanwhile_is_waited_for_anew(
    server: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = decoders(server.url)
    with pytest.raises(RegistryUnavailable, match="does not have schema 9 yet"):
        known.find(9)
    server.fault = lambda: (503, b"")
    with pytest.raises(RegistryUnavailable, match="status 503"):
        known.find(9)
    server.fault = None
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + decoding._BEHIND_SECONDS)
    with pytest.raises(RegistryUnavailable, match="does not have schema 9 yet"):
        known.find(9)


def test_a_server_that_does_not_have_a_schema_is_not_the_last_one_to_be_asked(server: RegistryServer) -> None:
    server.add(9, RECORD)
    with registry_server() as behind:
        assert decoders(behind.url, server.url).find(9)(b"\x02") == b'{"id":1}'
        assert len(behind.asked) == 1


def test_no_registry_is_asked_for_an_id_that_none_has(server: RegistryServer) -> None:
    with pytest.raises(SchemaError, match="no registry has an id as large"):
        decoders(server.url).find(0x80000000)
    assert server.asked == []


def test_two_schemas_of_each_of_a_thousand_tables_are_asked_for_once(server: RegistryServer) -> None:
    known = decoders(server.url)
    numbers = range(2_000)
    server.answers |= {f"/schemas/ids/{number}": {"schema": json.dumps(RECORD)} for number in numbers}
    for number in (*numbers, *numbers):
        known.find(number)
    assert len(server.asked) == len(numbers)


FAULTS: dict[str, tuple[int, Any]] = {
    "an error of its own": (500, {"error_code": 50001}),
    "too many questions": (429, b""),
    "a proxy's page": (404, b"<html>not here</html>"),
    "another service": (404, {"error_code": 404, "message": "HTTP 404 Not Found"}),
    "a move": (301, b""),
    "no JSON": (200, b"<html>welcome</html>"),
    "a list": (200, []),
    "deep JSON": (200, b"[" * 100_000),
}


@pytest.mark.parametrize("name", FAULTS)
def test_answers_that_are_no_registrys_are_waited_for(server: RegistryServer, name: str) -> None:
    server.add(1, RECORD)
    server.fault = lambda: FAULTS[name]
    known = decoders(server.url)
    with pytest.raises(RegistryUnavailable, match=f"no usable answer from the schema registry {server.url}: "):
        known.find(1)
    server.fault = None
    assert known.find(1)(b"\x02") == b'{"id":1}'


def test_another_server_is_asked_when_one_does_not_answer_and_first_from_then_on(server: RegistryServer) -> None:
    server.add(1, RECORD)
    server.add(2, RECORD)
    with registry_server() as broken:
        broken.fault = lambda: (503, b"")
        known = decoders(nobody(), broken.url, server.url)
        known.find(1)
        known.find(2)
        assert (len(broken.asked), len(server.asked)) == (1, 2)
    server.fault = lambda: (500, b"")
    with pytest.raises(
        RegistryUnavailable, match=f"{server.url}: it answers with the status 500; .*Connection refused"
    ):
        known.find(3)


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_says_where_to_look_and_no_secret(server: RegistryServer, status: int) -> None:
    server.fault = lambda: (status, {"error_code": status * 100 + 1, "message": "s3cret-password is wrong"})
    with pytest.raises(RegistryRefused, match="look at user and password") as refused:
        decoders(server.url, user="u", password="s3cret-password").find(1)
    assert "s3cret" not in str(refused.value)
    assert [one.severity for one in find_problems(options(server.url))] == [Severity.ERROR]


def test_a_server_that_does_not_answer_is_given_up_in_time(server: RegistryServer) -> None:
    over = threading.Event()

    def slow() -> tuple[int, Any]:
        over.wait(30)
        return 200, {}

    server.fault = slow
    try:
        with pytest.raises(RegistryUnavailable, match="no answer in time"):
            decoders(server.url, timeout="100ms").find(1)
    finally:
        over.set()


def test_a_server_that_answers_byte_by_byte_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        over = threading.Event()

        def drip() -> None:
            connection, _ = listening.accept()
            with connection, suppress(OSError):
                connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
                while not over.wait(0.02):
                    connection.sendall(b" ")

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            with pytest.raises(RegistryUnavailable, match="no answer in time"):
                decoders(f"http://127.0.0.1:{listening.getsockname()[1]}", timeout="200ms").find(1)
        finally:
            over.set()
            thread.join()


@pytest.mark.parametrize(
    ("described", "reason"),
    [
        ({"schema": "{"}, "no schema of Avro"),
        ({"schema": 5}, "has no schema"),
        ({"schema": "x", "schemaType": "XML"}, "not known here: XML"),
        ({"schema": '"long"', "references": [{"name": "a"}]}, "references are not as"),
        (
            {"schema": '"long"', "references": [{"name": "a", "subject": "a", "version": 1e999}]},
            "references are not as",
        ),
        ({"schema": '"long"', "references": [{"name": "a", "subject": "\ud800", "version": 1}]}, "references are not"),
        ({"schema": '"long"', "references": [{"name": "a", "subject": "a", "version": 1}]}, "does not have it"),
        ({"schema": '"Nowhere"'}, "neither it nor its references have: Nowhere"),
    ],
)
def test_a_schema_that_nothing_can_be_read_by_says_why(
    server: RegistryServer, described: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "_BEHIND_SECONDS", 0.0)
    server.answers["/schemas/ids/1"] = described
    with pytest.raises(SchemaError, match=reason):
        decoders(server.url).find(1)


def test_check_asks_each_server(server: RegistryServer) -> None:
    away = nobody()
    assert not list(find_problems(options(server.url)))
    [found] = find_problems(options(away, server.url))
    assert (found.severity, away in found.problem) == (Severity.WARNING, True)
    assert [one.severity for one in find_problems(options(away))] == [Severity.ERROR]
    server.answers["/schemas/types"] = MISSING
    assert [one.severity for one in find_problems(options(server.url))] == [Severity.ERROR]


def test_files_for_tls_that_cannot_be_read_any_more_are_named(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.touch()
    given = options("https://registry", ca=str(ca))
    ca.unlink()
    with pytest.raises(RegistryRefused, match=r"ca\.pem cannot be used .*No such file"):
        RegistryClient(given)
