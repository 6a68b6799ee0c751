"""Counts by names that others write, and how such names are shown: bounded in number and in length."""

from __future__ import annotations

from collections.abc import Mapping

OTHERS = "(others)"
"""Stands for all names beyond those that are counted by themselves."""

MOST_PREFIXES = 100
"""Prefixes of logical messages that are counted by themselves. Any user of a database can write any number of them."""

_MOST_CHARACTERS = 63
"""How many characters of a name are shown: PostgreSQL's own names have no more bytes (NAMEDATALEN is 64)."""


def show_name(name: str) -> str:
    """A name for logs and counters: on one line, and cut when it is longer than a table's can be.

    Characters that a terminal may not show as they are (control characters, line ends, marks that turn the direction of
    writing) are escaped as in Python.
    """
    cut = f"{name[:_MOST_CHARACTERS]}..." if len(name) > _MOST_CHARACTERS else name
    return escape_unprintable(cut)


def escape_unprintable(text: str) -> str:
    """On one line, and without what steers a terminal: such characters are escaped as in Python."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


class NameCounts:
    """Counts by name. The first `most` names are counted by themselves, the rest together as OTHERS."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._counts: dict[str, int] = {}
        self._rest = 0

    def add(self, counts: Mapping[str, int]) -> list[str | None]:
        """Count these. Returns the names that were not counted before, and None when it is the first time that one has
        no place of its own.
        """
        new: list[str | None] = []
        for name, count in counts.items():
            if name not in self._counts and len(self._counts) >= self._most:
                new += [] if self._rest else [None]
                self._rest += count
                continue
            new += [] if name in self._counts else [name]
            self._counts[name] = self._counts.get(name, 0) + count
        return new

    def copy_counts(self) -> dict[str, int]:
        """The counts so far. From any thread."""
        counts = self._counts.copy()
        if self._rest:
            counts[OTHERS] = counts.get(OTHERS, 0) + self._rest
        return counts
