"""Counts by names that others write."""

from __future__ import annotations

import pytest

from psql_streamer.name_counts import OTHERS, NameCounts, show_name


def test_names_beyond_the_bound_are_counted_together_and_the_sum_is_exact() -> None:
    counts = NameCounts(2)
    assert counts.add({"a": 1, "b": 2, "c": 3, "d": 4}) == ["a", "b", None]
    assert counts.add({"a": 10, "d": 20, "e": 30}) == []
    assert counts.copy_counts() == {"a": 11, "b": 2, OTHERS: 57}


def test_a_name_like_that_of_the_rest_is_a_name_and_loses_no_count() -> None:
    counts = NameCounts(1)
    assert counts.add({OTHERS: 1}) == [OTHERS]
    assert counts.add({"a": 2}) == [None]
    assert counts.copy_counts() == {OTHERS: 3}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("", ""),
        ("Zoë 🐘", "Zoë 🐘"),
        ("x" * 63, "x" * 63),
        ("x" * 64, "x" * 63 + "..."),
        ("a\r\n\t\x00b", r"a\r\n\t\x00b"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\u2028\u202e\ud800", r"\u2028\u202e\ud800"),
    ],
)
def test_a_name_is_shown_on_one_line_and_cut(name: str, text: str) -> None:
    assert show_name(name) == text
