"""The promises of docs/behaviour.md, its index and the markers of the tests agree."""

from __future__ import annotations

from itertools import groupby

from tests import behaviour_page

TEXT = behaviour_page.PAGE.read_text()
PROMISED = behaviour_page.promised(TEXT)
MARKED = behaviour_page.marked()


def test_every_promise_has_an_id_of_its_own_numbered_from_1_in_each_group() -> None:
    groups = ["D", "S", "T", "K", "R", "O", "N", "B", "P", "G", "A"]
    assert [group for group, _ in groupby(PROMISED, lambda one: one[0])] == groups
    assert len(set(PROMISED)) == len(PROMISED)
    for group in groups:
        numbers = sorted(int(one[1:]) for one in PROMISED if one[0] == group)
        assert numbers == list(range(1, 1 + len(numbers))), group


def test_every_promise_is_checked_by_a_test() -> None:
    assert [one for one in PROMISED if one not in MARKED] == []


def test_every_marker_has_a_promise_on_the_page() -> None:
    assert sorted(set(MARKED) - set(PROMISED)) == []


def test_the_index_names_the_tests_that_are_marked() -> None:
    assert list(behaviour_page.indexed(TEXT)) == PROMISED
    assert behaviour_page.indexed(TEXT) == MARKED, "write it anew: python -m tests.behaviour_page"
