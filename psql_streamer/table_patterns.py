"""Which entry of a section a table has: entries are names, globs and regular expressions, and one precedence holds.

1. the exact "schema.table"
2. the exact table
3. patterns, in the order of the file: a glob without a dot is compared with the table (`sales_*`), one with a dot with
   schema and table (`*.orders`), case counts; a regular expression stands between slashes (`/^sales_[0-9]+$/`) and is
   tried on "schema.table", then on the table
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import translate
from typing import Generic, TypeVar

Value = TypeVar("Value")

_GLOB = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class Fit(Generic[Value]):
    """An entry that fits a table. groups: what the groups of a regular expression matched, by number and by name."""

    entry: str
    value: Value
    groups: Mapping[str, str]


class TablePatterns(Generic[Value]):
    """entries: name or pattern -> what it stands for, in the order of the file.

    ValueError, naming the entry, for a regular expression that is none.
    """

    def __init__(self, entries: Mapping[str, Value]) -> None:
        self._exact = {entry: value for entry, value in entries.items() if not is_pattern(entry)}
        self._patterns = [(_Pattern(entry), value) for entry, value in entries.items() if is_pattern(entry)]

    def find(self, schema: str, table: str) -> Fit[Value] | None:
        """The entry that a table has."""
        return next(self.fitting(schema, table), None)

    def fitting(self, schema: str, table: str) -> Iterator[Fit[Value]]:
        """Every entry that fits a table; the first is the one that it has."""
        for name in (f"{schema}.{table}", table):
            if name in self._exact:
                yield Fit(name, self._exact[name], {})
        for pattern, value in self._patterns:
            if (groups := pattern.match(schema, table)) is not None:
                yield Fit(pattern.entry, value, groups)


def is_pattern(entry: str) -> bool:
    """Whether an entry is a glob or a regular expression."""
    return _is_regex(entry) or _GLOB.search(entry) is not None


def group_names(entry: str) -> tuple[str, ...]:
    """What Fit.groups has for an entry. ValueError as TablePatterns."""
    if not _is_regex(entry):
        return ()
    regex = _regex(entry)
    return (*map(str, range(regex.groups + 1)), *regex.groupindex)


class _Pattern:
    def __init__(self, entry: str) -> None:
        self.entry = entry
        self._schema: re.Pattern[str] | None = None
        if _is_regex(entry):
            self._table = _regex(entry)
        else:
            schema, dot, table = entry.partition(".")
            self._schema = re.compile(translate(schema if dot else "*"))
            self._table = re.compile(translate(table if dot else entry))

    def match(self, schema: str, table: str) -> dict[str, str] | None:
        """What the groups matched; None for no match."""
        if self._schema is not None:
            return {} if self._schema.match(schema) and self._table.match(table) else None
        found = self._table.search(f"{schema}.{table}") or self._table.search(table)
        if found is None:
            return None
        numbered = {str(number): found[number] or "" for number in range(self._table.groups + 1)}
        return numbered | {name: text or "" for name, text in found.groupdict().items()}


def _is_regex(entry: str) -> bool:
    return len(entry) > 2 and entry.startswith("/") and entry.endswith("/")


def _regex(entry: str) -> re.Pattern[str]:
    try:
        return re.compile(entry[1:-1])
    except re.error as error:
        raise ValueError(f"{entry} is not a regular expression: {error}") from None
