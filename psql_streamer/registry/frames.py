"""The frame around a record that a registry's schema describes: byte 0, and the schema's id in 4 bytes, big endian.

Newer clients of Confluent's write the schema's GUID into a header of the record in place of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

VALUE_HEADER, KEY_HEADER = "__value_schema_id", "__key_schema_id"

_LENGTH = 5
_GUID_MARK, _GUID_LENGTH = 1, 16


class Frame(NamedTuple):
    """schema: the id, or the GUID as text. payload: what the schema describes."""

    schema: int | str
    payload: bytes


def find_frame(data: bytes | None) -> Frame | None:
    """None for data that does not begin as framed records do."""
    if data is None or len(data) < _LENGTH or data[0]:
        return None
    return Frame(int.from_bytes(data[1:_LENGTH], "big"), data[_LENGTH:])


def find_guid(headers: Sequence[tuple[str, bytes | None]], name: str) -> tuple[str, bytes] | None:
    """The GUID that a header of this name has, and what follows it there (Protobuf's message indexes)."""
    for header, value in headers:
        if header == name and value and value[0] == _GUID_MARK and len(value) > _GUID_LENGTH:
            return str(UUID(bytes=value[1 : _GUID_LENGTH + 1])), value[_GUID_LENGTH + 1 :]
    return None


def make_frame(schema: int) -> bytes:
    """What stands before what a schema describes. schema: its id."""
    return b"\x00" + schema.to_bytes(4, "big")
