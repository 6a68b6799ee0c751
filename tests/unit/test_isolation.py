"""Rows that cannot be taken are found with few attempts."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psql_streamer.errors import HandlerRefused, HandlerUnavailable
from psql_streamer.model import Changes
from psql_streamer.spark.chosen_rows import measure_rows, take_rows
from psql_streamer.spark.isolation import sort_out, sort_out_large
from tests.spark_changes import INSERT, changes, shop, values


def rows(*texts: bytes) -> Changes:
    return changes([INSERT] * len(texts), {row: [b"%d" % row, None, text, None] for row, text in enumerate(texts)}, {})


def refusing(bad: set[int], attempts: list[int]) -> Callable[[Changes], list[int]]:
    def attempt(some: Changes) -> list[int]:
        attempts.append(len(some))
        seqs: list[int] = some.seq.tolist()
        if bad.intersection(seqs):
            raise HandlerRefused("a bad row")
        return seqs

    return attempt


@given(st.integers(1, 40), st.sets(st.integers(0, 39)))
def test_every_row_is_taken_or_found_bad_in_its_order(count: int, bad: set[int]) -> None:
    attempts: list[int] = []
    found = sort_out(rows(*[b"x"] * count), refusing(bad, attempts), HandlerRefused)
    expected = {one for one in bad if one < count}
    assert [one.seq.tolist() for one, _ in found.bad] == [[one] for one in sorted(expected)]
    assert list(chain(*found.made)) == [one for one in range(count) if one not in expected]
    assert len(attempts) <= 1 + 2 * len(expected) * (1 + math.ceil(math.log2(count)))


def test_a_row_that_stands_out_is_taken_apart_first() -> None:
    attempts: list[int] = []
    given = rows(*[b"x"] * 500, b"y" * 100_000, *[b"x"] * 500)
    found = sort_out_large(given, refusing({500}, attempts), HandlerRefused)
    assert attempts == [1000, 1]
    assert [one.seq.tolist() for one, _ in found.bad] == [[500]]


@pytest.mark.parametrize("bad", [{0}, {999}, {3, 700}, set[int]()])
def test_where_size_is_not_the_reason_halves_find_the_row(bad: set[int]) -> None:
    attempts: list[int] = []
    given = rows(*[b"x"] * 500, b"y" * 100_000, *[b"x"] * 499)
    found = sort_out_large(given, refusing(bad, attempts), HandlerRefused)
    assert [one.seq.tolist() for one, _ in found.bad] == [[one] for one in sorted(bad)]
    assert sorted(chain(*found.made)) == [one for one in range(1000) if one not in bad]
    assert len(attempts) < 50


def test_another_failure_ends_the_search() -> None:
    def attempt(_: Changes) -> None:
        raise HandlerUnavailable("the engine does not start")

    with pytest.raises(HandlerUnavailable):
        sort_out(rows(b"x", b"y"), attempt, HandlerRefused)


def test_a_part_has_the_images_of_its_rows() -> None:
    whole = shop()
    some = take_rows(whole, whole.op != INSERT)
    assert some.seq.tolist() == [1, 2]
    assert (some.after.rows.tolist(), some.before.rows.tolist()) == ([0], [0, 1])
    assert (values(some, "id"), values(some, "id", "before")) == ([b"2"], [b"2", b"3"])
    assert measure_rows(whole).tolist() == [17, 31, 11, 9]
