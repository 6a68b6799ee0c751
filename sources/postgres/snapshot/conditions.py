"""SQL conditions that people write, held against what may stand between two parentheses."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sources.snapshot.conditions import require_balanced

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
_QUOTES = ("'", '"')
_NOTHING = re.compile(r"(?:\s|--[^\n\r]*)*")


def require_condition(text: str) -> None:
    """See require_balanced."""
    require_balanced(text, _split_pieces(text), _QUOTES)


def _split_pieces(text: str) -> Iterator[str]:
    at = 0
    while found := _PIECE.match(text, at):
        yield found[0]
        at = _end_of_comment(text, found.end()) if found[0] == "/*" else found.end()
        if found["escaped"] and text.startswith("'", _NOTHING.match(text, at).end()):  # type: ignore[union-attr]
            raise ValueError("has a string of two parts: write it as one")


def _end_of_comment(text: str, at: int) -> int:
    """Comments hold comments."""
    depth = 1
    for bound in _COMMENT_BOUND.finditer(text, at):
        depth += 1 if bound[0] == "/*" else -1
        if not depth:
            return bound.end()
    raise ValueError("has a comment that is not closed")
