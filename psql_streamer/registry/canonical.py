"""Whether two Avro schemas have the same encoding, and say the same of the bytes.

Source: Avro specification 1.12, "Transforming into Parsing Canonical Form".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


def make_canonical(schema: Any, space: str = "") -> Any:
    """A schema, as `json.loads` gives it, without what says nothing of the encoding: defaults, documentation, other
    attributes. space: the namespace around it. KeyError, TypeError and AttributeError for what is no schema.
    """
    match schema:
        case str():
            return schema if schema in _PRIMITIVES else _qualify(schema, space)
        case list():
            return [make_canonical(branch, space) for branch in schema]
        case {"type": "array"}:
            return {"type": "array", "items": make_canonical(schema["items"], space)}
        case {"type": "map"}:
            return {"type": "map", "values": make_canonical(schema["values"], space)}
        case {"type": "record" | "enum" | "fixed"}:
            return _make_named(schema, _qualify(schema["name"], schema.get("namespace", space)))
        case _:
            return make_canonical(schema["type"], space)


def describe_meaning(schema: Any) -> Any:
    """The canonical form, and which values the bytes are: of equal ones readers make equal values. Raises as there.

    Bytes are a decimal by their scale, and a long is milliseconds or microseconds by its name in Connect. Names of
    records are in the canonical form.
    """
    return [make_canonical(schema), list(_list_meanings(schema, ""))]


def _list_meanings(schema: Any, path: str) -> Iterator[list[str]]:
    """Where in a schema, and what stands there."""
    match schema:
        case list():
            for number, branch in enumerate(schema):
                yield from _list_meanings(branch, f"{path}/{number}")
        case {"type": "record"}:
            for number, field in enumerate(schema["fields"]):
                yield from _list_meanings(field["type"], f"{path}/{number}")
        case dict():
            name = schema.get("logicalType") or schema.get("connect.name")
            if name is not None and schema["type"] != "enum":
                yield [path, str(name), str(schema.get("scale"))]
            of_each = {"array": "items", "map": "values"}.get(str(schema["type"]))
            yield from _list_meanings(schema[of_each or "type"], f"{path}/{of_each}" if of_each else path)


def _make_named(schema: dict[str, Any], full: str) -> dict[str, Any]:
    made: dict[str, Any] = {"name": full, "type": schema["type"]}
    match schema["type"]:
        case "record":
            space = full.rpartition(".")[0]
            made["fields"] = [
                {"name": field["name"], "type": make_canonical(field["type"], space)} for field in schema["fields"]
            ]
        case "enum":
            made["symbols"] = schema["symbols"]
        case _:
            made["size"] = int(schema["size"])
    return made


def _qualify(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"
