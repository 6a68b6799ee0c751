"""The formats do not change unnoticed: events of captured streams are those of tests/data/golden."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from psql_streamer.events import FORMATS as KNOWN
from tests.golden import FORMATS, lines, read


def test_every_format_has_a_golden_file() -> None:
    assert {form.removesuffix("_schemas") for form in FORMATS} == set(KNOWN)


@pytest.mark.parametrize("form", FORMATS)
def test_the_events_are_the_golden_ones(form: str) -> None:
    """After a change that is meant: `python -m tests.golden`, and look at what changed."""
    assert lines(FORMATS[form]) == read(form)


@pytest.mark.parametrize("form", FORMATS)
def test_every_line_of_a_golden_file_is_json(form: str) -> None:
    for line in read(form):
        assert json.loads(line).keys() == {"topic", "key", "value", "headers"}


def test_d6_unchanged_toast_is_told_apart_from_null_in_every_format() -> None:
    """The first update leaves `big` alone, the second sets it to NULL."""

    def updates(form: str) -> Iterator[Any]:
        for record in map(json.loads, read(form)):
            value = record["value"] or {}
            if record["topic"] == "by_key" and "raw" in json.dumps(record) and record["key"] == {"id": 1}:
                yield value, record["headers"]

    def of(form: str, action: str, *path: str) -> list[Any]:
        found = [(value, headers) for value, headers in updates(form) if _action(value, headers) == action]
        rows = []
        for value, _ in found:
            row = value
            for name in path:
                row = row[name]
            rows.append(row.get("big", "lacks it"))
        return rows

    assert of("event", "update", "Columns") == ["lacks it", None]
    assert of("envelope", "UPDATE", "after") == ["lacks it", None]
    assert of("debezium", "u", "after") == ["__debezium_unavailable_value", None]
    assert of("flat", "update") == ["lacks it", None]
    unchanged = [headers.get("unchanged") for value, headers in updates("flat") if headers["op"] == "update"]
    assert unchanged == ['["big"]', None]


def test_what_debezium_writes_fits_the_schema_that_it_writes() -> None:
    for record in map(json.loads, read("debezium_schemas")):
        for part in (record["key"], record["value"]):
            if part is not None:
                assert misfits(part["schema"], part["payload"], "") == []


def test_with_and_without_schemas_the_payload_is_the_same() -> None:
    plain = [json.loads(line) for line in read("debezium")]
    for record, bare in zip(map(json.loads, read("debezium_schemas")), plain, strict=True):
        for part in ("key", "value"):
            assert bare[part] == (record[part] and record[part]["payload"])


TEXT_INSTEAD = {"NaN", "-Infinity", "1 year -2 days +03:04:05"}
"""What no number says; the captured stream was not sent with the source's own IntervalStyle."""

PYTHON: dict[str, type | tuple[type, ...]] = {
    "boolean": bool,
    "int16": int,
    "int32": int,
    "int64": int,
    "float": (int, float),
    "double": (int, float),
    "string": str,
    "bytes": str,
    "array": list,
    "struct": dict,
}


def misfits(schema: dict[str, Any], value: Any, where: str) -> list[str]:
    """What of a value Connect's JSON converter would not read."""
    if value is None:
        return [] if schema["optional"] else [f"{where} is null"]
    if value in TEXT_INSTEAD if isinstance(value, str) else False:
        return []
    if not isinstance(value, PYTHON[schema["type"]]):
        return [f"{where} is {value!r}, not {schema['type']}"]
    if schema["type"] == "struct":
        fields = {field["field"]: field for field in schema["fields"]}
        strange = [f"{where}.{name} is unknown" for name in value.keys() - fields.keys()]
        return strange + [one for name, of in fields.items() for one in misfits(of, value.get(name), f"{where}.{name}")]
    if schema["type"] == "array":
        items = {**schema["items"], "optional": True}
        nested = [one for item in value if isinstance(item, list) for one in item]
        return [one for item in nested or value for one in misfits(items, item, f"{where}[]")]
    return []


def _action(value: dict[str, Any], headers: dict[str, str]) -> str | None:
    return value.get("Action") or value.get("op") or headers.get("op")
