"""Whether two Avro schemas have the same encoding.

Source: Avro specification 1.12, "Transforming into Parsing Canonical Form".
"""

from __future__ import annotations

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
