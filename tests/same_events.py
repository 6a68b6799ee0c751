"""Whether records in Avro say what the same records of the format `debezium` say in JSON with schemas."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping
from typing import Any

from psql_streamer.events.avro.schemas import adjust_name
from psql_streamer.events.encoder import Encoder
from psql_streamer.events.routing import Router
from psql_streamer.model import Batch
from tests.avro_format import AvroWithoutRegistry
from tests.encoding import format_of


def assert_same_events(batch: Batch, router: Router, key: Mapping[str, tuple[str, ...]] | None = None) -> int:
    """Keys, values, headers, topics and what is counted. How many keys and values there were."""
    topics = [""] if batch.transaction_metadata is None else ["", "transactions"]
    return sum(_compare(batch, router, key or {}, topic) for topic in topics)


def _compare(batch: Batch, router: Router, key: Mapping[str, tuple[str, ...]], transaction_topic: str) -> int:
    form = format_of("debezium-avro", False, bool(transaction_topic))
    assert isinstance(form, AvroWithoutRegistry)
    in_json = format_of("debezium", True, bool(transaction_topic))
    found, expected = (
        Encoder(one, router, key, True, transaction_topic=transaction_topic).encode(batch) for one in (form, in_json)
    )
    assert [found.look_up_topic(at) for at in range(len(found))] == [
        expected.look_up_topic(at) for at in range(len(expected))
    ]
    assert found.headers.keys() == expected.headers.keys()
    assert all(found.headers[name].equals(expected.headers[name]) for name in expected.headers if name[0] != "_")
    assert (found.nulled, found.left_behind) == (expected.nulled, expected.left_behind)
    pairs = [
        *zip(found.keys.to_pylist(), expected.keys.to_pylist(), strict=True),
        *zip(found.values.to_pylist(), expected.values.to_pylist(), strict=True),
    ]
    for mine, theirs in pairs:
        if theirs is None:
            assert mine is None
            continue
        said = json.loads(theirs)
        assert _show(said["schema"], form.read(mine)) == _convert(said["schema"], said["payload"])
    return len(pairs)


def _convert(schema: Any, value: Any) -> Any:
    """A payload as fastavro gives it. Floats are compared by their bytes."""
    if value is None:
        return None
    match schema["type"]:
        case "bytes":
            return base64.b64decode(value)
        case "float":
            return struct.pack("<f", float(value))
        case "double":
            return struct.pack("<d", float(value))
        case "array":
            return [_convert(schema["items"], item) for item in value]
        case "map" if isinstance(value, list):
            return [[_convert(schema["keys"], name), _convert(schema["values"], item)] for name, item in value]
        case "map":
            return {name: _convert(schema["values"], item) for name, item in value.items()}
        case "struct":
            return {field["field"]: _convert(field, value.get(field["field"])) for field in schema["fields"]}
        case _:
            return value


def _show(schema: Any, value: Any) -> Any:
    """What fastavro read, in the same form: with the names of Connect's schema."""
    if value is None:
        return None
    match schema["type"]:
        case "float":
            return struct.pack("<f", value)
        case "double":
            return struct.pack("<d", value)
        case "array":
            return [_show(schema["items"], item) for item in value]
        case "map" if isinstance(value, list):
            return [[_show(schema["keys"], one["key"]), _show(schema["values"], one["value"])] for one in value]
        case "map":
            return {name: _show(schema["values"], item) for name, item in value.items()}
        case "struct":
            return {one["field"]: _show(one, value[adjust_name(one["field"])]) for one in schema["fields"]}
        case _:
            return value
