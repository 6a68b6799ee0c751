"""How many rows a `sql` source reads at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import pytest

from sources.sql.row_limits import FIRST_ROWS, RowLimits
from sources.sql.row_sizes import READ_BYTES, fetch_rows, measure_rows


def fetching(rows: Sequence[Sequence[Any]]) -> Callable[[int], list[Sequence[Any]]]:
    left: Iterator[Sequence[Any]] = iter(rows)
    return lambda most: list(islice(left, most))


@pytest.mark.parametrize("wide", ["x" * 1000, b"x" * 1000, bytearray(1000), memoryview(b"x" * 1000)])
@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_rows_are_read_until_they_hold_enough(wide: Any, at_once: int) -> None:
    rows = [*[(1, "a", None)] * 5, *[(2, wide, None)] * 5]
    found, cut = fetch_rows(fetching(rows), at_once, 1500)
    assert (5 <= len(found) <= 7, cut) == (True, True)
    assert fetch_rows(fetching(rows[-1:]), at_once, 10) == (rows[-1:], False)
    assert fetch_rows(fetching(rows), at_once, 10**6) == (rows, False)
    assert fetch_rows(fetching([]), at_once, 10**6) == ([], False)


def test_very_wide_rows_are_not_asked_for_in_tens() -> None:
    asked: list[int] = []

    def fetch(most: int) -> list[Sequence[Any]]:
        asked.append(most)
        return [("x" * 1000,)] * most

    found, cut = fetch_rows(fetch, 64, 10_000)
    assert (9 <= len(found) <= 10, cut, max(asked) < 10) == (True, True, True)
    asked.clear()
    fetch_rows(fetch, 64, 10**6)
    assert (asked[1:10], len(asked) < 30) == ([64] * 9, True)


def test_rows_of_values_of_several_types_are_measured() -> None:
    rows = [("x" * 100, None, b"y"), (7, None, 1.5), (b"z" * 100, None, "a")]
    assert 200 <= measure_rows(rows) <= 600


def test_fewer_rows_are_asked_for_where_they_are_wide_or_late() -> None:
    limits = RowLimits(10_000)
    assert limits.find_limit("t") == FIRST_ROWS
    limits.note_rows("t", 1000, 1000)
    assert limits.find_limit("t") == 10_000
    limits.note_rows("t", 10, READ_BYTES)
    assert (limits.find_limit("t"), limits.find_limit("other")) == (10, FIRST_ROWS)
    limits.note_rows("t", 10, 10)
    assert [limits.note_failure("t") for _ in range(6)] == [1250, 156, 19, 2, 1, 1]
    for _ in range(20):
        limits.note_rows("t", 1, 1)
    assert 20 < limits.find_limit("t") < 1000
