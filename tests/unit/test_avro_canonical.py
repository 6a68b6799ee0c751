"""Schemas that are encoded alike are found to be: fastavro is the oracle."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fastavro.schema import to_parsing_canonical_form

from psql_streamer.registry.canonical import make_canonical

OBSERVED = Path(__file__).parents[1] / "data" / "debezium" / "avro.jsonl"


def test_schemas_of_debezium_have_the_canonical_form_that_fastavro_gives() -> None:
    found = [json.loads(json.loads(line)["avro"]) for line in OBSERVED.read_text(encoding="utf-8").split("\n")[:-1]]
    for schema in found:
        assert make_canonical(schema) == json.loads(to_parsing_canonical_form(schema))
    assert len(found) > 50


@pytest.mark.parametrize(
    "schema",
    [
        "long",
        {"type": "long", "logicalType": "timestamp-micros"},
        {"type": "map", "values": {"type": "array", "items": ["null", "string"]}},
        {"type": "enum", "name": "a.Mood", "symbols": ["SAD", "HAPPY"], "default": "SAD", "doc": "how it is"},
        {"type": "fixed", "name": "Id", "namespace": "a.b", "size": 16, "aliases": ["Old"]},
        {
            "type": "record",
            "name": "Row",
            "namespace": "a",
            "fields": [
                {"name": "one", "type": {"type": "fixed", "name": "Id", "size": 2}, "default": "xx", "order": "ignore"},
                {"name": "two", "type": ["null", "Id"], "default": None},
                {"name": "row", "type": ["null", "a.Row"], "doc": "itself"},
            ],
        },
    ],
)
def test_schemas_of_all_kinds_have_the_canonical_form_that_fastavro_gives(schema: object) -> None:
    assert make_canonical(schema) == json.loads(to_parsing_canonical_form(schema))  # type: ignore[arg-type]


@pytest.mark.parametrize("schema", [1, None, {}, {"type": "array"}, {"type": "record", "name": "R"}, [{"type": 1}]])
def test_what_is_no_schema_is_an_error(schema: object) -> None:
    with pytest.raises((KeyError, TypeError, AttributeError)):
        make_canonical(schema)
