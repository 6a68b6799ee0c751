"""Values that stand in for others: of the same type and shape, and telling nothing of them.

A digit stands in for a digit and a letter for a letter. What is neither stays: signs, points, quotes, the @ of an
address. What a value stands in for depends on it and on a secret that is made for one capture and then forgotten.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections import defaultdict
from collections.abc import Iterator
from random import Random

from psql_streamer.pgtype import Logical, PgType
from psql_streamer.trial.stand_in_draws import (
    BOOLEAN,
    LONGEST_INTEGER,
    NUMBER,
    NUMERIC,
    Make,
    choose_maker,
    draw_distant_moment,
    draw_integer,
    draw_uuid,
    find_limit,
)

_STAND_IN_ATTEMPTS = 200
_LONGER_BY = 6
_JSON = re.compile(rf'"((?:[^"\\]|\\.)*)"(\s*:)?|({NUMBER.pattern})|true|false')
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_HSTORE = re.compile(rf"({_QUOTED}\s*=>\s*)({_QUOTED})")
_ARRAY_ELEMENT = re.compile(rf'({_QUOTED})|[^{{}},;"]+')
_ARRAY_BOX = re.compile(r'()[^{};"]+')
_FIELD = re.compile(r'("(?:[^"\\]|\\.|"")*")|[^,()"]+')


class StandIns:
    """Equal values have equal stand-ins, whatever column they are in, and different values different ones, as long as
    their type has as many.
    """

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._made: dict[tuple[str, str], str] = {}
        self._taken: dict[str, set[str]] = defaultdict(set)
        self._attempts: dict[tuple[Make, str], int] = defaultdict(lambda: _STAND_IN_ATTEMPTS)

    def replace_text(self, text: str, kind: PgType | None) -> str:
        """The stand-in of a text form."""
        if kind is not None and kind.element is not None:
            return self._replace_array(text, kind.element)
        if kind is not None and kind.attributes:
            return self._replace_composite(text, kind)
        if kind is not None and kind.logical is Logical.JSON:
            return self._replace_json(text)
        if kind is not None and kind.logical is Logical.HSTORE:
            return _HSTORE.sub(lambda found: found[1] + self._replace_quoted(found[2], None), text)
        group, make = choose_maker(kind)
        return self._find(text, group, make)

    def replace_uuid(self, text: str) -> str:
        """The stand-in of a UUID."""
        return self._find(text, "uuid", draw_uuid)

    def make_bytes(self, size: int) -> bytes:
        """So many bytes."""
        return secrets.token_bytes(size)

    def _find(self, text: str, group: str, make: Make) -> str:
        key = (group, text)
        if key not in self._made:
            self._made[key] = self._make_stand_in(text, group, make)
            self._taken[group].add(self._made[key])
        return self._made[key]

    def _make_stand_in(self, text: str, group: str, make: Make) -> str:
        """One that stands in for nothing else. Where there are too few, it is a character longer, or a date farther
        away.
        """
        for like, draw in _list_ways(text, group, make):
            found = self._draw_free(text, like, group, draw)
            if found is not None:
                return found
        return make(text, self._make_random(group, text, 0))

    def _draw_free(self, text: str, like: str, group: str, make: Make) -> str | None:
        taken, shape = self._taken[group], (make, _find_shape(like))
        for attempt in range(self._attempts[shape]):
            found = make(like, self._make_random(group, text, attempt))
            if found not in taken:
                return found
        # Few of this shape are left, and many values may follow: the next one does not search for them as long.
        self._attempts[shape] = max(1, self._attempts[shape] * 19 // 20)
        return None

    def _make_random(self, group: str, text: str, attempt: int) -> Random:
        given = f"{group}\0{attempt}\0{text}".encode("utf-8", "surrogateescape")
        return Random(hmac.digest(self._secret, given, "sha256"))  # noqa: S311 - the secret is in the seed

    def _replace_quoted(self, quoted: str, kind: PgType | None) -> str:
        inner = re.sub(r"\\(.)|\"\"", lambda found: found[1] or '"', quoted[1:-1], flags=re.DOTALL)
        return _quote_element(self.replace_text(inner, kind))

    def _replace_array(self, text: str, element: PgType) -> str:
        bounds, braces, elements = text.partition("={") if text.startswith("[") else ("", "", text)

        def other(found: re.Match[str]) -> str:
            if found[1]:
                return self._replace_quoted(found[1], element)
            if found[0] == "NULL":
                return found[0]
            made = self.replace_text(found[0], element)
            return made if element.name == "box" else _quote_if_needed(made)

        # Boxes have commas within and semicolons between them.
        return bounds + braces + (_ARRAY_BOX if element.name == "box" else _ARRAY_ELEMENT).sub(other, elements)

    def _replace_composite(self, text: str, kind: PgType) -> str:
        """Fields are told by the commas before them."""
        made, place, at = "", 0, 0
        for found in _FIELD.finditer(text):
            between = text[at : found.start()]
            place += between.count(",")
            attribute = kind.attributes[min(place, len(kind.attributes) - 1)].type
            other = (
                self._replace_quoted(found[1], attribute)
                if found[1]
                else _quote_if_needed(self.replace_text(found[0], attribute))
            )
            made += between + other
            at = found.end()
        return made + text[at:]

    def _replace_json(self, text: str) -> str:
        """With the names of its members."""

        def other(found: re.Match[str]) -> str:
            string, colon, number = found[1], found[2], found[3]
            if colon:
                return found[0]
            if string is not None:
                parts = re.split(r"(\\u[0-9a-fA-F]{4}|\\.)", string)
                return (
                    '"'
                    + "".join(self.replace_text(one, None) if at % 2 == 0 else one for at, one in enumerate(parts))
                    + '"'
                )
            if number is not None:
                return self._find(number, *(("integer", draw_integer) if number.lstrip("-").isdigit() else NUMERIC))
            return "true" if self._find(found[0][0], *BOOLEAN) == "t" else "false"

        return _JSON.sub(other, text)


def _list_ways(text: str, group: str, make: Make) -> Iterator[tuple[str, Make]]:
    """What a stand-in may be like and what draws it, one after the other until there is one that is free."""
    yield text, make
    if group == "moment":
        yield text, draw_distant_moment
    elif group == "integer":
        yield from ((like, make) for like in _list_other_lengths(text))
    elif group == "text":
        for longer in range(1, _LONGER_BY):
            yield text + text[-1:] * longer, make


def _list_other_lengths(text: str) -> Iterator[str]:
    """Integers with more digits, or fewer, that are of the same type."""
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    if digits.isdigit() and len(digits) <= LONGEST_INTEGER:
        limit = find_limit(int(digits) - bool(sign), len(digits))
        longer = range(len(digits) + 1, len(digits) + _LONGER_BY)
        for length in (*longer, *range(len(digits) - 1, 0, -1)):
            if 10 ** (length - 1) <= limit:
                yield f"{sign}1{'0' * (length - 1)}"


def _find_shape(text: str) -> str:
    """Equal for texts whose stand-ins are the same ones."""
    return re.sub(r"[^\W\d_]", "a", re.sub(r"\d", "0", text))


def _quote_element(text: str) -> str:
    """An element of an array, or a field of a row."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _quote_if_needed(text: str) -> str:
    return _quote_element(text) if text.upper() == "NULL" or re.search(r"[{}(),;\"\\\s]", text) else text
