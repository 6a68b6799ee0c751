"""The headers of records that others than the service gave them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from psql_streamer.event_reader.parsed import Message
from psql_streamer.events.assembling import MOST_HEADER_NAMES, is_ours

Headers: TypeAlias = Sequence[tuple[str, bytes]]

_MOST_HEADER_PATTERNS = 1000


class _Pattern(NamedTuple):
    """Of records whose headers have the same names. places: of those that are read. theirs: how many are not ours."""

    places: Sequence[int]
    theirs: int


class HeaderReader:
    """Reads the headers of the records of one batch. For one thread.

    left_out: how many were not read because a row cannot have them: headers without a value, in front of others of
    the same name in one record, with a NUL in the name, of more names than MOST_HEADER_NAMES, and of markers.
    """

    def __init__(self) -> None:
        self.left_out = 0
        self._names: set[str] = set()
        self._patterns: dict[tuple[str, ...], _Pattern] = {}

    def read(self, message: Message) -> Headers:
        """Those of a row's record, which may be none."""
        given = message.headers()
        if not given:
            return ()
        pattern = self._look_up_pattern(tuple([name for name, _ in given]))
        if not pattern.theirs:
            return ()
        held = [(given[at][0], value) for at in pattern.places if (value := given[at][1]) is not None]
        self.left_out += pattern.theirs - len(held)
        return held

    def leave_out(self, message: Message) -> None:
        """Those of a marker's record."""
        self.left_out += sum(not is_ours(name) for name, _ in message.headers() or ())

    def _look_up_pattern(self, names: tuple[str, ...]) -> _Pattern:
        pattern = self._patterns.get(names)
        if pattern is None:
            if len(self._patterns) == _MOST_HEADER_PATTERNS:
                self._patterns.clear()
            pattern = self._patterns[names] = self._find(names)
        return pattern

    def _find(self, names: tuple[str, ...]) -> _Pattern:
        theirs = [name for name in names if not is_ours(name)]
        places = {name: at for at, name in enumerate(names) if not is_ours(name) and "\0" not in name}
        new = [name for name in places if name not in self._names]
        self._names.update(new[: MOST_HEADER_NAMES - len(self._names)])
        return _Pattern([at for name, at in places.items() if name in self._names], len(theirs))
