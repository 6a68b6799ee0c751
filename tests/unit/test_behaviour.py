"""docs/behaviour.md and the markers of the tests agree."""

from __future__ import annotations

from tests import behaviour_page

TEXT = behaviour_page.PAGE.read_text()
MARKED = behaviour_page.marked()


def test_every_line_of_the_page_is_held_by_a_test() -> None:
    ids = list(behaviour_page.listed(TEXT))
    groups = (("D", 14), ("S", 4), ("T", 9))
    assert ids == [f"{group}{number}" for group, last in groups for number in range(1, last + 1)]
    assert [one for one in ids if one not in MARKED] == []


def test_every_marker_has_a_line_on_the_page() -> None:
    assert set(MARKED) <= set(behaviour_page.listed(TEXT))


def test_the_page_names_the_tests_that_are_marked() -> None:
    assert behaviour_page.listed(TEXT) == MARKED, "write it anew: python -m tests.behaviour_page"
