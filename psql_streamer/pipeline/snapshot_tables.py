"""Whether two snapshots could read the same table. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from psql_streamer.table_patterns import TablePatterns, is_pattern

_SPECIAL = re.compile(r"[*?\[]")


def find_overlap(asked: Sequence[str], others: Sequence[str]) -> str | None:
    """A table or pattern of which both have something; None where they share nothing. Empty is all tables: `*`.

    Of two patterns it is enough that they could fit the same table.
    """
    asked, others = asked or ["*"], others or ["*"]
    if same := sorted(set(asked) & set(others)):
        return same[0]
    return _find_fitting(others, asked) or _find_fitting(asked, others) or _find_alike(asked, others)


def _find_fitting(names: Sequence[str], patterns: Sequence[str]) -> str | None:
    """A name that an entry of the others fits."""
    entries = TablePatterns(dict.fromkeys(patterns))
    for name in names:
        schema, dot, table = name.partition(".")
        if not is_pattern(name) and entries.find(schema if dot else "", table if dot else name) is not None:
            return name
    return None


def _find_alike(asked: Sequence[str], others: Sequence[str]) -> str | None:
    """A pattern that may fit a table that a pattern of the others fits."""
    for one in filter(is_pattern, asked):
        if any(_may_fit_the_same(one, other) for other in others if is_pattern(other)):
            return one
    return None


def _may_fit_the_same(one: str, other: str) -> bool:
    """Globs that begin differently fit nothing in common; of others, and of regular expressions, it is assumed."""
    if any(pattern.startswith("/") or "." not in pattern for pattern in (one, other)):
        return True
    first, second = (_SPECIAL.split(pattern, maxsplit=1)[0] for pattern in (one, other))
    return first.startswith(second) or second.startswith(first)
