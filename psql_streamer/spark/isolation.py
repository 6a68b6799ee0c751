"""Finds the rows that a rule cannot take, with as few attempts as can be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from psql_streamer.errors import HandlerError
from psql_streamer.model import Changes
from psql_streamer.spark.chosen_rows import Chosen, measure_rows, take_rows

_Made = TypeVar("_Made")

_MOST_LARGE = 8
_LARGE_BYTES = 1 << 16


@dataclass(slots=True)
class SortedRows(Generic[_Made]):
    """made: what each attempt that succeeded gave. bad: the rows that could not be taken, each with its error."""

    made: list[_Made] = field(default_factory=list)
    bad: list[tuple[Changes, HandlerError]] = field(default_factory=list)

    def add(self, other: SortedRows[_Made]) -> None:
        """Take in another one."""
        self.made += other.made
        self.bad += other.bad


def sort_out(
    changes: Changes, attempt: Callable[[Changes], _Made], blames: type[HandlerError], known: bool = False
) -> SortedRows[_Made]:
    """All rows, taken or found bad.

    attempt: raises `blames` when some row of those that it is given is bad; whatever else it raises goes on. known:
    that one of these rows is bad is known already.
    """
    if not known:
        try:
            return SortedRows([attempt(changes)])
        except blames as error:
            if len(changes) == 1:
                return SortedRows([], [(changes, error)])
    elif len(changes) == 1:
        return _try_row(changes, attempt, blames)
    middle = np.arange(len(changes)) < len(changes) // 2
    found = sort_out(take_rows(changes, middle), attempt, blames)
    # Where the first half is well, the bad one is in the second.
    found.add(sort_out(take_rows(changes, ~middle), attempt, blames, known=not found.bad))
    return found


def sort_out_large(
    changes: Changes, attempt: Callable[[Changes], _Made], blames: type[HandlerError]
) -> SortedRows[_Made]:
    """Like sort_out with a bad row known to be there, for failures that come of a row's size: the largest go first."""
    large = _select_large_rows(changes)
    if not large.any() or large.all():
        return sort_out(changes, attempt, blames, known=True)
    try:
        found = SortedRows([attempt(take_rows(changes, ~large))])
    except blames:
        return sort_out(changes, attempt, blames, known=True)
    for row in np.flatnonzero(large):
        found.add(_try_row(take_rows(changes, np.arange(len(changes)) == row), attempt, blames))
    return found


def _try_row(row: Changes, attempt: Callable[[Changes], _Made], blames: type[HandlerError]) -> SortedRows[_Made]:
    try:
        return SortedRows([attempt(row)])
    except blames as error:
        return SortedRows([], [(row, error)])


def _select_large_rows(changes: Changes) -> Chosen:
    """The few rows that stand out."""
    bytes_of = measure_rows(changes)
    limit = max(_LARGE_BYTES, 4 * int(np.median(bytes_of)))
    order = np.argsort(bytes_of)[::-1][:_MOST_LARGE]
    chosen = np.zeros(len(changes), np.bool_)
    chosen[order] = bytes_of[order] >= limit
    return chosen
