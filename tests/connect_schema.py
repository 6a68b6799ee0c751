"""Whether a payload is what its Kafka Connect schema says, by the rules of Connect's JSON converter.

Source: Kafka's documentation of org.apache.kafka.connect.data.Schema, and what its JsonConverter takes and refuses.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator
from typing import Any


def misfits(schema: dict[str, Any], value: Any, where: str = "") -> list[str]:
    """What of the value the converter would refuse, or read as something else."""
    return list(_misfits(schema, value, where))


def _misfits(schema: dict[str, Any], value: Any, where: str) -> Iterator[str]:
    kind = schema["type"]
    if value is None:
        if not schema["optional"]:
            yield f"{where} is null"
    elif kind in _NESTED:
        yield from _NESTED[kind](schema, value, where)
    elif not _PLAIN[kind](value):
        yield f"{where} is {value!r}, not {kind}"


def _struct(schema: dict[str, Any], value: Any, where: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{where} is {value!r}, not a struct"
        return
    fields = {field["field"]: field for field in schema["fields"]}
    for name in value.keys() - fields.keys():
        yield f"{where}.{name} is unknown"
    for name, field in fields.items():
        yield from _misfits(field, value.get(name), f"{where}.{name}")


def _array(schema: dict[str, Any], value: Any, where: str) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"{where} is {value!r}, not an array"
        return
    for item in value:
        yield from _misfits(schema["items"], item, f"{where}[]")


def _map(schema: dict[str, Any], value: Any, where: str) -> Iterator[str]:
    """An object when its keys are strings, else an array of pairs."""
    if schema["keys"]["type"] == "string":
        pairs = list(value.items()) if isinstance(value, dict) else None
    else:
        pairs = value if isinstance(value, list) and all(isinstance(pair, list) for pair in value) else None
    if pairs is None:
        yield f"{where} is {value!r}, not a map"
        return
    for key, item in pairs:
        yield from _misfits(schema["keys"], key, f"{where} key")
        yield from _misfits(schema["values"], item, f"{where}[{key!r}]")


def _integer(bits: int) -> Callable[[Any], bool]:
    limit = 1 << (bits - 1)
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and -limit <= value < limit


def _float(value: Any) -> bool:
    # Jackson writes those that JSON cannot say as strings.
    return (isinstance(value, int | float) and not isinstance(value, bool)) or value in ("NaN", "Infinity", "-Infinity")


def _bytes(value: Any) -> bool:
    try:
        return isinstance(value, str) and base64.b64decode(value, validate=True) is not None
    except binascii.Error:
        return False


_NESTED = {"struct": _struct, "array": _array, "map": _map}
_PLAIN: dict[str, Callable[[Any], bool]] = {
    "boolean": lambda value: isinstance(value, bool),
    "int8": _integer(8),
    "int16": _integer(16),
    "int32": _integer(32),
    "int64": _integer(64),
    "float": _float,
    "double": _float,
    "string": lambda value: isinstance(value, str),
    "bytes": _bytes,
}
