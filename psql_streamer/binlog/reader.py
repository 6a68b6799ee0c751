"""Reads the fields of one event, one behind the other."""

from __future__ import annotations

from psql_streamer.errors import ProtocolError


class Reader:
    """A cursor over data[at:end], of what is called `name`. ProtocolError when a field reaches beyond the end."""

    __slots__ = ("_data", "_end", "_name", "at")

    def __init__(self, data: bytes, name: str, at: int = 0, end: int | None = None) -> None:
        self._data = data
        self._name = name
        self._end = len(data) if end is None else end
        self.at = at

    def __len__(self) -> int:
        """Bytes that are left."""
        return self._end - self.at

    def read_integer(self, size: int) -> int:
        """An unsigned little-endian integer."""
        return int.from_bytes(self.take(size), "little")

    def read_big_endian(self, size: int) -> int:
        """An unsigned big-endian integer."""
        return int.from_bytes(self.take(size), "big")

    def read_packed(self) -> int:
        """A length-encoded integer: one byte below 251, else 252, 253 or 254 and 2, 3 or 8 bytes."""
        first = self.read_integer(1)
        if first < 251:
            return first
        if first not in _PACKED:
            raise ProtocolError(f"a {self._name} event has a length that is no length")
        return self.read_integer(_PACKED[first])

    def read_text(self) -> str:
        """A UTF-8 text with a length-encoded length in front."""
        return decode(self.take(self.read_packed()), self._name)

    def take(self, size: int) -> bytes:
        """So many bytes."""
        begin = self.at
        if size > self._end - begin:
            raise ProtocolError(f"a {self._name} event is shorter than its fields")
        self.at = begin + size
        return self._data[begin : self.at]

    def take_rest(self) -> bytes:
        """All bytes that are left."""
        return self.take(len(self))


_PACKED = {252: 2, 253: 3, 254: 8}


def decode(text: bytes, name: str) -> str:
    """UTF-8 of an event. ProtocolError when it is none."""
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise ProtocolError(f"a name in a {name} event is not UTF-8") from None
