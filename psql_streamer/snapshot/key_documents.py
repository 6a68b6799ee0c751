"""Keys as JSON documents -> the text forms of the key's columns, which a server reads as values of their types.

The formats event, envelope and flat write keys alike; debezium writes some types as numbers and bytes of its own, which
docs/events.md lists. Where a server reads another text than the stream has for a value, it says itself what the stream
has: no document decides what a DELETE's key looks like.
"""

from __future__ import annotations

import base64
import json
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta

from psql_streamer.event_reader.keys import decode_key_columns
from psql_streamer.model import Column, find_text_form
from psql_streamer.pgtype import JsonForm, Logical, PgType, PostgresType
from psql_streamer.pgtypes.builtin import BY_OID
from psql_streamer.pgtypes.modifiers import VARHDRSZ, decode_numeric_modifier
from psql_streamer.snapshots import KeyForm

_DAY_0, _MOMENT_0 = date(1970, 1, 1), datetime(1970, 1, 1)
_MILLISECONDS = 3
"""Digits of a second up to which debezium counts milliseconds."""

_NOT_FINITE = ("NaN", "Infinity", "-Infinity")


class BadKeyError(ValueError):
    """A document is no key of the table. The text has no value of it, and fits behind "is" or "has"."""


def read_key_documents(
    documents: Sequence[bytes], columns: Sequence[Column], form: KeyForm, first: int
) -> list[tuple[str, ...]]:
    """The text forms of each key, in the order of the columns. columns: of the key. first: the number of the first.

    Raises BadKeyError, whose text says which one it is about.
    """
    texts = tuple((column.name, _choose_reader(column, form)) for column in columns)
    found = []
    for number, document in enumerate(documents, first + 1):
        try:
            found.append(_read(document, texts))
        except BadKeyError as error:
            raise BadKeyError(f"key {number} {error}") from None
    return found


_Text = Callable[[bytes], str]
"""The JSON of a value -> its text form."""


def _read(document: bytes, texts: Sequence[tuple[str, _Text]]) -> tuple[str, ...]:
    members = decode_key_columns(document)
    if members.keys() != {name for name, _ in texts}:
        if members.keys() >= {"schema", "payload"}:
            raise BadKeyError("has a schema: say that it is in the form debezium")
        names = ", ".join(name for name, _ in texts)
        raise BadKeyError(f"does not name the columns of the table's key, which are {names}, and no others")
    return tuple(_read_member(name, text, bytes(members[name])) for name, text in texts)


def _read_member(name: str, text: _Text, written: bytes) -> str:
    try:
        found = text(written)
        found.encode()
    except (ValueError, OverflowError):  # UnicodeEncodeError is one: half of a pair of surrogates
        raise BadKeyError(f"has something in {name} that is no value of the column's type") from None
    if "\0" in found:
        raise BadKeyError(f"has a NUL in {name}")
    return found


def _choose_reader(column: Column, form: KeyForm) -> _Text:
    kind = find_text_form(column.type)
    assert kind is not None  # noqa: S101 - sources that look up keys have PostgreSQL's text forms
    known = kind.known or BY_OID.get(kind.oid)
    if known is None:
        return _read_plain
    if form is KeyForm.DEBEZIUM:
        return _choose_debezium_reader(known, kind)
    return _FORMS.get(known.form, _read_plain)


def _read_plain(written: bytes) -> str:
    """A string is its text. Numbers keep their digits."""
    lead = written[:1]
    if lead == b'"':
        text: str = json.loads(written)
        return text
    if lead in b"{[" or written == b"null":
        raise ValueError
    return written.decode()


def _read_document(written: bytes) -> str:
    return written.decode()


def _read_bytes(written: bytes) -> str:
    """Base64; a text that PostgreSQL writes is none, it begins with a backslash."""
    text = _read_plain(written)
    return text if text.startswith("\\x") else "\\x" + _decode_base64(text).hex()


def _decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except Base64Error:
        raise ValueError from None


_FORMS: Mapping[JsonForm, _Text] = {JsonForm.BASE64: _read_bytes, JsonForm.EMBEDDED: _read_document}


def _choose_debezium_reader(known: PgType, kind: PostgresType) -> _Text:
    modifier = known.base_typmod if known.base_oid else kind.typmod
    if known.element is not None or known.logical in _NOT_READ:
        return _refuse
    by_modifier = _BY_MODIFIER.get(known.logical)
    if by_modifier is not None:
        return by_modifier(modifier)
    return _BY_LOGICAL.get(known.logical, _read_plain)


def _refuse(_: bytes) -> str:
    """The same value stands for several, or may be its text form: nothing tells which."""
    raise ValueError


_NOT_READ = frozenset({Logical.BIT, Logical.VARBIT, Logical.MONEY, Logical.INTERVAL, Logical.POINT})


def _read_date(written: bytes) -> str:
    if written[:1] == b'"':
        return _read_plain(written)
    return (_DAY_0 + timedelta(int(written))).isoformat()


def _read_micros(written: bytes, modifier: int) -> int:
    return int(written) * (1000 if 0 <= modifier <= _MILLISECONDS else 1)


def _make_time_reader(modifier: int) -> _Text:
    def read(written: bytes) -> str:
        if written[:1] == b'"':
            return _read_plain(written)
        seconds, micros = divmod(_read_micros(written, modifier), 1_000_000)
        return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{micros:06}"

    return read


def _make_timestamp_reader(modifier: int) -> _Text:
    def read(written: bytes) -> str:
        if written[:1] == b'"':
            return _read_plain(written)
        return (_MOMENT_0 + timedelta(microseconds=_read_micros(written, modifier))).isoformat(" ")

    return read


def _make_numeric_reader(modifier: int) -> _Text:
    if modifier < VARHDRSZ:
        return _read_variable_decimal
    scale = decode_numeric_modifier(modifier).scale

    def read(written: bytes) -> str:
        text = _read_plain(written)
        # Where Debezium's decimal.handling.mode is double, a decimal is a number: its digits are no base64.
        return text if written[:1] != b'"' or text in _NOT_FINITE else _decode_decimal(text, scale)

    return read


def _read_variable_decimal(written: bytes) -> str:
    if written[:1] != b"{":
        return _read_plain(written)
    found = json.loads(written)
    if found.keys() != {"scale", "value"} or type(found["scale"]) is not int or type(found["value"]) is not str:
        raise ValueError
    return _decode_decimal(found["value"], found["scale"])


_MOST_DIGITS = 20_000
"""More than those behind a point of PostgreSQL's (numeric.c, NUMERIC_DSCALE_MAX)."""


def _decode_decimal(encoded: str, scale: int) -> str:
    """Base64 of an integer, which is the value times ten to the scale."""
    held = _decode_base64(encoded)
    if not held or len(held) > _MOST_DIGITS or abs(scale) > _MOST_DIGITS:
        raise ValueError
    number = int.from_bytes(held, "big", signed=True)
    # PostgreSQL writes a negative scale as digits in front of the point.
    digits = _render_digits(abs(number)) + "0" * -scale
    if scale > 0:
        digits = digits.rjust(scale + 1, "0")
        digits = f"{digits[:-scale]}.{digits[-scale:]}"
    return f"{'-' if number < 0 else ''}{digits}"


def _render_digits(number: int) -> str:
    """Of any length: Python's own conversion has a limit."""
    parts = []
    while number >= _PART:
        number, part = divmod(number, _PART)
        parts.append(f"{part:0{_PART_DIGITS}}")
    return "".join([str(number), *reversed(parts)])


_PART_DIGITS = 1000
_PART = 10**_PART_DIGITS

_BY_LOGICAL: Mapping[Logical, _Text] = {Logical.BYTES: _read_bytes, Logical.DATE: _read_date}
_BY_MODIFIER: Mapping[Logical, Callable[[int], _Text]] = {
    Logical.NUMERIC: _make_numeric_reader,
    Logical.TIME: _make_time_reader,
    Logical.TIMESTAMP: _make_timestamp_reader,
}
