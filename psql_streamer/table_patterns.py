"""Which entry of a section a table has: entries are names, globs and regular expressions, and one precedence holds.

1. the exact "schema.table"
2. the exact table
3. patterns, in the order of the file
4. the entry for all other tables, where the section has one, wherever it stands

What a pattern fits: a glob without a dot is compared with the table (`sales_*`), one with a dot with schema and table
(`*.orders`), case counts, and a table that has the glob itself as its name fits, too; a regular expression stands
between slashes (`/^sales_[0-9]+$/`) and is tried on "schema.table", then on the table. In [spark.tables] it is another
thing: see Globs. docs/configuration.md has all this for users.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import translate
from typing import Generic, Literal, TypeAlias, TypeVar

Value = TypeVar("Value")

Globs: TypeAlias = Literal["by name", "as a whole"]
"""by name: as above, schema and table apart. as a whole: a glob is compared with "schema.table", then with
the table, a dot being a character like any other; an entry with a glob's characters is a name, too; there are no
regular expressions.
"""

_GLOB = re.compile(r"[*?\[]")

_Groups: TypeAlias = Mapping[str, str]
_Match: TypeAlias = Callable[[str, str], _Groups | None]
"""(schema, table) -> what the groups of a pattern matched; None for no match."""


@dataclass(frozen=True, slots=True)
class Fit(Generic[Value]):
    """An entry that fits a table. groups: what the groups of a regular expression matched, by number and by name."""

    entry: str
    value: Value
    groups: Mapping[str, str]


class TablePatterns(Generic[Value]):
    """entries: name or pattern -> what it stands for, in the order of the file. last: the pattern of all other tables.

    ValueError, naming the entry, for a regular expression that is none.
    """

    def __init__(self, entries: Mapping[str, Value], last: str | None = None, globs: Globs = "by name") -> None:
        self._entries = entries
        whole = globs == "as a whole"
        self._names = {entry for entry in entries if whole or not is_pattern(entry)}
        patterns = sorted(filter(_is_glob if whole else is_pattern, entries), key=lambda entry: entry == last)
        self._patterns = [
            (entry, _make_whole_name_matcher(entry) if whole else _make_matcher(entry)) for entry in patterns
        ]

    def find(self, schema: str, table: str) -> Fit[Value] | None:
        """The entry that a table has."""
        return next(self.list_fitting(schema, table), None)

    def list_fitting(self, schema: str, table: str) -> Iterator[Fit[Value]]:
        """Every entry that fits a table; the first is the one that it has."""
        for name in list_exact_names(schema, table):
            if name in self._names:
                yield Fit(name, self._entries[name], {})
        for entry, match in self._patterns:
            if (groups := match(schema, table)) is not None:
                yield Fit(entry, self._entries[entry], groups)


def list_exact_names(schema: str, table: str) -> tuple[str, str]:
    """The names that an entry may have for a table, in the order of precedence."""
    return f"{schema}.{table}", table


def is_pattern(entry: str) -> bool:
    """Whether an entry is a glob or a regular expression."""
    return _is_regex(entry) or _is_glob(entry)


def group_names(entry: str) -> tuple[str, ...]:
    """What Fit.groups has for an entry. ValueError as TablePatterns."""
    if not _is_regex(entry):
        return ()
    regex = _compile_regex(entry)
    return (*map(str, range(regex.groups + 1)), *regex.groupindex)


def _make_matcher(entry: str) -> _Match:
    return _make_regex_matcher(entry) if _is_regex(entry) else _make_part_matcher(entry)


def _make_part_matcher(entry: str) -> _Match:
    of_schema, dot, of_table = entry.partition(".")
    schemas, tables = (
        re.compile(translate(of_schema if dot else "*")),
        re.compile(translate(of_table if dot else entry)),
    )

    def match(schema: str, table: str) -> _Groups | None:
        fits = schemas.match(schema) and tables.match(table)
        return {} if fits or entry in list_exact_names(schema, table) else None

    return match


def _make_whole_name_matcher(entry: str) -> _Match:
    regex = re.compile(translate(entry))

    def match(schema: str, table: str) -> _Groups | None:
        names = list_exact_names(schema, table)
        return {} if entry not in names and any(map(regex.match, names)) else None  # an exact name fits as such

    return match


def _make_regex_matcher(entry: str) -> _Match:
    regex = _compile_regex(entry)

    def match(schema: str, table: str) -> _Groups | None:
        found = next(filter(None, map(regex.search, list_exact_names(schema, table))), None)
        if found is None:
            return None
        numbered = {str(number): found[number] or "" for number in range(regex.groups + 1)}
        return numbered | {name: text or "" for name, text in found.groupdict().items()}

    return match


def _is_glob(entry: str) -> bool:
    return _GLOB.search(entry) is not None


def _is_regex(entry: str) -> bool:
    return len(entry) > 2 and entry.startswith("/") and entry.endswith("/")


def _compile_regex(entry: str) -> re.Pattern[str]:
    try:
        return re.compile(entry[1:-1])
    except re.error as error:
        raise ValueError(f"{entry} is not a regular expression: {error}") from None
