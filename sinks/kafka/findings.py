"""Findings in such numbers that somebody reads them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice

from psql_streamer.interfaces import Finding, Severity
from psql_streamer.nearest import suggest_nearest

MOST_LISTED = 10
"""How many findings of a kind, and names in a list, are told one by one."""

_MOST_COMPARED = 20_000
"""How many names one review compares with misspelt ones: comparing 10,000 takes up to 0.2 s."""


def limit_findings(findings: Iterable[Finding]) -> Iterator[Finding]:
    """The first of findings of one kind, and how many more there are."""
    left = iter(findings)
    yield from islice(left, MOST_LISTED)
    rest = list(left)
    if rest:
        worst = Severity.ERROR if any(finding.severity is Severity.ERROR for finding in rest) else Severity.WARNING
        yield Finding(worst, f"{len(rest)} more findings like the one before", "as there")


def show_names(names: Sequence[str]) -> str:
    """`a, b, c`, and how many more there are."""
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return ", ".join(names[:MOST_LISTED]) + more


class Suggestions:
    """What may have been meant by names that are not known, as long as that is quickly said."""

    def __init__(self) -> None:
        self._left = _MOST_COMPARED

    def suggest_nearest(self, name: str, known: Collection[str]) -> str:
        """See nearest.suggest_nearest; empty when so many names were compared that it would take too long."""
        if len(known) > self._left:
            return ""
        self._left -= len(known)
        return suggest_nearest(name, known)
