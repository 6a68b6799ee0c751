"""Kafka Connect's schemas as Avro's, as Connect's AvroConverter writes them.

Source: io.confluent.connect.avro.AvroData.fromConnectSchema; Debezium documentation, "Avro serialization", for names.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeAlias

from psql_streamer.errors import SinkRefused
from psql_streamer.events.debezium.connect_type import Schema

AvroSchema: TypeAlias = dict[str, Any] | list[Any] | str

_PRIMITIVES = {
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "string": "string",
    "bytes": "bytes",
}
_NARROW = ("int8", "int16")
"""Types that Avro has none for: an attribute says which it was."""

_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_PRECISION = "connect.decimal.precision"
_PRECISION_OF_OTHERS = 64
"""The precision of decimals that do not say theirs."""

_NAMESPACE, _UNNAMED, _ENTRY = "io.confluent.connect.avro", "ConnectDefault", "MapEntry"


def make_avro_schema(schema: Schema) -> str:
    """The Avro schema of a struct, as JSON. SinkRefused: two fields get one name.

    The text is the one that AvroData gives, so that a registry has one id for it, whoever registers it.
    """
    return json.dumps(_Conversion().convert(schema, ""), ensure_ascii=False, separators=(",", ":"))


def adjust_name(name: str) -> str:
    """A name of a field that Avro takes: other characters become `_`, those beyond the BMP two, as they do in Java."""
    plain = re.sub(r"[^A-Za-z0-9_]", lambda found: "_" if ord(found[0]) < _FIRST_OF_TWO else "__", name)
    return f"_{plain}" if re.match(r"[0-9]|$", plain) else plain


def adjust_full_name(name: str) -> str:
    """The same of a record's name, whose parts are apart by dots."""
    return ".".join(map(adjust_name, name.split(".")))


_FIRST_OF_TWO = 0x10000
"""From this character on, UTF-16 takes two units."""


class _Conversion:
    """One schema on its way. Named types are written out where they are met first, and by name after that.

    space: the namespace of the record around a type; names are without it.
    """

    def __init__(self) -> None:
        self._known: dict[str, Sequence[Schema]] = {}
        self._unnamed: dict[str, str] = {}

    def convert(self, schema: Schema, space: str) -> AvroSchema:
        """The schema; a union with null where it is optional."""
        made = self._convert_present(schema, space)
        if not schema.get("optional"):
            return made
        return ["null", made] if schema.get("default") is None else [made, "null"]

    def _convert_present(self, schema: Schema, space: str) -> AvroSchema:
        match schema["type"]:
            case "struct":
                return self._convert_struct(schema, space)
            case "array":
                made: dict[str, Any] = {"type": "array", "items": self.convert(schema["items"], space)}
            case "map":
                made = self._convert_map(schema, space)
            case kind:
                made = {"type": _PRIMITIVES[kind]}
        if schema.get("name") == _DECIMAL:
            return _describe_decimal(made, schema)
        made |= _list_attributes(schema)
        return made["type"] if len(made) == 1 else made

    def _convert_map(self, schema: Schema, space: str) -> dict[str, Any]:
        """Avro's maps have strings for keys; others are arrays of entries."""
        if schema["keys"]["type"] == "string" and not schema["keys"].get("optional"):
            return {"type": "map", "values": self.convert(schema["values"], space)}
        fields = [{**schema["keys"], "field": "key"}, {**schema["values"], "field": "value"}]
        return {"type": "array", "items": self._convert_struct({"type": "struct", "fields": fields}, space, _ENTRY)}

    def _convert_struct(self, schema: Schema, space: str, unnamed: str = _UNNAMED) -> AvroSchema:
        fields = schema["fields"]
        full = adjust_full_name(schema["name"]) if "name" in schema else self._name_unnamed(unnamed, fields)
        namespace, _, name = full.rpartition(".")
        if full in self._known:
            if self._known[full] != fields:
                raise SinkRefused(f"two records of other fields have the name {full} in one Avro schema")
            return name if namespace == space else full
        self._known[full] = fields
        made: dict[str, Any] = {"type": "record", "name": name}
        if namespace != space:
            made["namespace"] = namespace
        made["fields"] = self._convert_fields(full, fields, namespace)
        return made | _list_attributes(schema)

    def _convert_fields(self, record: str, fields: Sequence[Schema], space: str) -> list[dict[str, Any]]:
        names = [adjust_name(field["field"]) for field in fields]
        for name, count in Counter(names).items():
            if count > 1:
                alike = [field["field"] for field, its in zip(fields, names, strict=True) if its == name]
                raise SinkRefused(
                    f"the columns {' and '.join(map(json.dumps, alike))} of {record} have one name in Avro, {name}: it "
                    "takes letters of ASCII, digits and _",
                    "rename one of them, in the table or by a rule, or leave it out with excludeColumns",
                )
        return [self._convert_field(name, field, space) for name, field in zip(names, fields, strict=True)]

    def _convert_field(self, name: str, field: Schema, space: str) -> dict[str, Any]:
        made: dict[str, Any] = {"name": name, "type": self.convert(field, space)}
        if field.get("default") is not None:
            made["default"] = field["default"]
        elif field.get("optional"):
            made["default"] = None
        return made

    def _name_unnamed(self, word: str, fields: Sequence[Schema]) -> str:
        """Equal structs without a name have one name."""
        known_by = json.dumps([word, fields])
        if known_by not in self._unnamed:
            count = sum(name.startswith(f"{_NAMESPACE}.{word}") for name in self._unnamed.values())
            self._unnamed[known_by] = f"{_NAMESPACE}.{word}{count + 1 if count else ''}"
        return self._unnamed[known_by]


def _describe_decimal(made: dict[str, Any], schema: Schema) -> dict[str, Any]:
    """Avro has no decimals with more digits behind the point than they have, or fewer than none: they are bytes there,
    and Decimals for Connect all the same.
    """
    parameters = schema["parameters"]
    scale, precision = int(parameters["scale"]), int(parameters.get(_PRECISION, _PRECISION_OF_OTHERS))
    made |= {"scale": scale, "precision": precision, **_list_attributes(schema)}
    return {**made, "logicalType": "decimal"} if 0 <= scale <= precision else made


def _list_attributes(schema: Schema) -> dict[str, Any]:
    """What Avro has no place for."""
    found = {
        "connect.doc": schema.get("doc"),
        "connect.version": schema.get("version"),
        "connect.parameters": schema.get("parameters"),
        "connect.default": schema.get("default"),
        "connect.name": _adjust_optional_name(schema),
        "connect.type": schema["type"] if schema["type"] in _NARROW else None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _adjust_optional_name(schema: Schema) -> str | None:
    name = schema.get("name")
    return name if name is None or schema["type"] != "struct" else adjust_full_name(name)
