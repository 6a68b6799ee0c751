"""A statement as it may be shown: its words and names, and a question mark for each of its values."""

from __future__ import annotations

import re
from collections.abc import Iterator

BLANK = rb"\s+|--(?=\s|\Z)[^\n]*|#[^\n]*|/\*(?!M?!)(?s:.*?)(?:\*/|\Z)"
"""Spaces and comments."""

EXECUTABLE = rb"/\*M?!"
"""Begins a comment that servers execute, if they are of its version: `/*!80000 ... */`, MariaDB's `/*M! ... */`."""

AMBIGUOUS = re.compile(rb"\\['\"]")
"""In a text: whether it ends there depends on sql_mode (NO_BACKSLASH_ESCAPES)."""

_MOST_STATEMENT_BYTES = 4096
"""How much of a statement is read; a value that is cut there is still hidden."""

_MOST_CHARACTERS_SHOWN = 300

_TOKEN = re.compile(
    rb"(?P<blank>(?:" + BLANK + rb")+)"
    rb"|(?P<executable>" + EXECUTABLE + rb")"
    rb"|(?P<name>`(?:[^`]|``)*(?:`|$))"
    rb"|(?P<word>[A-Za-z_$@\x80-\xff][\w$@\x80-\xff]*)"
    rb"|(?P<number>\.?\d[\w.]*(?:(?<=[eE])[+-]\d+)?)"
    rb"|(?P<text>'(?:[^'\\]|''|\\.)*(?:'|\\?\Z)|\"(?:[^\"\\]|\"\"|\\.)*(?:\"|\\?\Z))"
    rb"|(?P<other>.)",
    re.DOTALL,
)
_TRUTHS = (b"TRUE", b"FALSE")
_LISTS = re.compile(r"(\([?, ]*\))(?:, ?\1)+")


def hide_values(statement: bytes) -> str:
    """`UPDATE t SET a = ? WHERE id = ?`, at most 300 characters. Comments are left out.

    Whether a backslash in a text escapes what is behind it depends on sql_mode (NO_BACKSLASH_ESCAPES), and whether a
    comment is executed on the server's version. From the first text or comment for which that matters nothing is shown.
    """
    shown = "".join(_mask_tokens(statement[:_MOST_STATEMENT_BYTES]))
    shown = _LISTS.sub(r"\1, ...", " ".join(shown.split()))
    if len(shown) > _MOST_CHARACTERS_SHOWN:
        return shown[:_MOST_CHARACTERS_SHOWN] + "..."
    return shown + "..." if len(statement) > _MOST_STATEMENT_BYTES and not shown.endswith("...") else shown


def _mask_tokens(text: bytes) -> Iterator[str]:
    for token in _TOKEN.finditer(text):
        found = token.group()
        if token.lastgroup == "blank":
            yield " "
        elif token.lastgroup == "executable":
            yield "..."
            return
        elif token.lastgroup == "text" and AMBIGUOUS.search(found):
            yield "?..."
            return
        elif token.lastgroup in ("text", "number") or found.upper() in _TRUTHS:
            yield "?"
        else:
            yield found.decode(errors="replace")
