"""SQL conditions that people write, held against what may stand between two parentheses."""

from __future__ import annotations

import re

# PostgreSQL documentation, "Lexical Structure"; PostgreSQL source, scan.l: any character that is not ASCII may be part
# of a name, and a dollar in a name begins no string.
_PIECE = re.compile(
    r"""
    (?P<escaped> [eE]'(?:[^'\\]|''|\\.)*' )
    | --[^\n\r]*
    | '(?:[^']|'')*'
    | "(?:[^"]|"")*"
    | \$(?P<tag>(?:[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_\x80-\U0010ffff]*)?)\$.*?\$(?P=tag)\$
    | [A-Za-z_\x80-\U0010ffff][A-Za-z0-9_$\x80-\U0010ffff]*
    | /\*
    | .
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_BOUND = re.compile(r"/\*|\*/")
_NOTHING = re.compile(r"(?:\s|--[^\n\r]*)*")


def require_condition(text: str) -> None:
    """ValueError unless the text stays within the parentheses that are put around it, and is a part of one statement.

    Whether it is a condition on the table's columns, the server says. Its last line may be a comment.
    """
    if not text.strip():
        raise ValueError("is empty: leave it out to read all rows")
    at, depth = 0, 0
    while found := _PIECE.match(text, at):
        piece = found[0]
        at = _end_of_comment(text, found.end()) if piece == "/*" else found.end()
        if piece in ("'", '"'):
            raise ValueError(f"has a {piece} that is not closed")
        if piece in (";", "\0"):
            raise ValueError(f"has a {'semicolon' if piece == ';' else 'NUL'}: it must be one condition")
        if found["escaped"] and text.startswith("'", _NOTHING.match(text, at).end()):  # type: ignore[union-attr]
            raise ValueError("has a string of two parts: write it as one")
        depth += {"(": 1, ")": -1}.get(piece, 0)
        if depth < 0:
            raise ValueError("closes a parenthesis that it does not open")
    if depth:
        raise ValueError("has a parenthesis that is not closed")


def _end_of_comment(text: str, at: int) -> int:
    """Comments hold comments."""
    depth = 1
    for bound in _COMMENT_BOUND.finditer(text, at):
        depth += 1 if bound[0] == "/*" else -1
        if not depth:
            return bound.end()
    raise ValueError("has a comment that is not closed")
