"""Ids of schemas under subjects: what a registry is asked, and what becomes of its answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from psql_streamer.embedded.ports import free_ports
from psql_streamer.registry import subjects as subjects_module
from psql_streamer.registry.errors import RegistryError, RegistryRefused, RegistryUnavailable
from psql_streamer.registry.options import RegistryOptions
from psql_streamer.registry.subjects import Subjects
from tests.kafka_sinks import wait_until
from tests.registry_server import RegistryServer, registry_server

SCHEMA = '{"type":"record","name":"Value","fields":[{"name":"id","type":"long"}]}'
LOOK_UP = "POST /subjects/s"
REGISTER = "POST /subjects/s/versions"
COMPARE = "POST /compatibility/subjects/s/versions/latest?verbose=true"
LEVEL = "/config/s?defaultToGlobal=true"
INCOMPATIBLE = 409, {"error_code": 409, "message": "incompatible with an earlier schema"}
SECRET = "hunter-of-many-characters"


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with registry_server() as running:
        yield running


def subjects(*urls: str, registers: bool = True, **more: Any) -> Subjects:
    return Subjects(RegistryOptions.model_validate({"url": urls, "timeout": "2s"} | more), registers)


def refused(server: RegistryServer, *, registers: bool = True, **more: Any) -> str:
    with pytest.raises(RegistryRefused) as found:
        subjects(server.url, registers=registers, **more).find_id("s", SCHEMA)
    return str(found.value)


def test_a_schema_is_registered_once_under_each_subject(server: RegistryServer) -> None:
    server.answers |= {REGISTER: {"id": 7}, "POST /subjects/other/versions": {"id": 7, "version": 1}}
    known = subjects(server.url)
    assert [known.find_id(subject, SCHEMA) for subject in ("s", "other", "s", "other")] == [7, 7, 7, 7]
    assert server.asked == [REGISTER, "POST /subjects/other/versions"]
    assert server.posted == [{"schema": SCHEMA, "schemaType": "AVRO"}] * 2


def test_each_schema_of_a_subject_has_its_own_id(server: RegistryServer) -> None:
    known = subjects(server.url)
    for number, schema in enumerate((SCHEMA, '"long"')):
        server.answers[REGISTER] = {"id": number}
        assert known.find_id("s", schema) == number
    assert known.find_id("s", SCHEMA) == 0


@pytest.mark.behaviour("A3")
def test_an_id_that_two_schemas_are_given_is_refused_with_both_subjects_and_the_server(server: RegistryServer) -> None:
    server.answers[REGISTER] = {"id": 7}
    with registry_server({"POST /subjects/other/versions": {"id": 7}}) as other:
        known = subjects(server.url, other.url)
        known.find_id("s", SCHEMA)
        server.fault = lambda: (503, {})
        for _ in range(2):
            with pytest.raises(RegistryRefused) as found:
                known.find_id("other", '"long"')
    assert f"the schema registry {other.url} gives the id 7 to a schema of the subject other, " in str(found.value)
    assert "that of another schema, of the subject s: " in str(found.value)
    assert known.find_id("s", SCHEMA) == 7


def test_schemas_that_are_encoded_alike_may_have_one_id(server: RegistryServer) -> None:
    server.answers[REGISTER] = {"id": 7}
    known = subjects(server.url)
    assert [known.find_id("s", schema) for schema in (SCHEMA, WITH_DEFAULT)] == [7, 7]


LATEST = "/subjects/s/versions/latest"
WITH_DEFAULT = (
    '{"type":"record","name":"Value","fields":[{"name":"id","type":{"type":"long","connect.default":0},"default":0}],'
    '"connect.name":"Value"}'
)


@pytest.mark.behaviour("A4")
@pytest.mark.parametrize("registers", [True, False])
def test_keys_keep_the_id_of_the_latest_version_that_has_the_same_encoding(
    server: RegistryServer, registers: bool
) -> None:
    server.answers[LATEST] = {"id": 3, "version": 2, "schema": WITH_DEFAULT}
    known = subjects(server.url, registers=registers)
    assert [known.find_id("s", SCHEMA, of_keys=True) for _ in range(2)] == [3, 3]
    assert server.asked == [LATEST]


@pytest.mark.parametrize(
    "latest",
    [
        {"id": 3, "schema": WITH_DEFAULT.replace("long", "int")},
        {"id": 3, "schema": WITH_DEFAULT.replace("id", "key")},
        {"id": 3, "schema": "{"},
        {"id": 3, "schema": '{"type":"record"}'},
        {"id": 3, "schema": "[[[1]]]"},
        {"id": "3", "schema": WITH_DEFAULT},
        {"schema": WITH_DEFAULT},
        {"id": 3},
    ],
)
def test_keys_of_another_encoding_have_an_id_of_their_own(server: RegistryServer, latest: Any) -> None:
    server.answers |= {LATEST: latest, REGISTER: {"id": 7}}
    assert subjects(server.url).find_id("s", SCHEMA, of_keys=True) == 7


def key_of(kind: Any) -> str:
    return json.dumps({"type": "record", "name": "Key", "fields": [{"name": "id", "type": kind}]})


def decimal(scale: int, precision: int = 10) -> dict[str, Any]:
    parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    made = {"type": "bytes", "scale": scale, "precision": precision, "connect.parameters": parameters}
    return {**made, "connect.name": "org.apache.kafka.connect.data.Decimal", "logicalType": "decimal"}


def named(name: str) -> dict[str, Any]:
    return {"type": "long", "connect.version": 1, "connect.name": f"io.debezium.time.{name}"}


@pytest.mark.behaviour("A4")
@pytest.mark.parametrize(
    ("latest", "schema"),
    [
        (decimal(2), decimal(3)),
        ({**decimal(-2), "logicalType": None}, {**decimal(-3), "logicalType": None}),
        (named("Timestamp"), named("MicroTimestamp")),
        (named("Timestamp"), "long"),
        ("long", named("Timestamp")),
        (["null", named("Timestamp")], ["null", named("MicroTimestamp")]),
        ({"type": "array", "items": decimal(2)}, {"type": "array", "items": decimal(3)}),
    ],
)
def test_keys_whose_bytes_mean_another_value_have_an_id_of_their_own(
    server: RegistryServer, latest: Any, schema: Any
) -> None:
    server.answers |= {LATEST: {"id": 3, "version": 1, "schema": key_of(latest)}, REGISTER: {"id": 7}}
    assert subjects(server.url).find_id("s", key_of(schema), of_keys=True) == 7


def test_keys_of_another_precision_have_the_same_id(server: RegistryServer) -> None:
    server.answers[LATEST] = {"id": 3, "version": 1, "schema": key_of(decimal(2))}
    assert subjects(server.url).find_id("s", key_of(decimal(2, precision=12)), of_keys=True) == 3


@pytest.mark.behaviour("A4")
def test_keys_keep_their_id_when_others_have_registered_versions_behind_theirs(server: RegistryServer) -> None:
    other = WITH_DEFAULT.replace("Value", "Other")
    server.answers |= {
        LATEST: {"id": 9, "version": 5, "schema": other},
        LATEST.replace("latest", "4"): (404, {"error_code": 40402, "message": "it was deleted"}),
        LATEST.replace("latest", "3"): {"id": 3, "version": 3, "schema": WITH_DEFAULT},
        LATEST.replace("latest", "2"): {"id": 2, "version": 2, "schema": SCHEMA},
    }
    assert subjects(server.url).find_id("s", SCHEMA, of_keys=True) == 3
    assert [asked.rpartition("/")[2] for asked in server.asked] == ["latest", "4", "3"]


@pytest.mark.parametrize("version", [1 << 40, "9", None, -1, 0, True])
def test_of_many_versions_the_last_few_are_looked_at(server: RegistryServer, version: Any) -> None:
    server.answers |= {LATEST: {"id": 9, "version": version, "schema": '"long"'}, REGISTER: {"id": 7}}
    assert subjects(server.url).find_id("s", SCHEMA, of_keys=True) == 7
    assert len(server.asked) <= 11


def test_keys_of_a_new_subject_are_registered(server: RegistryServer) -> None:
    server.answers |= {LATEST: (404, {"error_code": 40401, "message": "not found"}), REGISTER: {"id": 7}}
    assert subjects(server.url).find_id("s", SCHEMA, of_keys=True) == 7


def test_a_schema_that_may_not_be_registered_is_looked_up(server: RegistryServer) -> None:
    server.answers[LOOK_UP] = {"subject": "s", "version": 3, "id": 7, "schema": SCHEMA}
    assert subjects(server.url, registers=False).find_id("s", SCHEMA) == 7
    assert (server.asked, server.posted) == ([LOOK_UP], [{"schema": SCHEMA, "schemaType": "AVRO"}])


MISSING_SCHEMA = 404, {"error_code": 40403, "message": "Schema not found"}
WRITTEN_OTHERWISE = """{"fields": [{"type": "long", "name": "id"}],
    "name": "Value", "type": "record"}"""


def test_a_schema_that_others_have_registered_with_other_spaces_is_found(server: RegistryServer) -> None:
    server.answers |= {LOOK_UP: MISSING_SCHEMA, f"{LOOK_UP}?normalize=true": {"id": 7, "schema": WRITTEN_OTHERWISE}}
    assert subjects(server.url, registers=False).find_id("s", SCHEMA) == 7


@pytest.mark.parametrize(
    "other",
    [
        {"id": 7, "schema": SCHEMA.replace("long", "int")},
        {"id": 7, "schema": SCHEMA.replace("[", '[{"name":"a","type":"long"},')},
        {"id": 7, "schema": "{"},
        {"id": 7, "schema": "[" * 100_000},
        {"id": 7},
        (422, {"error_code": 42201}),
    ],
)
def test_a_schema_that_a_registry_takes_for_the_same_and_is_another_one_is_missing(
    server: RegistryServer, other: Any
) -> None:
    server.answers |= {LOOK_UP: MISSING_SCHEMA, f"{LOOK_UP}?normalize=true": other}
    assert "does not have this schema under the subject s (40403)" in refused(server, registers=False)


def test_names_of_subjects_are_quoted_in_the_path(server: RegistryServer) -> None:
    server.answers["POST /at/subjects/a%2Fb%25%20%C3%BC%3F%23%3Ac/versions"] = {"id": 7}
    assert subjects(f"{server.url}/at").find_id("a/b% ü?#:c", SCHEMA) == 7


def test_it_logs_in_as_the_options_say(server: RegistryServer) -> None:
    server.answers[REGISTER] = {"id": 7}
    subjects(server.url, user="u", password="p").find_id("s", SCHEMA)
    assert server.logins == ["Basic dTpw"]


def test_ids_are_forgotten_when_they_are_too_many(server: RegistryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subjects_module, "_MOST_SUBJECT_SCHEMAS", 2)
    server.answers |= {f"POST /subjects/{name}/versions": {"id": 7} for name in "abc"}
    known = subjects(server.url)
    for name in "ababcac":
        known.find_id(name, SCHEMA)
    assert [asked.split("/")[2] for asked in server.asked] == ["a", "b", "c", "a"]


FAULTS: dict[str, tuple[tuple[int, Any], str]] = {
    "an error of its own": ((500, {"error_code": 50001}), "status 500"),
    "no leader": ((503, {"error_code": 50301}), "status 503"),
    "too many questions": ((429, b""), "status 429"),
    "another service": ((404, b"<html>not here</html>"), "it may be no schema registry"),
    "a framework's own error": ((404, {"error_code": 404, "message": "HTTP 404"}), "it may be no schema registry"),
    "a proxy that takes no POST": ((405, b""), "status 405"),
    "a proxy's page": ((409, b"<html>conflict</html>"), "status 409"),
    "a registry that lacks what it is given": ((404, {"error_code": 40403}), r"does not have it \(40403\)"),
    "a move": ((307, b""), "status 307"),
    "no JSON": ((200, b"<html>welcome</html>"), "no JSON"),
    "a list": ((200, [7]), "no JSON object"),
    "no id": ((200, {"version": 1}), "no id of a schema"),
    "a text for an id": ((200, {"id": "7"}), "no id of a schema"),
    "a truth for an id": ((200, {"id": True}), "no id of a schema"),
    "an id below 0": ((200, {"id": -1}), "no id of a schema"),
    "an id that does not fit into a frame": ((200, {"id": 1 << 31}), "no id of a schema"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_answers_that_may_pass_are_waited_for(server: RegistryServer, name: str) -> None:
    answer, reason = FAULTS[name]
    server.fault = lambda: answer
    known = subjects(server.url)
    with pytest.raises(
        RegistryUnavailable, match=f"no usable answer from the schema registry {server.url}: .*{reason}"
    ):
        known.find_id("s", SCHEMA)
    server.fault = None
    server.answers[REGISTER] = {"id": 7}
    assert known.find_id("s", SCHEMA) == 7


def test_a_failure_is_told_with_the_subject_and_in_the_words_of_the_registry(server: RegistryServer) -> None:
    server.answers[REGISTER] = 500, {"error_code": 50001, "message": "Schema is too large\n for the topic"}
    with pytest.raises(RegistryUnavailable) as found:
        subjects(server.url).find_id("s", SCHEMA)
    assert 'with the status 500: it says "Schema is too large for the topic" (subject s): ' in str(found.value)
    server.answers[REGISTER] = 500, {"message": f"no {SECRET}"}
    with pytest.raises(RegistryUnavailable) as found:
        subjects(server.url, token=SECRET).find_id("s", SCHEMA)
    assert "its words are not shown" in str(found.value)


def test_another_server_is_asked_when_one_does_not_answer_and_first_from_then_on(server: RegistryServer) -> None:
    server.answers |= {REGISTER: {"id": 7}, "POST /subjects/other/versions": {"id": 8}}
    nobody = f"http://127.0.0.1:{free_ports(1)[0]}"
    with registry_server({REGISTER: {"no id": 7}}) as broken:
        known = subjects(nobody, broken.url, server.url)
        assert [known.find_id("s", SCHEMA), known.find_id("other", SCHEMA)] == [7, 8]
        assert (len(broken.asked), len(server.asked)) == (1, 2)


def test_a_server_that_is_behind_is_not_the_last_one_to_be_asked(server: RegistryServer) -> None:
    server.answers[LOOK_UP] = {"id": 7}
    with registry_server() as behind:
        assert subjects(behind.url, server.url, registers=False).find_id("s", SCHEMA) == 7
        assert len(behind.asked) == 1


def test_a_server_that_does_not_answer_is_given_up_in_time(server: RegistryServer) -> None:
    over = threading.Event()

    def wait() -> tuple[int, Any]:
        over.wait(30)
        return 200, {"id": 7}

    server.fault = wait
    try:
        with pytest.raises(RegistryUnavailable, match="no answer in time"):
            subjects(server.url, timeout="100ms").find_id("s", SCHEMA)
    finally:
        over.set()


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize(
    ("registers", "remedy"), [(True, "or set autoRegister = false"), (False, "lets this user read")]
)
def test_a_client_that_is_refused_is_told_where_to_look_and_no_secret(
    server: RegistryServer, status: int, registers: bool, remedy: str
) -> None:
    server.fault = lambda: (status, {"error_code": status * 100 + 1, "message": f"{SECRET} is wrong"})
    said = refused(server, registers=registers, user="u", password=SECRET)
    assert said.startswith(f"the schema registry {server.url} refuses this client ({status}) for the subject s: ")
    assert remedy in said
    assert SECRET not in said


@pytest.mark.parametrize(
    ("code", "what"), [(40401, "does not have the subject s"), (40403, "does not have this schema under the subject s")]
)
def test_what_is_missing_is_to_be_registered(server: RegistryServer, code: int, what: str) -> None:
    server.answers[LOOK_UP] = 404, {"error_code": code, "message": "not found"}
    said = refused(server, registers=False)
    assert f"the schema registry {server.url} {what} ({code})" in said
    assert f"POST {server.url}/subjects/s/versions" in said
    assert "autoRegister = true" in said


def test_an_incompatible_schema_is_refused_with_the_difference_the_level_and_what_to_do(
    server: RegistryServer,
) -> None:
    server.answers |= {
        REGISTER: INCOMPATIBLE,
        COMPARE: {
            "is_compatible": False,
            "messages": [
                "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'x' has no default value'}",
                "{oldSchemaVersion: 4}",
                f"{{oldSchema: '{SCHEMA}'}}",
                "{validateFields: 'false', compatibility: 'BACKWARD'}",
            ],
        },
        LEVEL: {"compatibilityLevel": "BACKWARD"},
    }
    said = refused(server)
    assert f"the schema registry {server.url} does not take the schema of the subject s (409)" in said
    assert "incompatible with an earlier one by the level BACKWARD" in said
    assert "The field 'x' has no default value'} {oldSchemaVersion: 4} {validateFields" in said
    assert "oldSchema:" not in said
    command = "curl -X PUT -H 'Content-Type: application/vnd.schemaregistry.v1+json' "
    assert f"""{command}-d '{{"compatibility": "NONE"}}' {server.url}/config/s""" in said
    assert server.posted == [{"schema": SCHEMA, "schemaType": "AVRO"}] * 2


@pytest.mark.parametrize("compared", [{"is_compatible": False}, (500, b""), (404, b""), (422, {}), {}])
def test_a_difference_that_a_registry_does_not_describe_is_told_in_the_words_of_its_refusal(
    server: RegistryServer, compared: Any
) -> None:
    server.answers |= {REGISTER: INCOMPATIBLE, COMPARE: compared}
    assert f'an earlier one: it says "{INCOMPATIBLE[1]["message"]}": set a level' in refused(server)


def test_a_schema_that_only_the_latest_one_is_compatible_with_is_incompatible(server: RegistryServer) -> None:
    level = {"compatibilityLevel": "FULL_TRANSITIVE"}
    server.answers |= {REGISTER: INCOMPATIBLE, COMPARE: {"is_compatible": True}, LEVEL: level}
    assert "which is incompatible with an earlier one by the level FULL_TRANSITIVE: it says " in refused(server)


READ_ONLY: list[tuple[int, Any]] = [
    (422, {"error_code": 42205, "message": "Subject s is in read-only mode"}),
    (409, {"error_code": 409, "message": "Unsupported operation: storage is in read-only mode."}),
]


@pytest.mark.parametrize("answer", READ_ONLY)
def test_a_registry_that_is_read_only_is_to_be_opened(server: RegistryServer, answer: tuple[int, Any]) -> None:
    server.answers[REGISTER] = answer
    said = refused(server)
    assert f"the schema registry {server.url} takes no new schema under the subject s in its present mode" in said
    assert answer[1]["message"] in said
    assert f"PUT {server.url}/mode/s" in said


def test_an_incompatible_column_that_is_named_read_only_is_no_mode(server: RegistryServer) -> None:
    answer = 409, {"error_code": 409, "message": "list of diff types: [read_only at /fields/1]"}
    server.answers |= {REGISTER: answer, COMPARE: {"is_compatible": False}}
    assert "incompatible with an earlier one" in refused(server)


@pytest.mark.parametrize(("registers", "asked"), [(True, REGISTER), (False, LOOK_UP)])
def test_a_schema_that_the_registry_finds_invalid_is_refused_in_its_words(
    server: RegistryServer, registers: bool, asked: str
) -> None:
    server.answers[asked] = 422, {"error_code": 42201, "message": "Invalid schema"}
    said = refused(server, registers=registers)
    assert f"the schema registry {server.url} does not take the schema of the subject s (422, 42201): it says" in said
    assert 'says "Invalid schema": look' in said


def test_words_of_a_registry_are_on_one_line_and_short_and_their_begin_and_end_are_there(
    server: RegistryServer,
) -> None:
    server.answers[REGISTER] = 422, {"error_code": 42201, "message": f"first\n\x1b[31m{'x' * 100_000} last"}
    said = refused(server)
    assert said.isprintable()
    assert len(said) < 1_000
    assert "first \\x1b[31mxxx" in said
    assert "xxx last" in said


@pytest.mark.parametrize("message", [None, 5, ["a"], {}])
def test_a_registry_may_say_nothing(server: RegistryServer, message: Any) -> None:
    server.answers[REGISTER] = 422, {"error_code": None, "message": message}
    assert "does not take the schema of the subject s (422): " in refused(server)


@pytest.mark.parametrize("login", [{"user": "u", "password": SECRET}, {"token": SECRET}])
def test_words_that_hold_the_secret_are_not_shown(server: RegistryServer, login: dict[str, str]) -> None:
    server.answers[REGISTER] = 422, {"error_code": 42201, "message": f"not for {SECRET}"}
    assert SECRET not in refused(server, **login)
    server.answers |= {
        REGISTER: INCOMPATIBLE,
        COMPARE: {"is_compatible": False, "messages": [SECRET]},
        LEVEL: {"compatibilityLevel": SECRET},
    }
    assert SECRET not in refused(server, **login)


def test_a_refused_schema_is_asked_for_again_and_hides_no_other(server: RegistryServer) -> None:
    server.answers |= {REGISTER: INCOMPATIBLE, "POST /subjects/other/versions": {"id": 8}}
    known = subjects(server.url)
    with pytest.raises(RegistryError):
        known.find_id("s", SCHEMA)
    assert known.find_id("other", SCHEMA) == 8
    server.answers[REGISTER] = {"id": 7}
    assert known.find_id("s", SCHEMA) == 7


def test_nothing_is_read_or_asked_before_the_first_schema(server: RegistryServer) -> None:
    options = RegistryOptions.model_validate({"url": server.url})
    known = Subjects(options.model_copy(update={"url": ("https://127.0.0.1:1",), "ca": "/nowhere/ca.pem"}), True)
    with pytest.raises(RegistryRefused, match=r"the file /nowhere/ca\.pem cannot be used for TLS"):
        known.find_id("s", json.dumps("long"))


def test_what_is_waited_for_is_told_with_the_subject_and_how_many_there_were(server: RegistryServer) -> None:
    server.answers[REGISTER] = {"id": 7}
    known = subjects(server.url)
    known.begin()
    known.find_id("s", SCHEMA)
    assert known.describe_wait() == ""
    with held_up(server) as asked, asking(known, "other") as errors:
        assert asked.wait(30)
        assert known.describe_wait() == ""
        wait_until(
            lambda: "registry for 1 s, now for schema 2 of this batch, of the subject other" in known.describe_wait()
        )
        known.interrupt()
    assert [type(error) for error in errors] == [RegistryUnavailable]
    assert known.describe_wait() == ""


def test_an_interrupt_ends_what_is_asked_for_and_all_that_comes_later_until_a_stop(server: RegistryServer) -> None:
    server.answers |= {REGISTER: {"id": 7}, "POST /subjects/other/versions": {"id": 7}}
    known = subjects(server.url, server.url, timeout="1m")
    known.find_id("s", SCHEMA)
    with held_up(server) as asked, asking(known, "other") as errors:
        assert asked.wait(30)
        known.interrupt()
    [error] = errors
    assert "the schema registry is not asked any more" in str(error)
    assert known.find_id("s", SCHEMA) == 7
    with pytest.raises(RegistryUnavailable, match="not asked any more"):
        known.find_id("other", SCHEMA)
    known.stop()
    assert known.find_id("other", SCHEMA) == 7


@contextmanager
def held_up(server: RegistryServer) -> Iterator[threading.Event]:
    """The registry does not answer. What is given is set when it was asked."""
    asked, over = threading.Event(), threading.Event()

    def wait() -> tuple[int, Any]:
        asked.set()
        over.wait(30)
        return 503, {}

    server.fault = wait
    try:
        yield asked
    finally:
        over.set()
        server.fault = None


@contextmanager
def asking(known: Subjects, subject: str) -> Iterator[list[RegistryError]]:
    """A thread asks for a subject meanwhile. What that raises is there at the end, which is soon."""
    raised: list[RegistryError] = []

    def ask() -> None:
        try:
            known.find_id(subject, SCHEMA)
        except RegistryError as error:
            raised.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    yield raised
    thread.join(5)
    assert not thread.is_alive()
