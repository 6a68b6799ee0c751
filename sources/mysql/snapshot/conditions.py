"""SQL conditions that people write, held against what may stand between two parentheses."""

from __future__ import annotations

import re

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
    """ValueError unless the text stays within the parentheses that are put around it, and is a part of one statement.

    Whether it is a condition on the table's columns, the server says. Its last line may be a comment.
    """
    if not text.strip():
        raise ValueError("is empty: leave it out to read all rows")
    depth, at = 0, 0
    while found := _PIECE.match(text, at):
        piece = found[0]
        at = _end_of_comment(text, found.end()) if piece == "/*" else found.end()
        if piece in _QUOTES:
            raise ValueError(f"has a {piece} that is not closed")
        if piece in (";", "\0"):
            raise ValueError(f"has a {'semicolon' if piece == ';' else 'NUL'}: it must be one condition")
        depth += {"(": 1, ")": -1}.get(piece, 0)
        if depth < 0:
            raise ValueError("closes a parenthesis that it does not open")
    if depth:
        raise ValueError("has a parenthesis that is not closed")


def _end_of_comment(text: str, at: int) -> int:
    """What a comment of versions (`/*!`, `/*M!`) holds is SQL to some servers, and nothing to others."""
    if re.match(r"M?!", text[at : at + 2]):
        raise ValueError("has a comment that a server may read as SQL: write what is meant")
    end = text.find("*/", at)
    if end < 0:
        raise ValueError("has a comment that is not closed")
    return end + 2
