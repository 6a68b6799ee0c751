"""Arrays whose text form is JSON but for its punctuation: rewritten by columns, with no look at single elements.

Source: PostgreSQL documentation, "Array Input and Output Syntax": elements with quotes, backslashes, braces, delimiters
or white space are quoted, and so are empty ones and the word NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from psql_streamer.events.json_text import Piece, join
from psql_streamer.pgtype import JsonForm


@dataclass(frozen=True, slots=True)
class _Rewriting:
    """plain: what a value must look like. steps: what is replaced by what, in this order."""

    plain: str
    steps: Sequence[tuple[bytes, bytes]]


_NUMBERS = _Rewriting(r"^\{[-+.,{}0-9eENUL]*\}$", ((b"{", b"["), (b"}", b"]"), (b"NULL", b"null")))
# `{}` is the only text without quotes that becomes `[""]`.
_TEXTS = _Rewriting(
    r'^\{[^"\\{}\x00-\x1f]*\}$',
    ((b",", b'","'), (b"{", b'["'), (b"}", b'"]'), (b'"NULL"', b"null"), (b'[""]', b"[]")),
)
_REWRITINGS = {JsonForm.INTEGER: _NUMBERS, JsonForm.NUMBER: _NUMBERS, JsonForm.TEXT: _TEXTS}


def array_json_by_columns(
    values: pa.Array, element: JsonForm, delimiter: str, one_by_one: Callable[[pa.Array], Piece]
) -> Piece:
    """JSON arrays; null stays null. one_by_one: for values that are not plain, or of elements without a rewriting."""
    rewriting = _REWRITINGS.get(element) if delimiter == "," else None
    if rewriting is None:
        return one_by_one(values)
    plain = pc.fill_null(pc.match_substring_regex(values, rewriting.plain), True)
    if not pc.any(plain).as_py():
        return one_by_one(values)
    rewritten = values
    for old, new in rewriting.steps:
        rewritten = pc.replace_substring(rewritten, old, new)
    if pc.all(plain).as_py():
        return Piece(rewritten)
    others = one_by_one(values.filter(pc.invert(plain)))
    return Piece(pc.replace_with_mask(rewritten, pc.invert(plain), join(others.open, others.values, others.close)))
