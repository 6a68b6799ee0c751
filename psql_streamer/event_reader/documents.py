"""JSON texts of any depth. What Python's and msgspec's decoders read is as deep as their recursion goes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

DEPTH_OF_VALUES = 3
"""The objects that values lie in: the event, its block of columns, and around both that of a schema and its payload."""


class BrokenJsonError(Exception):
    """Some value is no JSON. Whoever found it in its record looked at the record's own fields alone."""


class Veiled(NamedTuple):
    """A JSON text of which each escape of a half of a surrogate pair is written otherwise: PostgreSQL's type json holds
    halves without their other half, and msgspec refuses these. mark: what stands in place of a `\\u`.
    """

    text: bytes
    mark: bytes

    def restore(self, part: bytes) -> bytes:
        """A part of the text as it was."""
        return part.replace(self.mark, b"\\u")


class Shallow(NamedTuple):
    """A JSON text of which what lies deeper is cut out. mark: a string that stands there alone. cut: what stood there,
    by the number behind the mark.
    """

    text: bytes
    mark: bytes
    cut: list[bytes]

    def restore(self, part: bytes) -> bytes:
        """A part of the text as it was."""
        if self.mark not in part:
            return part
        return re.sub(rb'"%s(\d+)"' % self.mark, lambda found: self.cut[int(found[1])], part)


def require_json(text: bytes) -> None:
    """Raises BrokenJsonError. Numbers have as many digits as they like: they are not converted."""
    try:
        _decode(text.decode())
    except RecursionError:
        for _ in _find_containers(text, 0):
            pass
    except ValueError:
        raise BrokenJsonError from None


def render_lead(number: int, name: str) -> bytes:
    """What stands in front of the value of an object's member, behind the brace or the member before."""
    return b'%s"%s":' % (b"," if number else b"", name.encode())


def veil_surrogates(text: bytes) -> Veiled | None:
    """None for a text without any."""
    mark = b"half"
    while mark in text:
        mark += b"-"
    veiled = _SURROGATE.sub(lambda found: found[0] if found[2] else found[1] + mark, text)
    return None if veiled == text else Veiled(veiled, mark)


_SURROGATE = re.compile(
    rb"((?<!\\)(?:\\\\)*)\\u(?:([dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|(?=[dD][89a-fA-F]))"
)
"""A whole pair, or the begin of the escape of a half, behind any number of escaped backslashes."""


def cut_out(text: bytes, depth: int) -> Shallow:
    """Cut the arrays and objects out that lie in so many others. Raises BrokenJsonError."""
    mark = b"cut"
    while mark in text:
        mark += b"-"
    kept: list[bytes] = []
    cut: list[bytes] = []
    end = 0
    for begin, behind in _find_containers(text, depth):
        kept += [text[end:begin], b'"%s%d"' % (mark, len(cut))]
        cut.append(text[begin:behind])
        end = behind
    return Shallow(b"".join([*kept, text[end:]]), mark, cut)


def _refuse_constant(name: str) -> None:
    """Python's decoder knows NaN and the infinities, which JSON does not."""
    raise ValueError(name)


_decode = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse_constant).decode

_TOKEN = re.compile(
    rb"""[ \t\n\r]*+(?:
    (?P<open>[\[{]) | (?P<close>[\]}]) | (?P<comma>,) | (?P<colon>:)
    | (?P<string>"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+")
    | (?P<scalar>true|false|null|-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+)
    | (?P<end>\Z)
    )""",
    re.VERBOSE,
)

_BRACKET, _BRACE = ord("["), ord("{")
_VALUE = {"open", "string", "scalar"}
_FIRST = {_BRACKET: _VALUE | {"close"}, _BRACE: {"name", "close"}}
_NEXT = {_BRACKET: _VALUE, _BRACE: {"name"}}
_CLOSES = {_BRACKET: ord("]"), _BRACE: ord("}")}


def _find_containers(text: bytes, depth: int) -> Iterator[tuple[int, int]]:
    """Where the arrays and objects that lie in so many others begin and end. Raises BrokenJsonError."""
    inside, expected = bytearray(), _VALUE
    begin = at = 0
    while at < len(text) or inside or expected is _VALUE:
        token = _TOKEN.match(text, at)
        kind = _classify_token(token, expected)
        at = token.end() if token else at
        if kind == "open":
            begin = at - 1 if len(inside) == depth else begin
            inside.append(text[at - 1])
        elif kind == "close":
            if _CLOSES[inside.pop()] != text[at - 1]:
                raise BrokenJsonError
            if len(inside) == depth:
                yield begin, at
        expected = _list_expected(kind, inside)


def _classify_token(token: re.Match[bytes] | None, expected: set[str]) -> str:
    kind = token and token.lastgroup
    if kind == "string" and "name" in expected:
        kind = "name"
    if kind is None or kind not in expected:
        raise BrokenJsonError
    return kind


def _list_expected(kind: str, inside: bytearray) -> set[str]:
    """What may follow. inside: the brackets that are open."""
    match kind:
        case "name":
            return {"colon"}
        case "colon":
            return _VALUE
        case "open":
            return _FIRST[inside[-1]]
        case "comma":
            return _NEXT[inside[-1]]
        case _:
            return {"comma", "close"} if inside else {"end"}
