"""PostgreSQL's array text form: `{1,NULL,"a,b",{2,3}}`, with `[2:3]={...}` when a bound is not 1.

Source: PostgreSQL documentation, "Array Input and Output Syntax".
"""

from __future__ import annotations

import re
from collections.abc import Callable

from psql_streamer.errors import ProtocolError

_BOUNDS = re.compile(r"^(?:\[[+-]?\d+:[+-]?\d+\])+=")


def to_json(text: str, element: Callable[[str], str], delimiter: str = ",") -> str:
    """The JSON array of an array's text form; `element` gives the JSON of one element's text form.

    Lower bounds are dropped: JSON has none. ProtocolError when the text is not an array.
    """
    body = _BOUNDS.sub("", text)
    token = _tokens(delimiter)
    parts: list[str] = []
    at = 0
    while at < len(body):
        found = token.match(body, at)
        if found is None:
            raise ProtocolError("an array value does not have PostgreSQL's text form")
        parts.append(_piece(found, element, delimiter))
        at = found.end()
    return "".join(parts)


def _piece(found: re.Match[str], element: Callable[[str], str], delimiter: str) -> str:
    if found["quoted"] is not None:
        return element(re.sub(r"\\(.)", r"\1", found["quoted"], flags=re.DOTALL))
    mark = found["mark"]
    if mark is not None:
        return {"{": "[", "}": "]", delimiter: ","}[mark]
    bare = found["bare"]
    return "null" if bare.upper() == "NULL" else element(re.sub(r"\\(.)", r"\1", bare, flags=re.DOTALL))


def _tokens(delimiter: str) -> re.Pattern[str]:
    mark = re.escape(delimiter)
    return re.compile(
        rf'"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<mark>[{{}}]|{mark})|(?P<bare>(?:[^{{}}"\\{mark}]|\\.)+)', re.DOTALL
    )
