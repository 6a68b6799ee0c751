"""PostgreSQL's array text form: `{1,NULL,"a,b",{2,3}}`, with `[2:3]={...}` when a bound is not 1.

Source: PostgreSQL documentation, "Array Input and Output Syntax".
"""

from __future__ import annotations

import re
from functools import cache

_BOUNDS = re.compile(rb"(?:\[[+-]?\d+:[+-]?\d+\])+=")
_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)
_NULL = b"NULL"


def parse(text: bytes, delimiter: bytes = b",") -> tuple[list[bytes], list[bytes | None]] | None:
    """The JSON around the elements, and the elements' text forms (None: SQL NULL).

    `{{1,2},{3,4}}` gives `[[`, `,`, `],[`, `,`, `]]` and 1, 2, 3, 4: one gap more than elements. Lower bounds are
    dropped: JSON has none. None when the text is not an array.
    """
    bounds = _BOUNDS.match(text)
    body = text[bounds.end() :] if bounds else text
    if not (body.startswith(b"{") and body.endswith(b"}")):
        return None
    if len(body) > 2 and b'"' not in body and b"\\" not in body and b"{" not in body[1:]:
        plain = body[1:-1].split(delimiter)
        return [b"[", *[b","] * (len(plain) - 1), b"]"], [None if one.upper() == _NULL else one for one in plain]
    return _walk(body, delimiter)


def _walk(body: bytes, delimiter: bytes) -> tuple[list[bytes], list[bytes | None]] | None:
    marks = {b"{": b"[", b"}": b"]", delimiter: b","}
    token = _compile_token(delimiter)
    gaps, elements = [b""], list[bytes | None]()
    at = 0
    while at < len(body):
        found = token.match(body, at)
        if found is None:
            return None
        at = found.end()
        quoted, mark, bare = found["quoted"], found["mark"], found["bare"]
        if mark is not None:
            gaps[-1] += marks[mark]
            continue
        if quoted is not None:
            elements.append(_ESCAPED.sub(rb"\1", quoted))
        else:
            elements.append(None if bare.upper() == _NULL else _ESCAPED.sub(rb"\1", bare))
        gaps.append(b"")
    return gaps, elements


@cache
def _compile_token(delimiter: bytes) -> re.Pattern[bytes]:
    mark = re.escape(delimiter)
    return re.compile(
        rb'"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<mark>[{}]|%s)|(?P<bare>(?:[^{}"\\%s]|\\.)+)' % (mark, mark), re.DOTALL
    )
