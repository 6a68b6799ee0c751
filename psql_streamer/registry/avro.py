"""Records of Avro's binary encoding to the JSON that Kafka Connect's JsonConverter makes of them.

Each schema becomes a reader of its values once. Logical types are the integers and texts that they are made of, as in
Debezium's JSON. Only decimals become numbers, and UUIDs of 16 bytes their text.

Bytes may be anything: what is not of the schema is refused, and nothing but that happens.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from psql_streamer.registry.errors import NotOfSchemaError, SchemaError
from psql_streamer.registry.numbers import MOST_SCALE, convert_double, convert_float, render_decimal

Read = Callable[[bytes, int], tuple[Any, int]]
"""Reads the value that begins at a place, and says where it ends. Raises one of _BROKEN."""

_BROKEN = (IndexError, ValueError, RecursionError, OverflowError, struct.error, MemoryError)

_MOST_EMPTY = 100
"""Items of an array beyond its bytes: items of no bytes, such as nulls. A few bytes could say millions of them."""


def make_avro_decoder(text: str, references: Sequence[str]) -> Callable[[bytes], bytes]:
    """What turns payloads of a schema into JSON; it raises NotOfSchemaError. references: schemas that this one names
    types of, each behind those that it needs itself. Raises SchemaError.
    """
    named: dict[str, Read] = {}
    try:
        for one in references:
            _Compiler(named).compile(json.loads(one), "")
        read = _Compiler(named).compile(json.loads(text), "")
    except SchemaError:
        raise
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError, OverflowError):
        raise SchemaError("it is no schema of Avro") from None

    def decode(payload: bytes) -> bytes:
        try:
            value, end = read(payload, 0)
            if end == len(payload):
                return msgspec.json.encode(value)
        except _BROKEN as error:
            raise NotOfSchemaError(_describe_error(error)) from None
        raise NotOfSchemaError(f"{len(payload) - end} bytes are left over behind the value")

    return decode


def _describe_error(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "its values are nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "a text is not UTF-8"
    if isinstance(error, _BrokenError):
        return str(error)
    return "it ends too early, or its bytes are not of the schema"


class _BrokenError(ValueError):
    """The text says what is wrong, without values."""


class _Compiler:
    """named: the types that have names, by these; those of this schema are added."""

    def __init__(self, named: dict[str, Read]) -> None:
        self._named = named

    def compile(self, schema: Any, namespace: str) -> Read:
        """The reader of values of a schema."""
        if isinstance(schema, str):
            return self._find(schema, namespace)
        if isinstance(schema, list):
            return _make_union_reader([self.compile(branch, namespace) for branch in schema], _find_null(schema))
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.compile(kind, namespace)
        match kind:
            case "record" | "error":
                return self._record(schema, namespace)
            case "enum":
                return self._add(schema, namespace, _make_enum_reader([str(symbol) for symbol in schema["symbols"]]))
            case "fixed":
                return self._add(schema, namespace, _make_fixed_reader(schema))
            case "array":
                return _make_array_reader(self.compile(schema["items"], namespace))
            case "map":
                return _make_map_reader(self.compile(schema["values"], namespace))
            case "bytes":
                scale = _find_decimal_scale(schema)
                return _read_bytes if scale is None else _make_decimal_reader(_read_bytes, scale)
        return self._find(kind, namespace)

    def _record(self, schema: Mapping[str, Any], namespace: str) -> Read:
        fields: list[tuple[str, Read]] = []

        def read(data: bytes, at: int) -> tuple[Any, int]:
            found = {}
            for name, read_field in fields:
                found[name], at = read_field(data, at)
            return found, at

        full = _make_full_name(schema, namespace)
        self._define(full, read)
        inner = full.rpartition(".")[0]
        fields += [(str(field["name"]), self.compile(field["type"], inner)) for field in schema["fields"]]
        return read

    def _add(self, schema: Mapping[str, Any], namespace: str, read: Read) -> Read:
        self._define(_make_full_name(schema, namespace), read)
        return read

    def _define(self, name: str, read: Read) -> None:
        self._named[name] = read

    def _find(self, name: str, namespace: str) -> Read:
        if name in _PRIMITIVES:
            return _PRIMITIVES[name]
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self._named.get(full) or self._named.get(name)
        if found is None:
            raise SchemaError(f"it names a type that neither it nor its references have: {full}")
        return found


def _make_full_name(schema: Mapping[str, Any], namespace: str) -> str:
    name = str(schema["name"])
    if "." in name:
        return name
    inside = schema.get("namespace", namespace)
    return f"{inside}.{name}" if inside else name


def _find_null(branches: Sequence[Any]) -> int | None:
    """Which branch is null."""
    return branches.index("null") if "null" in branches else None


def _find_decimal_scale(schema: Mapping[str, Any]) -> int | None:
    """None for bytes that are no decimal; a logical type that is not as Avro has it counts for nothing there."""
    scale = schema.get("scale", 0)
    is_decimal = schema.get("logicalType") == "decimal" and isinstance(scale, int) and abs(scale) <= MOST_SCALE
    return scale if is_decimal else None


def _read_null(_: bytes, at: int) -> tuple[None, int]:
    return None, at


def _read_boolean(data: bytes, at: int) -> tuple[bool, int]:
    byte = data[at]
    if byte > 1:
        raise _BrokenError("a boolean is neither 0 nor 1")
    return byte == 1, at + 1


def _read_long(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), at
    number, shift = byte & 127, 7
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
    if number > _LARGEST_VARINT:
        raise _BrokenError("an integer has more than 8 bytes")
    return (number >> 1) ^ -(number & 1), at


_LARGEST_VARINT = (1 << 64) - 1


def _read_int(data: bytes, at: int) -> tuple[int, int]:
    number, at = _read_long(data, at)
    if not -0x80000000 <= number <= 0x7FFFFFFF:
        raise _BrokenError("an integer of 4 bytes has more")
    return number, at


def _read_float(data: bytes, at: int) -> tuple[float | str, int]:
    return convert_float(_FLOAT.unpack_from(data, at)[0]), at + 4


def _read_double(data: bytes, at: int) -> tuple[float | str, int]:
    number = _DOUBLE.unpack_from(data, at)[0]
    # What is no number is not 0 when it is subtracted from itself.
    return (number if number - number == 0 else convert_double(number)), at + 8


_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")


def _read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = _read_long(data, at)
    end = at + length
    if length < 0 or end > len(data):
        raise _BrokenError("it ends within a value")
    return data[at:end], end


def _read_string(data: bytes, at: int) -> tuple[str, int]:
    length = data[at]
    if length < 128 and not length & 1:
        length >>= 1
        at += 1
    else:
        length, at = _read_long(data, at)
    end = at + length
    if length < 0 or end > len(data):
        raise _BrokenError("it ends within a value")
    return data[at:end].decode(), end


_PRIMITIVES: Mapping[str, Read] = {
    "null": _read_null,
    "boolean": _read_boolean,
    "int": _read_int,
    "long": _read_long,
    "float": _read_float,
    "double": _read_double,
    "bytes": _read_bytes,
    "string": _read_string,
}


def _make_decimal_reader(read_bytes: Read, scale: int) -> Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        unscaled, at = read_bytes(data, at)
        return render_decimal(unscaled, scale), at

    return read


def _make_enum_reader(symbols: Sequence[str]) -> Read:
    def read(data: bytes, at: int) -> tuple[str, int]:
        number, at = _read_long(data, at)
        if number < 0:
            raise _BrokenError("an enum has a number below 0")
        return symbols[number], at

    return read


def _make_fixed_reader(schema: Mapping[str, Any]) -> Read:
    size = int(schema["size"])

    def read(data: bytes, at: int) -> tuple[bytes, int]:
        end = at + size
        if end > len(data):
            raise _BrokenError("it ends within a value")
        return data[at:end], end

    def read_uuid(data: bytes, at: int) -> tuple[str, int]:
        value, at = read(data, at)
        return str(UUID(bytes=value)), at

    if size < 0:
        raise SchemaError("it has a type of less than no bytes")
    if size == _UUID_BYTES and schema.get("logicalType") == "uuid":
        return read_uuid
    scale = _find_decimal_scale(schema)
    return read if scale is None or not size else _make_decimal_reader(read, scale)


_UUID_BYTES = 16


def _make_array_reader(read_item: Read) -> Read:
    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        found: list[Any] = []
        start = at
        while True:
            count, at = _read_count(data, at)
            if not count:
                return found, at
            for _ in range(count):
                item, at = read_item(data, at)
                found.append(item)
            if len(found) > at - start + _MOST_EMPTY:
                raise _BrokenError(_TOO_MANY)

    return read


def _make_map_reader(read_value: Read) -> Read:
    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        while True:
            count, at = _read_count(data, at)
            if not count:
                return found, at
            for _ in range(count):
                name, at = _read_string(data, at)
                found[name], at = read_value(data, at)

    return read


def _read_count(data: bytes, at: int) -> tuple[int, int]:
    """The items of a block, and where the first one is. A negative count is followed by the bytes of the block."""
    count, at = _read_long(data, at)
    if count < 0:
        count = -count
        _, at = _read_long(data, at)
    if count > len(data) + _MOST_EMPTY:
        raise _BrokenError(_TOO_MANY)
    return count, at


_TOO_MANY = "an array or a map has more items than bytes"


def _make_union_reader(branches: Sequence[Read], null: int | None) -> Read:
    """A value is written as that of its branch."""
    if null is not None and len(branches) == 2:
        return _make_optional_reader(branches[1 - null], null)

    def read(data: bytes, at: int) -> tuple[Any, int]:
        number, at = _read_long(data, at)
        if number < 0:
            raise _BrokenError("a union has a branch below 0")
        return branches[number](data, at)

    return read


def _make_optional_reader(read_value: Read, null: int) -> Read:
    null_byte, value_byte = null << 1, (1 - null) << 1

    def read(data: bytes, at: int) -> tuple[Any, int]:
        byte = data[at]
        if byte == null_byte:
            return None, at + 1
        if byte != value_byte:
            raise _BrokenError("a union has a branch that the schema does not have")
        return read_value(data, at + 1)

    return read
