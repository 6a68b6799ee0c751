"""Records of Protobuf to JSON: the names of fields as in the .proto file, and numbers as numbers, of any size.

Protobuf's own JSON is another one: it has strings for integers of 8 bytes, and leaves out what has its default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from psql_streamer.registry.errors import NotOfSchemaError, SchemaError
from psql_streamer.registry.numbers import convert_double, convert_float, render_decimal
from psql_streamer.registry.proto_files import read_proto_files

Convert = Callable[[Any], Any]
"""A value of Protobuf to what msgspec writes. Raises ValueError and RecursionError."""

_MOST_INDEXES = 100
"""Messages that lie in one another."""


def make_protobuf_decoder(text: str, references: Mapping[str, str]) -> Callable[[bytes], bytes]:
    """What turns payloads of a schema into JSON; it raises NotOfSchemaError. references: files that it imports, each
    behind those that it imports itself. Raises SchemaError.
    """
    files = read_proto_files(text, references)
    pool = DescriptorPool()
    try:
        for file in files:
            pool.AddSerializedFile(file.SerializeToString())
        pool.FindFileByName(files[-1].name)
    except (TypeError, KeyError):
        raise SchemaError("it is no schema of Protobuf, or imports what is not among its references") from None
    return _Decoder(pool, files[-1]).decode


class _Decoder:
    """file: the one whose messages records are of."""

    def __init__(self, pool: DescriptorPool, file: FileDescriptorProto) -> None:
        self._pool = pool
        self._file = file
        self._messages: dict[tuple[int, ...], tuple[type[Message], Convert]] = {}

    def decode(self, payload: bytes) -> bytes:
        """The JSON."""
        indexes, at = _read_indexes(payload)
        of_message, convert = self._messages.get(indexes) or self._find(indexes)
        try:
            return msgspec.json.encode(convert(of_message.FromString(payload[at:])))
        except DecodeError:
            raise NotOfSchemaError("it ends too early, or its bytes are not of the schema") from None
        except (ValueError, RecursionError, OverflowError):
            raise NotOfSchemaError("a time or a decimal in it is none, or it is nested too deeply") from None

    def _find(self, indexes: tuple[int, ...]) -> tuple[type[Message], Convert]:
        """The class of a message, which the indexes name from the outside to the inside."""
        within: FileDescriptorProto | DescriptorProto = self._file
        names = [self._file.package] if self._file.package else []
        for index in indexes:
            there = within.message_type if isinstance(within, FileDescriptorProto) else within.nested_type
            # Those of maps are made by protoc: they stand in no file.
            written = [one for one in there if not one.options.map_entry]
            if index >= len(written):
                raise NotOfSchemaError("it is of a message that the schema does not have")
            within = written[index]
            names.append(within.name)
        descriptor = self._pool.FindMessageTypeByName(".".join(names))
        found = GetMessageClass(descriptor), _make_converter(descriptor, {})
        self._messages[indexes] = found
        return found


def _read_indexes(payload: bytes) -> tuple[tuple[int, ...], int]:
    """The indexes in front of a message, and where that begins. A single 0 stands for the first message."""
    try:
        if payload[0] == 0:
            return (0,), 1
        count, at = _read_zigzag(payload, 0)
        if not 0 < count <= _MOST_INDEXES:
            raise NotOfSchemaError("it does not say of which message it is")
        indexes = []
        for _ in range(count):
            index, at = _read_zigzag(payload, at)
            if index < 0:
                raise NotOfSchemaError("it is of a message that the schema does not have")
            indexes.append(index)
    except IndexError:
        raise NotOfSchemaError("it ends too early") from None
    return tuple(indexes), at


def _read_zigzag(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
        if shift > _LONGEST_SHIFT:
            raise NotOfSchemaError("it does not say of which message it is")


_LONGEST_SHIFT = 35


def _make_converter(descriptor: Descriptor, known: dict[str, Convert]) -> Convert:
    """known: those of messages by their names; that of this one is added, and those of what lies in it."""
    fields: list[tuple[str, bool, Convert]] = []

    def convert(message: Any) -> dict[str, Any]:
        return {
            name: convert_field(getattr(message, name)) if not optional or message.HasField(name) else None
            for name, optional, convert_field in fields
        }

    known[descriptor.full_name] = convert
    fields += [(field.name, field.has_presence, _make_field_converter(field, known)) for field in descriptor.fields]
    return convert


def _make_field_converter(field: FieldDescriptor, known: dict[str, Convert]) -> Convert:
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        convert_value = _make_value_converter(message.fields_by_name["value"], known)
        return lambda held: {_render_map_key(name): convert_value(value) for name, value in held.items()}
    convert = _make_value_converter(field, known)
    if field.is_repeated:
        return lambda held: [convert(value) for value in held]
    return convert


def _make_value_converter(field: FieldDescriptor, known: dict[str, Convert]) -> Convert:
    if field.message_type is not None:
        return _make_message_converter(field.message_type, known)
    if field.enum_type is not None:
        return _make_enum_converter(field.enum_type)
    return _SCALARS.get(field.type, _as_it_is)


def _make_message_converter(message: Descriptor, known: dict[str, Convert]) -> Convert:
    name = message.full_name
    if name in _WRAPPERS:
        convert = _SCALARS.get(message.fields_by_name["value"].type, _as_it_is)
        return lambda held: convert(held.value)
    if name in _KNOWN:
        return _KNOWN[name]
    if name in known:
        return lambda held: known[name](held)
    return _make_converter(message, known)


def _make_enum_converter(enum: EnumDescriptor) -> Convert:
    names = {number: value.name for number, value in enum.values_by_number.items()}
    return lambda number: names.get(number, number)


def _render_map_key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _as_it_is(value: Any) -> Any:
    return value


_SCALARS: Mapping[int, Convert] = {
    FieldDescriptor.TYPE_FLOAT: convert_float,
    FieldDescriptor.TYPE_DOUBLE: convert_double,
}

_WRAPPERS = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
)

_KNOWN: Mapping[str, Convert] = {
    "google.protobuf.Timestamp": lambda held: held.ToJsonString(),
    "confluent.type.Decimal": lambda held: render_decimal(held.value, held.scale),
}
