r"""PostgreSQL's composite text form: `(1,"a, \"\"b\"\"",)` is 1, `a, "b"` and NULL: a field with nothing in it.

Source: PostgreSQL documentation, "Composite Type Input and Output Syntax".
"""

from __future__ import annotations

import re

_FIELD = re.compile(rb'(?P<quoted>"(?:[^"\\]|""|\\.)*")|(?P<bare>(?:[^"\\,()]|\\.)*)', re.DOTALL)
_ESCAPED = re.compile(rb'\\(.)|""', re.DOTALL)


def parse(text: bytes, fields: int) -> list[bytes | None] | None:
    """The text forms of a value's fields (None: SQL NULL).

    None when the text is not a composite of so many fields: `()` is one of none, or of one that is NULL.
    """
    if not (text.startswith(b"(") and text.endswith(b")")):
        return None
    if not fields:
        return [] if text == b"()" else None
    found: list[bytes | None] = []
    at, end = 1, len(text) - 1
    while True:
        match = _FIELD.match(text, at, end)
        if match is None:
            return None
        quoted, bare = match["quoted"], match["bare"]
        if quoted is not None:
            found.append(_ESCAPED.sub(_unescape, quoted[1:-1]))
        else:
            found.append(_ESCAPED.sub(_unescape, bare) if bare else None)
        at = match.end() + 1
        if match.end() == end:
            return found if len(found) == fields else None
        if text[match.end()] != ord(","):
            return None


def _unescape(found: re.Match[bytes]) -> bytes:
    return found[1] if found[1] is not None else b'"'
