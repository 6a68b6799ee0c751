"""A record whose value and key a schema registry described, as JSON."""

from __future__ import annotations

from psql_streamer.event_reader.parsed import Message
from psql_streamer.registry.frames import KEY_HEADER, VALUE_HEADER
from sources.kafka.wrapped import Wrapped

_OF_SCHEMAS = (VALUE_HEADER, KEY_HEADER)
_NO_JSON = b"\0"


class Decoded(Wrapped):
    """key, value: the JSON."""

    reason = ""

    def __init__(self, original: Message, key: bytes | None, value: bytes | None) -> None:
        super().__init__(original)
        self._key = key
        self._value = value

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        """But those that name schemas, which nothing of what goes out is of."""
        given = self.original.headers()
        return given and [one for one in given if one[0] not in _OF_SCHEMAS]


class Undecodable(Decoded):
    """One that cannot be read. reason: why. Its value is none of the formats, so that it is refused."""

    def __init__(self, original: Message, reason: str) -> None:
        super().__init__(original, None, _NO_JSON)
        self.reason = reason
