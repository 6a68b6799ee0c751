"""SQL conditions that people write, held against what may stand between two parentheses."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sources.snapshot.conditions import require_balanced

# MySQL 8.4 Reference Manual, "Lexical Structure" (sql_mode is empty in sessions that read): a backslash escapes in
# strings, also in those between double quotes; two dashes begin a comment in front of white space alone.
_PIECE = re.compile(
    r"""
    \#[^\n]*
    | --(?=[\s\x00-\x1f]|$)[^\n]*
    | '(?:[^'\\]|''|\\.)*'
    | "(?:[^"\\]|""|\\.)*"
    | `(?:[^`]|``)*`
    | /\*
    | .
    """,
    re.VERBOSE | re.DOTALL,
)
_QUOTES = ("'", '"', "`")


def require_condition(text: str) -> None:
    """See require_balanced."""
    require_balanced(text, _split_pieces(text), _QUOTES)


def _split_pieces(text: str) -> Iterator[str]:
    at = 0
    while found := _PIECE.match(text, at):
        yield found[0]
        at = _end_of_comment(text, found.end()) if found[0] == "/*" else found.end()


def _end_of_comment(text: str, at: int) -> int:
    """What a comment of versions (`/*!`, `/*M!`) holds is SQL to some servers, and nothing to others."""
    if re.match(r"M?!", text[at : at + 2]):
        raise ValueError("has a comment that a server may read as SQL: write what is meant")
    end = text.find("*/", at)
    if end < 0:
        raise ValueError("has a comment that is not closed")
    return end + 2
