"""The table of benchmarks: what it names exists, what its loads write is what they say, and its page has every line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.cases import CASES
from benchmarks.figures import NAMES, SHOWN, at_least, at_most
from benchmarks.load import Load
from benchmarks.tables import one_shape, own_shapes

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"


def test_goals_are_for_figures_that_are_shown_and_for_lines_that_come_before() -> None:
    known: set[str] = set()
    for case in CASES:
        assert case.name not in known
        for goal in case.goals:
            assert goal.figure in SHOWN.keys() & NAMES.keys()
            assert not goal.of or goal.of in known, f"{case.name} is held against {goal.of}"
        known.add(case.name)


def test_the_page_has_every_line_and_no_other() -> None:
    listed = PAGE.read_text().partition("## The benchmarks")[2].partition("\n## ")[0]
    lines = re.findall(r"^\| ((?:`[a-z0-9-]+`(?:, )?)+) \|", listed, re.MULTILINE)
    assert [name for line in lines for name in re.findall(r"`([^`]+)`", line)] == [case.name for case in CASES]


def test_a_thousand_shapes_are_a_thousand_and_the_same_every_time() -> None:
    tables = own_shapes(1000)
    assert len({table.columns for table in tables}) == 1000
    assert {table.columns.count(", ") - table.columns.count("(12, ") + 1 for table in tables} == {4, 5, 6, 7, 8}
    assert tables == own_shapes(1000)


@pytest.mark.parametrize(
    ("tables", "rows_per_transaction", "asked", "rows"),
    [(1, 1000, 200_000, 200_000), (1000, 1000, 1500, 2000), (100, 1, 150, 200), (7, 1000, 1, 994)],
)
def test_rows_are_rounded_up_to_whole_transactions_and_turns(
    tables: int, rows_per_transaction: int, asked: int, rows: int
) -> None:
    assert Load(one_shape(tables), 0, rows_per_transaction).with_rows(asked).rows == rows


def test_a_goal_is_missed_by_a_value_on_its_wrong_side_and_unknown_without_its_line() -> None:
    results = {"one": {"rate": 100.0, "cpu": 4.0}, "many": {"rate": 79.0, "cpu": 5.1}}
    assert at_least(0.8, "rate", of="one").value("many", results) == 0.79
    assert not at_least(0.8, "rate", of="one").is_reached(0.79)
    assert at_least(0.8, "rate", of="one").is_reached(0.8)
    assert not at_most(5, "cpu").is_reached(5.1)
    assert at_least(0.8, "rate", of="none").value("many", results) is None
    assert at_most(5, "cpu").value("none", results) is None
