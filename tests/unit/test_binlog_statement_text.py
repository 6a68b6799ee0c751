"""Statements are shown without their values, whatever they are quoted with."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psql_streamer.binlog.statement_text import hide_values

QUOTES = st.sampled_from(["'", '"', "N'", "_utf8mb4'", "X'"])


@pytest.mark.parametrize(
    ("statement", "shown"),
    [
        (b"INSERT INTO `a b`.t1 (x, y2) VALUES (1, 'it''s')", "INSERT INTO `a b`.t1 (x, y2) VALUES (?, ?)"),
        (b'UPDATE t SET a = "q", b = -2.5e-3 WHERE c = .5', "UPDATE t SET a = ?, b = -? WHERE c = ?"),
        (b"INSERT INTO t VALUES (0x4D, b'01', _utf8mb4'x', TRUE)", "INSERT INTO t VALUES (?, b?, _utf8mb4?, ?)"),
        (b"DELETE FROM t\n  WHERE a = 'b' -- secret\n  LIMIT 3 # secret", "DELETE FROM t WHERE a = ? LIMIT ?"),
        (b"DELETE /* secret */ FROM t /* secret", "DELETE FROM t"),
        (b"INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')", "INSERT INTO t VALUES (?, ?), ..."),
        (b"INSERT INTO t VALUES ('c:\\\\', 1)", "INSERT INTO t VALUES (?..."),
        (b"INSERT INTO t VALUES ('line\\n', 1)", "INSERT INTO t VALUES (?, ?)"),
        (b"UPDATE caf\xc3\xa9 SET `\xc3\xa9 1` = 'x'", "UPDATE caf\u00e9 SET `\u00e9 1` = ?"),
        (b"INSERT INTO t VALUES ('never ends", "INSERT INTO t VALUES (?"),
        (b"", ""),
    ],
)
def test_a_statement_is_shown_with_its_names_and_without_its_values(statement: bytes, shown: str) -> None:
    assert hide_values(statement) == shown


@given(
    quote=QUOTES,
    value=st.text(st.characters(codec="utf-8", exclude_characters="'\"\\"), max_size=20),
    other=st.sampled_from(["", "\\", "\\\\", "\\Q", "QQ", "\\n"]),
)
def test_no_part_of_a_value_is_shown_whatever_backslashes_mean(quote: str, value: str, other: str) -> None:
    end = other.replace("Q", quote[-1]) + quote[-1]
    statement = f"UPDATE t SET a = {quote}{value}seCret{end}, b = 'seCret', c = \"seCret\""
    assert "seCret" not in hide_values(statement.encode())


def test_a_value_that_is_longer_than_what_is_read_is_hidden() -> None:
    shown = hide_values(b"INSERT INTO t VALUES ('" + b"seCret" * 10_000 + b"')")
    assert shown == "INSERT INTO t VALUES (?..."


@pytest.mark.parametrize("quote", ["'", '"'])
def test_a_value_that_is_cut_behind_a_backslash_is_hidden(quote: str) -> None:
    cut = (f"INSERT INTO t VALUES ({quote}" + "seCret" * 1000)[:4095] + f"\\n{quote}, 'seCret')"
    assert hide_values(cut.encode()) == "INSERT INTO t VALUES (?..."


def test_a_long_statement_is_cut() -> None:
    shown = hide_values(b"UPDATE t SET " + b", ".join(b"column_%d = 1" % number for number in range(1000)))
    assert shown.startswith("UPDATE t SET column_0 = ?, column_1 = ?")
    assert len(shown) == 303
    assert shown.endswith("...")
