"""Which columns make the key of a record's row: those that its key names."""

from __future__ import annotations

from collections.abc import Sequence
from operator import methodcaller

import msgspec
from msgspec import Raw

from psql_streamer.event_reader.documents import DEPTH_OF_VALUES, BrokenJsonError, cut_out
from psql_streamer.event_reader.forms import NOT_OF_THE_FORMAT
from psql_streamer.event_reader.tables import Names

_NO_NAMES: Names = ()


class KeyNames:
    """Finds the columns of records' keys, most of which have those of the key before."""

    def __init__(self) -> None:
        self._begin = b""
        self._names = _NO_NAMES

    def find(self, key: bytes | None) -> Names:
        """See key_names. A key of one column that is a number has two quotation marks, around the column's name."""
        if key is not None and self._begin and key.startswith(self._begin) and key.count(b'"') == _QUOTES_OF_ONE:
            return self._names
        names = key_names(key)
        self._begin = b'{"%s":' % names[0].encode() if len(names) == 1 else b""
        self._names = names
        return names


_QUOTES_OF_ONE = 2


def names_of_all(keys: Sequence[bytes | None]) -> Names | None:
    """The columns of records' keys, if they are the same."""
    names = key_names(keys[0])
    if len(names) != 1 or None in keys:
        find = KeyNames().find
        return names if all(find(key) == names for key in keys) else None
    begin = b'{"%s":' % names[0].encode()
    joined = b"".join(keys)  # type: ignore[arg-type]  # no None is there
    same = all(map(methodcaller("startswith", begin), keys)) and joined.count(b'"') == _QUOTES_OF_ONE * len(keys)
    return names if same or all(key_names(key) == names for key in keys) else None


def key_names(key: bytes | None) -> Names:
    """The columns of a record's key; none for a key that is no JSON object."""
    if not key:
        return _NO_NAMES
    try:
        held = _decode_members(key)
        names = tuple(held)
        return tuple(_decode_members(bytes(held["payload"]))) if names == ("schema", "payload") else names
    except (BrokenJsonError, *NOT_OF_THE_FORMAT):
        return _NO_NAMES


def _decode_members(key: bytes) -> dict[str, Raw]:
    try:
        return _decode_key(key)
    except RecursionError:
        return _decode_key(cut_out(key, DEPTH_OF_VALUES).text)


_decode_key = msgspec.json.Decoder(dict[str, Raw]).decode
