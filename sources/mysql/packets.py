"""The packets of a stream of events: taken off a socket in large pieces, and taken apart here.

A packet has 3 bytes of length, a number, and the payload; one of 2^24 - 1 bytes goes on in the next (MySQL source,
"MySQL Packets"). The payload of a dump begins with a byte: 0 and an event, 255 and an error, 254 for its end.
"""

from __future__ import annotations

from psql_streamer.errors import ProtocolError, SourceError, SourceUnavailable
from sources.mysql.server_errors import from_fields

_HEADER_BYTES = 4
_MOST_PAYLOAD = (1 << 24) - 1
_EVENT, _END, _ERROR = 0, 254, 255


class EventBuffer:
    """Bytes of the socket in, whole events out. `size`: bytes of events that wait. `failure`: how the stream ended."""

    def __init__(self) -> None:
        self.events: list[bytes] = []
        self.size = 0
        self.failure: SourceError | None = None
        self._rest = bytearray()
        self._parts: list[bytes] = []

    def feed(self, data: bytes | memoryview) -> None:
        """What came next."""
        self._rest += data
        with memoryview(self._rest) as rest:
            at = self._read_packets(rest)
        del self._rest[:at]

    def _read_packets(self, rest: memoryview) -> int:
        """How many bytes whole packets have."""
        at, end, events, size = 0, len(rest), self.events, 0
        while end - at >= _HEADER_BYTES and self.failure is None:
            length = rest[at] | rest[at + 1] << 8 | rest[at + 2] << 16
            begin = at + _HEADER_BYTES
            if end - begin < length:
                break
            at = begin + length
            if length == _MOST_PAYLOAD or self._parts:
                self._put_together(bytes(rest[begin:at]), length)
            elif length and rest[begin] == _EVENT:
                events.append(bytes(rest[begin + 1 : at]))
                size += length - 1
            else:
                self._end(bytes(rest[begin:at]))
        self.size += size
        return at

    def take(self, most_events: int, most_bytes: int) -> list[bytes]:
        """Events in their order: as many as the bounds allow, and one at least."""
        events, size, count = self.events, 0, 0
        for event in events:
            if count and (count >= most_events or size + len(event) > most_bytes):
                break
            size += len(event)
            count += 1
        taken = events[:count]
        del events[:count]
        self.size -= size
        return taken

    def _put_together(self, payload: bytes, length: int) -> None:
        self._parts.append(payload)
        if length == _MOST_PAYLOAD:
            return
        whole = b"".join(self._parts)
        self._parts.clear()
        if whole[0] != _EVENT:
            self._end(whole)
            return
        self.events.append(whole[1:])
        self.size += len(whole) - 1

    def _end(self, payload: bytes) -> None:
        if payload[:1] == bytes([_ERROR]):
            number = int.from_bytes(payload[1:3], "little")
            text = payload[3:].decode(errors="replace")
            self.failure = from_fields(number, text[6:] if text.startswith("#") else text)
        elif payload[:1] == bytes([_END]):
            self.failure = SourceUnavailable("the server ended the stream")
        else:
            self.failure = ProtocolError("the server sent a packet that is no event")
