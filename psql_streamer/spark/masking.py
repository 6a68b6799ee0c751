"""The `mask` of a rule: SQL expressions that put something else in the place of a column's values.

NULL stays NULL, and every expression reads its column, so that what an image lacks stays missing.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from psql_streamer.spark.options import NEED_SECRET, Mask
from psql_streamer.spark.quoting import quote_name, quote_text

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_ROUNDS = 6
"""Of the Feistel network; an even number leaves each half in its place."""

_SHIFTS_OF_BLOCK = 32
"""A SHA-512 in hex has 128 digits, four for each shift."""

_LONG_HALF = 8192
"""Characters of the other half of a text. Each block hashes all of it; of a longer one its HMAC, or the time that
a text takes would grow with the square of its length."""

_BLOCK_BYTES = 128  # of SHA-512 (RFC 2104, FIPS 180-4)


@dataclass(frozen=True, slots=True)
class Masking:
    """How a column is masked. secret: None where the method needs none."""

    how: Mask
    secret: str | None = field(default=None, repr=False)

    def render_expression(self, column: str, kind: DataType) -> str:
        """SQL of the masked values of a column of this type."""
        return _EXPRESSIONS[self.how.method](self, quote_name(column), kind)

    def describe_refusal(self, kind: DataType) -> str | None:
        """What to say of a type that the method does not take; None where it does."""
        name = kind.typeName()
        method = self.how.method
        if method in ("partial", "tokenise") and name != "string":
            return f'{method} takes text, and its type is {kind.simpleString()}: coerce it to "string"'
        if method in ("hash", "constant") and name in ("struct", "array", "map", "variant"):
            return f'{method} takes no {kind.simpleString()}: coerce the column to "string"'
        return None

    def render_constant_check(self, kind: DataType) -> str | None:
        """SQL of whether a constant is a value of the type; None where it always is one."""
        if self.how.method != "constant" or kind.typeName() == "string":
            return None
        return f"try_cast({_quote_constant(self.how)} AS {kind.simpleString()}) IS NOT NULL"


def make_masking(how: Mask, secret: str | None) -> Masking:
    """How a column is masked, with the secret only where it is needed."""
    return Masking(how, secret if how.method in NEED_SECRET else None)


def _hash(mask: Masking, column: str, kind: DataType) -> str:
    value = column if kind.typeName() == "binary" else f"CAST(CAST({column} AS STRING) AS BINARY)"
    return f"sha2(concat({_quote_bytes((mask.secret or '').encode())}, {value}), 256)"


def _mask_partially(mask: Masking, column: str, _: DataType) -> str:
    """A value of no more characters than are kept is masked whole."""
    first, last = mask.how.keep_first, mask.how.keep_last
    hidden = f"repeat('*', length({column}) - {first + last})"
    some = f"concat(left({column}, {first}), {hidden}, right({column}, {last}))"
    return f"CASE WHEN length({column}) > {first + last} THEN {some} ELSE repeat('*', length({column})) END"


def _replace_by_null(_: Masking, column: str, __: DataType) -> str:
    return f"IF({column} IS NULL, {column}, NULL)"


def _replace_by_constant(mask: Masking, column: str, kind: DataType) -> str:
    return f"CASE WHEN {column} IS NOT NULL THEN CAST({_quote_constant(mask.how)} AS {kind.simpleString()}) END"


def _quote_constant(how: Mask) -> str:
    return quote_text(str(how.value).lower() if isinstance(how.value, bool) else str(how.value))


def _tokenise(mask: Masking, column: str, _: DataType) -> str:
    """A permutation of the texts of one shape: digits become digits, letters letters of the same case, the rest stays.

    A Feistel network over the two halves of a text: each round moves the letters and digits of one half within their
    alphabets, as far as an HMAC of the other half says. Whatever that is, the round can be undone, so that two values
    never have the same token.
    """
    key = _Key.from_secret(mask.secret or "")
    half = f"length({column}) div 2"
    halves = f"named_struct('a', left({column}, {half}), 'b', substring({column}, {half} + 1))"
    short = key.render_hmac("concat('half:', s.b)")
    other = f"IF(length(s.b) > {_LONG_HALF}, {short}, s.b)"
    moved = _move_characters("s.a", other, key.render_hmac("concat(i, ':', j, ':', o)"))
    rounds = f"array({', '.join(map(str, range(_ROUNDS)))})"
    token = f"aggregate({rounds}, {halves}, (s, i) -> named_struct('a', s.b, 'b', {moved}), s -> concat(s.a, s.b))"
    message = f"concat('whole:', {column})"
    whole = f"left({key.render_hmac(message)}, 32)"
    return f"CASE WHEN {column} RLIKE '[^\\\\x00-\\\\x7F]' THEN {whole} ELSE {token} END"


def _move_characters(text: str, other: str, block: str) -> str:
    """The characters of a text moved by a stream of hex digits. block: SQL of the stream's block `j`, which is made of
    `o`, the name of `other`.

    A character is an element of an array, and a shift is looked for in its own block: to Spark the place of a
    character in a string is a walk through all that are in front of it.
    """
    blocks = f"transform(sequence(0, (length({text}) - 1) div {_SHIFTS_OF_BLOCK}), j -> {block})"
    digits = f"substring(k[p div {_SHIFTS_OF_BLOCK}], 4 * (p % {_SHIFTS_OF_BLOCK}) + 1, 4)"
    by = f"CAST(conv({digits}, 16, 10) AS INT)"
    cases = " ".join(
        f"WHEN c BETWEEN '{first}' AND '{last}' "
        f"THEN chr({ord(first)} + (ascii(c) - {ord(first)} + {by}) % {ord(last) - ord(first) + 1})"
        for first, last in ("09", "az", "AZ")
    )
    moved = f"transform(split({text}, ''), (c, p) -> CASE {cases} ELSE c END)"
    joined = _name_value("o", other, _name_value("k", blocks, f"array_join({moved}, '')"))
    return f"IF(length({text}) = 0, '', {joined})"


def _name_value(name: str, value: str, expression: str) -> str:
    """SQL of an expression in which a value has a name, and is computed once: transform over the one value gives it
    that."""
    return f"element_at(transform(array({value}), {name} -> {expression}), 1)"


@dataclass(frozen=True, slots=True)
class _Key:
    """The two keys of an HMAC (RFC 2104), as Spark has no function for it."""

    inner: bytes
    outer: bytes

    @classmethod
    def from_secret(cls, secret: str) -> _Key:
        """Not the secret itself, which `hash` puts in front of values."""
        key = hmac.digest(secret.encode(), b"psql-streamer tokenise", hashlib.sha512).ljust(_BLOCK_BYTES, b"\0")
        return cls(bytes(byte ^ 0x36 for byte in key), bytes(byte ^ 0x5C for byte in key))

    def render_hmac(self, text: str) -> str:
        """SQL of the HMAC-SHA-512 of a text, in hex."""
        inner = f"sha2(concat({_quote_bytes(self.inner)}, CAST({text} AS BINARY)), 512)"
        return f"sha2(concat({_quote_bytes(self.outer)}, unhex({inner})), 512)"


def _quote_bytes(value: bytes) -> str:
    return f"X'{value.hex()}'"


_EXPRESSIONS: dict[str, Callable[[Masking, str, DataType], str]] = {
    "hash": _hash,
    "partial": _mask_partially,
    "null": _replace_by_null,
    "constant": _replace_by_constant,
    "tokenise": _tokenise,
}
