"""Schemas as a registry has them, each with those that it refers to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from psql_streamer.registry.client import RegistryClient
from psql_streamer.registry.errors import SchemaError

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"

_MOST_REFERENCES = 1_000

LARGEST_ID = (1 << 31) - 1
"""Ids are Java's integers. Registries say of others what they say of a path that they do not have."""


class Schema(NamedTuple):
    """kind: AVRO, JSON or PROTOBUF. references: texts by the names under which schemas refer to them, each behind those
    that it refers to itself.
    """

    kind: str
    text: str
    references: Mapping[str, str]


def fetch_schema(client: RegistryClient, schema: int | str) -> Schema:
    """Ask for a schema by its id, or by its GUID. Raises RegistryError and SchemaError."""
    if isinstance(schema, int) and schema > LARGEST_ID:
        raise SchemaError("no registry has an id as large as this")
    path = f"/schemas/ids/{schema}" if isinstance(schema, int) else f"/schemas/guids/{schema}"
    found = client.get(path)
    kind = str(found.get("schemaType") or AVRO)
    form = ""
    if kind == PROTOBUF:
        # Registries that do not know this form give the text of the .proto file.
        form = "?format=serialized"
        found = client.get(path + form)
    references: dict[str, str] = {}
    if kind != JSON:
        _fetch_references(client, found, form, references)
    return Schema(kind, _require_text(found), references)


def _fetch_references(client: RegistryClient, schema: Mapping[str, Any], form: str, found: dict[str, str]) -> None:
    """Add the schemas that one refers to, and those that these refer to, in front of them."""
    for name, subject, version in _parse_references(schema):
        if name in found:
            continue
        if len(found) == _MOST_REFERENCES:
            raise SchemaError(f"it refers to more than {_MOST_REFERENCES} others")
        found[name] = ""  # schemas that refer to each other in a circle end here
        other = client.get(f"/subjects/{subject}/versions/{version}{form}")
        _fetch_references(client, other, form, found)
        del found[name]
        found[name] = _require_text(other)


def _parse_references(schema: Mapping[str, Any]) -> Iterator[tuple[str, str, int]]:
    """The name, the subject as it stands in a path, and the version of each."""
    try:
        for one in schema.get("references") or ():
            yield str(one["name"]), quote(str(one["subject"]), safe=""), int(one["version"])
    except (KeyError, TypeError, ValueError, OverflowError):
        raise SchemaError("its references are not as a registry writes them") from None


def _require_text(schema: Mapping[str, Any]) -> str:
    text = schema.get("schema")
    if not isinstance(text, str):
        raise SchemaError("the registry's answer has no schema")
    return text
