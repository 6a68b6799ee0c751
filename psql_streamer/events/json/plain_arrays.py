"""Arrays whose text form is JSON but for its punctuation: rewritten by columns, without Python for an element.

Source: PostgreSQL documentation, "Array Input and Output Syntax": elements with quotes, backslashes, braces, delimiters
or white space are quoted, and so are empty ones and the word NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from psql_streamer.events.json.json_text import TO_THE_END, Piece, join
from psql_streamer.pgtype import JsonForm


@dataclass(frozen=True, slots=True)
class _Rewriting:
    """fits: what a value must look like. rewrite: whole values, null stays null."""

    fits: str
    rewrite: Callable[[pa.Array], pa.Array]


def render_arrays_by_columns(
    values: pa.Array, element: JsonForm, delimiter: str, one_by_one: Callable[[pa.Array], Piece]
) -> Piece:
    """JSON arrays; null stays null. one_by_one: for values that no rewriting fits, or of elements that have none."""
    return _rewrite_arrays(values, _REWRITINGS.get(element, ()) if delimiter == "," else (), one_by_one)


def _rewrite_arrays(
    values: pa.Array, rewritings: Sequence[_Rewriting], one_by_one: Callable[[pa.Array], Piece]
) -> Piece:
    if not rewritings:
        return one_by_one(values)
    first, *others = rewritings
    fits = pc.fill_null(pc.match_substring_regex(values, first.fits), True)
    if pc.all(fits).as_py() is not False:
        return Piece(first.rewrite(values))
    rest = _rewrite_arrays(values.filter(pc.invert(fits)), others, one_by_one)
    rewritten = first.rewrite(pc.if_else(fits, values, _NOTHING))
    return Piece(pc.replace_with_mask(rewritten, pc.invert(fits), join(rest.open, rest.values, rest.close)))


def _replace_substrings(values: pa.Array, *steps: tuple[bytes, bytes]) -> pa.Array:
    for old, new in steps:
        values = pc.replace_substring(values, old, new)
    return values


def _rewrite_numbers(values: pa.Array) -> pa.Array:
    return _replace_substrings(values, (b"{", b"["), (b"}", b"]"), (b"NULL", b"null"))


def _rewrite_bare_texts(values: pa.Array) -> pa.Array:
    # `{}` is the only text without quotes that becomes `[""]`.
    punctuation = (b",", b'","'), (b"{", b'["'), (b"}", b'"]')
    return _replace_substrings(values, *punctuation, (b'"NULL"', b"null"), (b'[""]', b"[]"))


def _rewrite_texts(values: pa.Array) -> pa.Array:
    """What stands between quotes is JSON already. Bare elements get marks, which quotes take the place of."""
    marked = pc.replace_substring_regex(values, f"({_QUOTED})|({_BARE})", "\\1\x01\\2\x02")
    elements = _replace_substrings(
        marked, (b"\x01\x02", b""), (b"\x01NULL\x02", b"null"), (b"\x01", b'"'), (b"\x02", b'"')
    )
    return pc.binary_replace_slice(pc.binary_replace_slice(elements, 0, 1, b"["), -1, TO_THE_END, b"]")


_NOTHING = pa.scalar(b"{}", pa.binary())
_QUOTED = r'"(?:[^"\\\x00-\x1f]|\\["\\])*"'
_BARE = r'[^{},"\\\x00-\x1f]+'
_ELEMENT = f"(?:{_QUOTED}|{_BARE})"

_NUMERIC = (_Rewriting(r"^\{[-+.,{}0-9eENUL]*\}$", _rewrite_numbers),)
_REWRITINGS = {
    JsonForm.INTEGER: _NUMERIC,
    JsonForm.NUMBER: _NUMERIC,
    JsonForm.TEXT: (
        _Rewriting(r'^\{[^"\\{}\x00-\x1f]*\}$', _rewrite_bare_texts),
        _Rewriting(rf"^\{{{_ELEMENT}(?:,{_ELEMENT})*\}}$", _rewrite_texts),
    ),
}
"""Form of the elements -> what is tried, in this order."""
