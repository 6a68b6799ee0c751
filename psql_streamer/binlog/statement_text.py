"""A statement as it may be shown: its words and names, and a question mark for each of its values."""

from __future__ import annotations

import re
from collections.abc import Iterator

_MOST_BYTES = 4096
"""How much of a statement is read; a value that is cut there is still hidden."""

_MOST_SHOWN = 300

_TOKEN = re.compile(
    rb"(?P<blank>(?:\s+|--(?=[\s]|$)[^\n]*|\#[^\n]*|/\*.*?(?:\*/|$))+)"
    rb"|(?P<name>`(?:[^`]|``)*(?:`|$))"
    rb"|(?P<word>[A-Za-z_$@\x80-\xff][\w$@\x80-\xff]*)"
    rb"|(?P<number>\.?\d[\w.]*(?:(?<=[eE])[+-]\d+)?)"
    rb"|(?P<text>'(?:[^'\\]|''|\\.)*(?:'|$)|\"(?:[^\"\\]|\"\"|\\.)*(?:\"|$)|['\"])"
    rb"|(?P<other>.)",
    re.DOTALL,
)
_AMBIGUOUS = re.compile(rb"\\['\"]")
_TRUTHS = (b"TRUE", b"FALSE")
_LISTS = re.compile(r"(\([?, ]*\))(?:, ?\1)+")


def hide_values(statement: bytes) -> str:
    """`UPDATE t SET a = ? WHERE id = ?`, at most 300 characters. Comments are left out.

    Whether a backslash in a text escapes what is behind it depends on sql_mode (NO_BACKSLASH_ESCAPES). From the first
    text for which that matters nothing is shown.
    """
    shown = "".join(_tokens(statement[:_MOST_BYTES]))
    shown = _LISTS.sub(r"\1, ...", " ".join(shown.split()))
    if len(shown) > _MOST_SHOWN:
        return shown[:_MOST_SHOWN] + "..."
    return shown + "..." if len(statement) > _MOST_BYTES and not shown.endswith("...") else shown


def _tokens(text: bytes) -> Iterator[str]:
    for token in _TOKEN.finditer(text):
        found = token.group()
        if token.lastgroup == "blank":
            yield " "
        elif token.lastgroup == "text" and _AMBIGUOUS.search(found):
            yield "?..."
            return
        elif token.lastgroup in ("text", "number") or found.upper() in _TRUTHS:
            yield "?"
        else:
            yield found.decode(errors="replace")
