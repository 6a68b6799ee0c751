"""Schemas that are registered in a real registry, Apicurio Registry, or looked up there."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
import uuid
from typing import Any

import pytest

from psql_streamer.embedded.ports import free_ports
from psql_streamer.registry.checking import find_problems
from psql_streamer.registry.errors import RegistryRefused, RegistryUnavailable
from psql_streamer.registry.options import RegistryOptions
from psql_streamer.registry.subjects import Subjects
from tests.apicurio import ApicurioRegistry
from tests.registry_level import set_level
from tests.registry_server import registry_server


@pytest.fixture
def name() -> str:
    """Of records and subjects of this test."""
    return f"s{uuid.uuid4().hex[:10]}"


def options(*urls: str, **more: Any) -> RegistryOptions:
    return RegistryOptions.model_validate({"url": urls} | more)


def subjects(*urls: str, registers: bool = True, **more: Any) -> Subjects:
    return Subjects(options(*urls, **more), registers)


def record(name: str, *fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": name, "fields": [{"name": "id", "type": "long"}, *fields]})


@pytest.mark.parametrize("ending", ["-value", "/with a %, ü and :.?#+"])
def test_a_schema_has_one_id_whoever_registers_it_and_under_whatever_subject(
    registry: ApicurioRegistry, name: str, ending: str
) -> None:
    schema = record(name)
    first = subjects(registry.url).find_id(f"{name}{ending}", schema)
    assert subjects(registry.url).find_id(f"{name}{ending}", schema) == first
    assert subjects(registry.url).find_id(f"{name}-other", schema) == first
    assert subjects(registry.url, registers=False).find_id(f"{name}{ending}", schema) == first
    assert subjects(registry.url).find_id(f"{name}{ending}", record(name, {"name": "x", "type": "int"})) != first
    with urllib.request.urlopen(f"{registry.url}/subjects", timeout=30) as response:
        assert f"{name}{ending}" in json.load(response)


@pytest.mark.behaviour("A4")
def test_keys_keep_the_id_of_an_older_version_with_other_attributes(registry: ApicurioRegistry, name: str) -> None:
    attributed = json.dumps({**json.loads(record(name)), "connect.name": name})
    first = registry.register(name, attributed)
    assert subjects(registry.url).find_id(name, record(f"{name}_of_another_source"), of_keys=True) != first
    assert subjects(registry.url).find_id(name, record(name), of_keys=True) == first


def test_an_incompatible_schema_is_refused_with_difference_and_level_until_the_command_is_run(
    registry: ApicurioRegistry, name: str
) -> None:
    known = subjects(registry.url)
    known.find_id(name, record(name))
    set_level(registry, name, "BACKWARD")
    changed = record(name, {"name": "price", "type": "string"})
    with pytest.raises(RegistryRefused) as refused:
        known.find_id(name, changed)
    said = str(refused.value)
    assert f"the schema registry {registry.url} does not take the schema of the subject {name} (409)" in said
    assert "incompatible with an earlier one by the level BACKWARD: it says " in said
    assert "price at /fields/1" in said
    assert f"{registry.url}/config/{name}" in said
    set_level(registry, name, "NONE")
    assert known.find_id(name, changed) > 0


def test_a_schema_that_not_only_the_latest_one_is_to_be_compatible_with_is_refused_with_the_level(
    registry: ApicurioRegistry, name: str
) -> None:
    known = subjects(registry.url)
    known.find_id(name, record(name))
    set_level(registry, name, "BACKWARD_TRANSITIVE")
    known.find_id(name, record(name, {"name": "x", "type": "string", "default": ""}))
    with pytest.raises(RegistryRefused, match=r"by the level BACKWARD_TRANSITIVE: it says .*x at /fields/1"):
        known.find_id(name, record(name, {"name": "x", "type": "string"}))


def test_what_is_missing_is_refused_until_somebody_registers_it_with_whatever_spaces(
    registry: ApicurioRegistry, name: str
) -> None:
    known = subjects(registry.url, registers=False)
    two = [{"name": one, "type": "string"} for one in ("b", "a")]
    schema = record(name, *two)
    with pytest.raises(RegistryRefused, match=rf"does not have the subject {name} \(40401\)"):
        known.find_id(name, schema)
    registry.register(name, record(name, *reversed(two)))
    with pytest.raises(RegistryRefused, match=rf"does not have this schema under the subject {name} \(40403\)"):
        known.find_id(name, schema)
    number = registry.register(name, json.dumps(json.loads(schema), indent=4))
    assert known.find_id(name, schema) == number


def test_a_schema_that_is_none_is_refused_in_the_registrys_words(registry: ApicurioRegistry, name: str) -> None:
    with pytest.raises(RegistryRefused, match=rf"schema of the subject {name} \(422, 42201\): it says "):
        subjects(registry.url).find_id(name, '{"type": "recod"}')


def test_a_path_at_which_there_is_no_registry_is_told(registry: ApicurioRegistry, name: str) -> None:
    with pytest.raises(RegistryUnavailable, match="it may be no schema registry"):
        subjects(registry.url.partition("/apis")[0]).find_id(name, record(name))


def test_while_a_registry_hangs_or_is_away_another_server_is_asked_and_else_it_is_waited_for(
    registry: ApicurioRegistry, name: str
) -> None:
    known = subjects(registry.url, timeout="300ms")
    os.kill(registry.pid, signal.SIGSTOP)
    try:
        with pytest.raises(RegistryUnavailable, match=f"{registry.url}: no answer in time"):
            known.find_id(name, record(name))
    finally:
        os.kill(registry.pid, signal.SIGCONT)
    registry.stop(kill=True)
    with pytest.raises(RegistryUnavailable, match=f"{registry.url}: Connection refused"):
        known.find_id(name, record(name))
    with registry_server({f"POST /subjects/{name}/versions": {"id": 77}}) as other:
        assert subjects(registry.url, other.url).find_id(name, record(name)) == 77
    registry.start()
    nobody = f"http://127.0.0.1:{free_ports(1)[0]}"
    first = subjects(nobody, registry.url).find_id(name, record(name))
    assert subjects(registry.url).find_id(name, record(name)) == first


def test_check_asks_the_registry_and_writes_nothing_there(registry: ApicurioRegistry) -> None:
    def fetch_subjects() -> bytes:
        with urllib.request.urlopen(f"{registry.url}/subjects", timeout=30) as response:
            return bytes(response.read())

    before = fetch_subjects()
    assert list(find_problems(options(registry.url))) == []
    assert fetch_subjects() == before


@pytest.mark.behaviour("A4")
def test_keys_keep_the_id_that_others_registered_with_defaults_and_attributes(
    registry: ApicurioRegistry, name: str
) -> None:
    theirs = {
        "type": "record",
        "name": name,
        "connect.name": name,
        "fields": [{"name": "id", "type": "long", "default": 0}],
    }
    before = registry.register(f"{name}-key", theirs)
    assert subjects(registry.url).find_id(f"{name}-key", record(name), of_keys=True) == before
    assert subjects(registry.url).find_id(f"{name}-value", record(name)) != before
