"""SQL conditions that people write, held against what may stand between two parentheses."""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"""
    (?P<rest> --[^\n]*
        | '(?:[^']|'')*'
        | "(?:[^"]|"")*"
        | \$(?P<tag>(?:[^\W\d]\w*)?)\$.*?\$(?P=tag)\$
        | [^\W\d][\w$]* | \d[\w$]*
        | \s+ )
    | (?P<other> /\* | . )
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPED = re.compile(r"[eE]'(?:[^'\\]|''|\\.)*'", re.DOTALL)
_COMMENT_BOUND = re.compile(r"/\*|\*/")


def require_condition(text: str) -> None:
    """ValueError unless the text stays within the parentheses that are put around it, and is one statement's part.

    Whether it is a condition on the table's columns, the server says. Its lexical rules: PostgreSQL documentation,
    "Lexical Structure".
    """
    at, depth = 0, 0
    while at < len(text):
        found = _ESCAPED.match(text, at) or _TOKEN.match(text, at)
        assert found is not None  # noqa: S101 - any character is a piece
        piece = found[0]
        at = found.end()
        if piece == "/*":
            at = _end_of_comment(text, at)
        elif piece in ("'", '"'):
            raise ValueError(f"has a {piece} that is not closed")
        elif piece == ";":
            raise ValueError("has a semicolon: it must be one condition")
        depth += {"(": 1, ")": -1}.get(piece, 0)
        if depth < 0:
            raise ValueError("closes a parenthesis that it does not open")
    if depth:
        raise ValueError("has a parenthesis that is not closed")
    if not text.strip():
        raise ValueError("is empty: leave it out to read all rows")


def _end_of_comment(text: str, at: int) -> int:
    depth = 1
    for bound in _COMMENT_BOUND.finditer(text, at):
        depth += 1 if bound[0] == "/*" else -1
        if not depth:
            return bound.end()
    raise ValueError("has a comment that is not closed")
