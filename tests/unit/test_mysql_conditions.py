"""Conditions that people write for snapshots of MySQL sources stay within their parentheses."""

from __future__ import annotations

import pytest

from sources.mysql.snapshot.conditions import require_condition


@pytest.mark.parametrize(
    "text",
    [
        "id > 5",
        "a = ')' AND b = \"(\"",
        r"a = '\'' OR b = 'it''s'",
        r"a = '\') -- '",
        "`odd)name` = 1",
        "a = 1 -- a comment with )",
        "a = 1 # another )",
        "a /* ) */ > 1",
        "a--1 > 0",
        "(a = 1) OR (b IN (1, 2))",
    ],
)
def test_a_condition_is_accepted(text: str) -> None:
    require_condition(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty"),
        ("1) OR (1", "closes a parenthesis"),
        ("(a = 1", "not closed"),
        ("a = 1; DROP TABLE t", "semicolon"),
        (r"a = '\') OR 1 -- ", "not closed"),
        ("a = 'x", "not closed"),
        ("a = `x", "not closed"),
        ("a /* x", "comment that is not closed"),
        ("a = 1 /*! ) UNION SELECT 1 */", "read as SQL"),
        ("a = 1 /*M! ) */", "read as SQL"),
        ("a = --1)", "closes a parenthesis"),
    ],
)
def test_what_could_reach_out_of_them_is_refused(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        require_condition(text)
